"""Packs: many compiled kernels in one file, made ahead of time and looked up before the cache.

A pack is a head (`MAGIC`, count, hash of the index), an index sorted by key, and images.  An image
is found under the same key as in the cache (`modules.key_of`) and is stored behind a hash of key,
name, architecture and compressed image, so that what is damaged or foreign counts as missing.
"""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from slipstream.core.vocab.settings import settings

MAGIC = b"slipstream pack1"
SUFFIX = ".pack"
HEAD = struct.Struct("<16sQ32s")
ROW = struct.Struct("<32sQQ")
DIGEST = 32


class Packed(NamedTuple):
    """A kernel in a pack: key, its function's name, architecture, image."""

    key: str
    name: str
    arch: str
    image: bytes


class Pack:
    """One file: ``places`` has (start, bytes) of each key; none where the file is no pack."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.places: dict[bytes, tuple[int, int]] = {}
        self.sound = False
        try:
            with path.open("rb") as file:
                self._read_index(file.read(HEAD.size), file)
        except OSError:
            return

    def _read_index(self, head: bytes, file: object) -> None:
        if len(head) < HEAD.size:
            return
        magic, count, digest = HEAD.unpack(head)
        if magic != MAGIC or count * ROW.size > self.path.stat().st_size:
            return
        index: bytes = file.read(count * ROW.size)  # type: ignore[attr-defined]
        if hashlib.sha256(index).digest() != digest:
            return
        self.places = {key: (start, size) for key, start, size in ROW.iter_unpack(index)}
        self.sound = True

    def read(self, key: str) -> Packed | None:
        """What is stored under a key; None where there is nothing, or not what was written."""
        place = self.places.get(bytes.fromhex(key))
        if place is None:
            return None
        try:
            with self.path.open("rb") as file:
                file.seek(place[0])
                return unpacked(key, file.read(place[1]))
        except OSError:
            return None

    def kernels(self) -> Iterator[Packed]:
        """All that can be read, in the order of their keys."""
        for key in self.places:
            found = self.read(key.hex())
            if found is not None:
                yield found


def unpacked(key: str, stored: bytes) -> Packed | None:
    """A stored image; None where it is not what was written under the key."""
    digest, body = stored[:DIGEST], stored[DIGEST:]
    if hashlib.sha256(key.encode() + body).digest() != digest:
        return None
    name, arch, image = body.split(b"\0", 2)
    return Packed(key, name.decode(), arch.decode(), zlib.decompress(image))


def write_pack(path: Path, kernels: Iterable[Packed]) -> int:
    """Write a pack whole under another name, then rename it; how many bytes it has.

    Raises OSError where the folder cannot be written.
    """
    chosen = {each.key: each for each in kernels}
    stored = []
    for key, each in sorted(chosen.items()):
        body = b"\0".join((each.name.encode(), each.arch.encode(), zlib.compress(each.image)))
        stored.append((bytes.fromhex(key), hashlib.sha256(key.encode() + body).digest() + body))
    start = HEAD.size + ROW.size * len(stored)
    rows = []
    for key_bytes, content in stored:
        rows.append(ROW.pack(key_bytes, start, len(content)))
        start += len(content)
    index = b"".join(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(HEAD.pack(MAGIC, len(stored), hashlib.sha256(index).digest()) + index)
            file.writelines(content for _, content in stored)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise
    return start


class Packs:
    """The packs of a process; a singleton, `packs`."""

    def __init__(self) -> None:
        self.known: dict[Path, tuple[tuple[int, int], Pack]] = {}

    def files(self, folder: Path) -> list[Path]:
        """Those that the settings name, then those in ``folder``, by name."""
        named: list[Path] = []
        for place in filter(None, settings.packs.split(os.pathsep)):
            path = Path(place)
            named += sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
        return [*named, *sorted(folder.glob(f"*{SUFFIX}"))]

    def find(self, folder: Path, key: str) -> bytes | None:
        """The image under a key, from the first pack that has it."""
        for path in self.files(folder):
            pack = self.opened(path)
            found = pack.read(key) if pack is not None else None
            if found is not None:
                return found.image
        return None

    def opened(self, path: Path) -> Pack | None:
        """A pack, its index read once; None where there is no such file."""
        try:
            status = path.stat()
        except OSError:
            return None
        state = (status.st_mtime_ns, status.st_size)
        known = self.known.get(path)
        if known is None or known[0] != state:
            known = self.known[path] = (state, Pack(path))
        return known[1]


packs = Packs()
