"""The one door in: every call of an op comes through here.

A call's operands give a key (their interned specs, kinds of numbers, static arguments, whether
gradients are wanted); the key gives a plan, made at the first sight; the plan is carried out:
memory for the results, the launch, the tape.  Nothing else decides device, promotion, mode or
autograd.
"""

from __future__ import annotations

import time
from typing import Any

import cython
import numpy as np

from slipstream.core.dispatch.signature import (
    NUMBER,
    STATIC,
    STATIC_NUMBER,
    TENSOR_OR_NUMBER,
    TENSORS,
    parse,
)
from slipstream.core.dispatch.tracing import (
    emit_plan,
    traced_allocation,
    traced_node,
    traced_record,
)
from slipstream.core.engine.tape import Rule, Tape, tape
from slipstream.core.launch.door import LaunchDoor, door
from slipstream.core.vocab.modes import ModeState, ModeTable, modes
from slipstream.core.vocab.records import (
    COMPOUND,
    KERNEL,
    VIEW,
    Backend,
    GradRecord,
    Kernel,
    Memory,
    Node,
    OpBase,
    Plan,
    Slots,
    Spec,
    Storage,
    TensorBase,
    slots,
)
from slipstream.core.vocab.settings import settings

__all__ = ["COMPOUND", "IN_PLACE", "OUT", "PLAIN", "GradRecord", "Kernel", "LaunchDoor", "Memory",
           "ModeTable", "Op", "PlanTable", "Rule", "Slots", "Tape", "plan_table", "wiring"]

# The forms of a call.
PLAIN = 0
IN_PLACE = 1
OUT = 2


class Wiring:
    """Functions of upper or side layers that the door calls; set once at import."""

    special: Any = None
    begin_write: Any = None
    end_write: Any = None
    deliver: Any = None
    blame_types: Any = None
    arguments: Any = None


wiring = Wiring()


class PlanTable:
    """Bounds the number of plans: a clock that drops what was not used since its last turn."""

    def __init__(self, limit: int) -> None:
        self.ring = []
        self.limit = limit
        self.hand = 0
        self.made = 0

    def keep(self, op: Op, plan: Plan) -> None:
        """Take in a new plan, dropping an unused one when the table is full."""
        if len(self.ring) < self.limit:
            self.ring.append(plan)
            return
        while True:
            old: Plan = self.ring[self.hand]
            if not old.used:
                break
            old.used = False
            self.hand = (self.hand + 1) % self.limit
        self.ring[self.hand] = plan
        self.hand = (self.hand + 1) % self.limit
        forget(old)


def drop_plans(op: Op) -> None:
    """Forget every plan and recipe of an op, whose kernels changed."""
    plan: Plan
    for each in list(op.plans.values()):
        plan = each
        # It stays in the ring until the clock passes; with other keys it takes no new plan along.
        plan.key = None
        plan.short_key = None
    op.plans.clear()
    op.binary.clear()
    op.recipes.clear()


def forget(plan: Plan) -> None:
    """Take a plan out of its op's tables."""
    op: Op = plan.op
    op.plans.pop(plan.key, None)
    if plan.short_key is not None:
        op.binary.pop(plan.short_key, None)


