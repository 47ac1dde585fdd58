"""Autocast: the operands of a call are cast as its op's entry says.

An op with a policy comes here while autocast is on.  Inside the call autocast is asleep for the
device types of its policies: what the op is made of casts nothing again.
"""

# The .pxd declares the C functions.
# mypy: disable-error-code="name-defined"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cython

from slipstream.core.dispatch import foreach
from slipstream.core.dispatch.calls import Call
from slipstream.core.dispatch.carrying import OpCore
from slipstream.core.dispatch.lists import TensorList
from slipstream.core.dispatch.mixing import in_order, scopes, together
from slipstream.core.dispatch.op import IN_PLACE, OUT, PLAIN, Op
from slipstream.core.engine.backward import weight_cast
from slipstream.core.engine.tape import Tape, tape
from slipstream.core.launch.door import LaunchDoor, door
from slipstream.core.vocab.autocast import AWAKE, BITS, AutocastState, Member
from slipstream.core.vocab.dtypes import DType, bfloat16, float32, float64, promote
from slipstream.core.vocab.modes import ModeState, ModeTable, modes
from slipstream.core.vocab.records import GradRecord, Spec, Storage, TensorBase
from slipstream.core.vocab.recycling import recycle

__all__ = ["POLICIES", "AutocastState", "Cast", "GradRecord", "LaunchDoor", "ModeTable", "OpCore",
           "Spec", "Storage", "Tape", "TensorList", "WeightCast", "autocast", "autocast_function",
           "cast_together", "forget_casts", "hooks", "special"]

# Policies; `entry.Entry` says what each means.
LOWER = "lower"
FLOAT32 = "float32"
WIDEST = "widest"
REFUSED = "refused"
ASLEEP = "asleep"
POLICIES = (LOWER, FLOAT32, WIDEST, REFUSED, ASLEEP)

# A weight that was cast with others so often for nothing goes by itself.
PATIENCE = 2

Values = tuple[Any, ...]
Named = dict[str, Any]


class Hooks:
    """The op that casts, and what else calls in special modes come to; set by wiring."""

    to_dtype: Any = None
    special: Any = None


hooks = Hooks()


def special(op: Op, state: ModeState, args: Values, kwargs: Named | None, target: Any,
            form: int) -> Any:
    """The slow way of the door, taken while autocast or a mode is on or somebody listens.

    Autocast comes first, as in PyTorch: modes and listeners see the casts.
    """
    if state.special & op.heeds & AWAKE:
        return autocast(op, state, args, kwargs, target, form)
    return hooks.special(op, state, args, kwargs, target, form)


def autocast(op: Op, state: ModeState, args: Values, kwargs: Named | None, target: Any,
             form: int) -> Any:
    """A call of an op that has policies; forms that write into given memory cast nothing."""
    awake: cython.int = state.special & op.heeds & AWAKE
    cast: Cast
    state.special -= awake
    try:
        if form == IN_PLACE:
            return op.call_inplace(args, kwargs)
        if form == OUT:
            return op.call_out(args, kwargs, target)
        if scopes.count:
            args, kwargs = together(args, kwargs, op.bind)
        for device_type, policy in op.policies.items():
            bit: cython.int = BITS[device_type]
            if not awake & bit:
                continue
            if policy == LOWER:
                cast = lowering(state, device_type)
                args = cast.sequence(args)
                kwargs = cast.named(kwargs)
                continue
            if policy == REFUSED and lies_on(device_type, op.bind(args, kwargs)):
                raise refusal(op, state, args, kwargs)
            if policy == FLOAT32 and "dtype" in op.names:
                args, kwargs = with_dtype(op, args, kwargs, device_type)
            elif policy not in (ASLEEP, REFUSED):
                cast = cast_for(policy, state, device_type, args, kwargs)
                args = cast.sequence(args)
                kwargs = cast.named(kwargs)
        return op.call(args, kwargs)
    finally:
        state.special |= awake


