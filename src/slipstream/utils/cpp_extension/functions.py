"""The functions of an extension: Python values go to C++ and results come back."""

from __future__ import annotations

import ctypes
from typing import Any

from slipstream.core.vocab.records import TensorBase
from slipstream.utils.cpp_extension.bridge import (
    INTEGER,
    LIST,
    NONE,
    NUMBER,
    TENSOR,
    TEXT,
    TRUTH,
    Bridge,
    Value,
)

FINE, PENDING, WRONG_TYPE = range(3)
RESULTS = {"slip_complaint": ctypes.c_char_p, "slip_result_shape": ctypes.c_int64,
           "slip_results": ctypes.POINTER(Value), "slip_result_count": ctypes.c_int64,
           "slip_attach": None, "slip_forget": None}


def attach(library: Any, bridge: Bridge) -> None:
    """Hand the library the table of functions that it calls."""
    for name, result in RESULTS.items():
        getattr(library, name).restype = result
    library.slip_attach(ctypes.byref(bridge.table))


class Function:
    """A C++ function as a Python function; positional arguments only."""

    def __init__(self, name: str, doc: str, library: Any, bridge: Bridge) -> None:
        self.__name__ = name
        self.__doc__ = doc or f"The C++ function {name}."
        self.library = library
        self.bridge = bridge
        self.entry = getattr(library, f"slip_call_{name}")
        self.entry.restype = ctypes.c_int

    def __call__(self, *args: Any) -> Any:
        """Call the function.

        Raises TypeError for arguments that it does not take, RuntimeError for what C++ threw.
        """
        bridge = self.bridge
        before = bridge.begin()
        try:
            kept: list[Any] = []
            values = self._packed(args, kept)
            status = self.entry(values, ctypes.c_int64(len(args)))
            if status != FINE:
                raise self._failure(status)
            return self._result()
        finally:
            self.library.slip_forget()
            bridge.end(before)

    def _failure(self, status: int) -> BaseException:
        error = self.bridge.calls.error
        if status == PENDING and error is not None:
            return error
        text = self.library.slip_complaint().decode(errors="replace")
        if status == WRONG_TYPE:
            return TypeError(f"{self.__name__}(): {text}")
        return RuntimeError(text)

    def _packed(self, values: Any, kept: list[Any]) -> Any:
        """Values as an array of slip::value; ``kept`` is what has to live through the call."""
        made = (Value * max(len(values), 1))()
        for place, value in enumerate(values):
            self._pack(made[place], value, kept)
        kept.append(made)
        return made

    def _pack(self, out: Value, value: Any, kept: list[Any]) -> None:
        if isinstance(value, TensorBase):
            out.kind, out.integer = TENSOR, self.bridge.hold(value)
        elif value is None:
            out.kind = NONE
        elif isinstance(value, bool):
            out.kind, out.integer = TRUTH, value
        elif isinstance(value, int):
            if not -(1 << 63) <= value < 1 << 63:
                raise OverflowError(f"{self.__name__}(): {value} needs more than 64 bits")
            out.kind, out.integer = INTEGER, value
        elif isinstance(value, float):
            out.kind, out.number = NUMBER, value
        elif isinstance(value, str):
            text = value.encode()
            kept.append(text)
            out.kind, out.text = TEXT, text
        elif isinstance(value, (list, tuple)):
            out.kind, out.integer = LIST, len(value)
            out.items = ctypes.cast(self._packed(value, kept), ctypes.POINTER(Value))
        else:
            raise TypeError(f"{self.__name__}(): no C++ function takes a {type(value).__name__}")

    def _result(self) -> Any:
        shape = self.library.slip_result_shape()
        found = self.library.slip_results()
        values = [self._unpacked(found[place])
                  for place in range(self.library.slip_result_count())]
        if shape < 0:
            return values[0]
        return tuple(values) if values else None

    def _unpacked(self, value: Value) -> Any:
        if value.kind == TENSOR:
            return self.bridge.calls.seen[value.integer]
        return {NONE: None, NUMBER: value.number, TRUTH: bool(value.integer)}.get(
            value.kind, value.integer)

    def __repr__(self) -> str:
        return f"<C++ function {self.__name__}>"
