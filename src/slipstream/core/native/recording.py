"""A driver that launches nothing: it tells which kernels a program would have compiled.

Memory is the host's and copies are made, so that what is read back of inputs is right; results of
kernels are zeros.  One device stands for each architecture, so that one run of a program serves
several.  Graphs are not recorded: `SLIPSTREAM_MEMO` has to be off.
"""

from __future__ import annotations

import ctypes
import mmap
from collections import Counter
from typing import Any, NamedTuple

from slipstream.core.native.driver import DeviceProperties, Driver, DriverError

KIB, MIB = 1 << 10, 1 << 20
# Bytes of shared memory that a block may ask for, by capability; cards in between have the least.
SHARED = {75: 64 * KIB, 80: 163 * KIB, 86: 99 * KIB, 87: 163 * KIB, 89: 99 * KIB, 90: 227 * KIB,
          100: 227 * KIB, 103: 227 * KIB, 110: 227 * KIB}
LEAST_SHARED = 99 * KIB
TOTAL = 1 << 40
# Bytes of large tensors of which nobody reads more: they cost no memory.
READ = 1 << 16
# Pages that nobody has to have room for before they are written to.
PAGES = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)


class Source(NamedTuple):
    """What a compiler is asked for: all of CUDA C++, the kernel's name, options, architecture."""

    text: str
    name: str
    options: tuple[str, ...]
    arch: str


def capability_of(arch: str) -> tuple[int, int]:
    """(major, minor) of an architecture such as sm_90; raises ValueError for another text."""
    digits = arch.removeprefix("sm_")
    if not digits.isdigit() or not 75 <= int(digits) < 1000 or digits == arch:
        raise ValueError(f"no architecture {arch!r}: they are called sm_80, sm_90, sm_100, ... "
                         "and CUDA 13 compiles for sm_75 and newer")
    return int(digits[:-1]), int(digits[-1])


