"""The NumPy evaluator: runs a program on arrays where no compiled kernel is at hand.

A program is turned once into a Python function that calls one ufunc per step.
"""

from __future__ import annotations

import contextvars
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from slipstream.core.fuse import classes as compute
from slipstream.core.fuse import numerics
from slipstream.core.fuse.primitives import PRIMITIVES
from slipstream.core.vocab.programs import FULL, ROW, Output, Program, Step

Array = Any
Evaluator = Callable[[Sequence[Array], Sequence[Array], Sequence[compute.Number], int], None]

# Results that may share memory with an operand.
_VIEWS = frozenset(("cast", "real", "imag"))
# Ring operations and tests give the same bits in a narrow integer dtype as modulo 2**64.
_RING = frozenset("add sub mul neg bitwise_and bitwise_or bitwise_xor bitwise_not maximum minimum"
                  .split())
_TESTS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))
_CACHE_LIMIT = 4096


def _silent_context() -> contextvars.Context:
    """A context with floating-point warnings off: entering it costs less than np.errstate."""
    context = contextvars.Context()
    context.run(np.seterr, all="ignore")
    return context


SILENT = _silent_context()
# By the identity of the program, which the entry keeps alive.  Equality would not do: programs
# with the constants 0.0 and -0.0 compare equal.
_evaluators: dict[int, tuple[Program, Evaluator]] = {}


def evaluate(program: Program, outputs: Sequence[Array], inputs: Sequence[Array],
             numbers: Sequence[compute.Number], inner_rank: int) -> None:
    """Run ``program``, writing into the arrays ``outputs``.

    Each input has the shape outer + inner dims (of row level: outer dims), broadcast by strides;
    the last ``inner_rank`` axes are the inner dims.  ``numbers`` are in the order of
    ``program.numbers``.  Outputs have outer + inner dims, or outer dims for a row value, and may
    be the same memory as inputs.  Nothing is raised or warned of for any value.
    """
    known = _evaluators.get(id(program))
    if known is None or known[0] is not program:
        known = _remember(program)
    SILENT.copy().run(known[1], outputs, inputs, numbers, inner_rank)


def _remember(program: Program) -> tuple[Program, Evaluator]:
    if len(_evaluators) >= _CACHE_LIMIT:
        _evaluators.clear()
    known = (program, compile_evaluator(program))
    _evaluators[id(program)] = known
    return known


def _reduce(function: Callable[[Array], Array], x: Array, inner_rank: int) -> Array:
    """``function`` over the inner dims, which stay as dims of size 1."""
    outer = x.shape[:x.ndim - inner_rank]
    # One contiguous last axis: the order of the sum then depends on the shape only.
    flat = np.ascontiguousarray(x).reshape((*outer, math.prod(x.shape[x.ndim - inner_rank:])))
    return function(flat).reshape(outer + (1,) * inner_rank)


def _count(x: Array, inner_rank: int, dtype: np.dtype[Any]) -> Array:
    return np.array(math.prod(x.shape[x.ndim - inner_rank:]), dtype)


def _row(x: Array, inner_rank: int) -> Array:
    """A row operand with inner dims of size 1."""
    return x.reshape(x.shape + (1,) * inner_rank)


def _store(target: Array, x: Array, drop: int) -> None:
    """Write ``x``, without its last ``drop`` dims of size 1, as C narrows it."""
    if drop and x.ndim:
        x = x.reshape(x.shape[:-drop])
    np.copyto(target, numerics.cast(x, target.dtype), casting="unsafe")


def compile_evaluator(program: Program) -> Evaluator:
    """A function (outputs, inputs, numbers, inner_rank) that runs ``program``."""
    step = _direct_step(program)
    if step is not None:
        ufunc: Any = PRIMITIVES[step.primitive].numpy
        return _call_unary(ufunc) if len(step.sources) == 1 else _call_binary(ufunc, *step.sources)
    return _Compiler(program).function()


def binary_ufunc(program: Program) -> np.ufunc | None:
    """The ufunc that does what the program does with its two inputs as they are stored, if any."""
    step = _direct_step(program)
    if step is None or step.sources != (0, 1):
        return None
    ufunc: Any = PRIMITIVES[step.primitive].numpy
    return ufunc


def _direct_step(program: Program) -> Step | None:
    """The step that is one ufunc call on the operands as stored, if the program is no more."""
    if len(program.steps) != 1 or program.numbers or program.constants:
        return None
    step = program.steps[0]
    ufunc = PRIMITIVES[step.primitive].numpy
    if [output.value for output in program.outputs] != [program.first_step()]:
        return None
    if not isinstance(ufunc, np.ufunc) or step.level == ROW or not _stored_exactly(program, step):
        return None
    return step