def autocast_function(function: Callable[..., Any], policies: dict[str, str], args: Values,
                      kwargs: Named) -> Any:
    """A call of a function made of ops that PyTorch has as one, while autocast is on and awake."""
    state: ModeState = modes.current()
    awake: cython.int = state.special & sum([BITS[kind] for kind in policies])
    named: Named | None = kwargs
    cast: Cast
    state.special -= awake
    try:
        if scopes.count:
            args, named = together(args, named, in_order)
        for device_type, policy in policies.items():
            bit: cython.int = BITS[device_type]
            if awake & bit and policy != ASLEEP:
                cast = cast_for(policy, state, device_type, args, named)
                args = cast.sequence(args)
                named = cast.named(named)
        return function(*args, **(named or {}))
    finally:
        state.special |= awake


def lowering(state: ModeState, device_type: str) -> Cast:
    """The cast to the narrow dtype of the scope."""
    settings: AutocastState = state.autocast
    return cast_of(state, device_type, settings.dtypes[device_type],
                   settings.caching and settings.nesting > 0)


def cast_of(state: ModeState, device_type: str, dtype: Any, keeps: bool) -> Cast:
    """A cast, made without a call of __init__."""
    cast: Cast = Cast.__new__(Cast)
    cast.state = state
    cast.device_type = device_type
    cast.dtype = dtype
    cast.keeps = keeps
    return cast


def cast_for(policy: str, state: ModeState, device_type: str, args: Values,
             kwargs: Named | None) -> Cast:
    """The cast that a policy asks for."""
    if policy == FLOAT32:
        return cast_of(state, device_type, float32, False)
    if policy == WIDEST:
        lower = state.autocast.dtypes[device_type]
        wide = widest(lower, device_type, (*args, *(kwargs or {}).values()))
        if wide is not lower:
            return cast_of(state, device_type, wide, False)
    return lowering(state, device_type)