class RecordingDriver(Driver):
    """Device ``n`` is a card of ``architectures[n]``; ``sources``: what was compiled, in order."""

    name = "recording"
    has_library = False
    keeps = False
    told = True

    def __init__(self, architectures: tuple[str, ...]) -> None:
        self.architectures = architectures
        self.capabilities = [capability_of(arch) for arch in architectures]
        self.counts: Counter[str] = Counter()
        self.sources: dict[Source, None] = {}
        self.memory: dict[int, mmap.mmap] = {}
        self.made = 0
        self.closed = False

    def check_open(self, call: str) -> None:
        """Raise DriverError when the recording has ended: there is nothing to compute with."""
        if self.closed:
            raise DriverError(call, "INVALID_CONTEXT", "this process has recorded kernels for a "
                              "pack: use CUDA devices in another process")

    def handle(self) -> int:
        """A number for a thing that does nothing."""
        self.made += 1
        return self.made

    # -- devices --

    def version(self) -> int:
        """The CUDA version."""
        return 13000

    def device_count(self) -> int:
        """One for each architecture."""
        return len(self.architectures)

    def properties(self, ordinal: int) -> DeviceProperties:
        """What a card of the architecture offers, as far as kernels depend on it."""
        major, minor = self.capabilities[ordinal]
        shared = SHARED.get(10 * major + minor, LEAST_SHARED)
        return DeviceProperties(
            name=f"none ({self.architectures[ordinal]})", total_memory=TOTAL, major=major,
            minor=minor, multi_processor_count=132, shared_memory_per_block=48 * KIB,
            shared_memory_per_block_optin=shared, registers_per_block=65536,
            max_threads_per_block=1024, max_threads_per_multi_processor=2048, warp_size=32,
            L2_cache_size=50 * MIB, async_engines=2, virtual_memory=False)

    def context(self, ordinal: int) -> int:
        """A context."""
        return 1 + ordinal

    def use(self, context: int) -> None:
        """Nothing: memory is the host's."""

    def synchronize(self) -> None:
        """Nothing is ever pending."""

    def can_access_peer(self, ordinal: int, peer: int) -> bool:
        """Devices are apart."""
        return False

    # -- memory --

    def memory_info(self) -> tuple[int, int]:
        """Untouched pages of the host cost nothing."""
        return TOTAL, TOTAL

    def allocate(self, nbytes: int) -> int:
        """Pages of zeros."""
        try:
            made = mmap.mmap(-1, nbytes, PAGES)
        except OSError as error:
            raise DriverError("allocate", "OUT_OF_MEMORY", str(error)) from error
        address = ctypes.addressof(ctypes.c_char.from_buffer(made))
        self.memory[address] = made
        return address

    def free(self, address: int) -> None:
        """Give pages back."""
        del self.memory[address]

    def allocate_host(self, nbytes: int, mapped: bool = False) -> int:
        """Pages of zeros."""
        return self.allocate(nbytes)

    def free_host(self, address: int) -> None:
        """Give pages back."""
        self.free(address)

    def device_address(self, address: int) -> int:
        """The same memory."""
        return address

    def handed_out(self, address: int, nbytes: int, requested: int) -> None:
        """No block begins with what an earlier one left there: counts that are read are zeros."""
        ctypes.memset(address, 0, min(nbytes, READ))

    def copy(self, target: int, source: int, nbytes: int, kind: str, stream: int) -> None:
        """Copy at once what may be looked at."""
        self.check_open("copy")
        ctypes.memmove(target, source, min(nbytes, READ))

    def fill(self, target: int, value: int, width: int, count: int, stream: int) -> None:
        """Fill at once."""
        unit = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
        count = min(count, READ // width)
        ctypes.memmove(target, unit * count, width * count)

    # -- streams and events --

    def priorities(self) -> tuple[int, int]:
        """One priority."""
        return 0, 0

    def create_stream(self, priority: int = 0) -> int:
        """A stream."""
        return self.handle()

    def destroy_stream(self, stream: int) -> None:
        """Nothing."""

    def query_stream(self, stream: int) -> bool:
        """All work is done."""
        return True

    def stream_number(self, stream: int) -> int:
        """Its handle, as none is used twice."""
        return stream

    def wait_stream(self, stream: int) -> None:
        """All work is done."""

    def create_event(self, timing: bool = False, blocking: bool = False) -> int:
        """An event."""
        return self.handle()

    def destroy_event(self, event: int) -> None:
        """Nothing."""

    def record_event(self, event: int, stream: int) -> None:
        """Nothing."""

    def stream_wait_event(self, stream: int, event: int) -> None:
        """All work is done."""

    def query_event(self, event: int) -> bool:
        """All work is done."""
        return True

    def wait_event(self, event: int) -> None:
        """All work is done."""

    def elapsed(self, start: int, end: int) -> float:
        """No time passes."""
        return 0.0

    # -- kernels --

    def compile(self, source: str, name: str, options: tuple[str, ...], arch: str) -> bytes:
        """Note what is asked for."""
        self.check_open("compile")
        self.counts["compilations"] += 1
        self.sources[Source(source, name, tuple(options), arch)] = None
        return b""

    def compiler_version(self) -> str:
        """None is asked."""
        return "none"

    def load_module(self, image: bytes) -> int:
        """A module."""
        return self.handle()

    def unload_module(self, module: int) -> None:
        """Nothing."""

    def function(self, module: int, name: str) -> int:
        """A kernel."""
        return self.handle()

    def function_attributes(self, function: int) -> dict[str, int]:
        """Nothing is known of kernels that were not compiled."""
        return {}

    def function_name(self, function: int) -> str:
        """Nothing is known of kernels that were not compiled."""
        return ""

    def set_dynamic_shared(self, function: int, nbytes: int) -> None:
        """Nothing."""

    def launch(self, function: int, grid: tuple[int, int, int], block: tuple[int, int, int],
               shared: int, stream: int, parameters: bytes) -> None:
        """Count it."""
        self.check_open("launch")
        self.counts["kernel_launches"] += 1

    def statistics(self) -> dict[str, Any]:
        """Counts since start."""
        return {"compilations": 0, "kernel_launches": 0, **self.counts}
