"""Compiled loops over lines give the bits of the NumPy kernels, whatever the layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slipstream as ss
from slipstream.core.catalog.table import ops
from slipstream.core.dispatch.op import drop_plans
from slipstream.core.kernels.cpu import lines

COMPILED = not lines.__file__.endswith(".py")
DTYPES = (ss.uint8, ss.int8, ss.int16, ss.int32, ss.int64, ss.float16, ss.bfloat16, ss.float32,
          ss.float64)
SHAPES = (((), 0), ((1,), 0), ((7,), 0), ((300,), 0), ((9000,), 0), ((3, 70), 1), ((70, 3), 0),
          ((2, 40, 5), 1), ((65, 130), 0), ((40, 1000), 1))


@pytest.fixture
def arrays_only(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A switch that takes the loops away, and every plan that has them."""
    def switch(names: tuple[str, ...]) -> None:
        monkeypatch.setattr(lines, "scan_refusal", lambda *dtypes: "not wanted")
        monkeypatch.setattr(lines, "order_refusal", lambda spec: "not wanted")
        for name in names:
            drop_plans(getattr(ops, name))

    return switch


def values(dtype: Any, shape: tuple[int, ...], seed: int) -> Any:
    """Numbers with many equals; floats with nan, infinities and zeros of both signs."""
    random = np.random.RandomState(seed)
    if dtype.kind == "int":
        return ss.tensor(random.randint(0, 100, shape)).to(dtype)
    x = np.asarray(random.randn(*shape) if seed % 2 else random.randint(-3, 4, shape) * 0.5)
    for special in (np.nan, np.inf, -np.inf, -0.0, 0.0) if seed % 3 else ():
        x[random.rand(*shape) < 0.03] = special
    return ss.tensor(x).to(dtype)


def layouts(x: Any) -> list[Any]:
    """The tensor contiguous, its dims stored the other way round, and every second element."""
    if not x.ndim:
        return [x]
    turned = x.permute(*reversed(range(x.ndim))).contiguous().permute(*reversed(range(x.ndim)))
    spread = ss.zeros(*x.shape[:-1], 2 * x.shape[-1], dtype=x.dtype)
    spread[..., ::2] = x
    return [x, turned, spread[..., ::2]]


def calls(x: Any, dim: int) -> dict[str, Any]:
    """Every op of the loops on a tensor."""
    size = x.shape[dim] if x.ndim else 1
    found = {"sort": lambda: x.sort(dim), "down": lambda: x.sort(dim, True),
             "values": lambda: ops.sorted_values.call((x, dim), None),
             "highest": lambda: x.cummax(dim), "lowest": lambda: x.cummin(dim),
             "sum": lambda: x.cumsum(dim), "product": lambda: x.cumprod(dim)}
    for k in sorted({1, (size + 1) // 2, max(size // 20, 1), size}):
        found[f"top {k}"] = lambda k=k: x.topk(k, dim)
        found[f"least {k}"] = lambda k=k: x.topk(k, dim, False)
        found[f"kth {k}"] = lambda k=k: x.kthvalue(k, dim)
    found["median"] = lambda: x.median(dim, True)
    if x.is_floating_point():
        found["logsum"] = lambda: x.logcumsumexp(dim)
    return found


def bits(result: Any) -> list[bytes]:
    """The bits of all results; a nan is a nan."""
    found = []
    for each in result if isinstance(result, tuple) else (result,):
        each = each.float() if each.dtype in (ss.bfloat16, ss.float16) else each
        array = each.contiguous().numpy()
        if array.dtype.kind == "f":
            array = np.where(np.isnan(array), array.dtype.type(np.nan), array)
        found.append(array.tobytes())
    return found


NAMES = ("sort_places", "sorted_values", "topk_places", "kth_place", "cumsum", "cumprod",
         "cummax_places", "cummin_places", "logcumsumexp")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_loops_and_arrays_agree(dtype: Any, arrays_only: Any) -> None:
    def run() -> list[tuple[str, list[bytes]]]:
        results = []
        for seed, (shape, dim) in enumerate(SHAPES):
            for number, x in enumerate(layouts(values(dtype, shape, seed))):
                results += [(f"{name} {shape} {number}", bits(call()))
                            for name, call in calls(x, dim).items()]
        return results

    fast = run()
    arrays_only(NAMES)
    slow = run()
    differing = [name for (name, mine), (_, other) in zip(fast, slow, strict=True)
                 if mine != other]
    assert not differing, differing


@pytest.mark.skipif(not COMPILED, reason="the core is not compiled")
def test_the_loops_are_taken() -> None:
    x = ss.randn(4, 5)
    x.sort()
    x.cumsum(1)
    for op, name in ((ops.sort_places, "cpu order"), (ops.cumsum, "cpu scan")):
        assert name in {plan.kernel.name for plan in op.plans.values()}


def test_one_thread_gives_the_bits_of_many() -> None:
    x = ss.randn(300, 400)
    threads = ss.get_num_threads()

    def run() -> list[list[bytes]]:
        return [bits(call()) for dim in (0, 1) for call in calls(x, dim).values()]

    try:
        ss.set_num_threads(1)
        alone = run()
        ss.set_num_threads(3)
        assert run() == alone
    finally:
        ss.set_num_threads(threads)


def test_sorted_values_of_zeros_and_nans() -> None:
    x = ss.tensor([0.0, float("nan"), -0.0, 1.0, -0.0, float("-inf")])
    found, places = x.sort()
    assert places.tolist() == [5, 0, 2, 4, 3, 1]
    assert np.signbit(found.numpy()[1:4]).tolist() == [False, True, True]
    assert x.sort(descending=True).indices.tolist() == [1, 3, 0, 2, 4, 5]
    assert x.topk(3).indices.tolist() == [1, 3, 0]
    assert x.median().isnan()


def test_the_largest_integer_is_no_nan() -> None:
    for dtype in (ss.int32, ss.int64):
        x = ss.tensor([3, ss.iinfo(dtype).max, 1, 2], dtype=dtype)
        assert x.median().item() == 2