class Cast:
    """Casts floating tensors of a device type to a dtype, but no float64; ``keeps`` those of
    weights, for the scope.
    """

    state: ModeState
    device_type: str
    dtype: Any
    keeps: bool

    def eligible(self, value: Any) -> bool:
        """Whether a value is a tensor that autocast may cast."""
        if not isinstance(value, TensorBase):
            return False
        tensor: TensorBase = value
        spec: Spec = tensor.spec
        if spec.dtype is not float32 and (not spec.dtype.is_floating_point
                                          or spec.dtype is float64):
            return False
        return spec.device.type == self.device_type

    def value(self, value: Any) -> Any:
        """A value cast; of a list or tuple each tensor."""
        if isinstance(value, TensorBase):
            tensor: TensorBase = value
            if tensor.spec.dtype is self.dtype or not self.eligible(tensor):
                return value
            return self.tensor(tensor)
        if type(value) in (list, tuple) and value and isinstance(value[0], TensorBase):
            found = self.sequence(tuple(value))
            return found if type(value) is tuple else list(found)
        return value

    def sequence(self, values: Values) -> Values:
        """Every value cast; the same tuple where there is nothing to cast."""
        found: list | None = None
        place: cython.Py_ssize_t
        for place in range(len(values)):
            value = values[place]
            if value is None or type(value) is int or type(value) is float or type(value) is bool:
                continue
            made = self.value(value)
            if made is not value:
                if found is None:
                    found = list(values)
                found[place] = made
        return values if found is None else tuple(found)

    def named(self, values: Named | None) -> Named | None:
        """Every value of a dict cast."""
        if not values:
            return values
        return {name: self.value(value) for name, value in values.items()}

    def tensor(self, tensor: TensorBase) -> Any:
        """A cast, from the cache where the tensor is a weight."""
        if not self.keeps or not is_weight(tensor) or (door.captures and is_capturing()):
            op: Op = hooks.to_dtype
            return op.call((tensor, self.dtype), None)
        settings: AutocastState = self.state.autocast
        key = _key(tensor, self.dtype)
        found = settings.casts.get(key)
        known: WeightCast
        if found is None or not _serves(found, tensor, self.state.grad_enabled):
            self.fill(settings, tensor, settings.members.get(key))
            found = settings.casts[key]
        known = found
        known.used = True
        return known.cast

    def fill(self, settings: AutocastState, tensor: TensorBase, member: Member | None) -> None:
        """Cast a weight, and with it those that were cast in the same scope before."""
        weights: list = [tensor]
        kept: dict = settings.casts
        if member is not None and member.group is not None and not self.state.stack:
            for each in member.group:
                weight = each()
                if weight is not None and weight is not tensor and self.lacks(weight, kept):
                    weights.append(weight)
        if len(weights) > 1 and tensor.spec.device.type == "cuda":
            casts: list = cast_together(weights, self.dtype)
        else:
            casts = [hooks.to_dtype.call((tensor, self.dtype), None)]
        place: cython.Py_ssize_t
        known: dict = {}
        for place in range(len(casts)):
            self.keep((kept, known), weights[place], casts[place])

    def lacks(self, weight: TensorBase, casts: dict[Any, Any]) -> bool:
        """Whether a weight is still one, beside the others on its device, and not yet cast."""
        if not is_weight(weight) or weight.spec.device.type != self.device_type:
            return False
        found = casts.get(_key(weight, self.dtype))
        return found is None or not _serves(found, weight, self.state.grad_enabled)

    def keep(self, facts: Any, weight: TensorBase, cast: TensorBase) -> None:
        """Note a cast for the scope, with a history where gradients are wanted.

        ``facts``: the thread's casts, and specs by themselves.
        """
        kept: dict
        alone: dict
        kept, alone = facts
        cast.record = None
        if self.state.grad_enabled:
            tape.record_cast(weight_cast, weight, (cast, alone), self.state)
        # Without a call of __init__: once a weight and step.
        known: WeightCast = WeightCast.__new__(WeightCast)
        known.weight = weight
        known.storage = weight.storage
        known.version = weight.storage.version
        known.cast = cast
        known.used = False
        kept[_key(weight, self.dtype)] = known


def _key(weight: TensorBase, dtype: Any) -> Any:
    """What a weight's cast to a dtype is found by: its record, which a dict finds at once."""
    return weight.record if dtype is bfloat16 else (weight.record, dtype)


class WeightCast:
    """A weight, what it held, and the cast of that: it serves as long as nothing wrote the weight.
    """

    weight: TensorBase
    storage: Storage
    version: int
    cast: TensorBase
    used: bool


recycle(WeightCast)


def _serves(known: WeightCast, weight: TensorBase, grad_enabled: bool) -> bool:
    """Whether a cast still holds the weight's numbers, and carries the gradient if wanted."""
    storage: Storage = weight.storage
    if (known.weight is not weight or storage is not known.storage
            or storage.version != known.version):
        return False
    return not grad_enabled or known.cast.record is not None


def forget_casts(settings: AutocastState, ended: bool) -> None:
    """Drop casts of weights; of a scope that ``ended`` well the next one casts together what it
    used.
    """
    casts: dict = settings.casts
    if not ended:
        casts.clear()
        return
    members: dict = settings.members
    group: list = []
    known: WeightCast
    for key, found in casts.items():
        known = found
        if known.weight.spec.device.type != "cuda":
            continue
        member = members.get(key)
        if member is None:
            member = Member.make(known.weight, members, key)
        if not known.used:
            member.leave()
            member.left += 1
        elif member.group is None and member.left < PATIENCE:
            member.group = group
            group.append(member)
    casts.clear()


