"""Devices: where a tensor's memory lies and its kernels run."""

from __future__ import annotations

import threading

TYPES = ("cpu", "cuda", "meta", "delay")
# "delay" is there for the tests of the runtime itself.
OFFERED = TYPES[:3]
INDEXED = ("cuda",)


class Device:
    """A device type with an index where the type has several.

    Interned: equal devices are the same object.  ``slipstream.device("cpu")`` accepts a string,
    a device, or a type and an index, also by their names, and raises RuntimeError for what is no
    device.
    """

    __slots__ = ("index", "type")
    type: str
    index: int | None

    def __new__(cls, type: str | int | Device, index: int | None = None) -> Device:
        """Return the one object that stands for the device."""
        if isinstance(type, Device):
            return type
        found = _known.get((type, index)) if isinstance(type, str) else None
        return found if found is not None else _parse(type, index)

    def __repr__(self) -> str:
        tail = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{tail})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __reduce__(self) -> tuple[object, tuple[str, int | None]]:
        return Device, (self.type, self.index)


class Current(threading.local):
    """The thread's current card: what ``"cuda"`` without an index means."""

    index = 0


current = Current()
_known: dict[tuple[str, int | None], Device] = {}


def _parse(kind: str | int, index: int | None) -> Device:
    if isinstance(kind, int) and not isinstance(kind, bool):
        return _make("cuda", kind)
    if not isinstance(kind, str):
        raise TypeError(f"device(): argument 'type' must be str, not {type(kind).__name__}")
    name, colon, tail = kind.partition(":")
    if colon and (index is not None or not tail.isdigit()):
        raise RuntimeError(f"Invalid device string: '{kind}'")
    if name not in TYPES:
        known = ", ".join(OFFERED)
        raise RuntimeError(f"Expected one of {known} device type at start of device string: {kind}")
    return _make(name, int(tail) if colon else index)


def _make(name: str, index: int | None) -> Device:
    if index is not None and index < 0:
        raise RuntimeError(f"Device index must not be negative: {name!r}, {index}")
    if name in INDEXED:
        index = current.index if index is None else index
    elif index not in (None, 0):
        raise RuntimeError(f"Invalid device string: '{name}:{index}': there is one {name} device")
    else:
        index = None
    device = _known.get((name, index))
    if device is None:
        device = object.__new__(Device)
        device.type = name
        device.index = index
        _known[name, index] = device
    return device


CPU = Device("cpu")
META = Device("meta")
