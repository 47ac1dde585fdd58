"""The engine: the C library that runs kernels and knows which bytes may be touched."""

from __future__ import annotations

import ctypes
from typing import Any

from slipstream.core.native.simulated.toolchain import Toolchain, load_library

READ, WRITE = 1, 2
MOST_FAULTS = 32
WORD, NUMBER, BYTES = ctypes.c_uint64, ctypes.c_uint, ctypes.c_char_p


class Triple(ctypes.Structure):
    """slip_triple."""

    _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint))

    def __iter__(self) -> Any:
        yield from (self.x, self.y, self.z)


class FaultRecord(ctypes.Structure):
    """slip_fault: what went wrong in a piece of work."""

    _fields_ = (
        ("kind", ctypes.c_int), ("access", ctypes.c_int), ("thread", Triple), ("block", Triple),
        ("address", WORD), ("start", WORD), ("size", WORD), ("identity", WORD),
        ("nbytes", ctypes.c_uint), ("other", ctypes.c_uint), ("text", ctypes.c_char * 120),
    )


# (result, arguments) of each function; the world comes first where there is a P.
POINTER, INT = ctypes.c_void_p, ctypes.c_int
FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "slip_take_faults": (NUMBER, (POINTER, NUMBER)),
    "slip_world_new": (POINTER, (INT, INT, INT)),
    "slip_world_free": (None, (POINTER,)),
    "slip_memory_new": (WORD, (WORD, WORD, INT)),
    "slip_memory_free": (None, (WORD, WORD)),
    "slip_memory_map": (INT, (WORD, WORD, INT, WORD)),
    "slip_memory_unmap": (INT, (WORD, WORD)),
    "slip_unit_add": (None, (POINTER, WORD, WORD, INT, INT, INT)),
    "slip_unit_remove": (None, (POINTER, WORD)),
    "slip_part_add": (None, (POINTER, WORD, WORD)),
    "slip_part_add_on": (None, (POINTER, WORD, WORD, INT)),
    "slip_part_remove": (None, (POINTER, WORD, WORD)),
    "slip_is_mapped": (INT, (POINTER, WORD, WORD)),
    "slip_handed_out": (WORD, (POINTER, WORD, WORD, WORD)),
    "slip_taken_back": (WORD, (POINTER, WORD, WORD)),
    "slip_dead_count": (WORD, (POINTER,)),
    "slip_forget_dead": (None, (POINTER, WORD)),
    "slip_begin": (NUMBER, (POINTER, WORD, INT, NUMBER, BYTES, NUMBER)),
    "slip_access": (INT, (POINTER, WORD, WORD, INT)),
    "slip_kind_of": (INT, (POINTER, WORD)),
    "slip_device_of": (INT, (POINTER, WORD)),
    "slip_run": (NUMBER, (POINTER, POINTER, BYTES, NUMBER, BYTES, WORD, POINTER)),
}


class Engine:
    """The library's functions, by their names without the prefix."""

    def __init__(self, toolchain: Toolchain) -> None:
        # Short calls keep the interpreter's lock; a kernel lets others run.
        self.library = load_library(toolchain.engine())
        quick = ctypes.PyDLL(None, handle=self.library._handle)
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(self.library if name == "slip_run" else quick, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name.removeprefix("slip_"), function)
        self.records = (FaultRecord * MOST_FAULTS)()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the engine has no function {name}")

    def faults(self) -> tuple[int, list[FaultRecord]]:
        """How many accesses went wrong since the last call, and the first of them."""
        count = self.take_faults(self.records, MOST_FAULTS)
        kept = [FaultRecord.from_buffer_copy(each) for each in self.records[: min(count, 32)]]
        return count, kept


loaded: dict[tuple[str, ...], Engine] = {}


def engine_for(toolchain: Toolchain) -> Engine:
    """The engine, built or taken from the cache folder at the process's first use of it."""
    key = toolchain.command
    if key not in loaded:
        loaded[key] = Engine(toolchain)
    return loaded[key]
