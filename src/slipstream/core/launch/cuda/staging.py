"""Copies between pageable host memory and the device, through pinned memory."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from slipstream.core.native.driver import TO_DEVICE, TO_HOST, Driver, DriverError

# A piece of pinned memory; a larger copy goes in several.
PIECE = 4 << 20
PIECES = 4


class Piece:
    """Pinned memory, and the event after which it may be used again."""

    def __init__(self, driver: Driver) -> None:
        self.address = driver.allocate_host(PIECE)
        try:
            self.event = driver.create_event()
        except DriverError:
            driver.free_host(self.address)
            raise
        self.used = False


class Staging:
    """A ring of pinned pieces; the host waits only where a piece's last copy is not done."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.pieces: list[Piece] = []
        self.turn = 0

    def piece(self) -> Piece:
        """The next piece, free to be written."""
        if len(self.pieces) < PIECES:
            self.pieces.append(Piece(self.driver))
            return self.pieces[-1]
        self.turn = (self.turn + 1) % PIECES
        found = self.pieces[self.turn]
        if found.used and not self.driver.query_event(found.event):
            self.driver.wait_event(found.event)
        return found

    def write(self, target: int, data: Any, stream: int) -> None:
        """Copy a contiguous buffer to the device in stream order."""
        source = np.frombuffer(data, np.uint8) if not isinstance(data, np.ndarray) else data
        source = source.reshape(-1).view(np.uint8)
        for start in range(0, source.size, PIECE):
            part = source[start:start + PIECE]
            piece = self.piece()
            ctypes.memmove(piece.address, part.ctypes.data, part.size)
            self.driver.copy(target + start, piece.address, part.size, TO_DEVICE, stream)
            self.driver.record_event(piece.event, stream)
            piece.used = True

    def read(self, source: int, nbytes: int, stream: int) -> bytes:
        """Bytes of the device, once the stream has written them."""
        parts = []
        for start in range(0, nbytes, PIECE):
            size = min(PIECE, nbytes - start)
            piece = self.piece()
            self.driver.copy(piece.address, source + start, size, TO_HOST, stream)
            self.driver.record_event(piece.event, stream)
            self.driver.wait_event(piece.event)
            parts.append(ctypes.string_at(piece.address, size))
        if not parts:
            self.driver.wait_stream(stream)
        return b"".join(parts)
