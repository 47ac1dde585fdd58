"""Small products: bfloat16 is summed in an order that is known, and rounded once."""

from __future__ import annotations

import numpy as np
import pytest

import slipstream as ss
from slipstream.core.kernels.cpu import small_products

SPEC = ss.ones(1, 1).spec
compiled = pytest.mark.skipif(bool(small_products.refusal(SPEC, SPEC)),
                              reason="BLAS has an order of its own")


def rounded(values: np.ndarray) -> np.ndarray:
    return values.astype(ss.bfloat16.numpy).astype(np.float32)


def in_lanes(a: np.ndarray, b: np.ndarray, lanes: int, block: int) -> np.ndarray:
    """Sums of every ``lanes``-th product, added at the end; what is left over goes to the first."""
    sums = [np.zeros((len(a), b.shape[1]), np.float32) for _ in range(lanes)]
    size = a.shape[1]
    whole = size // block * block
    for step in range(whole):
        sums[step % lanes] += a[:, step, None] * b[step]
    if lanes == 8:
        for half in (4, 2, 1):
            sums[:half] = [sums[place] + sums[place + half] for place in range(half)]
    for step in range(whole, size):
        sums[0] += a[:, step, None] * b[step]
    return sums[0] if lanes in (1, 8) else ((sums[0] + sums[1]) + sums[2]) + sums[3]


@compiled
@pytest.mark.parametrize("size", [1, 4, 7, 16])
@pytest.mark.parametrize(("turned", "lanes", "block"), [
    ((False, False), 4, 4), ((True, True), 4, 4), ((False, True), 8, 16), ((True, False), 1, 1)])
def test_bfloat16_is_summed_in_the_order_of_its_layout(
        size: int, turned: tuple[bool, bool], lanes: int, block: int) -> None:
    random = np.random.RandomState(size)
    # What is added to a large number before its opposite comes is lost.
    left, right = (random.choice([2.0 ** 30, -(2.0 ** 30), 1, -1, 3], (9, *shape)).astype("f")
                   for shape in ((5, size), (size, 6)))
    for a, b in zip(left, right, strict=True):
        x, y = (ss.from_numpy(each).bfloat16() for each in (a, b))
        x = x.T.contiguous().T if turned[0] else x
        y = y.T.contiguous().T if turned[1] else y
        expected = rounded(in_lanes(a, b, lanes, block)) if size > 1 else rounded(a @ b)
        np.testing.assert_array_equal((x @ y).float().numpy(), expected)


@compiled
def test_bfloat16_with_an_addend_is_rounded_once() -> None:
    random = np.random.RandomState(0)
    c, a, b = (rounded(random.randn(4, 4)) for _ in range(3))
    found = ss.addmm(*(ss.from_numpy(each).bfloat16() for each in (c, a, b)), beta=-4.775, alpha=2)
    product = (in_lanes(a, b, 4, 4) * np.float32(2)).astype(np.float64)
    expected = rounded((np.float64(np.float32(-4.775)) * c + product).astype(np.float32))
    np.testing.assert_array_equal(found.float().numpy(), expected)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3.3895313892515355e38, 1e-40, -0.0])
def test_bfloat16_keeps_what_is_not_finite(value: float) -> None:
    one = ss.ones(1, 1, dtype=ss.bfloat16)
    x = ss.full((1, 1), value, dtype=ss.bfloat16)
    np.testing.assert_array_equal((x @ one).float().numpy(), x.float().numpy() + 0.0)
