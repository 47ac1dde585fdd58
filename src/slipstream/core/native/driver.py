"""The driver interface: what the runtime asks of a CUDA driver, real or simulated.

Handles (contexts, streams, events, modules, functions, graphs, nodes) and addresses are integers;
sizes are bytes.  Stream 0 is never used: every stream is one that `create_stream` made, or came
from outside.  Every call that fails raises `DriverError` and changes nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

# Of a launch: blocks of the grid, threads of a block, bytes of dynamic shared memory.
Shape = tuple[tuple[int, int, int], tuple[int, int, int], int]
# Kinds of copies.
TO_DEVICE, TO_HOST, WITHIN = "to_device", "to_host", "within"
# The simulated driver's moments are below this bit; above it, how many before one are meant too.
MOMENT_BITS = 40


class DriverError(RuntimeError):
    """A driver call failed: ``call`` is its name, ``code`` the driver's word for why.

    Codes are the driver's own without the prefix, such as OUT_OF_MEMORY, INVALID_VALUE,
    NOT_READY, ILLEGAL_ADDRESS.  ``late``: what the driver tells may be of work launched earlier,
    whatever op is called now (see `errors.is_late`).
    """

    late = True

    def __init__(self, call: str, code: str, text: str = "") -> None:
        super().__init__(f"CUDA driver: {call} failed with {code}{': ' if text else ''}{text}")
        self.call = call
        self.code = code


class DeviceProperties(NamedTuple):
    """What a card offers; sizes in bytes."""

    name: str
    total_memory: int
    major: int
    minor: int
    multi_processor_count: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    registers_per_block: int
    max_threads_per_block: int
    max_threads_per_multi_processor: int
    warp_size: int
    L2_cache_size: int
    async_engines: int
    virtual_memory: bool
    pci_bus_id: str = ""
    uuid: str = ""
    regs_per_multiprocessor: int = 0
    shared_memory_per_multiprocessor: int = 0
    is_integrated: int = 0
    is_multi_gpu_board: int = 0


class Told:
    """What only drivers act on that are ``told``: the simulated one, and one that records."""

    told: bool = False

    def handed_out(self, address: int, nbytes: int, requested: int) -> None:
        """The allocator hands out a block of which ``requested`` bytes may be touched."""

    def taken_back(self, address: int, nbytes: int) -> None:
        """The allocator takes a block back: touching it is an error from here in stream order."""

    def hold_interrupts(self) -> None:
        """Calls that follow belong together: note Ctrl-C between them only, till they are let."""

    def let_interrupts(self) -> None:
        """The calls that belong together were made."""

    def on_idle(self, look: Any, unsent: Any) -> None:
        """Call ``look()`` for each millisecond of virtual time in which the host is idle.

        ``unsent()`` gives the moments of launches that are recorded and not yet the driver's.
        """

    def tell_work(self, listener: Any) -> bool:
        """Call ``listener(action, site, stream, begin, end, replayed)``, in ns, for each piece of
        work that ran; None: no more.  Whether the driver does that."""
        return False

    def host_clock(self) -> Any:
        """The host's virtual clock; None where time is real."""
        return None

    def host_touch(self, address: int, nbytes: int, write: bool) -> None:
        """The host is about to read or write memory that pending work may use."""


class StreamCalls:
    """A driver's streams and events."""

    def priorities(self) -> tuple[int, int]:
        """(least, greatest) priority of streams; greater means a smaller number."""
        raise NotImplementedError

    def create_stream(self, priority: int = 0) -> int:
        """A stream that does not wait for the legacy default stream."""
        raise NotImplementedError

    def destroy_stream(self, stream: int) -> None:
        """Give back a stream; its work still finishes."""
        raise NotImplementedError

    def stream_number(self, stream: int) -> int:
        """What tells a stream from all others of the process, whatever its handle."""
        raise NotImplementedError

    def query_stream(self, stream: int) -> bool:
        """Whether a stream's work is done."""
        raise NotImplementedError

    def wait_stream(self, stream: int) -> None:
        """Let the host wait until a stream's work is done."""
        raise NotImplementedError

    def create_event(self, timing: bool = False, blocking: bool = False) -> int:
        """An event; ``blocking``: the host sleeps while it waits for it."""
        raise NotImplementedError

    def destroy_event(self, event: int) -> None:
        """Give back an event."""
        raise NotImplementedError

    def record_event(self, event: int, stream: int) -> None:
        """Let an event stand for what the stream holds now."""
        raise NotImplementedError

    def stream_wait_event(self, stream: int, event: int) -> None:
        """Let later work of a stream start only after an event."""
        raise NotImplementedError

    def query_event(self, event: int) -> bool:
        """Whether what an event stands for is done (also where it was never recorded)."""
        raise NotImplementedError

    def wait_event(self, event: int) -> None:
        """Let the host wait for an event."""
        raise NotImplementedError

    def elapsed(self, start: int, end: int) -> float:
        """Milliseconds between two events with timing; NOT_READY where one is not done."""
        raise NotImplementedError


