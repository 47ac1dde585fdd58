# cython: annotation_typing=False
"""A launch: a kernel bound to sizes, everything of a launch but its operands and numbers."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any
from zlib import crc32

from slipstream.core.launch.cuda.modules import modules
from slipstream.core.launch.cuda.words import Words
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.records import Backend, Kernel, Plan

Sizes = tuple[int, int, int]


# What kernels report that is no bad index: mark -> value -> the text of a RuntimeError.
known_faults: dict[int, dict[int, str]] = {}


# Which kind of fusion made a kernel, in the words of `explain`.
CHAIN = "chain of pointwise ops"
ROWS = "row kernel"
EPILOGUE = "epilogue of a product"
TILED = "tiled by hand"
LISTED = "list of tensors"


class KernelCode:
    """The CUDA C++ of one kernel, without the prelude that goes before it.

    ``name``: the ``extern "C" __global__`` function; ``mark``: what windows are cut by: it depends
    on the text alone, so that the same program is cut at the same places in every process.
    ``with_prelude``: False where the source brings all that it needs; ``faults``: the text of each
    value that it reports to the error slot, where that is no index; ``fusion``: which kind made it,
    empty where one op was written by hand; ``sizes``: of how many its launches were asked whether
    they begin chains.
    """

    with_prelude = True
    fusion = ""
    sizes = 0

    def __init__(self, name: str, source: str, options: tuple[str, ...] = (),
                 faults: dict[int, str] | None = None) -> None:
        self.name = name
        self.source = source
        self.options = options
        # What a loaded kernel is known by, beside its device.
        self.key = (source, (name, *options))
        self.mark = crc32(source.encode(), crc32(name.encode()))
        if faults:
            known_faults[self.mark] = faults

    def made_by(self, fusion: str) -> KernelCode:
        """Say which kind of fusion made it; itself."""
        self.fusion = fusion
        return self


class Part:
    """What may be joined with other parts: each element of it is computed by itself.

    A launch's argument words are the addresses of ``outputs`` results and ``inputs`` operands, then
    its numbers.  Of each address, outputs first: ``kinds``, equal where memory is seen alike, and
    ``sizes``, the bytes of an element; negative for one element that all share, and 0 for what is
    not read at all.  ``heads``: it only ever is the first part of a launch, which pays however few
    elements there are; ``reduces``: so does what has one such part, whose neighbours, before and
    behind, all ``follows`` and have elements of at most ``widest`` bytes; and so do those behind a
    head.  ``dear``: a kernel that it leads takes long to be made.
    """

    outputs: int
    inputs: int
    kinds: tuple[int, ...]
    sizes: tuple[int, ...]
    heads: bool
    follows: bool
    reduces: bool
    dear: bool
    widest: int

    def __init__(self, outputs: int, kinds: tuple[int, ...], sizes: tuple[int, ...]) -> None:
        self.outputs = outputs
        self.inputs = len(kinds) - outputs
        self.kinds = kinds
        self.sizes = sizes
        self.heads = self.follows = self.reduces = self.dear = False
        self.widest = max(sizes, default=0)

    def joined(self, parts: tuple[Part, ...], codes: int, dead: int) -> Any:
        """What makes a launch of several parts for a count of elements: see `chains`."""
        raise NotImplementedError


class Launch:
    """One kernel launch, bound: what a graph's node needs but for the argument words.

    ``numbers``: the class of each run-time number; ``tail``: the bytes that end the parameter
    block.  A library's or user's kernel has ``places`` instead: ``tail`` is its whole block, into
    which argument words are written: (word, place in bytes, what is added to the word), and the
    bytes of what is narrower than a word.
    ``part``: how it computes its elements one by one, where it may be joined with its neighbours
    (`chains`), and for how many elements; ``leads``: a launch that followed could be joined.
    """

    function: int
    mark: int
    shape: tuple[Sizes, Sizes, int]
    numbers: tuple[str, ...]
    tail: bytes
    name: str
    code: Any
    places: tuple[tuple[int, ...], ...] | None
    part: Any
    count: int
    leads: bool

    def __init__(self, code: Any, function: int, shape: tuple[Sizes, Sizes, int],
                 numbers: tuple[str, ...], tail: bytes) -> None:
        self.code = code
        self.name = code.name
        self.mark = code.mark
        self.function = function
        self.shape = shape
        self.numbers = numbers
        self.tail = tail
        self.places = None
        self.part = None
        self.count = 0
        self.leads = False

    def parameters(self, words: Words, start: int, count: int) -> bytes:
        """The parameter block for ``count`` argument words from ``start``."""
        if self.places is None:
            return words.block(start, count, self.tail)
        return words.patched(start, self.tail, self.places)

    @property
    def grid(self) -> Sizes:
        """Blocks of the grid."""
        return self.shape[0]

    @property
    def block(self) -> Sizes:
        """Threads of a block."""
        return self.shape[1]

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory."""
        return self.shape[2]

    def __repr__(self) -> str:
        return f"<launch of {self.name}, grid {self.grid}, block {self.block}>"


class Bound:
    """What the plan of a `LaunchKernel` is bound to where it is several launches."""

    def record(self, backend: Backend, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Record them."""
        raise NotImplementedError


__all__ = ["Bound", "KernelCode", "Launch", "LaunchKernel", "Part", "Words", "make_launch",
           "three"]


class LaunchKernel(Kernel):
    """A kernel that is one launch, or several: ``plan.binding``; None where nothing is to do."""

    def __init__(self, name: str) -> None:
        self.name = name

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Record them."""
        if isinstance(plan.binding, Bound):
            plan.binding.record(plan.backend, operands, numbers)
        elif plan.binding is not None:
            backend: Any = plan.backend
            backend.record_operands(plan.binding, operands, numbers)


def make_launch(code: KernelCode, device: Device, grid: int | Sequence[int],
                block: int | Sequence[int], **more: Any) -> Launch:
    """A launch of a kernel on a device, compiled and loaded where it was not yet.

    ``more``: ``shared`` bytes of dynamic shared memory, ``numbers`` (classes of the run-time
    numbers), ``tail`` (bytes, or integers that become 8-byte words).
    """
    shared = more.get("shared", 0)
    tail = more.get("tail", b"")
    if not isinstance(tail, bytes):
        tail = struct.pack(f"<{len(tail)}q", *tail)
    function = modules.function(device, code, shared)
    return Launch(code, function, (three(grid), three(block), shared),
                  tuple(more.get("numbers", ())), tail)


def three(sizes: int | Sequence[int]) -> Sizes:
    """A number, or one to three, as the three sizes of a grid or block."""
    given = list(sizes) if not isinstance(sizes, int) else [sizes]
    given += [1] * (3 - len(given))
    return tuple([int(size) for size in given])  # type: ignore[return-value]
