"""Kernels from source: compiled once, kept on disk, loaded once a device.

A cubin is kept under the hash of everything that made it: prelude and source, options, the
compiler's version, the architecture.  Files are written whole under another name and then renamed;
each ends with a hash of its content, so that a damaged or foreign one is compiled again.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from pathlib import Path
from typing import Any

from slipstream.core.native.driver import CompileError, DriverError
from slipstream.core.native.drivers import drivers
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.settings import settings

DIGEST = 32
# Bytes of the folder at which the files that were used longest ago go.
MOST_BYTES = 512 << 20


def folder() -> Path:
    """The folder of compiled kernels."""
    if settings.cache:
        return Path(settings.cache)
    return Path(settings.user_cache) / "slipstream" / "kernels"


class Modules:
    """Compiles, keeps and loads kernels; a singleton, `modules`."""

    def __init__(self) -> None:
        self.functions: dict[tuple[int, Any, tuple[str, ...]], int] = {}
        self.shared: dict[int, int] = {}
        self.attributes: dict[int, dict[str, int]] = {}
        self.architectures: dict[int, str] = {}
        self.prelude = ""
        self.compiled = 0
        self.found = 0
        self.lock = threading.Lock()

    def function(self, device: Device, code: Any, shared: int = 0) -> int:
        """The kernel's handle on a device, allowing it ``shared`` bytes of dynamic memory."""
        ordinal = device.index or 0
        key = (ordinal, code.source, (code.name, *code.options))
        with self.lock:
            handle = self.functions.get(key)
            if handle is None:
                handle = self.functions[key] = self._load(ordinal, code)
            if shared > self.shared.get(handle, 48 << 10):
                drivers.current().set_dynamic_shared(handle, shared)
                self.shared[handle] = shared
        return handle

    def architecture(self, ordinal: int) -> str:
        """A card's architecture, such as sm_90."""
        known = self.architectures.get(ordinal)
        if known is None:
            properties = drivers.current().properties(ordinal)
            known = self.architectures[ordinal] = f"sm_{properties.major}{properties.minor}"
        return known

    def image(self, code: Any, arch: str) -> bytes:
        """The compiled kernel, from the folder where it is kept or from the compiler."""
        driver = drivers.current()
        text = self.prelude + code.source if getattr(code, "with_prelude", True) else code.source
        parts = (text, *code.options, driver.name, driver.compiler_version(), arch)
        name = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        path = folder() / name[:2] / name
        image = read_kept(path, name)
        if image is None:
            image = driver.compile(text, code.name, code.options, arch)
            self.compiled += 1
            keep(path, name, image)
        else:
            self.found += 1
        return image

    def _load(self, ordinal: int, code: Any) -> int:
        driver = drivers.current()
        driver.use(driver.context(ordinal))
        module = driver.load_module(self.image(code, self.architecture(ordinal)))
        try:
            return driver.function(module, code.name)
        except DriverError:
            driver.unload_module(module)
            raise


def read_kept(path: Path, name: str) -> bytes | None:
    """A kept image; None where there is none or it is not what was written."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    image, digest = content[:-DIGEST], content[-DIGEST:]
    if hashlib.sha256(name.encode() + image).digest() != digest:
        return None
    return image


def keep(path: Path, name: str, image: bytes) -> None:
    """Write an image where others find it; a folder that cannot be written is no error."""
    digest = hashlib.sha256(name.encode() + image).digest()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(image + digest)
        os.replace(temporary, path)
    except OSError:
        return


def kept_files() -> list[tuple[float, int, Path]]:
    """(time of last use, bytes, path) of every kept image."""
    found = []
    for path in folder().glob("??/*"):
        try:
            status = path.stat()
        except OSError:
            continue
        found.append((status.st_mtime, status.st_size, path))
    return sorted(found)


def trim(most: int = MOST_BYTES) -> int:
    """Remove the oldest images until the folder holds at most so many bytes; how many went."""
    files = kept_files()
    total = sum(size for _, size, _ in files)
    gone = 0
    for _, size, path in files:
        if total <= most:
            break
        path.unlink(missing_ok=True)
        total -= size
        gone += 1
    return gone


__all__ = ["CompileError", "Modules", "folder", "keep", "kept_files", "modules", "read_kept",
           "trim"]
modules = Modules()
