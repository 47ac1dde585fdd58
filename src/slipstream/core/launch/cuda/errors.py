# cython: annotation_typing=False
"""The error slot: where kernels write a bad index, and how it becomes the user's IndexError.

A word of mapped host memory a device.  The first lane that meets a bad index takes the slot and
writes the launch's tag, the position in the index tensor, the value and the bound.  The lane yields
0 or is skipped: kernels never trap, and the device lives on.  It sets a flag in the device's memory
too, for kernels that write nothing after a bad index: a look at the host's memory takes 2 to 25 µs.
"""

from __future__ import annotations

import ctypes
import struct
from collections import deque
from contextlib import suppress
from typing import Any

from slipstream.core.launch.cuda.launches import known_faults
from slipstream.core.native.driver import Driver, DriverError
from slipstream.core.vocab.errors import late
from slipstream.core.vocab.modes import decode_site

# taken, tag, position, value, bound, locked, the flag's address, unused: 8 bytes each.
SLOT_BYTES = 64
# The words that a report writes.
REPORT_BYTES = 48
FLAG_BYTES = 64
# Windows whose sites are kept.
KEPT = 64
# Lines that an error names, where several launched the same kernel.
MOST_LINES = 4


class ErrorSlot:
    """A device's slot and the sites of the windows that may have written it.

    ``flag``: the address of a word of the device that is not 0 once a kernel has reported.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.stream = self.flag = 0
        self.address = driver.allocate_host(SLOT_BYTES, mapped=True)
        ctypes.memset(self.address, 0, SLOT_BYTES)
        try:
            self.device_address = driver.device_address(self.address)
            self.flag = driver.allocate(FLAG_BYTES)
        except DriverError:
            self.free()
            raise
        ctypes.c_int64.from_address(self.address + REPORT_BYTES).value = self.flag
        self.taken = ctypes.c_int64.from_address(self.address)
        self.recent: deque[tuple[list[Any], list[Any]]] = deque(maxlen=KEPT)

    def free(self) -> None:
        """Give the memory back."""
        if self.flag:
            self.driver.free(self.flag)
        self.driver.free_host(self.address)

    def use(self, stream: int) -> None:
        """Lower the flag in a stream, this time and from now on; it is done on return."""
        self.stream = stream
        self.driver.fill(self.flag, 0, 4, FLAG_BYTES // 4, stream)
        self.driver.wait_stream(stream)

    def keep(self, launches: list[Any], sites: list[Any]) -> None:
        """Keep the sites of a window that was sent."""
        self.recent.append((launches, sites))

    def latest(self) -> Any:
        """What was sent last, for `settled`; None where nothing is kept."""
        return self.recent[-1] if self.recent else None

    def check(self, last: Any, drained: list[tuple[list[Any], list[Any]]]) -> None:
        """Raise IndexError with the user's line where a kernel met a bad index.

        RuntimeError where a kernel reported something else that it knows a text for.  ``last``:
        what was the latest before all that was sent was waited for; ``drained``: launches that
        went out of windows which are still open, with the windows' sites.
        """
        if self.taken.value == 0:
            return
        words = struct.unpack("<8q", ctypes.string_at(self.address, SLOT_BYTES))
        self.use(self.stream)
        ctypes.memset(self.address, 0, REPORT_BYTES)
        fault = known_faults.get(words[1], {}).get(words[3])
        if fault is not None:
            text = f"{fault}, at position {words[2]}"
        else:
            text = (f"index {words[3]} is out of bounds for dimension with size {words[4]}, "
                    f"at position {words[2]} of the index")
        lines = self._lines(words[1], struct.pack("<q", words[4]), drained)
        text += f"\n  called at {' or '.join(lines)}" if lines else ""
        error = IndexError(text) if fault is None else RuntimeError(text)
        self.settled(last)
        raise late(error)

    def settled(self, last: Any) -> None:
        """All work up to what was ``last`` is done and told of: later reports are of later work.

        What other threads sent meanwhile stays.
        """
        kept = tuple(self.recent)
        known = [place for place, each in enumerate(kept) if each is last]
        for each in kept[:known[0] + 1] if known else ():
            # Another thread may be at the same.
            with suppress(IndexError):
                if self.recent[0] is each:
                    self.recent.popleft()

    def _lines(self, tag: int, bound: bytes,
               drained: list[tuple[list[Any], list[Any]]]) -> list[str]:
        """Lines that launched the kernel with that bound and were not waited for, last first."""
        found: dict[str, None] = {}
        others: dict[str, None] = {}
        # A copy: other threads go on sending.
        for launches, sites in (*drained, *reversed(tuple(self.recent))):
            for place, launch in enumerate(launches):
                if not tag or launch.mark != tag:
                    continue
                file, line = decode_site(sites[2 * place], sites[2 * place + 1])
                if file:
                    (found if bound in launch.tail else others)[f"{file}:{line}"] = None
        return list(found or others)[:MOST_LINES]
