"""A program over a list of tensors: one launch, whatever their number and sizes.

Every tensor is cut into chunks of nearly the same size, a block for each.  Two tables lie in device
memory: which part of which tensor a chunk is, made once for the sizes; and the tensors' addresses,
one for each combination of addresses that was met of late.  A table is never written again, so that
launches which are still to run find theirs as it was.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from slipstream.core.kernels.cuda import access
from slipstream.core.kernels.cuda.access import FLAT, ONCE
from slipstream.core.kernels.cuda.maps import BLOCK, MapPlan, MapWriter
from slipstream.core.kernels.cuda.writing import PACKED, Formula
from slipstream.core.launch.cuda.launches import LISTED, KernelCode, Launch, LaunchKernel
from slipstream.core.launch.cuda.modules import modules
from slipstream.core.shapes.specs import specs
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.programs import Program
from slipstream.core.vocab.records import TensorBase

# Address tables that a list keeps: a loop that holds on to gradients has them take turns.
KEPT = 8
# Bytes that a thread asks for at once with one vector of each operand; with less it takes two.
WIDE_READ = 32
# Elements of a chunk at most, in steps of a block; and how many chunks there should be at least.
MOST_STEPS = 4
MANY_STEPS = 16
FEW_CHUNKS = 1056
MANY_CHUNKS = 16384


class ListWriter(MapWriter):
    """Writes the kernel: a pointwise one whose pointers come from the table.

    ``columns``: the column of the table that each operand's addresses are in, outputs first; None
    for an operand that all tensors share: an output of that kind is a float flag, set to 1 where
    an element's value is not 0.
    """

    def __init__(self, formula: Formula, plan: MapPlan, columns: Sequence[int | None]) -> None:
        super().__init__(formula, plan, {"tensors": [0], "flag": [0]})
        self.columns = columns

    def text(self) -> str:
        """The source."""
        formula, lines = self.formula, self.lines
        mine = self.plan.vector * self.plan.unroll
        lines.open(f'extern "C" __global__ void __launch_bounds__({BLOCK})\n'
                   f"{self.name}({', '.join(self._parameters())})")
        formula.add_uniform(lines)
        self._find()
        lines.loop(f"for (int64_t base = first; base < end; base += (int)blockDim.x * {mine})",
                   "#pragma unroll 1")
        self.body()
        lines.close(2)
        return access.struct_text(self.words) + "\n" + lines.text()

    @property
    def name(self) -> str:
        """The kernel's name."""
        return f"list_{self.formula.name}"

    def _parameters(self) -> list[str]:
        formula = self.formula
        parts = ["const uint64_t* table", "const uint64_t* chunks"]
        parts += [("" if place < formula.outputs else "const ")
                  + f"{formula.stored(place)}* {formula.pointers[place]}"
                  for place, column in enumerate(self.columns) if column is None]
        return [*parts, *formula.number_parameters(), "const tail_words tail"]

    def _find(self) -> None:
        """The chunk, and the pointers of its tensor."""
        formula, lines = self.formula, self.lines
        lines.add("const uint64_t packed = chunks[2 * (int64_t)blockIdx.x];",
                  "const int64_t first = (int64_t)chunks[2 * (int64_t)blockIdx.x + 1];",
                  "const int64_t end = first + (int64_t)(packed >> 32);",
                  "const int64_t tensor = (int64_t)(packed & 0xffffffffull);")
        for place, column in enumerate(self.columns):
            if column is None:
                continue
            kind = ("" if place < formula.outputs else "const ") + formula.stored(place)
            lines.add(f"SLIP_POINTER({kind}) {formula.pointers[place]} = slip_pointer_at<{kind}>("
                      f"table[{column} * tail.tensors + tensor]);")
        # Where an index was bad nothing is written.
        lines.add("const bool kept = tail.flag != 0 && slip_is_reported((uint64_t)tail.flag);")

    def _range(self) -> None:
        self.lines.add(f"const int64_t start = base + (int)threadIdx.x * {self.plan.vector};",
                       "const int64_t rest = end - start;")

    def _stores(self) -> None:
        formula, lines = self.formula, self.lines
        lines.add("if (kept) return;")
        super()._stores()
        for place in self._operands(ONCE):
            if place < formula.outputs:
                # A flag: whoever finds something writes it, and all write the same.
                lines.loop(f"for (int e = 0; e < {self.plan.vector}; e++)")
                lines.add(f"if (e < left && {self._held(place)}.get(e) != 0) "
                          f"{formula.pointers[place]}[0] = 1;")
                lines.close()


class ListKernel(LaunchKernel):
    """Runs one program over lists on one device."""

    def __init__(self, program: Program, columns: Sequence[int | None]) -> None:
        self.formula = Formula(program)
        self.name = f"cuda list of tensors {self.formula.name}"
        dtypes_of = self.formula.dtypes
        self.kinds = tuple([ONCE if column is None else FLAT for column in columns])
        sizes = [dtype.itemsize for dtype, column in zip(dtypes_of, columns, strict=True)
                 if column is not None]
        read = sum([dtype.itemsize for dtype, kind in zip(dtypes_of, self.kinds, strict=True)
                    if kind == FLAT][self.formula.outputs:])
        vector = access.elements_of(sizes)
        self.plan = MapPlan(self.kinds, vector, 1 if read * vector >= WIDE_READ else 2, 0, False)
        self.step = BLOCK * vector * self.plan.unroll
        writer = ListWriter(self.formula, self.plan, columns)
        self.code = KernelCode(writer.name, writer.text()).made_by(LISTED)

    def launch(self, backend: Any, tensors: int, chunks: int, heeds: bool) -> Launch:
        """The launch over so many chunks; ``heeds``: it writes nothing after a bad index."""
        tail = struct.pack("<2q", tensors, backend.slot.flag if heeds else 0)
        function = modules.function(backend.device, self.code)
        numbers = tuple([PACKED[cls] for cls in self.formula.program.numbers])
        return Launch(self.code, function, ((chunks, 1, 1), (BLOCK, 1, 1), 0), numbers, tail)


