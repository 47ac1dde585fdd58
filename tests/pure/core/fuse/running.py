"""Runs traced formulas on arrays with the NumPy evaluator, and puts the dims back in order."""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.core.fuse import classes as compute
from slipstream.core.fuse.evaluator import evaluate
from slipstream.core.fuse.trace import NumberArgument, TensorArgument, Traced
from slipstream.core.vocab.dtypes import BY_NUMPY
from slipstream.core.vocab.programs import ROW


def argument(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        dtype = BY_NUMPY[value.dtype]
        return TensorArgument(dtype, dtype.compute, value.ndim)
    if isinstance(value, bool | int | float | complex):
        return NumberArgument(compute.class_of_number(value))
    return value


def bind(traced: Traced, values: dict[str, Any]) -> list[np.ndarray]:
    """Run a traced formula on ``values`` and return its results in the order of its dims."""
    program, inner = traced.program, traced.reduced_dims
    arrays = [values[name] for name in traced.operands]
    shape = np.broadcast_shapes(*[array.shape for array in arrays])
    last = tuple(range(len(shape) - len(inner), len(shape)))
    inputs = [np.moveaxis(np.broadcast_to(array, shape), inner, last) for array in arrays]
    domain = inputs[0].shape if inputs else ()
    outer = domain[:len(domain) - len(inner)]
    outputs = [np.empty(outer if program.has_rows and program.level_of(output.value) == ROW
                        else domain, output.dtype.numpy) for output in program.outputs]
    evaluate(program, outputs, inputs, [values[name] for name in traced.number_names], len(inner))
    results = []
    for output, keepdim in zip(outputs, traced.keepdims, strict=True):
        if output.ndim < len(domain):
            results.append(np.expand_dims(output, inner) if keepdim else output)
        else:
            results.append(np.moveaxis(output, last, inner))
    return results
