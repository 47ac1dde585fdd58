"""Operands on several devices: refused, but for scalars, and inside a scope that allows them."""

from __future__ import annotations

import threading
from typing import Any

from slipstream.core.dispatch.entry import POINTWISE
from slipstream.core.vocab.devices import CPU, Device
from slipstream.core.vocab.modes import decode_site, modes
from slipstream.core.vocab.records import TensorBase


class Mixing(threading.local):
    """A thread's permission to copy operands to the others' device; ``copies`` by the line."""

    allowed = False

    def __init__(self) -> None:
        self.copies: dict[tuple[str, int], list[int]] = {}

    def count(self, nbytes: int) -> None:
        """Count a copy for the line that asked."""
        state = modes.current()
        entry = self.copies.setdefault(decode_site(state.code, state.instruction), [0, 0])
        entry[0] += 1
        entry[1] += nbytes


class Hooks:
    """What the layer above provides; set once at import."""

    to_device: Any = None
    full: Any = None
    number_of: Any = None


class Scopes:
    """How many scopes that allow it are entered, of all threads: where none is, nobody asks."""

    count = 0
    lock = threading.Lock()

    def change(self, by: int) -> None:
        """Count scopes that are entered or left."""
        with self.lock:
            self.count += by


mixing = Mixing()
scopes = Scopes()
hooks = Hooks()


def gather(op: Any, values: Any, target: Any) -> Any:
    """The arguments with operands brought to one device; None where that is not allowed.

    A 0-dim tensor of the CPU goes where the others are, as a number would (pointwise ops); any
    operand does where `mixing.allowed`.  The device is the target's, or the first one not the CPU.
    """
    device = _wanted(values, target)
    if device is None:
        return None
    moved = []
    for value in values:
        if isinstance(value, (list, tuple)) and any(isinstance(v, TensorBase) for v in value):
            inner = [_brought(op, each, device) for each in value]
            if any(each is None for each in inner):
                return None
            moved.append(type(value)(inner))
            continue
        found = _brought(op, value, device) if isinstance(value, TensorBase) else value
        if found is None and value is not None:
            return None
        moved.append(found)
    return tuple(moved)


def together(args: tuple[Any, ...], named: dict[str, Any] | None, order: Any) -> Any:
    """The arguments of a call, floating tensors brought to one device where a scope allows it.

    For autocast, which casts by device: an operand moved afterwards would keep its wide dtype.
    ``order(args, named)``: all of them as `gather` would meet them.
    """
    device = _wanted(order(args, named), None) if mixing.allowed else None
    if device is None:
        return args, named
    moved = tuple([_moved(value, device) for value in args])
    return moved, named and {name: _moved(value, device) for name, value in named.items()}


def in_order(args: tuple[Any, ...], named: dict[str, Any] | None) -> tuple[Any, ...]:
    """The arguments as they were given."""
    return (*args, *(named or {}).values())


def _moved(value: Any, device: Device) -> Any:
    if type(value) in (list, tuple):
        return type(value)([_moved(each, device) for each in value])
    if (not isinstance(value, TensorBase) or value.spec.device is device or not value.spec.ndim
            or not value.spec.dtype.is_floating_point):
        return value
    mixing.count(value.spec.nbytes)
    return hooks.to_device.call((value, device), None)


def _wanted(values: Any, target: Any) -> Device | None:
    if isinstance(target, TensorBase):
        return target.spec.device
    for value in values:
        for each in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(each, TensorBase) and each.spec.device is not CPU:
                return each.spec.device
    return None


def _brought(op: Any, tensor: Any, device: Device) -> Any:
    if not isinstance(tensor, TensorBase) or tensor.spec.device is device:
        return tensor
    scalar = (tensor.spec.device is CPU and not tensor.spec.ndim
              and op.entry.kind == POINTWISE)
    if not scalar and not mixing.allowed:
        return None
    if not scalar:
        mixing.count(tensor.spec.nbytes)
    elif tensor.record is None or not modes.current().grad_enabled:
        # A kernel that writes a number is replayed with others, and a capture may hold it.
        return hooks.full.call(((), hooks.number_of(tensor), tensor.spec.dtype, device), None)
    return hooks.to_device.call((tensor, device), None)
