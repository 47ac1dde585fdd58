"""Loading and launching kernels."""

from __future__ import annotations

from cuda.bindings import driver as cu

from slipstream.core.native.real.checked import Checked
from slipstream.core.native.real.compiler import Compiler
from slipstream.core.native.real.parameters import Block

FUNCTION = cu.CUfunction_attribute


class KernelCalls(Checked, Compiler):
    """Kernels of the current context."""

    def load_module(self, image: bytes) -> int:
        """Load an image into the current context."""
        return int(self.call("cuModuleLoadData", image))

    def unload_module(self, module: int) -> None:
        """Unload it."""
        self.call("cuModuleUnload", module)

    def function(self, module: int, name: str) -> int:
        """A kernel of a module."""
        return int(self.call("cuModuleGetFunction", module, name.encode()))

    def function_attributes(self, function: int) -> dict[str, int]:
        """registers, shared, local, constant, max_threads, binary."""
        names = {"registers": "NUM_REGS", "shared": "SHARED_SIZE_BYTES",
                 "local": "LOCAL_SIZE_BYTES", "constant": "CONST_SIZE_BYTES",
                 "max_threads": "MAX_THREADS_PER_BLOCK", "binary": "BINARY_VERSION"}
        return {ours: int(self.call("cuFuncGetAttribute",
                                    getattr(FUNCTION, f"CU_FUNC_ATTRIBUTE_{theirs}"), function))
                for ours, theirs in names.items()}

    def function_name(self, function: int) -> str:
        """A kernel's name; empty before CUDA 12.3, which knows no names."""
        ask = getattr(cu, "cuFuncGetName", None)
        if ask is None:
            return ""
        status, name = ask(function)
        return "" if status else bytes(name).decode(errors="replace")

    def set_dynamic_shared(self, function: int, nbytes: int) -> None:
        """Allow a kernel more dynamic shared memory."""
        self.call("cuFuncSetAttribute", function,
                  FUNCTION.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, nbytes)

    def launch(self, function: int, grid: tuple[int, int, int], block: tuple[int, int, int],
               shared: int, stream: int, parameters: bytes) -> None:
        """Launch a kernel with a parameter block."""
        self.counts["kernel_launches"] += 1
        held = Block(parameters)
        self.call("cuLaunchKernel", function, *grid, *block, shared, stream, 0, held.address)
