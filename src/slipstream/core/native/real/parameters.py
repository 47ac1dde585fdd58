"""A parameter block as the driver takes it whole: (pointer, its size, end)."""

from __future__ import annotations

import ctypes

BUFFER_POINTER, BUFFER_SIZE, END = 1, 2, 0


class Block:
    """Holds a parameter block and the list that hands it over; keep it until the call is done."""

    def __init__(self, parameters: bytes) -> None:
        self.buffer = ctypes.create_string_buffer(parameters, max(len(parameters), 1))
        self.size = ctypes.c_size_t(len(parameters))
        self.list = (ctypes.c_void_p * 5)(
            BUFFER_POINTER, ctypes.addressof(self.buffer),
            BUFFER_SIZE, ctypes.addressof(self.size), END)
        self.address = ctypes.addressof(self.list)
