"""Kernels that draw: each fills one result from a stream that the host chose at the call.

The run-time numbers begin with (seed, base).  Results that are not contiguous are filled through
a contiguous temporary, so that values depend on the shape and never on the strides.
"""

from __future__ import annotations

from typing import Any

import cython
import numpy as np

from slipstream.core.kernels.cpu import philox_arrays
from slipstream.core.kernels.cpu.arrays import tensor_array
from slipstream.core.kernels.cpu.philox import Philox, philox
from slipstream.core.vocab.records import Kernel, Plan, Spec, TensorBase

__all__ = ["LAWS", "BernoulliKernel", "FillKernel", "MultinomialKernel", "Philox", "Spec"]

# What a result is filled with; the parameters follow (seed, base) in the run-time numbers:
# low, high; mean, std; rate; low, high; p; none.
LAWS = ("uniform", "normal", "exponential", "integers", "bernoulli", "permutation")


class FillKernel(Kernel):
    """Fills the result by one of `LAWS`."""

    def __init__(self, law: str) -> None:
        self.name = f"philox {law}"
        self.law = LAWS.index(law)

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Fill the first operand."""
        out: TensorBase = operands[0]
        spec: Spec = out.spec
        if spec.contiguous:
            self._fill(out.storage.address + out.offset * spec.itemsize, spec, numbers)
            return
        values = np.empty(spec.shape, spec.dtype.numpy)
        self._fill(values.ctypes.data, spec, numbers)
        tensor_array(out)[...] = values

    def _fill(self, address: int, spec: Spec, numbers: tuple[Any, ...]) -> None:
        """Fill contiguous memory with the spec's number of values."""
        stream: tuple = (numbers[0], numbers[1])
        law: cython.int = self.law
        if law == 0:
            philox.fill_uniform(address, spec.dtype, spec.numel, stream, numbers[2], numbers[3])
        elif law == 1:
            philox.fill_normal(address, spec.dtype, spec.numel, stream, numbers[2], numbers[3])
        elif law == 2:
            philox.fill_exponential(address, spec.dtype, spec.numel, stream, numbers[2])
        elif law == 3:
            philox.fill_integers(address, spec.dtype, spec.numel, stream, numbers[2], numbers[3])
        elif law == 4:
            philox.fill_bernoulli(address, spec.dtype, spec.numel, stream, numbers[2])
        else:
            philox.fill_permutation(address, spec.numel, stream)


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
        out, weights = tensor_array(operands[0]), tensor_array(operands[1])
        # Only float64 has weights by which a clock's time leaves the range of its dtype.
        wide = weights.dtype == np.float64
        rows = weights.astype(np.float64).reshape(-1, weights.shape[-1])
        if not np.all(np.isfinite(rows) & (rows >= 0)):
            raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
        if not np.all((rows > 0).any(axis=1)):
            raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
        with np.errstate(all="ignore"):
            found = _with_replacement(rows, out.shape[-1], numbers[:2]) if self.replacement else (
                _without_replacement(rows, out.shape[-1], numbers[:2], wide))
        out[...] = found.reshape(out.shape)


def _with_replacement(rows: Any, count: int, stream: Any) -> Any:
    units = philox_arrays.uniform(len(rows) * count, np.dtype(np.float64), stream, 0.0, 1.0)
    sums = np.cumsum(rows, axis=1)
    if not np.all(np.isfinite(sums[:, -1])):
        raise RuntimeError("invalid multinomial distribution (sum of probabilities is not finite)")
    # A share that is rounded up to the sum itself falls to the first class that reaches it.
    found = [np.minimum(np.searchsorted(row, unit * row[-1], side="right"),
                        np.searchsorted(row, row[-1]))
             for row, unit in zip(sums, units.reshape(len(rows), count), strict=True)]
    return np.array(found, np.int64)


def _without_replacement(rows: Any, count: int, stream: Any, wide: bool) -> Any:
    if np.any((rows > 0).sum(axis=1) < count):
        raise RuntimeError("invalid multinomial distribution (with replacement=False, not enough "
                           "non-negative category to sample)")
    clocks = philox_arrays.exponential(rows.size, np.dtype(np.float64), stream, 1.0)
    # Of clocks with rates w, each is the first to ring with probability w / sum of w.
    clocks = clocks.reshape(rows.shape)
    # The order of times is that of their logarithms, which stay in range.
    times = np.log(clocks) - np.log(rows) if wide else clocks / rows
    times = np.where(rows > 0, times, np.inf)
    return np.argsort(times, axis=1, kind="stable")[:, :count]
