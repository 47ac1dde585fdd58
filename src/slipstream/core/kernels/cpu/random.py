"""Kernels that draw: each fills one result from a stream that the host chose at the call.

The run-time numbers begin with (seed, base).  Results that are not contiguous are filled through
a contiguous temporary, so that values depend on the shape and never on the strides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from slipstream.core.kernels.cpu import philox_arrays
from slipstream.core.kernels.cpu.arrays import tensor_array
from slipstream.core.kernels.cpu.philox import philox
from slipstream.core.vocab.dtypes import DType
from slipstream.core.vocab.records import Kernel, Plan

Fill = Callable[..., None]


def uniform(address: int, dtype: DType, count: int, stream: Any, *parameters: Any) -> None:
    """Numbers in [low, high)."""
    philox.fill_uniform(address, dtype, count, stream, *parameters)


def normal(address: int, dtype: DType, count: int, stream: Any, *parameters: Any) -> None:
    """Normal numbers of a mean and a standard deviation."""
    philox.fill_normal(address, dtype, count, stream, *parameters)


def exponential(address: int, dtype: DType, count: int, stream: Any, rate: float) -> None:
    """Exponential numbers of a rate."""
    philox.fill_exponential(address, dtype, count, stream, rate)


def integers(address: int, dtype: DType, count: int, stream: Any, low: int, high: int) -> None:
    """Integers in [low, high)."""
    philox.fill_integers(address, dtype, count, stream, low, high)


def bernoulli(address: int, dtype: DType, count: int, stream: Any, p: float) -> None:
    """Ones with probability p."""
    philox.fill_bernoulli(address, dtype, count, stream, p)


def permutation(address: int, dtype: DType, count: int, stream: Any) -> None:
    """The numbers below count in random order, as int64."""
    philox.fill_permutation(address, count, stream)


class FillKernel(Kernel):
    """Fills the result; ``fill(address, dtype, count, (seed, base), *parameters)``."""

    def __init__(self, name: str, fill: Fill) -> None:
        self.name = name
        self.fill = fill

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Fill the first operand."""
        out = operands[0]
        spec = out.spec
        stream = numbers[:2]
        if spec.contiguous:
            address = out.storage.address + out.offset * spec.itemsize
            self.fill(address, spec.dtype, spec.numel, stream, *numbers[2:])
            return
        values = np.empty(spec.shape, spec.dtype.numpy)
        self.fill(values.ctypes.data, spec.dtype, spec.numel, stream, *numbers[2:])
        tensor_array(out)[...] = values


class BernoulliKernel(Kernel):
    """Ones with a probability of their own for each element, which the last operand holds."""

    def __init__(self) -> None:
        self.name = "bernoulli of probabilities"

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """A one where the word is below p * 2**32, as `philox` defines it for one p."""
        out = tensor_array(operands[0])
        chances = np.broadcast_to(tensor_array(operands[-1]), out.shape).astype(np.float64)
        if not np.all((chances >= 0) & (chances <= 1)):
            raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true, but got false.")
        words = philox_arrays.words(out.size, numbers[:2]).astype(np.float64)
        out[...] = words.reshape(out.shape) < np.rint(chances * 2.0**32)


class MultinomialKernel(Kernel):
    """Draws categories from rows of weights."""

    def __init__(self, replacement: bool) -> None:
        self.name = "multinomial"
        self.replacement = replacement

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Inverse of the cumulated weights, or the order of exponential clocks."""
        out, weights = tensor_array(operands[0]), tensor_array(operands[1]).astype(np.float64)
        rows = weights.reshape(-1, weights.shape[-1])
        if not np.all(np.isfinite(rows) & (rows >= 0)):
            raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
        if not np.all(rows.sum(axis=1) > 0):
            raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
        draw = _with_replacement if self.replacement else _without_replacement
        out[...] = draw(rows, out.shape[-1], numbers[:2]).reshape(out.shape)


def _with_replacement(rows: Any, count: int, stream: Any) -> Any:
    units = philox_arrays.uniform(len(rows) * count, np.dtype(np.float64), stream, 0.0, 1.0)
    sums = np.cumsum(rows, axis=1)
    found = [np.searchsorted(row, unit * row[-1], side="right")
             for row, unit in zip(sums, units.reshape(len(rows), count), strict=True)]
    return np.array(found, np.int64)


def _without_replacement(rows: Any, count: int, stream: Any) -> Any:
    if np.any((rows > 0).sum(axis=1) < count):
        raise RuntimeError("invalid multinomial distribution (with replacement=False, not enough "
                           "non-negative category to sample)")
    clocks = philox_arrays.exponential(rows.size, np.dtype(np.float64), stream, 1.0)
    # Of clocks with rates w, each is the first to ring with probability w / sum of w.
    with np.errstate(divide="ignore"):
        times = clocks.reshape(rows.shape) / rows
    return np.argsort(times, axis=1, kind="stable")[:, :count]
