"""The CPU kernel of formulas: runs a program on the operands' memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.core.fuse.evaluator import compile_evaluator
from slipstream.core.kernels.cpu.arrays import array_of
from slipstream.core.vocab.programs import ROW, Program
from slipstream.core.vocab.records import Kernel, Plan, Spec, Storage, TensorBase

__all__ = ["ProgramKernel", "Spec", "Storage"]


class ProgramKernel(Kernel):
    """Runs one program with the NumPy evaluator."""

    def __init__(self, program: Program) -> None:
        self.name = "cpu evaluator"
        self.program = program
        self.evaluator = compile_evaluator(program)

    def bind(self, domain: tuple[int, ...], reduced: tuple[int, ...],
             strides: list[tuple[int, ...]]) -> Any:
        """The geometry of a call: each operand's shape and strides, inner dims last."""
        order = [i for i in range(len(domain)) if i not in reduced] + list(reduced)
        program = self.program
        levels = [program.level_of(output.value) for output in program.outputs]
        levels += [entry.level for entry in program.inputs]
        dtypes = [output.dtype for output in program.outputs]
        dtypes += [entry.dtype for entry in program.inputs]
        geometry = []
        for level, dtype, own in zip(levels, dtypes, strides, strict=True):
            dims = order[:len(order) - len(reduced)] if level == ROW and reduced else order
            shape = tuple(domain[i] for i in dims)
            steps = tuple(own[i] * dtype.itemsize for i in dims)
            geometry.append((shape, steps, dtype.numpy))
        return (geometry, len(program.outputs), len(reduced))

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Evaluate the program over the operands."""
        geometry, outputs, inner = plan.binding
        arrays = [view(operand, *shape) for operand, shape in zip(operands, geometry, strict=True)]
        self.evaluator(arrays[:outputs], arrays[outputs:], numbers, inner)


def view(tensor: TensorBase, shape: tuple[int, ...], steps: tuple[int, ...],
         dtype: np.dtype) -> np.ndarray:
    """The operand's memory as an array of the domain's shape."""
    address = tensor.storage.address + tensor.offset * tensor.spec.itemsize
    return array_of(address, shape, steps, dtype)