class Driver(Told, StreamCalls):
    """About thirty calls.  ``name`` is ``real`` or ``simulated``.

    ``has_library``: whether products by cuBLASLt are there to ask for; ``keeps``: whether what it
    compiles is worth keeping; ``side_by_side``: whether several threads compile at once.
    ``launcher`` is the address of a C function with cuLaunchKernel's signature, which compiled
    code may call instead of `launch`; 0 where there is none.
    """

    name: str = ""
    counts: Counter[str]
    has_library: bool = True
    keeps: bool = True
    side_by_side: bool = False
    launcher: int = 0
    graph_launcher: int = 0
    node_setter: int = 0
    node_adder: int = 0
    # The same of cuEventRecord, cuEventQuery and cuEventElapsedTime.
    event_calls: tuple[int, int, int] = (0, 0, 0)
    # What the simulated driver keeps with each piece of work; nothing reads them elsewhere.
    site: Any = None
    stamp: int | None = None
    stamps: list[Any] | None = None
    moment: int = 0

    # -- devices and contexts --

    def version(self) -> int:
        """The CUDA version that the driver supports, such as 13000."""
        raise NotImplementedError

    def device_count(self) -> int:
        """How many cards there are; makes no context."""
        raise NotImplementedError

    def properties(self, ordinal: int) -> DeviceProperties:
        """What card ``ordinal`` offers; makes no context."""
        raise NotImplementedError

    def context(self, ordinal: int) -> int:
        """The primary context of a card, made at the first call."""
        raise NotImplementedError

    def use(self, context: int) -> None:
        """Make a context the calling thread's."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait until the current context's work is done."""
        raise NotImplementedError

    def can_access_peer(self, ordinal: int, peer: int) -> bool:
        """Whether kernels of one card can read another's memory."""
        raise NotImplementedError

    # -- memory --

    def memory_info(self) -> tuple[int, int]:
        """(free, total) bytes of the current context's card."""
        raise NotImplementedError

    def allocate(self, nbytes: int) -> int:
        """Device memory of the current context's card, aligned to 256 bytes at least."""
        raise NotImplementedError

    def free(self, address: int) -> None:
        """Give back what `allocate` made."""
        raise NotImplementedError

    def granularity(self, ordinal: int) -> int:
        """Physical memory comes in multiples of this."""
        raise NotImplementedError

    def reserve(self, nbytes: int) -> int:
        """A range of addresses with no memory behind it."""
        raise NotImplementedError

    def release(self, address: int, nbytes: int) -> None:
        """Give back a range of addresses; nothing may be mapped there."""
        raise NotImplementedError

    def create_physical(self, nbytes: int, ordinal: int) -> int:
        """Physical memory of a card, without an address."""
        raise NotImplementedError

    def destroy_physical(self, handle: int) -> None:
        """Give back physical memory; it stays while it is mapped."""
        raise NotImplementedError

    def map(self, address: int, nbytes: int, handle: int, ordinal: int) -> None:
        """Put physical memory behind a part of a reserved range, readable and writable."""
        raise NotImplementedError

    def unmap(self, address: int, nbytes: int) -> None:
        """Take the memory away from behind addresses."""
        raise NotImplementedError

    def allocate_host(self, nbytes: int, mapped: bool = False) -> int:
        """Pinned host memory; ``mapped``: kernels can reach it at `device_address`."""
        raise NotImplementedError

    def free_host(self, address: int) -> None:
        """Give back pinned memory."""
        raise NotImplementedError

    def device_address(self, address: int) -> int:
        """Where kernels find mapped host memory."""
        raise NotImplementedError

    def copy(self, target: int, source: int, nbytes: int, kind: str, stream: int) -> None:
        """Copy bytes in stream order; a pageable host side makes the call wait as CUDA does."""
        raise NotImplementedError

    def fill(self, target: int, value: int, width: int, count: int, stream: int) -> None:
        """Write ``count`` values of ``width`` (1, 2 or 4) bytes in stream order."""
        raise NotImplementedError

    # -- kernels --

    def compile(self, source: str, name: str, options: tuple[str, ...], arch: str) -> bytes:
        """An image of CUDA C++ for an architecture such as sm_90; raises CompileError.

        Needs neither context nor card on the real driver (NVRTC).
        """
        raise NotImplementedError

    def compiler_version(self) -> str:
        """What made the image, as part of the key under which it is kept."""
        raise NotImplementedError

    def load_module(self, image: bytes) -> int:
        """Load an image into the current context."""
        raise NotImplementedError

    def unload_module(self, module: int) -> None:
        """Unload it."""
        raise NotImplementedError

    def function(self, module: int, name: str) -> int:
        """A kernel of a module."""
        raise NotImplementedError

    def function_attributes(self, function: int) -> dict[str, int]:
        """registers, shared, local, constant, max_threads, binary (architecture, 90)."""
        raise NotImplementedError

    def function_name(self, function: int) -> str:
        """A kernel's name, also of a library's; empty where the driver does not tell it."""
        raise NotImplementedError

    def set_dynamic_shared(self, function: int, nbytes: int) -> None:
        """Allow a kernel more dynamic shared memory than 48 KiB."""
        raise NotImplementedError

    def launch(self, function: int, grid: tuple[int, int, int], block: tuple[int, int, int],
               shared: int, stream: int, parameters: bytes) -> None:
        """Launch a kernel; ``parameters`` is its parameter block, laid out as the kernel has it."""
        raise NotImplementedError

    # -- graphs --

    def begin_capture(self, stream: int) -> None:
        """Gather what is submitted to a stream into a graph (thread-local mode)."""
        raise NotImplementedError

    def end_capture(self, stream: int) -> int:
        """The graph that was gathered."""
        raise NotImplementedError

    def captured_kernels(self, graph: int) -> list[tuple[int, Any, bytes]] | None:
        """(function, (grid, block, shared), parameter block) of a captured chain of kernels.

        None where the graph holds anything else.
        """
        raise NotImplementedError

    def create_graph(self) -> int:
        """An empty graph."""
        raise NotImplementedError

    def destroy_graph(self, graph: int) -> None:
        """Give back a graph."""
        raise NotImplementedError

    def add_kernel_node(self, graph: int, after: tuple[int, ...], function: int, shape: Shape,
                        parameters: bytes) -> int:
        """A node that launches a kernel after other nodes."""
        raise NotImplementedError

    def add_copy_node(self, graph: int, after: tuple[int, ...], target: int, source: int,
                      nbytes: int, kind: str) -> int:
        """A node that copies."""
        raise NotImplementedError

    def add_fill_node(self, graph: int, after: tuple[int, ...], target: int, value: int,
                      width: int, count: int) -> int:
        """A node that fills."""
        raise NotImplementedError

    def add_child_node(self, graph: int, after: tuple[int, ...], child: int) -> int:
        """A node that stands for a copy of another graph."""
        raise NotImplementedError

    def nodes(self, graph: int) -> tuple[int, ...]:
        """The nodes of a graph."""
        raise NotImplementedError

    def instantiate(self, graph: int) -> int:
        """An executable copy of a graph."""
        raise NotImplementedError

    def destroy_executable(self, executable: int) -> None:
        """Give back an executable graph; a launch in flight still finishes."""
        raise NotImplementedError

    def launch_graph(self, executable: int, stream: int) -> None:
        """Launch a graph."""
        raise NotImplementedError

    def set_kernel_node(self, executable: int, node: int, function: int, shape: Shape,
                        parameters: bytes) -> None:
        """Change a kernel node of an executable graph; the function must stay the same."""
        raise NotImplementedError

    def set_copy_node(self, executable: int, node: int, target: int, source: int, nbytes: int,
                      kind: str) -> None:
        """Change a copy node."""
        raise NotImplementedError

    def set_fill_node(self, executable: int, node: int, target: int, value: int, width: int,
                      count: int) -> None:
        """Change a fill node."""
        raise NotImplementedError

    def set_child_node(self, executable: int, node: int, child: int) -> None:
        """Change a child node to another graph of the same topology."""
        raise NotImplementedError

    def status_name(self, status: int) -> str:
        """The name of a status that a function pointer returned, without its prefix."""
        return str(status)

    def product_library(self) -> Any:
        """What stands for cuBLASLt in the current context; None: the library itself."""
        return None

    def statistics(self) -> dict[str, int]:
        """Counts since start, of launches, graphs, copies, allocations, waits, compilations."""
        raise NotImplementedError


class CompileError(RuntimeError):
    """CUDA C++ did not compile: ``log`` is the compiler's text."""

    def __init__(self, name: str, log: str) -> None:
        super().__init__(f"kernel {name} does not compile:\n{log}")
        self.name = name
        self.log = log
