"""What users set and ask of autocast in their thread, and the policy of functions of several ops.

The scope itself is `slipstream.amp.autocast`; what it does with an op says the op's entry.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from slipstream.core.dispatch.autocasting import autocast_function, forget_casts
from slipstream.core.vocab.autocast import AWAKE, BITS, DEVICE_TYPES, AutocastState
from slipstream.core.vocab.dtypes import DType
from slipstream.core.vocab.modes import ModeState, modes

Function = Callable[..., Any]


def settings_of(state: ModeState) -> AutocastState:
    """A thread's settings, made at their first use."""
    if state.autocast is None:
        state.autocast = AutocastState()
    settings: AutocastState = state.autocast
    return settings


def is_autocast_available(device_type: str) -> bool:
    """Whether there is autocast for a device type; TypeError for what is no str."""
    if not isinstance(device_type, str):
        raise TypeError("is_autocast_available(): argument 'device_type' must be str, not "
                        f"{type(device_type).__name__}")
    return device_type in DEVICE_TYPES


def _known(function: str, device_type: Any) -> str:
    if not isinstance(device_type, str):
        raise TypeError(f"{function}(): argument 'device_type' must be str, not "
                        f"{type(device_type).__name__}")
    if device_type not in DEVICE_TYPES:
        raise RuntimeError(f"{function}(): there is no autocast for device type "
                           f"{device_type!r}, only for {' and '.join(DEVICE_TYPES)}")
    return device_type


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether ops on a device type are autocast in this thread.

    Raises RuntimeError for a device type without autocast.
    """
    kind = _known("is_autocast_enabled", device_type)
    return bool(modes.current().special & BITS[kind])


def set_autocast_enabled(device_type: Any, enabled: bool | None = None) -> None:
    """Turn autocast on or off for a device type in this thread, until it is set again.

    With a bool alone it stands for CUDA.  Raises RuntimeError for a device type without autocast,
    TypeError for a value that is no bool.
    """
    if enabled is None:
        device_type, enabled = "cuda", device_type
    kind = _known("set_autocast_enabled", device_type)
    if not isinstance(enabled, bool):
        raise TypeError("set_autocast_enabled(): argument 'enabled' must be bool, not "
                        f"{type(enabled).__name__}")
    state = modes.current()
    settings_of(state).enabled[kind] = enabled
    _set_bit(state, kind, enabled)


def _set_bit(state: ModeState, device_type: str, awake: bool) -> None:
    bit = BITS[device_type]
    state.special = state.special & ~bit | (bit if awake else 0)


def wake(state: ModeState) -> None:
    """Let the thread's ops see autocast of the device types for which it is enabled."""
    enabled = settings_of(state).enabled
    bits = sum([BITS[kind] for kind, value in enabled.items() if value])
    state.special = state.special & ~AWAKE | bits


class awakened:
    """A scope in which autocast is as the user set it: a user's code inside a backward."""

    __slots__ = ("before",)

    def __enter__(self) -> None:
        state = modes.current()
        self.before = state.special & AWAKE
        if state.autocast is not None:
            wake(state)

    def __exit__(self, *failure: object) -> None:
        state = modes.current()
        state.special = state.special & ~AWAKE | self.before


def save_autocast(device_type: str) -> tuple[Any, ...]:
    """What a scope changes, as `restore_autocast` takes it."""
    state = modes.current()
    settings = settings_of(state)
    return (settings.enabled[device_type], settings.dtypes[device_type], settings.caching,
            bool(state.special & BITS[device_type]))


def restore_autocast(device_type: str, saved: tuple[Any, ...]) -> None:
    """Put back what `save_autocast` told."""
    state = modes.current()
    settings = settings_of(state)
    enabled, dtype, settings.caching, awake = saved
    settings.enabled[device_type] = enabled
    settings.dtypes[device_type] = dtype
    _set_bit(state, device_type, awake)


