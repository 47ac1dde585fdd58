"""The CPU's machine: runs programs over strided memory.

A ``Machine`` is a program made ready to run, a ``Binding`` one fitted to shapes and strides.
Compiled, a program runs instruction by instruction over blocks that stay in the first-level cache:
the loops are printed from the table of primitives (``loops.py``), ``geometry.c`` cuts a domain
into blocks and ``runner.c`` walks them.  Uncompiled, the NumPy evaluator does the work.

The order of every reduction follows from shapes and strides, never from addresses or from the
number of threads.
"""

# The C functions are declared in the .pxd.
# ruff: noqa: F821
# mypy: disable-error-code="name-defined, attr-defined"
from __future__ import annotations

import ctypes
import os
from typing import Any

import cython
import numpy as np

from slipstream.core.fuse.classes import Number, to_class
from slipstream.core.fuse.evaluator import evaluate
from slipstream.core.kernels.cpu.lowering import Lowered
from slipstream.core.vocab.programs import COMPUTE_CLASSES, ROW, Program

Shape = tuple[int, ...]
# As many as the pool has in all: THREADS_MOST in pool.c, and the caller's own.
THREADS_MOST = 257
# Below this many elements letting go of the GIL costs more than it gives.
HELD: cython.longlong = 32768
WORDS: cython.int = 256


def _processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Workers:
    """How many threads large runs may use; the pool sleeps between runs.

    ``threads`` may be set at any time: results do not depend on it.
    """

    def __init__(self) -> None:
        self.threads = _processors()
        # Where the C function lies that hands tasks to the pool: other modules call it there.
        self.parallel = slip_parallel_address if cython.compiled else 0

    def started(self) -> int:
        """How many threads have been started beside the callers' own: none before a large run."""
        if cython.compiled:
            return slip_started()
        return 0


workers = Workers()
# The same object, declared in the .pxd: its threads are a C field there.
pool = workers


class Binding:
    """A program fitted to an outer shape, an inner shape, and the strides of its operands."""

    def __init__(self, outer_shape: Shape, inner_shape: Shape, strides: tuple[Shape, ...]) -> None:
        self.outer_shape = outer_shape
        self.inner_shape = inner_shape
        self.strides = strides
        self.views: Any = None

    def __del__(self) -> None:
        if cython.compiled:
            slip_unbind(self.layout)

    def describe(self) -> dict[str, int]:
        """How the domain is cut: rows, width, groups, blocks of a group, chunks, columnar."""
        if not cython.compiled:
            return {}
        layout = self.layout
        return {"rows": layout.rows, "width": layout.width, "groups": layout.groups,
                "blocks": layout.blocks, "chunks": layout.chunks, "columnar": layout.columnar,
                "direct": layout.direct is not cython.NULL}


