# cython: annotation_typing=False
"""Kernels from source: compiled once, kept on disk, loaded once a device.

A cubin is kept under the hash of everything that made it: prelude and source, options, the
compiler's version, the architecture.  Packs made ahead of time are looked at first, then the folder
of kept kernels.  Files are written whole under another name and then renamed; each ends with a hash
of its content, so that a damaged or foreign one is compiled again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from slipstream.core.launch.cuda.packs import packs
from slipstream.core.native.driver import CompileError, DriverError
from slipstream.core.native.drivers import drivers
from slipstream.core.native.hot import use_context
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.settings import settings

DIGEST = 32
READABLE = 0o644
# Bytes of the folder at which the files that were used longest ago go.
MOST_BYTES = 512 << 20
# Bytes of dynamic shared memory that every kernel may have.
PLAIN_SHARED = 48 << 10


def folder() -> Path:
    """The folder of compiled kernels."""
    if settings.cache:
        return Path(settings.cache)
    return Path(settings.user_cache) / "slipstream" / "kernels"


def pack_folder() -> Path:
    """The folder of packs."""
    return folder() / "packs"


def key_of(compiler: Any, text: str, options: Sequence[str], arch: str) -> str:
    """What an image is kept under: the hash of everything that it is made of and by."""
    parts = (text, *options, compiler.name, compiler.compiler_version(), arch)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def kept_path(key: str) -> Path:
    """The file of a kept image."""
    return folder() / key[:2] / key


class Modules:
    """Compiles, keeps and loads kernels; a singleton, `modules`."""

    def __init__(self) -> None:
        self.functions: dict[tuple[int, Any, tuple[str, ...]], int] = {}
        # Modules of users' sources, by device, source and options: what their kernels share.
        self.loaded: dict[tuple[int, str, tuple[str, ...]], int] = {}
        self.shared: dict[int, int] = {}
        self.attributes: dict[int, dict[str, int]] = {}
        self.architectures: dict[int, str] = {}
        self.prelude = ""
        self.compiled = 0
        self.found = 0
        self.packed = 0
        # Images that `prepare` made, until they are loaded.
        self.ready: dict[tuple[str, str, str], bytes] = {}
        # A handler of a signal, or what a collector ends, may need a kernel while one is compiled.
        self.lock = threading.RLock()
        self.counting = threading.Lock()

    def function(self, device: Device, code: Any, shared: int = 0) -> int:
        """The kernel's handle on a device, allowing it ``shared`` bytes of dynamic memory."""
        ordinal = device.index or 0
        key = (ordinal, *code.key)
        known = self.functions.get(key)
        if known is not None and shared <= PLAIN_SHARED:
            return known
        with self.lock:
            handle = self.functions.get(key)
            if handle is None:
                handle = self.functions[key] = self._load(ordinal, code)
            if shared > self.shared.get(handle, PLAIN_SHARED):
                drivers.current().set_dynamic_shared(handle, shared)
                self.shared[handle] = shared
        return handle

    def prepare(self, device: Device, codes: Sequence[Any]) -> None:
        """Compile kernels that will be asked for next side by side.

        Nothing is raised: what fails here fails again where the kernel is asked for.
        """
        ordinal = device.index or 0
        new = [code for code in codes
               if (ordinal, *code.key) not in self.functions]
        if len(new) < 2 or not drivers.current().side_by_side:
            return
        arch = self.architecture(ordinal)
        with ThreadPoolExecutor(min(len(new), os.cpu_count() or 1)) as workers:
            for code, image in zip(new, workers.map(lambda each: self._image_or_none(each, arch),
                                                    new), strict=True):
                if image is not None:
                    self.ready[code.source, code.name, arch] = image

    def _image_or_none(self, code: Any, arch: str) -> bytes | None:
        try:
            return self.image(code, arch)
        except (CompileError, DriverError):
            return None

    def architecture(self, ordinal: int) -> str:
        """A card's architecture, such as sm_90."""
        known = self.architectures.get(ordinal)
        if known is None:
            properties = drivers.current().properties(ordinal)
            known = self.architectures[ordinal] = f"sm_{properties.major}{properties.minor}"
        return known

    def image(self, code: Any, arch: str) -> bytes:
        """The compiled kernel: from a pack, from the folder where it is kept, or compiled."""
        driver = drivers.current()
        text = self.prelude + code.source if getattr(code, "with_prelude", True) else code.source
        if not driver.keeps:
            return driver.compile(text, code.name, code.options, arch)
        key = key_of(driver, text, code.options, arch)
        image = packs.find(pack_folder(), key)
        if image is not None:
            self._count("packed")
            return image
        path = kept_path(key)
        image = read_kept(path, key)
        if image is None:
            image = driver.compile(text, code.name, code.options, arch)
            self._count("compiled")
            keep(path, key, image)
        else:
            self._count("found")
        return image

    def _count(self, what: str) -> None:
        with self.counting:
            setattr(self, what, getattr(self, what) + 1)

    def _load(self, ordinal: int, code: Any) -> int:
        driver = drivers.current()
        use_context(driver, driver.context(ordinal))
        arch = self.architecture(ordinal)
        # Kernels of one text of a user's share its variables, as those of one CUDA module do.
        shared = not getattr(code, "with_prelude", True)
        key = (ordinal, code.source, code.options)
        module = self.loaded.get(key) if shared else None
        if module is not None:
            return int(driver.function(module, code.name))
        image = self.ready.pop((code.source, code.name, arch), None)
        if image is None:
            image = self.image(code, arch)
        module = driver.load_module(image)
        try:
            handle = int(driver.function(module, code.name))
        except DriverError:
            driver.unload_module(module)
            raise
        if shared:
            self.loaded[key] = module
        return handle


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
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(image + digest)
        # Others that share the folder may read it.
        os.chmod(temporary, READABLE)
        os.replace(temporary, path)
    except OSError:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


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


__all__ = ["CompileError", "Modules", "folder", "keep", "kept_files", "kept_path", "key_of",
           "modules", "pack_folder", "read_kept", "trim"]
modules = Modules()
