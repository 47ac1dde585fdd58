"""Autocast: the operands of a call are cast as its op's entry says.

An op with a policy comes here while autocast is on.  Inside the call autocast is asleep for the
device types of its policies: what the op is made of casts nothing again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slipstream.core.dispatch.calls import Call
from slipstream.core.dispatch.op import IN_PLACE, OUT, PLAIN, Op
from slipstream.core.vocab.autocast import AWAKE, BITS, AutocastState, WeightCast
from slipstream.core.vocab.dtypes import DType, float32, float64, promote
from slipstream.core.vocab.modes import ModeState, modes
from slipstream.core.vocab.records import TensorBase

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
    awake = state.special & op.heeds & AWAKE
    state.special -= awake
    try:
        if form == IN_PLACE:
            return op.call_inplace(args, kwargs)
        if form == OUT:
            return op.call_out(args, kwargs, target)
        for device_type, policy in op.policies.items():
            if awake & BITS[device_type]:
                if policy == REFUSED and lies_on(device_type, op.bind(args, kwargs)):
                    raise refusal(op, state, args, kwargs)
                if policy == FLOAT32 and "dtype" in op.names:
                    args, kwargs = with_dtype(op, args, kwargs, device_type)
                else:
                    args, kwargs = fitted(policy, state, device_type, args, kwargs)
        return op.call(args, kwargs)
    finally:
        state.special |= awake


def autocast_function(function: Callable[..., Any], policies: dict[str, str], args: Values,
                      kwargs: Named) -> Any:
    """A call of a function made of ops that PyTorch has as one, while autocast is on and awake."""
    state = modes.current()
    awake = state.special & sum([BITS[kind] for kind in policies])
    state.special -= awake
    named: Named | None = kwargs
    try:
        for device_type, policy in policies.items():
            if awake & BITS[device_type]:
                args, named = fitted(policy, state, device_type, args, named)
        return function(*args, **(named or {}))
    finally:
        state.special |= awake


def fitted(policy: str, state: ModeState, device_type: str, args: Values,
           kwargs: Named | None) -> tuple[Values, Named | None]:
    """The arguments with the floating tensors of a device type cast as a policy says."""
    if policy in (ASLEEP, REFUSED):
        return args, kwargs
    dtype = float32
    if policy != FLOAT32:
        dtype = state.autocast.dtypes[device_type]
    if policy == WIDEST:
        dtype = widest(dtype, device_type, (*args, *(kwargs or {}).values()))
    cast = Cast(state, device_type, dtype)
    args = tuple([cast(value) for value in args])
    if kwargs:
        kwargs = {name: cast(value) for name, value in kwargs.items()}
    return args, kwargs


def eligible(value: Any, device_type: str) -> bool:
    """Whether autocast may cast a value: floating tensors of its devices but float64."""
    if not isinstance(value, TensorBase):
        return False
    spec = value.spec
    dtype: DType = spec.dtype
    return (dtype.is_floating_point and dtype is not float64
            and spec.device.type == device_type)


def lies_on(device_type: str, values: Values) -> bool:
    """Whether one of the tensors is on a device type."""
    return any(isinstance(each, TensorBase) and each.spec.device.type == device_type
               for each in values)


class Cast:
    """Casts arguments to a dtype; tensors that have it, and other values, stay as they are."""

    __slots__ = ("device_type", "dtype", "state")

    def __init__(self, state: ModeState, device_type: str, dtype: DType) -> None:
        self.state = state
        self.device_type = device_type
        self.dtype = dtype

    def __call__(self, value: Any) -> Any:
        """The value cast; of a list or tuple each tensor."""
        if isinstance(value, TensorBase):
            if value.spec.dtype is self.dtype or not eligible(value, self.device_type):
                return value
            return self.cast(value)
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], TensorBase):
            return type(value)([self(each) for each in value])
        return value

    def cast(self, tensor: TensorBase) -> Any:
        """A cast, from the cache where the tensor is a weight."""
        settings: AutocastState = self.state.autocast
        if (not settings.caching or not is_weight(tensor)
                or self.dtype is not settings.dtypes[self.device_type]):
            return hooks.to_dtype.call((tensor, self.dtype), None)
        key = (id(tensor), self.dtype)
        known = settings.casts.get(key)
        if known is None or not known.serves(self.state.grad_enabled):
            made = hooks.to_dtype.call((tensor, self.dtype), None)
            if not settings.nesting:
                # Outside every scope nothing would ever drop it.
                return made
            known = settings.casts[key] = WeightCast(tensor, made)
        return known.cast


def is_weight(tensor: TensorBase) -> bool:
    """Whether a tensor is a float32 leaf that wants a gradient, and no view."""
    record = tensor.record
    return (record is not None and record.requires_grad and record.node is None
            and tensor.base is None and tensor.spec.dtype is float32)


def widest(lower: DType, device_type: str, values: Values) -> DType:
    """The widest dtype among eligible tensors; ``lower`` where there is none."""
    found: DType | None = None
    for value in values:
        for each in value if isinstance(value, (list, tuple)) else (value,):
            if eligible(each, device_type):
                dtype = each.spec.dtype
                found = dtype if found is None else promote(found, dtype)
    return lower if found is None else found


def with_dtype(op: Op, args: Values, kwargs: Named | None,
               device_type: str) -> tuple[Values, Named | None]:
    """The arguments with ``dtype`` float32 where none is given: the op itself casts as it reads."""
    values = op.bind(args, kwargs)
    place = op.names.index("dtype")
    if (values[place] is not None or not eligible(values[0], device_type)
            or values[0].spec.dtype is float32):
        return args, kwargs
    if not kwargs and len(args) <= place and op.variadic < 0:
        return args, {"dtype": float32}
    named = dict(zip(op.names[1:], values[1:], strict=True))
    return values[:1], {**named, "dtype": float32}


def refusal(op: Op, state: ModeState, args: Values, kwargs: Named | None) -> Exception:
    """The error of an op that is not safe in narrow types."""
    call = Call(op, state, op.bind(args, kwargs), None, PLAIN)
    return call.error(
        RuntimeError,
        f"{op.name} is unsafe to autocast: its gradient leaves the range of narrow types",
        "use binary_cross_entropy_with_logits (BCEWithLogitsLoss), which takes what sigmoid would "
        "be given, or call it inside autocast(..., enabled=False) with float32 operands")
