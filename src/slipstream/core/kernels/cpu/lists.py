"""A program over a list of tensors on the CPU: one loop, every tensor fitted once."""

from __future__ import annotations

from typing import Any

import cython

from slipstream.core.kernels.cpu.machine import Binding
from slipstream.core.kernels.cpu.programs import ProgramKernel
from slipstream.core.launch.cuda.words import Words
from slipstream.core.vocab.programs import Program
from slipstream.core.vocab.records import Kernel, Plan, Storage, TensorBase

__all__ = ["Binding", "ListBinding", "ListKernel", "ProgramKernel", "Storage", "TensorBase",
           "Words", "bound"]

# More operands of a tensor than this go the long way.
MOST = 32


class ListBinding:
    """The tensors of one list.

    ``words``: the addresses, column by column; ``columns``: which of them the program's operands
    are, outputs first, and below 0 which of the tensors that all share (-1 is the first);
    ``bindings``: the program fitted to each tensor's size, None for none.
    """

    words: Words
    columns: list[int]
    bindings: list[Any]

    def __init__(self, words: Words, columns: list[int], bindings: list[Any]) -> None:
        self.words = words
        self.columns = columns
        self.bindings = bindings


class ListKernel(Kernel):
    """Runs a program on each tensor of a list."""

    single: ProgramKernel

    def __init__(self, program: Program) -> None:
        self.name = "cpu list of tensors"
        self.single = ProgramKernel(program)

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Run the program on all tensors, in their order; ``operands`` are what they share."""
        bound: ListBinding = plan.binding
        count: cython.Py_ssize_t = len(bound.bindings)
        width: cython.Py_ssize_t = len(bound.columns)
        words: Words = bound.words
        place: cython.Py_ssize_t
        column: cython.Py_ssize_t
        if not cython.compiled:
            self.evaluate(bound, operands, numbers)
            return
        addresses: cython.size_t[32]
        binding: Binding
        for place in range(count):
            if bound.bindings[place] is None:
                continue
            binding = bound.bindings[place]
            for operand in range(width):
                column = bound.columns[operand]
                if column < 0:
                    addresses[operand] = address_of(operands[-1 - column])
                else:
                    addresses[operand] = words.data[column * count + place]
            self.single.machine.run(binding, addresses, numbers)

    def evaluate(self, bound: Any, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Uncompiled: the same by the NumPy evaluator."""
        count = len(bound.bindings)
        for place, binding in enumerate(bound.bindings):
            if binding is not None:
                addresses = [address_of(operands[-1 - column]) if column < 0
                             else bound.words.items[column * count + place]
                             for column in bound.columns]
                self.single.evaluate(binding, addresses, numbers)


def address_of(tensor: TensorBase) -> int:
    """Where a tensor's first element lies."""
    return tensor.storage.address + tensor.offset * tensor.spec.itemsize


def bound(program: Program, columns: list[int], numels: list[int],
          words: Words) -> tuple[ListKernel, ListBinding] | None:
    """The kernel of a program and its binding to tensors of some sizes."""
    if len(columns) > MOST or program.has_rows:
        return None
    kernel = ListKernel(program)
    strides: list[tuple[int, ...]] = [(0,) if column < 0 else (1,) for column in columns]
    fitted: dict[int, Any] = {0: None}
    for numel in numels:
        if numel not in fitted:
            fitted[numel] = kernel.single.bind((numel,), (), strides)
    return kernel, ListBinding(words, columns, [fitted[numel] for numel in numels])
