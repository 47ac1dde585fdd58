"""Defaults that users set: dtype, device, grad mode."""

from __future__ import annotations

import threading
from typing import Any

from slipstream.core.api.interop import Defaults
from slipstream.core.catalog.table import table
from slipstream.core.dispatch.modes import grad_scope, inference_scope
from slipstream.core.dispatch.op import drop_plans
from slipstream.core.dispatch.promotion import defaults
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.dtypes import BY_NAME, DType
from slipstream.core.vocab.modes import modes

Defaults.device = staticmethod(lambda: modes.current().device)


def set_default_dtype(dtype: DType) -> None:
    """Make a float dtype the default; TypeError for another kind."""
    if not isinstance(dtype, DType) or not dtype.is_floating_point:
        raise TypeError("only floating-point types are supported as the default type")
    if defaults.dtype is dtype:
        return
    defaults.dtype = dtype
    # Plans hold what promotion made of the default.
    for op in table.values():
        drop_plans(op)


def get_default_dtype() -> DType:
    """The default float dtype."""
    return defaults.dtype


def set_default_device(device: Any) -> None:
    """Make functions without ``device=`` use this device in this thread; None for the CPU."""
    modes.current().device = None if device is None else Device(device)


def get_default_device() -> Device:
    """The device that functions without ``device=`` use."""
    return modes.current().device or Device("cpu")


class device(Device):
    """A device; also a scope: ``with slipstream.device("meta"):`` makes it the default."""

    __slots__ = ()


def _enter(self: Device) -> Device:
    state = modes.current()
    _before.devices.append(state.device)
    state.device = self
    return self


def _leave(self: Device, *failure: object) -> None:
    modes.current().device = _before.devices.pop()


class Before(threading.local):
    """The default devices around the scopes that a thread has entered, the innermost last."""

    def __init__(self) -> None:
        self.devices: list[Device | None] = []


_before = Before()
Device.__enter__ = _enter  # type: ignore[attr-defined]
Device.__exit__ = _leave  # type: ignore[attr-defined]


class no_grad(grad_scope):
    """A scope, or decorator, in which ops are not recorded for backward."""

    def __init__(self, value: Any = False) -> None:
        super().__init__(False)

    def __new__(cls, value: Any = False) -> Any:
        made = object.__new__(cls)
        if callable(value):
            no_grad.__init__(made)
            return made(value)
        return made


class enable_grad(grad_scope):
    """A scope, or decorator, in which ops are recorded for backward."""

    def __init__(self, value: Any = True) -> None:
        super().__init__(True)

    def __new__(cls, value: Any = True) -> Any:
        made = object.__new__(cls)
        if callable(value):
            enable_grad.__init__(made)
            return made(value)
        return made


class inference_mode(inference_scope):
    """A scope, or decorator, in which nothing is recorded for backward."""

    def __init__(self, mode: Any = True) -> None:
        super().__init__(True if callable(mode) else bool(mode))

    def __new__(cls, mode: Any = True) -> Any:
        made = object.__new__(cls)
        if callable(mode):
            inference_mode.__init__(made)
            return made(mode)
        return made


class set_grad_enabled(grad_scope):
    """Turn recording on or off at once; as a context manager, back at its end."""

    def __init__(self, mode: bool) -> None:
        state = modes.current()
        self.value = bool(mode)
        self.before = [(state.grad_enabled, state.inference)]
        state.grad_enabled = self.value

    def __enter__(self) -> None:
        # Made, it has set the mode already; the scope ends where it was before that.
        if self.before:
            modes.current().grad_enabled = self.value
        else:
            super().__enter__()

    def __call__(self, function: Any) -> Any:
        """Decorate a function: only its body runs with the mode."""
        self.__exit__()
        return super().__call__(function)


def is_grad_enabled() -> bool:
    """Whether ops are recorded for backward in this thread."""
    return modes.current().grad_enabled


def is_inference_mode_enabled() -> bool:
    """Whether an inference scope is active."""
    return modes.current().inference


DTYPES = BY_NAME
