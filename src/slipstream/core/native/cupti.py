"""CUPTI's activity records: when each kernel and copy began and ended, as the card itself says.

Of each record the fields are read that all known versions have in the same places; a version that
is not known is not read.
"""

from __future__ import annotations

import ctypes
import re
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from slipstream.core.native.collector import Collector
from slipstream.core.vocab.settings import settings

# Versions of its interface whose records are laid out as below: CUDA 12.0 to 12.9, 13.0 to 13.5.
KNOWN = (range(18, 29), range(130000, 130600))
MEMCPY, KERNEL, MEMCPY_PEER = 1, 10, 22
COPIES = (MEMCPY, MEMCPY_PEER)
# Begin, end, device, stream, correlation, name, graph of a kernel; bytes first of the others.
KERNEL_FIELDS = struct.Struct("<16xQQ8xI4xI40xI8xQ44xI")
FIELDS = {MEMCPY: struct.Struct("<8xQQQI4xII"), MEMCPY_PEER: struct.Struct("<8xQQQI4xI16xI")}
KIND = struct.Struct("<I")
END, FORCED = 12, 1
# Statuses that say that another tool has it.
TAKEN = (12, 39)
MOST_DEVICES = 256
# Bytes of records that wait to be read: of a million kernels.
MOST_BYTES = 1 << 28
OFF = ("0", "off")
SONAME = re.compile(r"/libcupti\.so[.\d]*$")
TOOLKITS = ("/usr/local/cuda/extras/CUPTI/lib64", "/usr/local/cuda/lib64")


class CuptiError(RuntimeError):
    """CUPTI cannot be used; the text says why, for people."""


class Activity(NamedTuple):
    """A record: ``start`` and ``end`` by CUPTI's clock, both 0 where it has no times.

    ``correlation`` grows with the driver's calls and is the same for all kernels of a graph's
    launch; ``graph``: 0 for work that a graph did not launch.
    """

    kind: int
    start: int
    end: int
    device: int
    stream: int
    correlation: int
    name: str
    nbytes: int
    graph: int


def loaded() -> Iterator[str]:
    """The library that this process has already, as PyTorch loads it: two do not work together."""
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        path = line[line.find("/"):] if "/" in line else ""
        if SONAME.search(path):
            yield path


def candidates() -> Iterator[str]:
    """Where it may be: named, loaded, beside NVIDIA's wheels, in a toolkit, the loader's path."""
    if settings.cupti:
        yield settings.cupti
        return
    yield from loaded()
    for folder in sys.path:
        found = Path(folder) / "nvidia"
        yield from map(str, sorted(found.glob("*/lib/libcupti.so.*"), reverse=True))
    for folder in TOOLKITS:
        yield from map(str, sorted(Path(folder).glob("libcupti.so.*"), key=lambda path: len(
            path.name)))
    yield from ("libcupti.so.13", "libcupti.so.12", "libcupti.so")


def version_text(version: int) -> str:
    """A version of its interface as text: CUPTI 13.0, or the number that older ones have."""
    if version < 1000:
        return f"CUPTI of CUDA 12 (interface {version})"
    return f"CUPTI {version // 10000}.{version // 100 % 100}"


