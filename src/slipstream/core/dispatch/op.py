"""The one door in: every call of an op comes through here.

A call's operands give a key (their interned specs, kinds of numbers, static arguments, whether
gradients are wanted); the key gives a plan, made at the first sight; the plan is carried out:
memory for the results, the launch, the tape.  Nothing else decides device, promotion, mode or
autograd.
"""

from __future__ import annotations

import time
from math import copysign
from typing import Any

import cython
import numpy as np

from slipstream.core.dispatch.arguments import NumPyScalarError, places_of, without_numpy
from slipstream.core.dispatch.carrying import IN_PLACE, LONG, OUT, PLAIN, OpCore, wiring
from slipstream.core.dispatch.plans import PlanTable, disown, drop_plans, target_key
from slipstream.core.dispatch.signature import (
    NUMBER,
    STATIC,
    STATIC_NUMBER,
    TENSOR_OR_NUMBER,
    TENSORS,
)
from slipstream.core.dispatch.tracing import begin_planning, emit_plan, end_planning
from slipstream.core.dispatch.ways import Way
from slipstream.core.engine.tape import Tape, tape
from slipstream.core.launch.door import LaunchDoor, door
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.dtypes import DType, float64
from slipstream.core.vocab.errors import MixedDeviceError
from slipstream.core.vocab.modes import ModeState, ModeTable, modes
from slipstream.core.vocab.records import KERNEL, Plan, Spec, TensorBase
from slipstream.core.vocab.ring import TAPE, Ring
from slipstream.core.vocab.settings import settings

if not cython.compiled:
    from slipstream.core.dispatch import quick

__all__ = ["IN_PLACE", "OUT", "PLAIN", "LaunchDoor", "ModeTable", "Op", "PlanTable", "Ring",
           "Spec", "Tape", "Way", "drop_plans", "plan_table", "wiring"]


# Two forms as C numbers: compared without objects.
_plain, _in_place = PLAIN, IN_PLACE
# Marks short keys of calls with keywords.
BOUND = "bound"
# What stands for bools in keys, as True equals 1.
YES, NO = object(), object()


