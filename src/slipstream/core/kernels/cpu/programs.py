"""The CPU kernel of formulas: runs a program on the operands' memory.

Compiled, the machine runs it; uncompiled, the NumPy evaluator.  Addresses repeat, since the
allocator is deterministic, so the arrays over them are kept with the plan.
"""

from __future__ import annotations

from typing import Any

import cython

from slipstream.core.fuse.evaluator import evaluate
from slipstream.core.kernels.cpu.arrays import array_of
from slipstream.core.kernels.cpu.machine import Binding, Machine
from slipstream.core.vocab.programs import ROW, Program
from slipstream.core.vocab.records import Kernel, Plan, Spec, Storage, TensorBase

__all__ = ["ArrayBinding", "Binding", "ProgramKernel", "Spec", "Storage"]

# More operands than this go through a tuple of addresses.
MOST = 32
# Arrays kept for each operand of a plan.
KEPT = 64


class ProgramKernel(Kernel):
    """Runs one program."""

    def __init__(self, program: Program) -> None:
        self.name = "cpu machine" if cython.compiled else "cpu evaluator"
        self.program = program
        self.rows = program.has_rows
        # Uncompiled there is none.
        self.machine: Machine = (
            Machine(program) if cython.compiled else None)  # type: ignore[assignment]

    def bind(self, domain: tuple[int, ...], reduced: tuple[int, ...],
             strides: list[tuple[int, ...]]) -> Any:
        """The geometry of a call: a binding of the machine, or shapes and steps of arrays."""
        if not self.rows:
            reduced = ()
        outer = domain
        inner: tuple = ()
        if reduced:
            kept = [i for i in range(len(domain)) if i not in reduced]
            order = [*kept, *reduced]
            outer = tuple([domain[i] for i in kept])
            inner = tuple([domain[i] for i in reduced])
            strides = [tuple([own[i] for i in order]) for own in strides]
        if cython.compiled:
            machine: Machine = self.machine
            return machine.bind(outer, inner, tuple(strides))
        return ArrayBinding(self.program, outer, inner, strides)

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Run the program over the operands."""
        if cython.compiled:
            addresses: cython.size_t[32]
            place: cython.Py_ssize_t = 0
            tensor: TensorBase
            machine: Machine = self.machine
            binding: Binding = plan.binding
            if len(operands) > MOST:
                machine.run_addresses(binding, tuple([_address(each) for each in operands]),
                                      numbers)
                return
            for operand in operands:
                tensor = operand
                addresses[place] = (tensor.storage.address
                                    + tensor.offset * tensor.spec.itemsize)
                place += 1
            machine.run(binding, addresses, numbers)
            return
        self.evaluate(plan.binding, [_address(each) for each in operands], numbers)

    def evaluate(self, bound: Any, addresses: list[int], numbers: tuple[Any, ...]) -> None:
        """Uncompiled: run the program at addresses."""
        arrays = []
        for address, views in zip(addresses, bound.views, strict=True):
            array = views.get(address)
            arrays.append(bound.array(views, address) if array is None else array)
        evaluate(self.program, arrays[:bound.outputs], arrays[bound.outputs:], numbers,
                 bound.inner)


class ArrayBinding:
    """Uncompiled: each operand's shape, byte strides and dtype, and the arrays made so far."""

    def __init__(self, program: Program, outer: tuple[int, ...], inner: tuple[int, ...],
                 strides: list[tuple[int, ...]]) -> None:
        levels = [program.level_of(output.value) for output in program.outputs]
        levels += [entry.level for entry in program.inputs]
        dtypes = [output.dtype for output in program.outputs]
        dtypes += [entry.dtype for entry in program.inputs]
        self.outputs = len(program.outputs)
        self.inner = len(inner)
        self.geometry: dict[int, Any] = {}
        self.views: list[dict[int, Any]] = []
        for level, dtype, own in zip(levels, dtypes, strides, strict=True):
            shape = outer if level == ROW and program.has_rows else outer + inner
            views: dict[int, Any] = {}
            steps = tuple([step * dtype.itemsize for step in own[:len(shape)]])
            self.geometry[id(views)] = (shape, steps, dtype.numpy)
            self.views.append(views)

    def array(self, views: dict[int, Any], address: int) -> Any:
        """The array of an operand at an address, kept for the next call."""
        if len(views) >= KEPT:
            views.clear()
        made = views[address] = array_of(address, *self.geometry[id(views)])
        return made


def _address(tensor: TensorBase) -> int:
    return tensor.storage.address + tensor.offset * tensor.spec.itemsize