class Op(OpBase):
    """An op: a signature, a builder of plans, and the plans made so far.

    ``call(args, kwargs)`` is the boxed form that every op has; ``call1`` and ``call2`` are the
    short ways of the operator slots.
    """

    def __init__(self, entry: Any, builder: Any) -> None:
        signature = parse(entry.signature)
        self.name = signature.name
        self.entry = entry
        self.signature = signature
        self.builder = builder
        self.function = entry.function
        self.names = signature.names
        self.kinds = tuple([p.kind for p in signature.parameters])
        self.defaults = tuple([None if p.required else p.default for p in signature.parameters])
        self.count = len(self.names)
        self.positional = sum([not p.keyword_only for p in signature.parameters])
        self.required = sum([p.required for p in signature.parameters])
        self.tails = tuple([self.defaults[n:] for n in range(self.count + 1)])
        variadic = [i for i, p in enumerate(signature.parameters) if p.type == "int..."]
        self.variadic = variadic[0] if variadic else -1
        self.device_at = self.names.index("device") if "device" in self.names else -1
        self.compound = entry.function is not None
        self.plans = {}
        self.binary = {}
        self.recipes = {}
        self.programs = {}
        self.rules = {}
        self.kernels = {}

    def __repr__(self) -> str:
        return f"<op {self.signature.text}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the op; see the entry's documentation."""
        if kwargs:
            out = kwargs.pop("out", None)
            if out is not None:
                return self.call_out(args, kwargs, out)
        return self.call(args, kwargs)

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """The boxed call: positional and keyword arguments in containers."""
        if self.count == 1 and len(args) == 1 and not kwargs and isinstance(args[0], TensorBase):
            if not modes.current().special:
                return self.call1(args[0])
        state: ModeState = modes.current()
        modes.note_site(state)
        if state.special:
            return wiring.special(self, state, args, kwargs, None, PLAIN)
        return self.dispatch(state, self.bind(args, kwargs), None, PLAIN)

    def call1(self, a: Any) -> Any:
        """Call with one operand."""
        state: ModeState = modes.current()
        modes.note_site(state)
        if not isinstance(a, TensorBase) or state.special:
            return self.call((a,), None)
        x: TensorBase = a
        flags: cython.int = 0
        if x.record is not None or x.base is not None:
            if state.grad_enabled and tape.requires_grad(x):
                flags = 1
        key: tuple = (x.spec, flags)
        found = self.binary.get(key)
        if found is None:
            return self._first_call1(key, state, a)
        plan: Plan = found
        plan.used = True
        out: TensorBase = self._new(plan.out_spec, plan.backend)
        door.submit(plan, (out, a), ())
        if flags and plan.rule is not None:
            tape.record(plan.rule, (a, *self.tails[1]), (out,), state)
        return out

    def _first_call1(self, key: tuple[Any, ...], state: ModeState, a: Any) -> Any:
        values = self.bind((a,), None)
        if self.compound:
            return self.function(*values)
        plan: Plan = self.plan_for(state, values, None, PLAIN)
        if (plan.kind == KERNEL and plan.outputs == 1 and plan.operands == (0,)
                and not plan.numbers and plan.prepare is None and plan.short_key is None):
            self.binary[key] = plan
            plan.short_key = key
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
        key: tuple = (ka, kb, flags)
        found = self.binary.get(key)
        if found is None or state.special:
            return self._first_call2(key, state, a, b)
        plan: Plan = found
        plan.used = True
        out: TensorBase = self._new(plan.out_spec, plan.backend)
        if len(plan.operands) == 2:
            door.submit(plan, (out, a, b), ())
        elif isinstance(a, TensorBase):
            door.submit(plan, (out, a), (b,))
        else:
            door.submit(plan, (out, b), (a,))
        if flags and plan.rule is not None:
            tape.record(plan.rule, (a, b, *self.tails[2]), (out,), state)
        return out

    def _first_call2(self, key: tuple[Any, ...], state: ModeState, a: Any, b: Any) -> Any:
        args: tuple = (a, b)
        if state.special:
            return wiring.special(self, state, args, None, None, PLAIN)
        values = self.bind(args, None)
        if self.compound:
            return self.function(*values)
        plan: Plan = self.plan_for(state, values, None, PLAIN)
        wanted = tuple([i for i in (0, 1) if isinstance(args[i], TensorBase)])
        others = tuple([i for i in (0, 1) if not isinstance(args[i], TensorBase)])
        plain = isinstance(args[others[0]], (int, float, complex)) if others else True
        if (plan.kind == KERNEL and plan.outputs == 1 and plan.operands == wanted and plain
                and plan.numbers == others and plan.prepare is None and plan.short_key is None):
            self.binary[key] = plan
            plan.short_key = key
        return self._carry_out(plan, state, values, None, PLAIN)

    def call_inplace(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """Call and write the result into the first argument."""
        state: ModeState = modes.current()
        modes.note_site(state)
        target = args[0]
        if state.special:
            return wiring.special(self, state, args, kwargs, target, IN_PLACE)
        return self.dispatch(state, self.bind(args, kwargs), target, IN_PLACE)

    def call_out(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None, out: Any) -> Any:
        """Call and write the result into ``out``, resizing it if its shape differs."""
        state: ModeState = modes.current()
        modes.note_site(state)
        if state.special:
            return wiring.special(self, state, args, kwargs, out, OUT)
        return self.dispatch(state, self.bind(args, kwargs), out, OUT)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """All arguments in the order of the signature, defaults filled in."""
        n: cython.Py_ssize_t = len(args)
        if not kwargs:
            if n == self.count and n == self.positional:
                return args
            if self.required <= n <= self.positional:
                return args + self.tails[n]
        return wiring.arguments(self, args, kwargs or {})

    def dispatch(self, state: ModeState, values: Any, target: Any, form: int) -> Any:
        """Find or make the plan of this call and carry it out."""
        if self.compound:
            try:
                result = self.function(*values)
            except (AttributeError, TypeError) as failure:
                # Arguments of a wrong type are told apart from other faults only now: it is free.
                wiring.blame_types(self, values, failure)
                raise
            if form == PLAIN:
                return result
            return wiring.deliver(self, values, result, target, form)
        plan: Plan
        if modes.listeners is None:
            plan = self.plan_for(state, values, target, form)
        else:
            start = time.perf_counter_ns()
            before: cython.Py_ssize_t = plan_table.made
            plan = self.plan_for(state, values, target, form)
            emit_plan(plan, start, plan_table.made > before)
        return self._carry_out(plan, state, values, target, form)

    def plan_for(self, state: ModeState, values: Any, target: Any, form: int) -> Plan:
        """The plan of these arguments."""
        key = self._key(state, values, target, form)
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
        plan = self.builder.plan(self, state, values, target, form, key[self.count])
        plan_table.made += 1
        if plan.key is None:
            plan.key = key
            self.plans[key] = plan
            plan_table.keep(self, plan)
        return plan

    def _key(self, state: ModeState, values: Any, target: Any, form: int) -> tuple[Any, ...]:
        n: cython.Py_ssize_t = self.count
        key: list = [None] * (n + 2)
        flags: cython.int = 0
        i: cython.Py_ssize_t
        tensor: TensorBase
        for i in range(n):
            value = values[i]
            if isinstance(value, TensorBase):
                tensor = value
                key[i] = tensor.spec
                if tensor.record is not None or tensor.base is not None:
                    if state.grad_enabled and tape.requires_grad(tensor):
                        flags |= 1 << i
            elif value is not None:
                kind: cython.int = self.kinds[i]
                if kind == STATIC:
                    key[i] = tuple(value) if type(value) is list else value
                elif kind == TENSORS:
                    specs, wants = _list_key(value, state.grad_enabled)
                    key[i] = specs
                    if wants:
                        flags |= 1 << i
                elif kind == NUMBER or kind == TENSOR_OR_NUMBER:
                    key[i] = DEFAULT if value is self.defaults[i] else type(value)
                elif kind == STATIC_NUMBER:
                    key[i] = (type(value), value)
                else:
                    key[i] = type(value)
        if self.device_at >= 0 and key[self.device_at] is None:
            key[self.device_at] = state.device
        key[n] = flags
        key[n + 1] = form if form == PLAIN else (form, _target_key(target))
        return tuple(key)

    def _carry_out(
        self, plan: Plan, state: ModeState, values: Any, target: Any, form: int
    ) -> Any:
        if form != PLAIN:
            return self._write(plan, state, values, target, form)
        if plan.kind == KERNEL:
            return self._launch(plan, state, values)
        if plan.kind == VIEW:
            return self._view(plan, state, values)
        return plan.binding(*values)

    def _new(self, spec: Spec, backend: Backend) -> TensorBase:
        """A new tensor with memory of its own."""
        out: TensorBase
        address: cython.size_t
        if modes.listeners is None:
            address = backend.memory.allocate(spec.extent)
        else:
            address = traced_allocation(backend, spec.extent)
        storage: Storage = Storage.__new__(Storage)
        storage.device = spec.device
        storage.address = address
        storage.nbytes = spec.extent
        storage.owner = backend.owner
        if cython.compiled:
            out = slip_new(slots.tensor_class)  # noqa: F821
        else:
            out = slots.tensor_class.__new__(slots.tensor_class)
        out.spec = spec
        out.storage = storage
        out.offset = 0
        return out

    def _operands(self, plan: Plan, outs: tuple[Any, ...], values: Any) -> tuple[Any, ...]:
        operands: list = list(outs)
        for position in plan.operands:
            value = values[position]
            if isinstance(value, TensorBase):
                operands.append(value)
            elif value is not None:
                operands.extend(value)
        return tuple(operands)

    def _numbers(self, plan: Plan, values: Any) -> tuple[Any, ...]:
        if plan.prepare is not None:
            return plan.prepare(values)
        if not plan.numbers:
            return ()
        return tuple([values[position] for position in plan.numbers])

    def _launch(self, plan: Plan, state: ModeState, values: Any) -> Any:
        outs: tuple
        if plan.outputs == 1:
            outs = (self._new(plan.out_spec, plan.backend),)
        else:
            outs = tuple([self._new(spec, plan.backend) for spec in plan.out_specs])
        door.submit(plan, self._operands(plan, outs, values), self._numbers(plan, values))
        if plan.rule is not None:
            self._record(plan, state, values, outs)
        return outs[0] if plan.outputs == 1 else outs

    def _record(self, plan: Plan, state: ModeState, values: Any, outs: tuple[Any, ...]) -> None:
        if modes.listeners is None:
            tape.record(plan.rule, values, outs, state)
        else:
            traced_record(plan.rule, values, outs, state)

    def _view(self, plan: Plan, state: ModeState, values: Any) -> Any:
        source: TensorBase = values[0]
        if plan.binding is not None:
            return self._views(plan, state, values)
        offset: cython.Py_ssize_t = source.offset + plan.offset
        if plan.steps is not None:
            offset += self._distance(values[plan.numbers[0]], plan.steps)
        out = self._alias(source, plan.out_spec, offset, plan.statics)
        if plan.rule is not None:
            self._record_view(plan, state, values, (out,))
        elif out.base is not None and out.base.record is not None:
            note_bare_view(out)
        return out

    def _distance(self, starts: Any, steps: Any) -> int:
        """How far a view's first element lies from its source's, in elements."""
        total: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        for i in range(len(steps)):
            start: cython.Py_ssize_t = starts[i]
            step: cython.Py_ssize_t = steps[i]
            total += start * step
        return total

    def _views(self, plan: Plan, state: ModeState, values: Any) -> Any:
        source: TensorBase = values[0]
        moves = plan.binding(values) if callable(plan.binding) else plan.binding
        outs = tuple([self._alias(source, spec, source.offset + move, plan.statics)
                      for spec, move in zip(plan.out_specs, moves, strict=True)])
        if plan.rule is not None:
            self._record_view(plan, state, values, outs)
        elif source.record is not None or source.base is not None:
            for out in outs:
                note_bare_view(out)
        return outs if plan.outputs != 1 else outs[0]

    def _alias(self, source: TensorBase, spec: Spec, offset: int, tracked: Any) -> TensorBase:
        """A tensor over the same storage; ``tracked`` unless it is detached."""
        out: TensorBase
        if cython.compiled:
            out = slip_new(slots.tensor_class)  # noqa: F821
        else:
            out = slots.tensor_class.__new__(slots.tensor_class)
        out.spec = spec
        out.storage = source.storage
        out.offset = offset
        if tracked is None:
            return out
        out.base = source if source.base is None else source.base
        return out

    def _record_view(
        self, plan: Plan, state: ModeState, values: Any, outs: tuple[Any, ...]
    ) -> None:
        self._record(plan, state, values, outs)
        for out in outs:
            view: TensorBase = out
            if view.record is not None and view.base is not None and view.base.record is not None:
                view.record.generation = view.base.record.generation

    def _write(
        self, plan: Plan, state: ModeState, values: Any, target: Any, form: int
    ) -> Any:
        """The in-place and ``out=`` forms: the results' memory is given."""
        targets: tuple = target if isinstance(target, tuple) else (target,)
        if not self._plainly_writable(plan, state, values, target, form):
            values = wiring.begin_write(self, plan, state, values, targets, form)
        node: Node | None = None
        if plan.rule is not None:
            node = (tape.make_node(plan.rule, values, state) if modes.listeners is None
                    else traced_node(plan.rule, values, state))
        door.submit(plan, self._operands(plan, targets, values), self._numbers(plan, values))
        if node is None and isinstance(target, TensorBase):
            written: TensorBase = target
            written.storage.version += 1
            written.storage.write_site = (state.code, state.instruction)
        else:
            wiring.end_write(plan, state, targets, node)
        return target

    def _plainly_writable(
        self, plan: Plan, state: ModeState, values: Any, target: Any, form: int
    ) -> bool:
        """Whether a write needs no further look: nothing shared, read-only, or on the tape."""
        if not isinstance(target, TensorBase) or plan.rule is not None:
            return False
        written: TensorBase = target
        if not written.spec.contiguous or written.storage.read_only:
            return False
        if state.grad_enabled and (written.record is not None or written.base is not None):
            return False
        source: TensorBase
        same: cython.int = 0 if form == IN_PLACE else 1
        for value in values:
            if isinstance(value, TensorBase):
                source = value
                if source is written:
                    same += 1
                elif source.storage is written.storage:
                    return False
            elif isinstance(value, (list, tuple)):
                return False
        # Only a pointwise op may read its target: others read elsewhere than they write.
        return same <= 1 or self.entry.kind == "pointwise"


def note_bare_view(view: TensorBase) -> None:
    """A view made without gradients stays so until its base is written with them."""
    base: TensorBase = view.base
    if base is not None and base.record is not None:
        record = GradRecord()
        record.generation = base.record.generation
        view.record = record


DEFAULT = "default"


def _list_key(tensors: Any, grad_enabled: bool) -> tuple[tuple[Any, ...], bool]:
    specs: list = []
    wants = False
    for each in tensors:
        if isinstance(each, TensorBase):
            tensor: TensorBase = each
            specs.append(tensor.spec)
            if grad_enabled and tape.requires_grad(tensor):
                wants = True
        else:
            specs.append(None if each is None else type(each))
    return tuple(specs), wants


def _target_key(target: Any) -> Any:
    if isinstance(target, TensorBase):
        return target.spec
    if isinstance(target, (tuple, list)):
        return tuple([_target_key(each) for each in target])
    return type(target)


def plain_number(value: Any) -> Any:
    """A NumPy scalar as the Python number it stands for; anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


plan_table = PlanTable(settings.plans)
