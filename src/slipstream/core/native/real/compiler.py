"""NVRTC: CUDA C++ to cubins, with neither card nor driver.

Calls from several threads run side by side: the binding lets go of the GIL and NVRTC holds no lock.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from cuda.bindings import nvrtc

from slipstream.core.native.driver import CompileError, DriverError

# No contraction: a * b + c is rounded twice, as the formula says.
OPTIONS = ("--fmad=false", "--std=c++17", "--device-as-default-execution-space")


class Compiler:
    """Compiles for any architecture that NVRTC knows; ``name`` as the driver that loads it."""

    name = "real"
    side_by_side = True

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def compiler_version(self) -> str:
        """NVRTC's version and the options that every kernel gets."""
        status, major, minor = nvrtc.nvrtcVersion()
        if status:
            raise DriverError("nvrtcVersion", str(status))
        return f"nvrtc {major}.{minor} {' '.join(OPTIONS)}"

    def compile(self, source: str, name: str, options: tuple[str, ...], arch: str) -> bytes:
        """A cubin of CUDA C++ for an architecture; raises CompileError."""
        return self.compile_with_log(source, name, options, arch)[0]

    def compile_with_log(self, source: str, name: str, options: tuple[str, ...],
                         arch: str) -> tuple[bytes, str]:
        """The same, and what NVRTC said of it."""
        self.counts["compilations"] += 1
        status, program = nvrtc.nvrtcCreateProgram(source.encode(), f"{name}.cu".encode(), 0,
                                                   [], [])
        if status:
            raise DriverError("nvrtcCreateProgram", str(status))
        try:
            # A kernel may be for one architecture alone (sm_90a).
            own = any(option.startswith("--gpu-architecture") for option in options)
            wanted = [*([] if own else [f"--gpu-architecture={arch}"]), *OPTIONS, *options]
            texts = [each.encode() for each in wanted]
            (status,) = nvrtc.nvrtcCompileProgram(program, len(texts), texts)
            if status:
                raise CompileError(name, log_of(program))
            _, size = nvrtc.nvrtcGetCUBINSize(program)
            image = bytes(size)
            nvrtc.nvrtcGetCUBIN(program, image)
            return image, log_of(program)
        finally:
            nvrtc.nvrtcDestroyProgram(program)


def supported() -> list[str]:
    """The architectures that NVRTC compiles for, oldest first."""
    status, numbers = nvrtc.nvrtcGetSupportedArchs()
    if status:
        raise DriverError("nvrtcGetSupportedArchs", str(status))
    return [f"sm_{number}" for number in numbers]


def log_of(program: Any) -> str:
    """What NVRTC says of a program."""
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    # NVRTC writes into this object.  An empty log is one byte, and `b" " * 1` is the interpreter's
    # only b" ", which its parser reads too: it must be an object of our own.
    log = bytes(size)
    nvrtc.nvrtcGetProgramLog(program, log)
    return log.rstrip(b"\0 ").decode(errors="replace")