class Machine:
    """A program made ready to run on the CPU."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.operands = len(program.outputs) + len(program.inputs)
        self.kinds = bytes([COMPUTE_CLASSES.index(cls) for cls in program.numbers])
        if cython.compiled:
            self._build(Lowered(program))

    def __del__(self) -> None:
        if cython.compiled:
            slip_free_code(self.code)

    # ---- binding ----

    def bind(self, outer_shape: Shape, inner_shape: Shape, strides: tuple[Shape, ...]) -> Binding:
        """Fit the program to shapes.

        ``strides`` are in elements, one tuple for each operand, outputs first, then inputs, each
        aligned on outer + inner dims; those of row operands may stop after the outer dims.
        Raises MemoryError where there is none.
        """
        binding = Binding(outer_shape, inner_shape, strides)
        if cython.compiled:
            rank: cython.int = len(outer_shape) + len(inner_shape)
            words: int64_t[256]
            room: cython.pointer[int64_t] = words
            if rank * (self.operands + 1) > WORDS:
                room = slip_words(rank * (self.operands + 1))
            try:
                self._cut(binding, room, rank)
            finally:
                if room != words:
                    free(room)
        else:
            binding.views = [self._view(binding, place) for place in range(self.operands)]
        return binding

    def _cut(self, binding, words, rank):  # type: ignore[no-untyped-def]
        """Write sizes and strides into ``words``, and have the domain cut into blocks."""
        if cython.compiled:
            place: cython.Py_ssize_t = 0
            size: int64_t
            row: tuple
            for size in binding.outer_shape:
                words[place] = size
                place += 1
            outer_rank: cython.int = place
            for size in binding.inner_shape:
                words[place] = size
                place += 1
            end: cython.Py_ssize_t = place
            for row in binding.strides:
                end += rank
                for size in row:
                    words[place] = size
                    place += 1
                while place < end:
                    words[place] = 0
                    place += 1
            binding.layout = slip_bind(self.code, outer_rank, rank - outer_rank, words,
                                       words + rank)
            if binding.layout is cython.NULL:
                raise MemoryError
        return 0

    # ---- running ----

    def run(self, binding, addresses, numbers):  # type: ignore[no-untyped-def]
        """Run over operands at ``addresses`` (outputs first, then inputs) with ``numbers``."""
        if not cython.compiled:
            return self._evaluate(binding, addresses, numbers)
        if binding.layout.touched <= HELD and slip_run_direct(binding.layout, addresses):
            return 0
        place: cython.Py_ssize_t
        count: cython.Py_ssize_t = len(self.kinds)
        room: cython.char[256]
        words: cython.p_char = room
        if count > 16:
            words = slip_bytes(2 * count)
        try:
            for place in range(count):
                self._put(words + 16 * place, self.kinds[place], numbers[place])
            self._run(binding, addresses, words)
        finally:
            if words != room:
                free(words)
        return 0

    def _put(self, place, kind, number):  # type: ignore[no-untyped-def]
        """Write a number in the class with place ``kind`` among the compute classes."""
        if cython.compiled:
            # NumPy's scalars of 64 bits alone are Python's too.
            if type(number) is not float and type(number) is not int and isinstance(
                    number, np.generic):
                number = number.item()
            if kind == 0:
                slip_put_bool(place, bool(number))
            elif kind > 1 and isinstance(number, complex):
                slip_put_float(place, kind, number.real, number.imag)
            elif kind > 1:
                slip_put_float(place, kind, number, 0.0)
            elif type(number) is int:
                too_big: cython.int = 0
                whole: cython.longlong = PyLong_AsLongLongAndOverflow(
                    number, cython.address(too_big))
                if too_big:
                    whole = to_class(number, "i64")
                slip_put_int(place, whole)
            else:
                slip_put_int(place, PyLong_AsUnsignedLongLongMask(int(to_class(number, "i64"))))
        return 0

    def _run(self, binding, addresses, numbers):  # type: ignore[no-untyped-def]
        if cython.compiled:
            failed: cython.int
            threads: cython.int = pool.threads
            if binding.layout.touched <= HELD:
                failed = slip_run(self.code, binding.layout, addresses, numbers, threads)
            else:
                with cython.nogil:
                    failed = slip_run(self.code, binding.layout, addresses, numbers, threads)
            if failed:
                raise MemoryError
        return 0

    def run_addresses(self, binding: Binding, addresses: tuple[int, ...],
                      numbers: tuple[Number, ...]) -> None:
        """``run``, callable from Python."""
        if len(addresses) != self.operands or len(numbers) != len(self.kinds):
            raise ValueError("the program has another number of operands or numbers")
        if cython.compiled:
            words: cython.pointer[cython.size_t] = slip_addresses(self.operands)
            try:
                for place in range(self.operands):
                    words[place] = addresses[place]
                self.run(binding, words, numbers)
            finally:
                free(words)
        else:
            self._evaluate(binding, addresses, numbers)

    # ---- uncompiled ----

    def _view(self, binding: Binding, place: int) -> Any:
        """Dtype, shape, byte strides, lowest byte and size in bytes of an operand's memory."""
        program = self.program
        outputs = len(program.outputs)
        value = program.outputs[place].value if place < outputs else place - outputs
        operand: Any = (*program.outputs, *program.inputs)[place]
        # Without reductions every output fills the domain; a row input never has inner dims.
        row = program.level_of(value) == ROW and (program.has_rows or place >= outputs)
        shape = binding.outer_shape + (() if row else binding.inner_shape)
        size = operand.dtype.itemsize
        strides = tuple([stride * size for stride in binding.strides[place][:len(shape)]])
        reach = [stride * (length - 1) for stride, length in zip(strides, shape, strict=True)]
        low = sum(step for step in reach if step < 0)
        high = sum(step for step in reach if step > 0) + size
        return operand.dtype.numpy, shape, strides, low, high - low if 0 not in shape else 0

    def _evaluate(self, binding: Binding, addresses: Any, numbers: tuple[Number, ...]) -> None:
        arrays = []
        for address, (dtype, shape, strides, low, size) in zip(
                addresses, binding.views, strict=True):
            if size == 0:
                arrays.append(np.empty(shape, dtype))
                continue
            memory = (ctypes.c_char * size).from_address(address + low)
            arrays.append(np.ndarray(shape, dtype, memory, -low, strides))
        outputs = len(self.program.outputs)
        evaluate(self.program, arrays[:outputs], arrays[outputs:], numbers,
                 len(binding.inner_shape))

    # ---- building ----

    def _build(self, lowered: Lowered) -> None:
        """Write the lowered program into the runner's records."""
        if cython.compiled:
            self._reserve(lowered)
            self._build_values(lowered)
            self._build_operands(lowered)
            self._build_steps(lowered)

    def _reserve(self, lowered: Lowered) -> None:
        if cython.compiled:
            program = lowered.program
            counts: int32_t[10]
            sizes = (len(lowered.level), len(program.inputs), len(program.numbers),
                     len(program.constants), len(program.outputs), lowered.phases,
                     len(lowered.uniform), sum(map(len, lowered.rows)),
                     sum(map(len, lowered.fulls)), lowered.reduces)
            for place in range(10):
                counts[place] = sizes[place]
            self.code = slip_new_code(counts)
            if self.code is cython.NULL:
                raise MemoryError

    def _build_values(self, lowered: Lowered) -> None:
        if cython.compiled:
            program = lowered.program
            self.code.slots = lowered.slots
            self.code.item = max(lowered.size)
            self.code.count = lowered.count
            self.code.lined = lowered.lined
            self.code.ordered = lowered.ordered
            for value in range(len(lowered.level)):
                self.code.value[value].level = lowered.level[value]
                self.code.value[value].size = lowered.size[value]
                self.code.value[value].first = lowered.first[value]
                self.code.value[value].last = lowered.last[value]
                self.code.value[value].slot = lowered.slot[value]
                self.code.value[value].expanded = lowered.expanded[value]
            place: cython.Py_ssize_t
            for place in range(len(program.constants)):
                constant = program.constants[place]
                self._put(self.code.constant + 16 * place, COMPUTE_CLASSES.index(constant.cls),
                          constant.value)

    def _build_operands(self, lowered: Lowered) -> None:
        if cython.compiled:
            program = lowered.program
            outputs: cython.int = len(program.outputs)
            for place, output in enumerate(program.outputs):
                name, natural = lowered.moves[place]
                self.code.operand[place].value = output.value
                self.code.operand[place].itemsize = output.dtype.itemsize
                self.code.operand[place].natural = natural
                self.code.operand[place].early = lowered.early[place]
                self.code.operand[place].store = table.stores[stores[name]].loop
            for place, operand in enumerate(program.inputs):
                name, natural = lowered.moves[outputs + place]
                self.code.operand[outputs + place].value = place
                self.code.operand[outputs + place].itemsize = operand.dtype.itemsize
                self.code.operand[outputs + place].natural = natural
                self.code.operand[outputs + place].load = table.loads[loads[name]].loop

    def _build_steps(self, lowered: Lowered) -> None:
        if cython.compiled:
            begin: cython.int = 0
            for place, entry in enumerate(lowered.uniform):
                self._set_step(cython.address(self.code.uniform[place]), entry)
            for phase, entries in enumerate(lowered.rows):
                self.code.row_begin[phase] = begin
                for entry in entries:
                    self._set_step(cython.address(self.code.row[begin]), entry)
                    begin += 1
            self.code.row_begin[lowered.phases + 1] = begin
            begin = 0
            for phase, entries in enumerate(lowered.fulls):
                self.code.full_begin[phase] = begin
                for entry in entries:
                    self._set_step(cython.address(self.code.full[begin]), entry)
                    begin += 1
            self.code.full_begin[lowered.phases] = begin
            self._build_folds(lowered)

    def _set_step(self, step, entry):  # type: ignore[no-untyped-def]
        if cython.compiled:
            name, value, sources = entry
            step.loop = table.loops[loops[name]].loop
            step.dst = value
            padded = [*sources, -1, -1, -1]
            step.a = padded[0]
            step.b = padded[1]
            step.c = padded[2]
        return 0

    def _build_folds(self, lowered: Lowered) -> None:
        if cython.compiled:
            begin: cython.int = 0
            for phase, entries in enumerate(lowered.folds):
                self.code.fold_begin[phase] = begin
                for name, source, value in entries:
                    self.code.fold[begin].loops = \
                        cython.address(table.reductions[reductions[name]])
                    self.code.fold[begin].source = source
                    self.code.fold[begin].dst = value
                    begin += 1
            self.code.fold_begin[lowered.phases] = begin


if cython.compiled:
    table = slip_loops()
    loops: dict[str, int] = {}
    loads: dict[str, int] = {}
    stores: dict[str, int] = {}
    reductions: dict[str, int] = {}
    while table.loops[len(loops)].loop is not cython.NULL:
        loops[table.loops[len(loops)].name.decode()] = len(loops)
    while table.loads[len(loads)].loop is not cython.NULL:
        loads[table.loads[len(loads)].name.decode()] = len(loads)
    while table.stores[len(stores)].loop is not cython.NULL:
        stores[table.stores[len(stores)].name.decode()] = len(stores)
    while table.reductions[len(reductions)].name is not cython.NULL:
        reductions[table.reductions[len(reductions)].name.decode()] = len(reductions)
