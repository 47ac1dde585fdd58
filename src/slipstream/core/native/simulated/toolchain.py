"""The host's C++ compiler, which builds kernels and the engine."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from slipstream.core.native.driver import CompileError
from slipstream.core.vocab.settings import settings

HERE = Path(__file__).parent
CANDIDATES = ("g++", "clang++", "c++")
SHARED = ("-shared", "-fPIC", "-g0", "-pipe", "-ffp-contract=off", "-fno-math-errno", "-fwrapv",
          "-fno-strict-aliasing", "-fvisibility=hidden")
# Kernels are compiled often and run little.
KERNEL = ("-std=c++17", "-O1", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics", "-w",
          "-x", "c++")
# Where arrays have a length that the compiler knows, indices are compared with it; the header has
# the function that is called then, so that no library is needed.
ARRAYS = ("-fsanitize=bounds", "-nostdlib")
ENGINE = ("-std=gnu11", "-O3", "-x", "c")
DIGEST = 32
MISSING = ("the simulated driver builds kernels with a C++ compiler, and none was found: install "
           "g++ or clang++ (Debian and Ubuntu: apt install g++; macOS: xcode-select --install), "
           "or name one in CXX")


class Toolchain:
    """A compiler: ``command`` is what starts it."""

    def __init__(self, wanted: str = "") -> None:
        self.command = tuple(shlex.split(wanted)) if wanted else find()
        if shutil.which(self.command[0]) is None:
            raise RuntimeError(f"{MISSING} (asked for: {wanted})")

    @functools.cached_property
    def version(self) -> str:
        """The first line that the compiler says of itself."""
        done = subprocess.run([*self.command, "--version"], capture_output=True, text=True)
        return done.stdout.partition("\n")[0] or "unknown"

    def kernel_flags(self, arrays: bool = True) -> tuple[str, ...]:
        """The options for kernels; ``arrays``: with checks of indices, where the compiler can."""
        gnu = sys.platform == "linux" and "clang" not in self.version
        return KERNEL + (ARRAYS if gnu and arrays else ()) + fused()

    def build(self, name: str, text: str, flags: tuple[str, ...]) -> bytes:
        """A shared library of C++ or C text; raises CompileError with the compiler's words."""
        with tempfile.TemporaryDirectory(prefix="slipstream-") as folder:
            target = os.path.join(folder, "kernel.so")
            libraries = ("-lm", "-lgcc") if "-nostdlib" in flags else ("-lm",)
            command = [*self.command, *SHARED, "-o", target, *flags, "-", *libraries]
            done = subprocess.run(command, input=text, capture_output=True, text=True)
            if done.returncode:
                raise CompileError(name, done.stderr.strip())
            return Path(target).read_bytes()

    def engine(self) -> bytes:
        """The engine's library, kept in the user's cache folder."""
        parts = ("abi.h", "threads.c", "blocks.c", "races.c")
        text = "".join((HERE / part).read_text().replace('#include "abi.h"', "") for part in parts)
        key = hashlib.sha256("\0".join((text, self.version, *SHARED, *ENGINE)).encode()).digest()
        path = Path(settings.cache or Path(settings.user_cache) / "slipstream") / "simulated"
        path /= key.hex()[:32]
        kept = read_kept(path, key)
        if kept is None:
            kept = self.build("the engine of the simulated driver", text, ENGINE)
            keep(path, key, kept)
        return kept


@functools.cache
def fused() -> tuple[str, ...]:
    """The option that makes a fused multiply-add one instruction, where the processor has it."""
    try:
        processor = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ()
    return ("-mfma",) if re.search(r"^flags\s*:.*\bfma\b", processor, re.MULTILINE) else ()


def find() -> tuple[str, ...]:
    """The first compiler there is; raises RuntimeError with the mend."""
    for name in CANDIDATES:
        if shutil.which(name):
            return (name,)
    raise RuntimeError(MISSING)


def read_kept(path: Path, key: bytes) -> bytes | None:
    """What was kept under a key; None where it is missing or was changed by anybody."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    image, digest = content[:-DIGEST], content[-DIGEST:]
    return image if hashlib.sha256(key + image).digest() == digest else None


def keep(path: Path, key: bytes, image: bytes) -> None:
    """Write a library whole; a folder that cannot be written to is no error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(image + hashlib.sha256(key + image).digest())
        os.replace(temporary, path)
    except OSError:
        return


def load_library(image: bytes) -> ctypes.CDLL:
    """Load a shared library from its bytes, apart from any other load of the same bytes."""
    # The loader tells libraries apart by their names, so that each needs a name of its own.
    with tempfile.NamedTemporaryFile(prefix="slipstream-", suffix=".so") as temporary:
        temporary.write(image)
        temporary.flush()
        return ctypes.CDLL(temporary.name)
