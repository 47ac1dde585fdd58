"""Modules, functions and launches."""

from __future__ import annotations

import ctypes
import hashlib
import struct
from typing import Any

from slipstream.core.native.driver import DriverError
from slipstream.core.native.simulated.calls import driver_call
from slipstream.core.native.simulated.devices import CARDS, KIB
from slipstream.core.native.simulated.images import HEADER, ROW, TABLE, Image, build, rewriting
from slipstream.core.native.simulated.library import SimulatedLibrary
from slipstream.core.native.simulated.streams import StreamCalls
from slipstream.core.native.simulated.working import KernelAction

SIZES = struct.Struct("6I")
MOST_GRID = (2**31 - 1, 65535, 65535)
MOST_BLOCK = (1024, 1024, 64)
MOST_THREADS = 1024
WARP = 32
# Capability of cards with clusters of blocks, and most blocks of one.
CLUSTERS_SINCE = (9, 0)
MOST_CLUSTER = 8
STATIC_SHARED = 48 * KIB
REGISTERS = 32
# Images are made anew when what every kernel is built with has changed.
HEADER_KEY = hashlib.sha256(f"{HEADER}{TABLE}{ROW}{rewriting()}".encode()).hexdigest()[:16]


class Module:
    """A loaded image."""

    def __init__(self, image: Image, ordinal: int) -> None:
        self.handle = 0
        self.image = image
        self.ordinal = ordinal
        self.functions: dict[str, int] = {}


class Function:
    """A kernel of a module; ``nbytes`` of parameters."""

    def __init__(self, module: Module, name: str) -> None:
        kernel = module.image.kernels[name]
        self.handle = 0
        self.module = module
        self.name = name
        self.ordinal = module.ordinal
        self.kernel_address = ctypes.addressof(kernel)
        self.image_address = module.image.address
        self.nbytes: int = kernel.nbytes
        self.max_threads: int = kernel.max_threads or MOST_THREADS
        self.cluster: int = kernel.cluster
        self.dynamic_limit = STATIC_SHARED
        self.static_shared = module.image.static_shared()


