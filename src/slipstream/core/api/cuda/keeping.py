"""Compiled kernels on disk: those of packs and those that were kept; listing and removing them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from slipstream.core.launch.cuda.modules import folder, kept_files, pack_folder, read_kept
from slipstream.core.launch.cuda.packs import Pack, packs

# The section of a kernel's code in a cubin; its symbol in what the simulated driver built.
SECTION = re.compile(rb"\0\.text\.(\w+)\0")
SYMBOL = re.compile(rb"(\d+)(slip_global_(\w+))")


class Kept(NamedTuple):
    """A compiled kernel: its function's name, architecture, bytes, file; "" for what is unknown."""

    name: str
    arch: str
    nbytes: int
    file: str


def kept_kernels() -> list[Kept]:
    """Every kernel on disk: packs first, in the order in which they are looked up."""
    found = []
    for path in packs.files(pack_folder()):
        found += [Kept(each.name, each.arch, len(each.image), str(path))
                  for each in Pack(path).kernels()]
    for _, _, path in kept_files():
        image = read_kept(path, path.name)
        if image is not None:
            found.append(Kept(name_in(image), "", len(image), str(path)))
    return found


def name_in(image: bytes) -> str:
    """The name of the first kernel of a compiled image; "" for one without any."""
    section = SECTION.search(image)
    if section is not None:
        return section[1].decode()
    for length, symbol, name in SYMBOL.findall(image):
        # The compiler writes a name behind its length; what is before that may end in a digit.
        for start in range(len(length)):
            end = int(length[start:])
            if symbol[end:end + 1] == b"E":
                return name[:end - len(symbol)].decode()
    return ""


def kept_statistics() -> dict[str, Any]:
    """How many kernels there are, plain data: of each pack by architecture, and in the folder."""
    files = kept_files()
    return {
        "folder": str(folder()), "kernels": len(files),
        "nbytes": sum(size for _, size, _ in files),
        "damaged": sum(read_kept(path, path.name) is None for _, _, path in files),
        "packs": [pack_statistics(path) for path in packs.files(pack_folder())],
    }


def pack_statistics(path: Path) -> dict[str, Any]:
    """A pack's kernels by architecture, its bytes, and how many of its kernels are damaged.

    ``there``: whether there is such a file; ``sound``: whether it is a pack.
    """
    pack = Pack(path)
    counts: dict[str, int] = {}
    for each in pack.kernels():
        counts[each.arch] = counts.get(each.arch, 0) + 1
    return {"path": str(path), "there": path.exists(), "sound": pack.sound, "kernels": counts,
            "nbytes": path.stat().st_size if path.exists() else 0,
            "damaged": len(pack.places) - sum(counts.values())}


def clear(with_packs: bool = False) -> tuple[int, int]:
    """Remove the kept kernels, and the packs in the cache folder if asked: (files, bytes) removed.

    Packs elsewhere, which SLIPSTREAM_PACKS names, stay.  Raises OSError where a file cannot be
    removed.
    """
    paths = [path for _, _, path in kept_files()]
    if with_packs:
        paths += sorted(pack_folder().glob("*.pack"))
    nbytes = 0
    for path in paths:
        nbytes += path.stat().st_size
        path.unlink()
    return len(paths), nbytes