def _stored_exactly(program: Program, step: Step) -> bool:
    """Whether the stored dtypes compute the step as its class does."""
    stored = {operand.dtype for operand in program.inputs}
    result = program.outputs[0].dtype
    natural = compute.natural_dtype(step.cls)
    classes = {operand.cls for operand in program.inputs}
    if stored == {natural} and classes == {step.cls}:
        return result is compute.natural_dtype(step.result)
    same_int = len(stored) == 1 and step.cls == "i64" and next(iter(stored)).kind == "int"
    if not same_int:
        return False
    if step.primitive in _RING:
        return result in stored
    return step.primitive in _TESTS and result.kind == "bool"


def _call_unary(ufunc: np.ufunc) -> Evaluator:
    def run(outputs: Sequence[Array], inputs: Sequence[Array], numbers: Sequence[Any],
            inner_rank: int) -> None:
        ufunc(inputs[0], out=outputs[0])
    return run


def _call_binary(ufunc: np.ufunc, a: int, b: int) -> Evaluator:
    def run(outputs: Sequence[Array], inputs: Sequence[Array], numbers: Sequence[Any],
            inner_rank: int) -> None:
        ufunc(inputs[a], inputs[b], out=outputs[0])
    return run


class _Compiler:
    """Writes the Python function of a program, a line for each value."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.reducing = program.has_rows
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "array": np.array, "cast": numerics.cast, "count": _count, "number": _number,
            "reduce": _reduce, "row": _row, "store": _store,
            **compute.NUMPY}

    def function(self) -> Evaluator:
        """The program's function."""
        self._load()
        last = self._last_written()
        for place, step in enumerate(self.program.steps):
            self._step(self.program.first_step() + place, step, last)
        if last is None:
            self._store_all()
        body = "\n    ".join(self.lines or ["pass"])
        source = f"def run(outputs, inputs, numbers, inner_rank):\n    {body}\n"
        exec(compile(source, "<program>", "exec"), self.names)
        function: Evaluator = self.names["run"]
        return function

    def _load(self) -> None:
        for place, operand in enumerate(self.program.inputs):
            text = f"inputs[{place}]"
            if operand.dtype is not compute.natural_dtype(operand.cls):
                text = f"cast({text}, {operand.cls})"
            if operand.level == ROW:
                text = f"row({text}, inner_rank)"
            self.lines.append(f"v{place} = {text}")
        first = len(self.program.inputs)
        for place, cls in enumerate(self.program.numbers):
            self.lines.append(f"v{first + place} = number(numbers[{place}], {cls!r}, {cls})")
        first += len(self.program.numbers)
        for place, constant in enumerate(self.program.constants):
            # Zero-dim arrays: ufuncs take them faster than NumPy scalars.
            scalar = compute.to_class(constant.value, constant.cls)
            self.names[f"v{first + place}"] = np.array(scalar)

    def _last_written(self) -> int | None:
        """The last step's value if its ufunc may write straight into the only output."""
        program = self.program
        if len(program.outputs) != 1 or not program.steps:
            return None
        step, output = program.steps[-1], program.outputs[0]
        written = (output.value == program.first_step() + len(program.steps) - 1
                   and output.dtype is compute.natural_dtype(step.result)
                   and step.level == FULL
                   and isinstance(PRIMITIVES[step.primitive].numpy, np.ufunc))
        return output.value if written else None

    def _step(self, value: int, step: Step, last: int | None) -> None:
        primitive = PRIMITIVES[step.primitive]
        function = f"do_{step.primitive}"
        self.names[function] = primitive.numpy
        sources = ", ".join(f"v{source}" for source in step.sources)
        if step.primitive == "cast":
            text = f"cast({sources}, {step.cls})"
        elif step.primitive == "count":
            text = f"count(inputs[{self._counted()}], inner_rank, {step.cls})"
        elif primitive.reduction:
            text = f"reduce({function}, {sources}, inner_rank)"
        elif value == last:
            self.lines.append(f"{function}({sources}, out=outputs[0])")
            return
        else:
            text = f"{function}({sources})"
        self.lines.append(f"v{value} = {text}")

    def _counted(self) -> int:
        return next(place for place, operand in enumerate(self.program.inputs)
                    if operand.level == FULL)

    def _store_all(self) -> None:
        several = len(self.program.outputs) > 1
        for place, output in enumerate(self.program.outputs):
            # An output may be an operand's memory: take what is still needed of it first.
            copied = several and self._may_be_view(output)
            copy = ".copy()" if copied else ""
            self.lines.append(f"r{place} = v{output.value}{copy}")
        for place, output in enumerate(self.program.outputs):
            row = self.reducing and self.program.level_of(output.value) == ROW
            drop = "inner_rank" if row else "0"
            self.lines.append(f"store(outputs[{place}], r{place}, {drop})")

    def _may_be_view(self, output: Output) -> bool:
        place = output.value - self.program.first_step()
        return place < 0 or self.program.steps[place].primitive in _VIEWS


def _number(value: compute.Number, cls: str, dtype: np.dtype[Any]) -> Array:
    """A run-time number in class ``cls``."""
    if cls in ("f32", "f64"):
        return np.array(value, dtype)
    return np.array(compute.to_class(value, cls))