def cast_together(tensors: list[Any], dtype: DType) -> list[Any]:
    """Casts of tensors, without history, in one launch for those of a device and dtype."""
    state: ModeState = modes.current()
    op: OpCore = hooks.to_dtype
    tensor: TensorBase
    specs: list = []
    for each in tensors:
        tensor = each
        specs.append(tensor.spec)
    key = (dtype, tuple(specs))
    known: dict = op.lists
    found = known.get(key)
    if found is None:
        found = fitted(op, tensors, dtype, known, key)
    results: list = [None] * len(tensors)
    for both in found[0]:
        run_list(both[0], both[1], (state, tensors, results))
    place: cython.Py_ssize_t
    before = state.grad_enabled
    state.grad_enabled = False
    try:
        for place in range(len(tensors)):
            if results[place] is None:
                results[place] = hooks.to_dtype.call((tensors[place], dtype), None)
    finally:
        state.grad_enabled = before
    return results


def run_list(part: TensorList, places: list[int], facts: Any) -> None:
    """Put the casts of a list of tensors in their places; nothing where the list does not fit."""
    state, tensors, results = facts
    made: list = part.new_column()
    at: cython.Py_ssize_t
    if part.run(state, (made, [tensors[place] for place in places]), (), ()):
        for at in range(len(made)):
            results[places[at]] = made[at]


def fitted(op: Any, tensors: list[Any], dtype: DType, known: Any, key: Any) -> Any:
    """The lists of tensors of these specs, made anew."""
    found = foreach.made(op, [tensors], (foreach.values_of(op, {"dtype": dtype}, {}), {}),
                         (modes.current(), False))
    if len(known) >= foreach.MOST:
        known.clear()
    known[key] = found
    return found


def is_capturing() -> bool:
    """Whether a stream of the thread captures a graph: its replays have to cast what is there then.
    """
    if not door.captures:
        return False
    backends: tuple[Any, ...] = door.windowed
    found = False
    for backend in backends:
        found = found or backend.queue().capture is not None
    return found


def is_weight(tensor: TensorBase) -> bool:
    """Whether a tensor is a float32 leaf that wants a gradient, and no view."""
    record: GradRecord | None = tensor.record
    return (record is not None and record.requires_grad and record.node is None
            and tensor.base is None and tensor.spec.dtype is float32)


def widest(lower: DType, device_type: str, values: Values) -> DType:
    """The widest dtype among eligible tensors; ``lower`` where there is none."""
    cast = cast_of(modes.current(), device_type, lower, False)
    found: Any = None
    for value in values:
        for each in value if isinstance(value, (list, tuple)) else (value,):
            if cast.eligible(each):
                found = each.spec.dtype if found is None else promote(found, each.spec.dtype)
    return lower if found is None else found


def with_dtype(op: Op, args: Values, kwargs: Named | None,
               device_type: str) -> tuple[Values, Named | None]:
    """The arguments with ``dtype`` float32 where none is given: the op itself casts as it reads."""
    values = op.bind(args, kwargs)
    place: cython.Py_ssize_t = op.names.index("dtype")
    cast = cast_of(modes.current(), device_type, float32, False)
    if (values[place] is not None or not cast.eligible(values[0])
            or values[0].spec.dtype is float32):
        return args, kwargs
    if not kwargs and len(args) <= place and op.variadic < 0:
        return args, {"dtype": float32}
    named = dict(zip(op.names[1:], values[1:], strict=True))
    return (values[0],), {**named, "dtype": float32}


def lies_on(device_type: str, values: Values) -> bool:
    """Whether one of the tensors is on a device type."""
    found = False
    for each in values:
        found = found or (isinstance(each, TensorBase) and each.spec.device.type == device_type)
    return found


def refusal(op: Op, state: ModeState, args: Values, kwargs: Named | None) -> Exception:
    """The error of an op that is not safe in narrow types."""
    call = Call(op, state, op.bind(args, kwargs), None, PLAIN)
    return call.error(
        RuntimeError,
        f"{op.name} is unsafe to autocast: its gradient leaves the range of narrow types",
        "use binary_cross_entropy_with_logits (BCEWithLogitsLoss), which takes what sigmoid would "
        "be given, or call it inside autocast(..., enabled=False) with float32 operands")
