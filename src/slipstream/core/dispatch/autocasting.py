"""Autocast: the operands of a call are cast as its op's entry says.

An op with a policy comes here while autocast is on.  Inside the call autocast is asleep for the
device types of its policies: what the op is made of casts nothing again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cython

from slipstream.core.dispatch.calls import Call
from slipstream.core.dispatch.op import IN_PLACE, OUT, PLAIN, Op
from slipstream.core.launch.door import door
from slipstream.core.vocab.autocast import AWAKE, BITS, AutocastState, WeightCast
from slipstream.core.vocab.dtypes import DType, float32, float64, promote
from slipstream.core.vocab.modes import ModeState, ModeTable, modes
from slipstream.core.vocab.records import GradRecord, Spec, TensorBase

__all__ = ["POLICIES", "Cast", "GradRecord", "ModeTable", "Spec", "autocast", "autocast_function",
           "hooks"]

# Policies; `entry.Entry` says what each means.
LOWER = "lower"
FLOAT32 = "float32"
WIDEST = "widest"
REFUSED = "refused"
ASLEEP = "asleep"
POLICIES = (LOWER, FLOAT32, WIDEST, REFUSED, ASLEEP)

Values = tuple[Any, ...]
Named = dict[str, Any]


class Hooks:
    """The op that casts; set by wiring."""

    to_dtype: Any = None


hooks = Hooks()


def autocast(op: Op, state: ModeState, args: Values, kwargs: Named | None, target: Any,
             form: int) -> Any:
    """A call of an op that has policies; forms that write into given memory cast nothing."""
    awake: cython.int = state.special & op.heeds & AWAKE
    state.special -= awake
    try:
        if form == IN_PLACE:
            return op.call_inplace(args, kwargs)
        if form == OUT:
            return op.call_out(args, kwargs, target)
        for device_type, policy in op.policies.items():
            bit: cython.int = BITS[device_type]
            if not awake & bit:
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
    state.special -= awake
    try:
        for device_type, policy in policies.items():
            bit: cython.int = BITS[device_type]
            if awake & bit and policy != ASLEEP:
                cast = cast_for(policy, state, device_type, args, named)
                args = cast.sequence(args)
                named = cast.named(named)
        return function(*args, **(named or {}))
    finally:
        state.special |= awake


def cast_for(policy: str, state: ModeState, device_type: str, args: Values,
             kwargs: Named | None) -> Cast:
    """The cast that a policy asks for."""
    settings = state.autocast
    lower = settings.dtypes[device_type]
    if policy == FLOAT32:
        return Cast(state, device_type, float32, False)
    if policy == WIDEST:
        lower = widest(lower, device_type, (*args, *(kwargs or {}).values()))
    keeps = settings.caching and settings.nesting > 0 and lower is settings.dtypes[device_type]
    return Cast(state, device_type, lower, keeps)


class Cast:
    """Casts floating tensors of a device type to a dtype, but no float64; ``keeps`` those of
    weights, for the scope.
    """

    state: ModeState
    device_type: str
    dtype: Any
    keeps: bool

    def __init__(self, state: ModeState, device_type: str, dtype: DType, keeps: bool) -> None:
        self.state = state
        self.device_type = device_type
        self.dtype = dtype
        self.keeps = keeps

    def eligible(self, value: Any) -> bool:
        """Whether a value is a tensor that autocast may cast."""
        if not isinstance(value, TensorBase):
            return False
        tensor: TensorBase = value
        spec: Spec = tensor.spec
        return (spec.dtype.is_floating_point and spec.dtype is not float64
                and spec.device.type == self.device_type)

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
        found: list = []
        same = True
        for value in values:
            made = self.value(value)
            same = same and made is value
            found.append(made)
        return values if same else tuple(found)

    def named(self, values: Named | None) -> Named | None:
        """Every value of a dict cast."""
        if not values:
            return values
        return {name: self.value(value) for name, value in values.items()}

    def tensor(self, tensor: TensorBase) -> Any:
        """A cast, from the cache where the tensor is a weight."""
        if not self.keeps or not is_weight(tensor) or is_capturing():
            return hooks.to_dtype.call((tensor, self.dtype), None)
        settings: AutocastState = self.state.autocast
        key = (id(tensor), self.dtype)
        known = settings.casts.get(key)
        if known is None or not known.serves(self.state.grad_enabled):
            made = hooks.to_dtype.call((tensor, self.dtype), None)
            known = settings.casts[key] = WeightCast(tensor, made)
        return known.cast


def is_capturing() -> bool:
    """Whether a stream of the thread captures a graph: its replays have to cast what is there then.
    """
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
    cast = Cast(modes.current(), device_type, lower, False)
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
    cast = Cast(modes.current(), device_type, float32, False)
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