class Cupti:
    """The library, opened; ``path``, ``version`` and what is asked of it."""

    def __init__(self, library: Any, path: str) -> None:
        self.library = library
        self.path = path
        self.collector = Collector()
        self.subscriber = ctypes.c_void_p()
        self.awaits_copy = False
        for name in ("cuptiSubscribe", "cuptiActivityRegisterCallbacks"):
            # Addresses are longer than the numbers that ctypes passes by itself.
            getattr(library, name).argtypes = (ctypes.c_void_p,) * (
                3 if name == "cuptiSubscribe" else 2)
        library.cuptiActivityGetNextRecord.argtypes = (
            ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
        number = ctypes.c_uint32()
        self.check("cuptiGetVersion", ctypes.byref(number))
        self.version = number.value

    def check(self, name: str, *arguments: Any) -> None:
        """Call a function; raises CuptiError where it fails."""
        status = getattr(self.library, name)(*arguments)
        if status:
            raise CuptiError(f"{name} failed with {self.status_name(status)}")

    def status_name(self, status: int) -> str:
        """The name of a status."""
        name = ctypes.c_char_p()
        if self.library.cuptiGetResultString(status, ctypes.byref(name)) or not name.value:
            return f"status {status}"
        return name.value.decode(errors="replace")

    def begin(self) -> None:
        """Let records be made from now on.  Raises CuptiError where that cannot be."""
        callbacks = self.collector.callbacks
        if not callbacks:
            raise CuptiError("the core runs uncompiled, and CUPTI calls C functions alone")
        if not any(self.version in known for known in KNOWN):
            raise CuptiError(f"the records of {version_text(self.version)} are not known here")
        requested, completed, silent = callbacks
        status = self.library.cuptiSubscribe(ctypes.byref(self.subscriber), silent, None)
        if status:
            why = ("another profiler uses CUPTI in this process"
                   if status in TAKEN else "cuptiSubscribe failed")
            raise CuptiError(f"{why} ({self.status_name(status)})")
        try:
            self.collector.begin(MOST_BYTES)
            self.check("cuptiActivityRegisterCallbacks", requested, completed)
            self.check("cuptiActivityEnable", KERNEL)
        except CuptiError:
            self.release()
            raise
        self.awaits_copy = True

    def time_copies(self) -> None:
        """Let copies have records from now on; a second call does nothing.

        While they have, each launch of a graph is dearer, though there be no copy in it (an H200:
        0.25 µs a kernel), so that this waits for the first copy.
        """
        if self.awaits_copy:
            self.awaits_copy = False
            for kind in COPIES:
                # Without these kernels have their times all the same.
                self.library.cuptiActivityEnable(kind)

    def time_kernels(self, wanted: bool) -> bool:
        """Let kernels that are launched from now on have records, or not; whether that worked.

        Records of graphs as a whole (its kind 51) would be cheap and tell more, but CUPTI 13.0
        has crashed where they were turned on after graphs had records of their kernels.
        """
        library = self.library
        call = library.cuptiActivityEnable if wanted else library.cuptiActivityDisable
        return not call(KERNEL)

    def release(self) -> None:
        """Let other tools have it."""
        self.library.cuptiUnsubscribe(self.subscriber)
        self.subscriber = ctypes.c_void_p()

    def stop(self) -> None:
        """Make no more records; those of work that is done are in the collector's buffers."""
        self.awaits_copy = False
        self.library.cuptiActivityFlushAll(0)
        for kind in (KERNEL, *COPIES):
            self.library.cuptiActivityDisable(kind)
        self.library.cuptiActivityFlushAll(FORCED)

    def end(self) -> tuple[list[Activity], int]:
        """Stop; all records, and how many were lost.  Raises CuptiError for other layouts."""
        self.stop()
        found: list[Activity] = []
        lost = ctypes.c_size_t()
        try:
            for address, nbytes in self.collector.take():
                try:
                    found += self.records(address, nbytes)
                finally:
                    self.collector.free(address)
            self.library.cuptiActivityGetNumDroppedRecords(None, 0, ctypes.byref(lost))
        finally:
            self.release()
        return found, lost.value

    def records(self, address: int, nbytes: int) -> Iterator[Activity]:
        """The records of a buffer that are of use."""
        names: dict[int, str] = {}
        data = memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B")
        record, last = ctypes.c_void_p(), -1
        advance, place = self.library.cuptiActivityGetNextRecord, ctypes.byref(record)
        while not advance(address, nbytes, place):
            at = (record.value or 0) - address
            if at <= last or at + KIND.size > nbytes:
                raise CuptiError("a record lies outside of its buffer")
            last = at
            kind = KIND.unpack_from(data, at)[0]
            if kind == KERNEL or kind in FIELDS:
                yield parsed(kind, data[at:], names)

    def now(self) -> int:
        """Nanoseconds of the clock of its records."""
        found = ctypes.c_uint64()
        self.check("cuptiGetTimestamp", ctypes.byref(found))
        return found.value


def parsed(kind: int, data: memoryview, names: dict[int, str]) -> Activity:
    """A record of bytes.  Raises CuptiError for what cannot be one."""
    fields = KERNEL_FIELDS if kind == KERNEL else FIELDS[kind]
    if fields.size > len(data):
        raise CuptiError("a record ends behind its buffer")
    nbytes, pointer, graph = 0, 0, 0
    if kind == KERNEL:
        start, end, device, stream, correlation, pointer, graph = fields.unpack_from(data)
    else:
        nbytes, start, end, device, stream, correlation = fields.unpack_from(data)
    # Numbers that make no sense: the layout is another, and the name no address.
    if end < start or device >= MOST_DEVICES or (start == 0) != (end == 0):
        raise CuptiError("records are not laid out as this version's are known to be")
    if pointer and pointer not in names:
        names[pointer] = ctypes.string_at(pointer).decode(errors="replace")
    return Activity(kind, start, end, device, stream, correlation, names.get(pointer, ""), nbytes,
                    graph)


class Clock:
    """Turns CUPTI's time into the profile's: they are read together at its start and its end."""

    def __init__(self, library: Cupti, now: Callable[[], int]) -> None:
        self.library = library
        self.now = now
        self.first = self.last = self.pair()

    def pair(self) -> tuple[int, int]:
        """(CUPTI's time, ours), read as close together as a few tries get them."""
        found = []
        for _ in range(5):
            before = self.now()
            theirs = self.library.now()
            after = self.now()
            found.append((after - before, theirs, (before + after) // 2))
        return min(found)[1:]

    def stop(self) -> None:
        """Read both once more."""
        self.last = self.pair()

    def of(self, time: int) -> int:
        """A time of CUPTI's in ours."""
        span = self.last[0] - self.first[0]
        # The clocks' rates differ by parts of a million; more than a thousandth is no rate.
        rate = (self.last[1] - self.first[1]) / span if span > 0 else 1.0
        if not 0.999 < rate < 1.001:
            rate = 1.0
        return self.last[1] + int((time - self.last[0]) * rate)


class Opened:
    """The library once it is found, or why it is not; a singleton, `opened`."""

    def __init__(self) -> None:
        self.known: Cupti | None = None
        self.path = ""

    def library(self) -> Cupti:
        """The library.  Raises CuptiError with the mend where there is none."""
        if settings.cupti in OFF:
            raise CuptiError("SLIPSTREAM_CUPTI turns CUPTI off")
        if self.known is None or self.path != settings.cupti:
            self.known, self.path = self.find(), settings.cupti
        return self.known

    def find(self) -> Cupti:
        """Open the first that is there."""
        for name in candidates():
            try:
                return Cupti(ctypes.CDLL(name), name)
            except (OSError, AttributeError):
                continue
        named = f" at {settings.cupti}, where SLIPSTREAM_CUPTI says" if settings.cupti else ""
        raise CuptiError(f"CUPTI is not found{named}: pip install nvidia-cuda-cupti")


opened = Opened()
