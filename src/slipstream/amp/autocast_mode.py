"""The scope in which ops choose their dtype, and what steps of one's own need inside it."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import slipstream as ss
from slipstream.core.api.autocasting import (
    autocast_increment_nesting,
    end_scope,
    is_autocast_available,
    restore_autocast,
    save_autocast,
)

__all__ = ["autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]

LOWERED = (ss.bfloat16, ss.float16)


class autocast:
    """A scope, or decorator, in which each op runs in the dtype that suits it.

    Matrix products and convolutions take their operands in ``dtype``; ops that need range or
    precision, such as losses, take float32; ops of several tensors take the widest dtype among
    them; all others take what they are given.  float64, complex and integers are never cast, nor
    are in-place and ``out=`` forms.  A float32 weight is cast once and kept until the outermost
    scope of the thread ends, or it is written; gradients arrive in float32.  Backward runs in the
    dtypes of the forward, inside and outside of the scope.

    ``device_type``: "cpu" or "cuda"; ops on the other are left alone.  ``dtype``: bfloat16 or
    float16; by default bfloat16 on the CPU and float16 on CUDA.  ``enabled=False``: a scope without
    autocast.  ``cache_enabled``: whether casts of weights are kept.  Scopes nest; each holds for
    its thread.

    Raises ValueError for a device type that is no str, TypeError for what is no float dtype,
    RuntimeError for a device type without autocast and for bfloat16 on a card without it.  Warns,
    and does nothing, where there is no CUDA, and for another dtype on the CPU.
    """

    # How many frames above a warning the user's line is.
    _depth = 3

    def __init__(self, device_type: str, dtype: ss.dtype | None = None, enabled: bool = True,
                 cache_enabled: bool | None = None) -> None:
        if not isinstance(device_type, str):
            raise ValueError("autocast: device_type must be a str such as 'cuda', not "
                             f"{type(device_type).__name__}")
        if not is_autocast_available(device_type):
            raise RuntimeError(f"autocast: unsupported autocast device_type {device_type!r}; "
                               "there are 'cpu' and 'cuda'")
        self.device = device_type
        self.fast_dtype = ss.get_autocast_dtype(device_type) if dtype is None else dtype
        if not isinstance(self.fast_dtype, ss.dtype) or not self.fast_dtype.is_floating_point:
            raise TypeError(f"autocast: dtype must be a float dtype, not {self.fast_dtype!r}")
        self._cache_enabled = (ss.is_autocast_cache_enabled() if cache_enabled is None
                               else bool(cache_enabled))
        self._enabled = bool(enabled) and self._usable()
        self._before: list[Any] = []

    def _usable(self) -> bool:
        """Whether the device type can be autocast to the dtype; warns where it cannot."""
        if self.device == "cuda" and not ss.cuda.is_available():
            warnings.warn("autocast: CUDA is not available; autocast is disabled",
                          stacklevel=self._depth)
            return False
        if self.device == "cuda" and self.fast_dtype is ss.bfloat16:
            if not ss.cuda.is_bf16_supported():
                raise RuntimeError("autocast: the current CUDA device does not support bfloat16\n"
                                   "  mend: use dtype=slipstream.float16")
        if self.device == "cpu" and self.fast_dtype not in LOWERED:
            warnings.warn(f"autocast: the CPU's target dtype is bfloat16 or float16, not "
                          f"{self.fast_dtype}; autocast is disabled", stacklevel=self._depth)
            return False
        return True

    def __enter__(self) -> autocast:
        self._before.append(save_autocast(self.device))
        ss.set_autocast_enabled(self.device, self._enabled)
        ss.set_autocast_dtype(self.device, self.fast_dtype)
        ss.set_autocast_cache_enabled(self._cache_enabled)
        autocast_increment_nesting()
        return self

    def __exit__(self, *failure: object) -> None:
        # First: a scope that was not entered has nothing to restore, and counts for nothing.
        before = self._before.pop()
        end_scope(not failure or failure[0] is None)
        restore_autocast(self.device, before)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorate a function: each call of it is in a scope of its own."""
        @functools.wraps(function)
        def scoped(*args: Any, **kwargs: Any) -> Any:
            with self._again():
                return function(*args, **kwargs)

        return scoped

    def _again(self) -> autocast:
        """The same scope with a memory of its own: calls may nest and run in several threads."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__, _before=[])
        return made


def _checked_type(device_type: Any) -> str:
    if not isinstance(device_type, str):
        raise ValueError("device_type must be a str such as 'cuda', not "
                         f"{type(device_type).__name__}")
    return device_type


def _cast(value: Any, device_type: str, dtype: ss.dtype) -> Any:
    """Floating tensors of a device type but float64 in a dtype, also inside containers."""
    if isinstance(value, ss.Tensor):
        fits = (value.is_floating_point() and value.device.type == device_type
                and value.dtype is not ss.float64)
        return value.to(dtype) if fits else value
    if isinstance(value, Mapping):
        return {_cast(key, device_type, dtype): _cast(each, device_type, dtype)
                for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_cast(each, device_type, dtype) for each in value])
    return value


def custom_fwd(fwd: Callable[..., Any] | None = None, *, device_type: str,
               cast_inputs: ss.dtype | None = None) -> Callable[..., Any]:
    """Decorate the forward of an `autograd.Function`, so that its backward knows of autocast.

    With ``cast_inputs`` a forward inside a scope gets its floating tensors in that dtype and runs
    without autocast; outside of every scope it has no effect.  Raises ValueError for a device type
    that is no str.
    """
    _checked_type(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)
    forward = fwd

    @functools.wraps(forward)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        context, inside = args[0], ss.is_autocast_enabled(device_type)
        context._dtype = ss.get_autocast_dtype(device_type)
        context._fwd_used_autocast = inside and cast_inputs is None
        if cast_inputs is None or not inside:
            return forward(*args, **kwargs)
        with autocast(device_type, enabled=False):
            return forward(*_cast(args, device_type, cast_inputs),
                           **_cast(kwargs, device_type, cast_inputs))

    return decorated


def custom_bwd(bwd: Callable[..., Any] | None = None, *,
               device_type: str) -> Callable[..., Any]:
    """Decorate the backward of an `autograd.Function`: it runs with autocast as its forward did.

    The forward has to be decorated with `custom_fwd`.  Raises ValueError for a device type that is
    no str.
    """
    _checked_type(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)
    backward = bwd

    @functools.wraps(backward)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        context = args[0]
        with autocast(device_type, enabled=context._fwd_used_autocast, dtype=context._dtype):
            return backward(*args, **kwargs)

    return decorated