class KernelCalls(StreamCalls):
    """Kernels: building, loading and launching them."""

    @driver_call
    def compile(self, source: str, name: str, options: tuple[str, ...], arch: str) -> bytes:
        """Build CUDA C++ with the host's compiler."""
        self.counts["compilations"] += 1
        return build(self.toolchain, name, source, tuple(options), arch, self.options.arrays)

    def compiler_version(self) -> str:
        """The compiler's own words and what our header says."""
        flags = " ".join(self.toolchain.kernel_flags(self.options.arrays))
        return f"simulated {self.toolchain.version} {flags} {HEADER_KEY}"

    @driver_call
    def load_module(self, image: bytes) -> int:
        """Load an image into the current context."""
        ordinal = self.current("load_module").ordinal
        try:
            loaded = Image(image)
        except (OSError, AttributeError) as error:
            raise DriverError("load_module", "INVALID_IMAGE", str(error)) from error
        return self.add(Module(loaded, ordinal))

    @driver_call
    def unload_module(self, module: int) -> None:
        """Unload a module; launches that are still to run keep it until then."""
        found = self.remove(Module, module, "unload_module")
        for function in found.functions.values():
            del self.objects[function]

    @driver_call
    def function(self, module: int, name: str) -> int:
        """A kernel of a module."""
        found = self.find(Module, module, "function")
        if name not in found.image.kernels:
            raise DriverError("function", "NOT_FOUND",
                              f"no kernel {name}; there are {', '.join(found.image.kernels)}")
        if name not in found.functions:
            found.functions[name] = self.add(Function(found, name))
        return int(found.functions[name])

    @driver_call
    def function_attributes(self, function: int) -> dict[str, int]:
        """What is known of a kernel."""
        found = self.find(Function, function, "function_attributes")
        major, minor = CARDS[self.options.model][1]
        return {"registers": REGISTERS, "shared": found.static_shared, "local": 0, "constant": 0,
                "max_threads": found.max_threads, "binary": 10 * major + minor}

    @driver_call
    def function_name(self, function: int) -> str:
        """A kernel's name."""
        return self.find(Function, function, "function_name").name

    def product_library(self) -> Any:
        """What stands in cuBLASLt's place on the current context's device."""
        major, minor = CARDS[self.options.model][1]
        return SimulatedLibrary(self, f"sm_{major}{minor}")

    @driver_call
    def set_dynamic_shared(self, function: int, nbytes: int) -> None:
        """Allow a kernel more dynamic shared memory."""
        found = self.find(Function, function, "set_dynamic_shared")
        most = CARDS[self.options.model][3]
        if not 0 <= nbytes + found.static_shared <= most:
            raise DriverError("set_dynamic_shared", "INVALID_VALUE",
                              f"{nbytes} bytes, a block may have {most}")
        found.dynamic_limit = nbytes

    def make_launch(self, call: str, function: int, shape: Any, parameters: bytes) -> KernelAction:
        """A launch of ``shape`` = (grid, block, shared); raises DriverError where none can be."""
        grid, block, shared = shape
        found = self.objects.get(function)
        if type(found) is not Function:
            raise DriverError(call, "INVALID_HANDLE", f"{function:#x} is no function")
        try:
            sizes = SIZES.pack(*grid, *block)
        except struct.error as error:
            raise DriverError(call, "INVALID_VALUE", f"grid {grid}, block {block}") from error
        self.check_sizes(call, found, grid, block)
        if shared > found.dynamic_limit or shared < 0:
            raise DriverError(call, "INVALID_VALUE",
                              f"{shared} bytes of shared memory, {found.dynamic_limit} are allowed")
        if not found.nbytes <= len(parameters) < found.nbytes + 16:
            raise DriverError(call, "INVALID_VALUE",
                              f"kernel {found.name} takes {found.nbytes} bytes of parameters, not "
                              f"{len(parameters)}")
        return KernelAction(found, grid, block, shared, parameters, sizes)

    def check_sizes(self, call: str, function: Function, grid: tuple[int, int, int],
                    block: tuple[int, int, int]) -> None:
        """Raise DriverError where a grid or block is none."""
        threads = block[0] * block[1] * block[2]
        blocks = grid[0] * grid[1] * grid[2]
        if threads == 0 or blocks == 0:
            raise DriverError(call, "INVALID_VALUE", f"grid {grid}, block {block}: nothing to run")
        if threads > 1024 or block[2] > 64 or grid[1] > 65535 or grid[2] > 65535 or (
                grid[0] > MOST_GRID[0]):
            raise DriverError(call, "INVALID_VALUE", f"grid {grid}, block {block}: too large")
        if function.cluster > 1:
            self.check_cluster(call, function, grid[0], threads)
        if threads > function.max_threads:
            raise DriverError(call, "INVALID_VALUE",
                              f"{threads} threads, __launch_bounds__ says {function.max_threads}")

    def check_cluster(self, call: str, function: Function, blocks: int, threads: int) -> None:
        """Raise DriverError where a grid has no whole clusters that can run here."""
        cluster = function.cluster
        if CARDS[self.options.model][1] < CLUSTERS_SINCE or cluster > MOST_CLUSTER:
            raise DriverError(call, "INVALID_VALUE", f"no card here has clusters of {cluster}")
        if blocks % cluster:
            raise DriverError(call, "INVALID_VALUE",
                              f"{blocks} blocks are no whole clusters of {cluster}")
        # The blocks of a cluster run as one, warp after warp.
        if threads % WARP or cluster * threads > MOST_THREADS:
            raise DriverError(call, "INVALID_VALUE",
                              f"clusters of {cluster} blocks of {threads} threads: whole warps and "
                              f"{MOST_THREADS} threads in all can be simulated")

    @driver_call
    def launch(self, function: int, grid: tuple[int, int, int], block: tuple[int, int, int],
               shared: int, stream: int, parameters: bytes) -> None:
        """Launch a kernel."""
        found = self.stream_of(stream, "launch")
        action = self.make_launch("launch", function, (grid, block, shared), parameters)
        if action.function.ordinal != found.ordinal:
            raise DriverError("launch", "INVALID_HANDLE",
                              "the kernel and the stream are of different devices")
        if found.capture is None:
            self.counts["kernel_launches"] += 1
        self.submit(found, action, "launch")