class Tables:
    """The tables of one list of tensors on the device.

    ``known``: by the queue that they were written on, whether for a capture, and the addresses.
    """

    def __init__(self, backend: Any, chunks: np.ndarray) -> None:
        self.backend = backend
        self.chunks = chunks
        self.known: dict[Any, tuple[TensorBase, TensorBase]] = {}
        self.made = 0

    def find(self, addresses: bytes) -> tuple[TensorBase, TensorBase] | None:
        """The tables of these addresses; None where the current stream does not know them."""
        key = (*self._place(), addresses)
        found = self.known.pop(key, None)
        if found is not None:
            # The one used last is the last to go.
            self.known[key] = found
        return found

    def _place(self) -> tuple[Any, bool]:
        # Scopes of streams are made anew each time; their queues stay.
        queue = self.backend.queue()
        return queue, queue.capture is not None

    def make(self, addresses: bytes) -> tuple[TensorBase, TensorBase]:
        """Write new tables."""
        place = self._place()
        self.made += 1
        if len(self.known) >= KEPT:
            del self.known[next(iter(self.known))]
        chunks = next((both[1] for (queue, captured, _), both in self.known.items()
                       if (queue, captured) == place), None)
        if chunks is None:
            chunks = self._written(self.chunks)
        table = self._written(np.frombuffer(addresses, np.uint64))
        self.known[*place, addresses] = table, chunks
        return table, chunks

    def send(self, reason: str) -> None:
        """Let what is recorded go out."""
        self.backend.queue().send(reason)

    def note(self, columns: Sequence[Any]) -> None:
        """Say who uses the tensors, after the launch: a capture, or one of several streams."""
        queue = self.backend.queue()
        if not queue.shared and queue.capture is None:
            return
        for column in columns:
            listed = tuple([tensor.record.grad for tensor in columns[0]]
                           if column is None else column)
            if queue.shared:
                queue.note_uses(listed, queue.sequence)
            if queue.capture is not None:
                queue.capture.hold(listed)

    def _written(self, words: np.ndarray) -> TensorBase:
        made = TensorBase()
        made.spec = specs.contiguous(self.backend.device, dtypes.int64, (words.size,))
        made.offset = 0
        queue = self.backend.queue()
        if queue.capture is not None:
            # A captured graph reads the table at each replay, and holds it.
            made.storage = queue.capture.constant(queue, words)
            return made
        made.storage = self.backend.scratch(words.nbytes)
        self.backend.write(made.storage.address, words)
        return made


def rounded_up(number: Any, by: Any) -> Any:
    """Quotients, rounded up."""
    return -(-number // by)


def cut(numels: Sequence[int], step: int) -> np.ndarray:
    """Chunks of nearly one size, two words each: tensor and elements, first element.

    A tensor's chunks are equal but for the last one, and begin at multiples of a warp's elements.
    """
    sizes = np.asarray(numels, np.int64)
    total = int(sizes.sum())
    steps = MANY_STEPS if total >= MANY_STEPS * step * MANY_CHUNKS else MOST_STEPS
    most = max(min(total // (FEW_CHUNKS * step), steps), 1) * step
    unit = max(step // 8, 1)
    pieces = np.maximum(rounded_up(sizes, most), 1)
    each = rounded_up(rounded_up(sizes, pieces), unit) * unit
    pieces = rounded_up(sizes, np.maximum(each, 1))
    tensor = np.repeat(np.arange(sizes.size), pieces)
    before = np.repeat(np.cumsum(pieces) - pieces, pieces)
    first = (np.arange(tensor.size) - before) * each[tensor]
    count = np.minimum(each[tensor], sizes[tensor] - first)
    return np.stack([tensor | count << 32, first], 1).astype(np.uint64).reshape(-1)


kernels: dict[Any, ListKernel] = {}


def bound(backend: Any, program: Program, columns: tuple[int | None, ...],
          facts: tuple[list[int], bool]) -> tuple[ListKernel, Launch | None, Tables] | None:
    """Kernel, launch and tables of a list; None for a program that reduces.

    ``columns``: see `ListWriter`; ``facts``: elements of each tensor, and whether a bad index keeps
    all from being written.
    """
    numels, heeds = facts
    if program.has_rows:
        return None
    key = (program, columns)
    kernel = kernels.get(key)
    if kernel is None:
        kernel = kernels[key] = ListKernel(program, columns)
    chunks = cut(numels, kernel.step)
    launch = kernel.launch(backend, len(numels), chunks.size // 2, heeds) if chunks.size else None
    return kernel, launch, Tables(backend, chunks)