class Op(OpCore):
    """An op: a signature, a builder of plans, and the plans made so far.

    ``call(args, kwargs)`` is the boxed form that every op has; ``call1`` and ``call2`` are the
    short ways of the operator slots.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the op; see the entry's documentation."""
        if kwargs:
            out = kwargs.pop("out", None)
            if out is not None:
                return self.call_out(args, kwargs, out)
        return self.call(args, kwargs)

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """The boxed call: positional and keyword arguments in containers."""
        if self.lone and len(args) == 1 and not kwargs and isinstance(args[0], TensorBase):
            if not modes.current().special & self.heeds:
                return self.call1(args[0])
        if (self.recent is not None and len(args) == 2 and not kwargs
                and modes.listeners is None and self._is_recent(args)):
            return self.call2(args[0], args[1])
        state: ModeState = modes.current()
        modes.note_site(state)
        if state.special & self.heeds:
            return wiring.special(self, state, args, kwargs, None, PLAIN)
        if self.compound or modes.listeners is not None:
            return self.dispatch(state, self.bind(args, kwargs), None, PLAIN)
        way: Way | None = (self.ways.find(state, args, kwargs, _plain) if cython.compiled
                           else None)
        if way is not None:
            return _go(self, way, state, args, kwargs, None)
        bound: tuple = self.bind(args, kwargs) if kwargs else args
        key = _short_key(self, state, bound)
        if kwargs and key is not None:
            # Apart from positional calls, which may not give what is for keywords alone.
            key = (BOUND, key)
        found = self.binary.get(key)
        if found is None:
            return self._first_call(key, state, bound if kwargs else self.bind(args, None),
                                    (args, kwargs))
        plan: Plan = found
        plan.used = True
        _note_way(self, plan, state, args, kwargs, PLAIN)
        if not (plan.bare or kwargs):
            bound = self.bind(bound, None)
        return self._carry_out(plan, state, bound, None, PLAIN)

    def _first_call(self, key: Any, state: ModeState, values: tuple[Any, ...],
                    given: tuple[Any, ...]) -> Any:
        if key is None:
            return self.dispatch(state, values, None, PLAIN)
        plan: Plan
        try:
            plan = self.plan_for(state, values, None, PLAIN)
        except _RESTATED as error:
            return self._gathered(state, values, None, error)
        # A plan kept in the table, and not found by another short key already.
        if plan.key and plan.short_key is None:
            self.binary[key] = plan
            plan.short_key = key
            plan.bare = self._is_bare(plan)
        elif plan.key:
            # Its short key is that of a call in other words.
            _note_way(self, plan, state, given[0], given[1], PLAIN)
        return self._carry_out(plan, state, values, None, PLAIN)

    def call1(self, a: Any) -> Any:
        """Call with one operand."""
        state: ModeState = modes.current()
        modes.note_site(state)
        if not isinstance(a, TensorBase) or state.special & self.heeds:
            return self.call((a,), None)
        x: TensorBase = a
        flags: cython.int = 0
        if x.record is not None or x.base is not None:
            if state.grad_enabled and tape.requires_grad(x):
                flags = 1
        plan: Plan
        if (cython.compiled and self.recent is not None and self.recent_left is x.spec
                and self.recent_right is None and self.recent_flags == flags):
            plan = self.recent
        else:
            key: tuple = (x.spec, flags)
            found = self.binary.get(key)
            if found is None:
                return self._first_call1(key, state, a)
            plan = found
            _note_recent(self, plan, x.spec, None, flags)
        plan.used = True
        out: TensorBase = self._new(plan.out_spec, plan.backend)
        door.submit(plan, (out, a), ())
        if flags and plan.rule is not None:
            _record_short(plan, (a,), self.tails[1], out, state)
        return out

    def _first_call1(self, key: tuple[Any, ...], state: ModeState, a: Any) -> Any:
        values = self.bind((a,), None)
        if self.compound:
            return self._compound(values)
        # What `_short_key` makes of it: the key of a plan that the short way cannot carry out.
        longer: tuple = (key[1], key[0])
        found = self.binary.get(longer)
        plan: Plan
        if found is not None:
            plan = found
            plan.used = True
            return self._carry_out(plan, state, values, None, PLAIN)
        plan = self.plan_for(state, values, None, PLAIN)
        if plan.key and plan.short_key is None:
            short = (plan.kind == KERNEL and plan.outputs == 1 and plan.operands == (0,)
                     and not plan.numbers and plan.prepare is None)
            plan.short_key = key if short else longer
            plan.bare = not short and self._is_bare(plan)
            self.binary[plan.short_key] = plan
        return self._carry_out(plan, state, values, None, PLAIN)

    def call2(self, a: Any, b: Any) -> Any:
        """Call with two operands: the road of ``a + b``, with nothing on it that can be spared."""
        state: ModeState = modes.current()
        modes.note_site(state)
        x: TensorBase
        flags: cython.int = 0
        ka: object
        kb: object
        if isinstance(a, TensorBase):
            x = a
            ka = x.spec
            if x.record is not None or x.base is not None:
                if state.grad_enabled and tape.requires_grad(x):
                    flags = 1
        else:
            ka = type(a)
        if isinstance(b, TensorBase):
            x = b
            kb = x.spec
            if x.record is not None or x.base is not None:
                if state.grad_enabled and tape.requires_grad(x):
                    flags += 2
        else:
            kb = type(b)
        plan: Plan
        if (cython.compiled and self.recent is not None and self.recent_left is ka
                and self.recent_right is kb and self.recent_flags == flags
                and not state.special & self.heeds):
            plan = self.recent
        else:
            key: tuple = (ka, kb, flags)
            found = self.binary.get(key)
            if found is None or state.special & self.heeds:
                return self._first_call2(key, state, a, b)
            plan = found
            _note_recent(self, plan, ka, kb, flags)
        plan.used = True
        out: TensorBase = self._new(plan.out_spec, plan.backend)
        if len(plan.operands) == 2:
            door.submit(plan, (out, a, b), ())
        elif isinstance(a, TensorBase):
            door.submit(plan, (out, a), (b,))
        else:
            door.submit(plan, (out, b), (a,))
        if flags and plan.rule is not None:
            _record_short(plan, (a, b), self.tails[2], out, state)
        return out

    def _first_call2(self, key: tuple[Any, ...], state: ModeState, a: Any, b: Any) -> Any:
        args: tuple = (a, b)
        if state.special & self.heeds:
            return wiring.special(self, state, args, None, None, PLAIN)
        values = self.bind(args, None)
        if self.compound:
            return self._compound(values)
        # The key of a plan that the short way cannot carry out.
        longer: tuple = (LONG, key)
        found = self.binary.get(longer)
        plan: Plan
        if found is not None:
            plan = found
            plan.used = True
            return self._carry_out(plan, state, values, None, PLAIN)
        try:
            plan = self.plan_for(state, values, None, PLAIN)
        except _RESTATED as error:
            return self._gathered(state, values, None, error)
        wanted = tuple([i for i in (0, 1) if isinstance(args[i], TensorBase)])
        others = tuple([i for i in (0, 1) if not isinstance(args[i], TensorBase)])
        plain = isinstance(args[others[0]], (int, float, complex)) if others else True
        if (plan.kind == KERNEL and plan.outputs == 1 and plan.operands == wanted and plain
                and plan.numbers == others and plan.prepare is None and plan.key):
            # It may be known by a call in other words, which has a way of its own.
            self.binary.pop(plan.short_key, None)
            self.binary[key], plan.short_key = plan, key
            if not cython.compiled:
                quick.adopt(self, plan)
        elif plan.key and plan.short_key is None and not others:
            # The type of a number is no key of a plan that holds its value.
            self.binary[longer], plan.short_key = plan, longer
        return self._carry_out(plan, state, values, None, PLAIN)

    def call_inplace(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """Call and write the result into the first argument."""
        state: ModeState = modes.current()
        modes.note_site(state)
        target = args[0] if args else None
        if state.special & self.heeds:
            return wiring.special(self, state, args, kwargs, target, IN_PLACE)
        return _into(self, state, args, kwargs, target, IN_PLACE)

    def call_out(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None, out: Any) -> Any:
        """Call and write the result into ``out``, resizing it if its shape differs."""
        state: ModeState = modes.current()
        modes.note_site(state)
        if state.special & self.heeds:
            return wiring.special(self, state, args, kwargs, out, OUT)
        return _into(self, state, args, kwargs, out, OUT)

    def dispatch(self, state: ModeState, values: Any, target: Any, form: int) -> Any:
        """Find or make the plan of this call and carry it out."""
        values = _as_taken(self, values)
        if self.compound:
            values = values if form == PLAIN else wiring.made_like(self, values, target, form)
            result = self._compound(values)
            return result if form == PLAIN else wiring.deliver(self, values, result, target, form)
        plan: Plan
        if modes.listeners is None:
            try:
                plan = self.plan_for(state, values, target, form)
            except _RESTATED as error:
                return self._gathered(state, values, (target, form), error)
        else:
            plan = _told_plan(self, state, values, (target, form))
        return self._carry_out(plan, state, values, target, form)

    def plan_for(self, state: ModeState, values: Any, target: Any, form: int) -> Plan:
        """The plan of these arguments."""
        key = _key(self, state, values, target, form)
        try:
            found = self.plans.get(key)
        except TypeError as failure:
            raise TypeError(f"{self.name}(): an argument is of a kind that it cannot take: "
                            f"{failure}") from None
        plan: Plan
        if found is not None:
            plan = found
            plan.used = True
            return plan
        begun = None if modes.ring is None else begin_planning()
        drops = self.drops
        try:
            plan = self.builder.plan(self, state, values, target, form, key[self.count])
        except Exception as failure:
            raise wiring.shortened(failure)  # noqa: B904
        _note_made(values, plan, begun)
        plan_table.made += 1
        if plan.key is None:
            plan.key = key
            self.plans[key] = plan
            plan_table.keep(self, plan)
        if drops != self.drops:
            # Another thread dropped the op's plans meanwhile: this one is for this call alone.
            self.plans.pop(key, None)
            disown(plan)
        return plan


def _go(op: Op, way: Way, state: ModeState, args: tuple[Any, ...],
        kwargs: dict[str, Any] | None, target: Any) -> Any:
    """Carry out a call that was met before."""
    way.plan.used = True
    if kwargs:
        args = way.bound(args + op.tails[len(args)], kwargs)
    elif not way.short:
        args = op.bind(args, None)
    return op._carry_out(way.plan, state, args, target, way.form)


def _note_way(op: Op, plan: Plan, state: ModeState, args: tuple[Any, ...],
              kwargs: dict[str, Any] | None, form: int) -> None:
    """Note the plan of a call; the ``out`` of that form stands behind its arguments."""
    if not cython.compiled or not plan.key:
        return
    count: cython.Py_ssize_t = len(args) - (form == OUT)
    places = (places_of.get((op, count, *kwargs)) or ()) if kwargs else ()
    way: Way | None = op.ways.note(plan, state, args, kwargs, places, form)
    if way is None:
        return
    way.short = not kwargs and op._is_short(plan, count)
    if form == PLAIN and count == 2 and not kwargs and op._is_pair(plan):
        x: TensorBase = args[0]
        y: TensorBase = args[1]
        _note_recent(op, plan, x.spec, y.spec, _wants(state, x) + 2 * _wants(state, y))


def _into(op: Op, state: ModeState, args: tuple[Any, ...], kwargs: dict[str, Any] | None,
          target: Any, form: int) -> Any:
    """Write into a tensor, as a loop does in every step."""
    if op.compound or modes.listeners is not None:
        return op.dispatch(state, op.bind(args, kwargs), target, form)
    given: tuple = args if form == _in_place else (*args, target)
    if cython.compiled:
        way: Way | None = op.ways.find(state, given, kwargs, form)
        if way is not None:
            return _go(op, way, state, args, kwargs, target)
    values = op.bind(args, kwargs)
    key = _pair_key(state, args) if form == IN_PLACE and not kwargs else None
    found = None if key is None else op.binary.get(key)
    plan: Plan
    if found is None:
        try:
            plan = op.plan_for(state, values, target, form)
        except _RESTATED as error:
            return op._gathered(state, values, (target, form), error)
        if key is not None and plan.key and plan.short_key is None:
            op.binary[key], plan.short_key = plan, key
    else:
        plan = found
    plan.used = True
    _note_way(op, plan, state, given, kwargs, form)
    return op._write(plan, state, values, target, form)


def _pair_key(state: ModeState, args: tuple[Any, ...]) -> Any:
    """The short key of a call that writes into the first of two tensors; else None."""
    if len(args) != 2 or not all([isinstance(each, TensorBase) for each in args]):
        return None
    x: TensorBase = args[0]
    y: TensorBase = args[1]
    return IN_PLACE, x.spec, y.spec, _wants(state, x) + 2 * _wants(state, y)


def _key(op: Op, state: ModeState, values: Any, target: Any, form: int) -> tuple[Any, ...]:
    n: cython.Py_ssize_t = op.count
    key: list = [None] * (n + 2)
    flags: cython.int = 0
    i: cython.Py_ssize_t
    tensor: TensorBase
    for i in range(n):
        value = values[i]
        if isinstance(value, TensorBase):
            tensor = value
            key[i] = tensor.spec
            if ((tensor.record is not None or tensor.base is not None)
                    and state.grad_enabled and tape.requires_grad(tensor)):
                flags |= 1 << i
        elif value is None:
            continue
        elif op.kinds[i] == TENSORS:
            key[i], wants = op._specs(value, state.grad_enabled)
            flags |= wants << i
        else:
            key[i] = _part(op, i, value)
    if op.device_at >= 0:
        # "cuda" is another card for a thread whose current one is another.
        given = values[op.device_at]
        key[op.device_at] = state.device if given is None else Device(given)
    key[n] = flags
    key[n + 1] = form if form == PLAIN else (form, target_key(target))
    return tuple(key)


def _short_key(op: OpCore, state: ModeState, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """A key of the arguments as they were given; None where only the full key will do."""
    n: cython.Py_ssize_t = len(args)
    flags: cython.int = 0
    i: cython.Py_ssize_t
    tensor: TensorBase
    if n > 12 or op.device_at >= 0:
        return None
    parts: list | None = [] if n > 5 else None
    part: Any = None
    second = third = fourth = fifth = part
    # Backwards, so that the last one met is the first.
    for i in range(n - 1, -1, -1):
        fifth, fourth, third, second = fourth, third, second, part
        value = args[i]
        if isinstance(value, TensorBase):
            tensor = value
            part = tensor.spec
            if ((tensor.record is not None or tensor.base is not None)
                    and state.grad_enabled and tape.requires_grad(tensor)):
                flags |= 1 << i
        elif i < op.count and op.kinds[i] == TENSORS and type(value) in (list, tuple):
            part, wants = op._specs(value, state.grad_enabled)
            flags |= wants << i
        else:
            part = _short_part(op, i, value)
            if part is UNKEYED:
                return None
        if parts is not None:
            parts.append(part)
    if parts is not None:
        return (n, flags, *parts)
    return (flags, part) if n == 1 else (n, flags, part, second, third, fourth, fifth)


def _short_part(op: OpCore, place: int, value: Any) -> Any:
    """What a short key holds of what is no tensor; `UNKEYED` where only the full key will do."""
    kind: cython.int = op.kinds[place] if place < op.count else STATIC
    if value is None:
        return None
    if kind in (NUMBER, TENSOR_OR_NUMBER):
        if type(value) is not int and type(value) is not float:
            return UNKEYED
        return DEFAULT if value is op.defaults[place] else type(value)
    if kind != STATIC:
        return UNKEYED
    if value is True or value is False:
        return YES if value else NO
    if type(value) is int or type(value) is str or place >= op.count:
        return value if type(value) is int or type(value) is str else UNKEYED
    if type(value) is DType or (type(value) is tuple and _told_apart(value)):
        return value
    if type(value) is float and value == value:
        # Beside its type, as an int may equal it; zero has two signs, and nan, which equals
        # nothing, stands in full keys alone.
        return (float, value) if value else _ZEROS[copysign(1.0, value)]
    return UNKEYED


# Stands for an argument that no short key can hold.
UNKEYED: object = object()


def _told_plan(op: Op, state: ModeState, values: Any, written: tuple[Any, int]) -> Plan:
    """The plan of these arguments, its finding told to the listeners."""
    start = time.perf_counter_ns()
    before: cython.Py_ssize_t = plan_table.made
    plan = op.plan_for(state, values, *written)
    emit_plan(plan, start, plan_table.made > before)
    return plan


def _wants(state: ModeState, tensor: TensorBase) -> cython.int:
    """1 where a call on the tensor is recorded."""
    if tensor.record is None and tensor.base is None:
        return 0
    return 1 if state.grad_enabled and tape.requires_grad(tensor) else 0


def _record_short(plan: Plan, operands: tuple[Any, ...], tail: tuple[Any, ...],
                  out: TensorBase, state: ModeState) -> None:
    """Record a call on the tape, its time counted while a profile is on."""
    ring: Ring | None = modes.ring
    if ring is None:
        tape.record_short(plan, operands, tail, out, state)
        return
    ring.switch(TAPE)
    tape.record_short(plan, operands, tail, out, state)
    ring.switch(ring.outside)


def _note_made(values: Any, plan: Plan, begun: Any) -> None:
    """Tell that a plan was made, where a profile is on or its result is float64, meant or not."""
    result: Spec = plan.out_spec
    if begun is not None or (result is not None and result.dtype is float64):
        end_planning(values, plan, begun)


def _note_recent(op: Op, plan: Plan | None, left: Any, right: Any, flags: int) -> None:
    """The plan that was found last, compared by addresses before any key is made.

    What it is compared with is held as long as the plan is in the table, no longer.
    """
    if cython.compiled:
        op.recent = plan
        op.recent_left = left
        op.recent_right = right
        op.recent_flags = flags


def _part(op: OpCore, place: int, value: Any) -> Any:
    """What the key holds of an argument that is no tensor: its value only if it is static."""
    kind: cython.int = op.kinds[place]
    if kind == STATIC and (type(value) is int or type(value) is str or type(value) is DType
                           or (type(value) is tuple and _told_apart(value))):
        return value
    number = kind in (NUMBER, TENSOR_OR_NUMBER)
    plain = kind == STATIC or (number and not isinstance(value, (float, complex)))
    if plain and _has_numpy((value,)):
        raise NumPyScalarError(f"{op.name}(): argument '{op.names[place]}' is of NumPy's type")
    if kind in (STATIC, STATIC_NUMBER):
        return static_key(value)
    if number:
        return DEFAULT if value is op.defaults[place] else type(value)
    return type(value)


DEFAULT = "default"
# What stands for zeros, by their signs.
_ZEROS = {1.0: (float, "0.0"), -1.0: (float, "-0.0")}


def static_key(value: Any) -> Any:
    """What keys hold of a static argument: equal for what is alike in value, type and sign."""
    if value is True or value is False:
        return YES if value else NO
    if isinstance(value, (tuple, list)):
        whole = tuple(value)
        return whole if _told_apart(whole) else tuple([static_key(each) for each in whole])
    if isinstance(value, (float, complex, np.generic)):
        # Of numbers whose parts are equal, the text alone tells the signs of zeros.
        exact = isinstance(value, (complex, np.complexfloating)) or value == 0
        return (type(value), repr(value) if exact else value)
    return value


def _told_apart(values: tuple[Any, ...]) -> bool:
    """Whether a tuple equals no other one than of the same types."""
    for value in values:
        if type(value) is int or value is None or type(value) is str or type(value) is DType:
            continue
        if type(value) is not tuple or not _told_apart(value):
            return False
    return True


def _has_numpy(values: Any) -> bool:
    """Whether a NumPy scalar is among the arguments, or in a tuple or list of them."""
    for value in values:
        if (value is None or isinstance(value, TensorBase) or type(value) is int
                or type(value) is bool or type(value) is float):
            continue
        if type(value) is tuple or type(value) is list:
            if _has_numpy(value):
                return True
        elif isinstance(value, np.generic) and not isinstance(value, _LONG):
            return True
    return False


_LONG = (np.longdouble, np.clongdouble)  # What NumPy has no Python number for.
# What is raised of calls that are to be said in another way.
_RESTATED = (MixedDeviceError, NumPyScalarError)


def _as_taken(op: OpCore, values: Any) -> Any:
    """The arguments; without NumPy's scalars where making a key does not come upon them."""
    if (op.compound or modes.listeners is not None) and _has_numpy(values):
        return without_numpy(op, values)
    return values


plan_table = PlanTable(settings.plans)
