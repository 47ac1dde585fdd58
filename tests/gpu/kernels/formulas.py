"""Formulas made up by tests: on the device through the schedules, and by the NumPy evaluator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from catalogue import host, precision, wide

import slipstream as ss
from slipstream.core.catalog.table import table
from slipstream.core.fuse.evaluator import evaluate
from slipstream.core.fuse.trace import NumberArgument, TensorArgument, Traced, trace
from slipstream.core.kernels.cuda.programs import ProgramKernel, Staged
from slipstream.core.launch.door import backend_of
from slipstream.core.shapes.broadcast import broadcast_shapes, broadcast_strides
from slipstream.core.vocab.programs import ROW
from slipstream.core.vocab.records import KERNEL, Plan

DTYPES = (ss.bool, ss.uint8, ss.int8, ss.int16, ss.int32, ss.int64, ss.float16, ss.bfloat16,
          ss.float32, ss.float64, ss.complex64, ss.complex128)
# Accumulated in single precision and in another order than the evaluator's.
ULPS = 64.0


def numbers(shape: Sequence[int], dtype: Any = ss.float32, seed: int = 0) -> np.ndarray:
    """Small numbers that every dtype holds, the same at every call."""
    values = np.random.RandomState(seed).uniform(-2.0, 2.0, tuple(shape))
    if dtype is ss.bool:
        return np.asarray(values > 0)
    if dtype.kind == "int":
        values = np.round(values * 4)
        return np.asarray(np.abs(values) if dtype is ss.uint8 else values).astype(dtype.numpy)
    if dtype.kind == "complex":
        values = values + 1j * np.roll(values, 1)
    return np.asarray(values).astype(dtype.numpy)


class Formula:
    """A formula of tensors, by name, and of Python numbers."""

    def __init__(self, function: Callable[..., Any], outputs: Sequence[Any],
                 rows: Sequence[str] = ()) -> None:
        self.function = function
        self.outputs = list(outputs)
        # Which operands are one value a row, with dims of size one where others are reduced.
        self.rows = rows
        self.kernels: dict[Any, tuple[Traced, ProgramKernel]] = {}

    def traced(self, operands: Mapping[str, Any]) -> tuple[Traced, ProgramKernel]:
        """The program for these kinds of operands and its kernel, made once."""
        arguments: dict[str, Any] = {}
        for name, value in operands.items():
            if isinstance(value, (bool, int, float, complex)):
                kinds = {bool: "b1", int: "i64", float: "f64", complex: "c128"}
                arguments[name] = NumberArgument(kinds[type(value)])
            else:
                level = "row" if name in self.rows else "full"
                arguments[name] = TensorArgument(
                    value.dtype, value.dtype.compute, value.ndim, level)
        key = tuple(arguments.items())
        if key not in self.kernels:
            made = trace(self.function, arguments, self.outputs)
            self.kernels[key] = made, ProgramKernel(made.program, ss.device("cuda", 0))
        return self.kernels[key]


class Run:
    """A formula on device tensors: results on the device, and what launched them."""

    def __init__(self, formula: Formula, **operands: Any) -> None:
        self.formula = formula
        self.traced, self.kernel = formula.traced(operands)
        self.operands = operands
        self.tensors = [operands[name] for name in self.traced.operands]
        self.domain = broadcast_shapes(*[tuple(each.shape) for each in self.tensors])
        self.results = [ss.empty(self._shape(place), dtype=output.dtype, device="cuda")
                        for place, output in enumerate(self.traced.program.outputs)]

    def _is_row(self, place: int) -> bool:
        program = self.traced.program
        return program.has_rows and program.level_of(program.outputs[place].value) == ROW

    def _shape(self, place: int) -> list[int]:
        reduced = self.traced.reduced_dims if self._is_row(place) else ()
        return [1 if dim in reduced else size for dim, size in enumerate(self.domain)]

    def _strides(self, tensor: Any) -> tuple[int, ...]:
        spec = tensor.spec
        return tuple(broadcast_strides(spec.shape, spec.strides, self.domain))

    def launch(self, targets: Sequence[Any] | None = None) -> Run:
        """Run it, into the results or other targets."""
        targets = self.results if targets is None else list(targets)
        plan = Plan(table["add"], None, KERNEL)
        plan.backend = backend_of(self.tensors[0].spec.device)
        strides = [self._strides(each) for each in (*targets, *self.tensors)]
        plan.kernel = self.kernel
        plan.binding = self.kernel.bind(self.domain, self.traced.reduced_dims, strides)
        self.binding = plan.binding
        given = tuple([self.operands[name] for name in self.traced.number_names])
        self.kernel.run(plan, (*targets, *self.tensors), given)
        return self

    def launches(self) -> int:
        """How many kernels there were."""
        if isinstance(self.binding, Staged):
            return len(self.binding.stages)
        return 0 if self.binding is None else 1

    def source(self) -> str:
        """The text of the first kernel."""
        bound = self.binding
        first = bound.stages[0].launch if isinstance(bound, Staged) else bound
        return str(first.code.source)

    def expected(self) -> list[np.ndarray]:
        """What the NumPy evaluator makes of the same program and operands."""
        program, reduced = self.traced.program, self.traced.reduced_dims
        kept = [dim for dim in range(len(self.domain)) if dim not in reduced]
        order = [*kept, *reduced]
        results = [np.zeros(self._shape(place), output.dtype.numpy)
                   for place, output in enumerate(program.outputs)]
        outputs = [self._turned(each, order, len(kept), self._is_row(place))
                   for place, each in enumerate(results)]
        inputs = []
        for tensor, operand in zip(self.tensors, program.inputs, strict=True):
            row = program.has_rows and operand.level == ROW
            array = host(tensor)
            array = array if row else np.broadcast_to(array, self.domain)
            inputs.append(self._turned(array, order, len(kept), row))
        given = [self.operands[name] for name in self.traced.number_names]
        evaluate(program, outputs, inputs, given, len(reduced))
        return results

    @staticmethod
    def _turned(array: np.ndarray, order: list[int], kept: int, row: bool) -> np.ndarray:
        array = array.transpose(order)
        return array.reshape(array.shape[:kept]) if row else array


def assert_close(tensor: Any, expected: np.ndarray, ulps: float = ULPS) -> None:
    """A device result against an array; integers and bools to the bit."""
    found, near = host(tensor), precision(tensor.dtype) * ulps
    if not near:
        np.testing.assert_array_equal(found, expected)
        return
    finite = np.abs(wide(expected)[np.isfinite(wide(expected))])
    scale = max(1.0, float(finite.max())) if finite.size else 1.0
    np.testing.assert_allclose(wide(found), wide(expected), rtol=near, atol=near * scale)


def check(formula: Formula, ulps: float = ULPS, **operands: Any) -> Run:
    """Run a formula on the device and compare it with the evaluator."""
    run = Run(formula, **operands).launch()
    for found, wanted in zip(run.results, run.expected(), strict=True):
        assert_close(found, wanted, ulps)
    return run


def cuda(array: Any) -> Any:
    """The array's elements on the device."""
    return ss.tensor(np.asarray(array)).to("cuda")


def shifted(array: np.ndarray) -> Any:
    """The same on the device, as a view that begins at the second element of its memory."""
    flat = np.concatenate([np.zeros(1, array.dtype), array.reshape(-1)])
    return cuda(flat)[1:].view(array.shape)
