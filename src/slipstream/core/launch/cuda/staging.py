"""Copies between pageable host memory and the device, through pinned memory."""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from typing import Any

import numpy as np

from slipstream.core.launch.waiting import host_waits
from slipstream.core.native.driver import TO_DEVICE, TO_HOST, Driver, DriverError
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.modes import modes
from slipstream.core.vocab.ring import COPYING, HOST_COPY, Ring

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


class Moving:
    """A scope in which the host copies ``nbytes``: its time is that of copies in a profile.

    What it waits for inside is still a wait.
    """

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.ring: Ring | None = None
        self.layer = 0
        self.start = 0

    def __enter__(self) -> None:
        ring = self.ring = modes.ring
        if ring is not None:
            self.layer = ring.switch(COPYING)
            self.start = ring.now()

    def __exit__(self, *failure: object) -> None:
        ring = self.ring
        if ring is None:
            return
        state = modes.current()
        ring.write(HOST_COPY, ring.name_of("pageable copy"),
                   ring.site_of(state.code, state.instruction), self.start, ring.now(),
                   self.nbytes)
        ring.switch(self.layer)


def move(target: int, source: int, nbytes: int) -> None:
    """Move bytes of the host."""
    ctypes.memmove(target, source, nbytes)
    charge(nbytes)


def charge(nbytes: int) -> None:
    """Let the simulated host's clock tell of moved bytes."""
    ring = modes.ring
    if ring is not None and ring.virtual is not None:
        ring.virtual.moved(nbytes)


class Staging:
    """A ring of pinned pieces; the host waits only where a piece's last copy is not done.

    In both directions the host moves one piece's bytes while the next ones are copied.
    """

    def __init__(self, driver: Driver, device: Device) -> None:
        self.driver = driver
        self.device = device
        self.pieces: list[Piece] = []
        self.turn = 0
        # The driver is called without the interpreter's lock.
        self.lock = threading.RLock()

    def piece(self) -> Piece:
        """The piece that was used longest ago, free to be written."""
        if len(self.pieces) < PIECES:
            self.pieces.append(Piece(self.driver))
            self.turn = len(self.pieces) - 1
            return self.pieces[-1]
        self.turn = (self.turn + 1) % PIECES
        found = self.pieces[self.turn]
        if found.used and not self.driver.query_event(found.event):
            host_waits(self.device, "pageable copy", self.driver.wait_event, found.event,
                       bound=True)
        return found

    def copy(self, piece: Piece, target: int, source: int, nbytes: int, how: tuple[str, int]
             ) -> None:
        """Submit a piece's copy; ``how``: its kind and stream."""
        if modes.ring is None:
            self.driver.copy(target, source, nbytes, *how)
        else:
            modes.ring.timer.copy(self.driver, target, source, nbytes, *how)
        self.driver.record_event(piece.event, how[1])
        piece.used = True

    def write(self, target: int, data: Any, stream: int) -> None:
        """Copy a contiguous buffer to the device in stream order."""
        source = np.frombuffer(data, np.uint8) if not isinstance(data, np.ndarray) else data
        source = source.reshape(-1).view(np.uint8)
        with self.lock:
            for start in range(0, source.size, PIECE):
                part = source[start:start + PIECE]
                with Moving(part.size):
                    piece = self.piece()
                    move(piece.address, part.ctypes.data, part.size)
                    self.copy(piece, target + start, piece.address, part.size,
                              (TO_DEVICE, stream))

    def read(self, source: int, nbytes: int, stream: int) -> bytes:
        """Bytes of the device, once the stream has written them."""
        if not nbytes:
            self.driver.wait_stream(stream)
            return b""
        if nbytes <= PIECE:
            with self.lock:
                piece = self.piece()
                self.copy(piece, piece.address, source, nbytes, (TO_HOST, stream))
                self.driver.wait_event(piece.event)
                with Moving(nbytes):
                    data = ctypes.string_at(piece.address, nbytes)
                    charge(nbytes)
                return data
        held = bytearray(nbytes)
        self.read_into((ctypes.c_char * nbytes).from_buffer(held), source, nbytes, stream)
        return bytes(held)

    def read_into(self, target: Any, source: int, nbytes: int, stream: int) -> None:
        """Copy bytes of the device to the host's memory, once the stream has written them."""
        address = target if isinstance(target, int) else ctypes.addressof(target)
        flying: deque[tuple[Piece, int, int]] = deque()
        with self.lock:
            for start in range(0, nbytes, PIECE):
                if len(flying) == PIECES:
                    self.land(address, flying.popleft())
                size = min(PIECE, nbytes - start)
                piece = self.piece()
                self.copy(piece, piece.address, source + start, size, (TO_HOST, stream))
                flying.append((piece, start, size))
            while flying:
                self.land(address, flying.popleft())

    def land(self, target: int, flying: tuple[Piece, int, int]) -> None:
        """Wait for a piece's copy and move its bytes to where they belong."""
        piece, start, size = flying
        self.driver.wait_event(piece.event)
        with Moving(size):
            move(target + start, piece.address, size)