def get_autocast_dtype(device_type: str) -> DType:
    """The dtype that autocast lowers to on a device type: bfloat16 on the CPU, float16 on CUDA,
    unless it was set; RuntimeError for a device type without autocast.
    """
    kind = _known("get_autocast_dtype", device_type)
    return settings_of(modes.current()).dtypes[kind]


def set_autocast_dtype(device_type: str, dtype: DType) -> None:
    """Set the dtype that autocast lowers to on a device type in this thread.

    Raises RuntimeError for a device type without autocast, TypeError for what is no float dtype.
    """
    kind = _known("set_autocast_dtype", device_type)
    if not isinstance(dtype, DType) or not dtype.is_floating_point:
        raise TypeError(f"set_autocast_dtype(): argument 'dtype' must be a float dtype, not "
                        f"{dtype!r}")
    settings_of(modes.current()).dtypes[kind] = dtype


def is_autocast_cache_enabled() -> bool:
    """Whether casts of weights are kept until the outermost scope ends."""
    return settings_of(modes.current()).caching


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Keep casts of weights until the outermost scope ends, or cast anew at each use."""
    settings_of(modes.current()).caching = bool(enabled)


def clear_autocast_cache() -> None:
    """Drop the casts of weights that this thread keeps."""
    settings = settings_of(modes.current())
    forget_casts(settings, settings.nesting == 0)


def end_scope(ended: bool) -> None:
    """One scope less; the outermost one drops the thread's casts of weights.

    ``ended``: it was not left by an exception, so that what it cast is what its like will cast.
    """
    if autocast_decrement_nesting() == 0:
        forget_casts(settings_of(modes.current()), ended)


def autocast_increment_nesting() -> int:
    """Count one scope more; the number of scopes that the thread is in."""
    settings = settings_of(modes.current())
    settings.nesting += 1
    return settings.nesting


def autocast_decrement_nesting() -> int:
    """Count one scope less; the number of scopes that the thread is in."""
    settings = settings_of(modes.current())
    settings.nesting -= 1
    return settings.nesting


def is_autocast_cpu_enabled() -> bool:
    """`is_autocast_enabled` of the CPU, by its old name."""
    return is_autocast_enabled("cpu")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """`set_autocast_enabled` of the CPU, by its old name."""
    set_autocast_enabled("cpu", enabled)


def get_autocast_cpu_dtype() -> DType:
    """`get_autocast_dtype` of the CPU, by its old name."""
    return get_autocast_dtype("cpu")


def set_autocast_cpu_dtype(dtype: DType) -> None:
    """`set_autocast_dtype` of the CPU, by its old name."""
    set_autocast_dtype("cpu", dtype)


def get_autocast_gpu_dtype() -> DType:
    """`get_autocast_dtype` of CUDA, by its old name."""
    return get_autocast_dtype("cuda")


def set_autocast_gpu_dtype(dtype: DType) -> None:
    """`set_autocast_dtype` of CUDA, by its old name."""
    set_autocast_dtype("cuda", dtype)


def autocast_as(policy: str = "", **by_device_type: str) -> Callable[[Function], Function]:
    """Decorate a function of several ops that is one op to autocast, with an entry's policies."""
    policies = by_device_type or dict.fromkeys(DEVICE_TYPES, policy)

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if modes.current().special & AWAKE:
                return autocast_function(function, policies, args, kwargs)
            return function(*args, **kwargs)

        return call

    return decorate


NAMES = (
    "autocast_decrement_nesting", "autocast_increment_nesting", "clear_autocast_cache",
    "get_autocast_cpu_dtype", "get_autocast_dtype", "get_autocast_gpu_dtype",
    "is_autocast_cache_enabled", "is_autocast_cpu_enabled", "is_autocast_enabled",
    "set_autocast_cache_enabled", "set_autocast_cpu_dtype", "set_autocast_cpu_enabled",
    "set_autocast_dtype", "set_autocast_enabled", "set_autocast_gpu_dtype",
)
