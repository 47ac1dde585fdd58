"""Sorts: lines in a block, by digits, the best block by block; every layout and dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slipstream as ss
from gpu.families.sides import FLOATS, INTEGERS, check, numbers, tensor
from slipstream.core.catalog.table import ops
from slipstream.core.launch.waiting import wait
from slipstream.core.vocab.devices import Device

SHAPES = (((), 0), ((1,), 0), ((7,), 0), ((513,), 0), ((2048,), 0), ((2049,), 0), ((9000,), 0),
          ((40, 5), 1), ((700, 3), 1), ((5, 300), 0), ((2, 2500), -1), ((2500, 2), 0),
          ((3, 20, 4), 1), ((0, 4), 1), ((4, 0), 1))


def special(dtype: Any, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Many equals; floats with nan, infinities and zeros of both signs."""
    values = numbers(seed, shape, dtype)
    if dtype in FLOATS:
        values = np.asarray(np.round(values.astype(np.float32)))
        draw = np.random.RandomState(seed).rand(*shape)
        for number, each in enumerate((np.nan, np.inf, -np.inf, -0.0)):
            values = np.where((draw > number * 0.02) & (draw < number * 0.02 + 0.02), each, values)
    return np.asarray(values).astype(dtype.numpy)


def orders(x: Any, dim: int) -> list[Any]:
    """What sorting gives of a tensor."""
    size = x.shape[dim] if x.ndim else 1
    found = [*x.sort(dim), *x.sort(dim, True), x.argsort(dim),
             ops.sorted_values.call((x, dim), None)]
    for k in sorted({min(1, size), min(5, size), size // 2, min(300, size)}):
        found += [*x.topk(k, dim), *x.topk(k, dim, False)]
        found += x.kthvalue(k, dim) if k else ()
    found += x.median(dim) if size else ()
    # NumPy compares nan with nan in no bfloat16.
    return [each.float() if each.dtype is ss.bfloat16 else each for each in found]


@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_shapes(shape: tuple[int, ...], dim: int) -> None:
    check(lambda device: orders(tensor(special(ss.float32, shape, 1), device), dim))


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS], ids=str)
@pytest.mark.parametrize("length", [60, 4200])
def test_dtypes(dtype: Any, length: int) -> None:
    check(lambda device: orders(tensor(special(dtype, (2, length), 3), device), 1))


def test_bools() -> None:
    check(lambda device: tensor(numbers(4, (3, 70), ss.bool), device).sort(1))


@pytest.mark.parametrize("length", [40, 2300])
def test_layouts(length: int) -> None:
    values = special(ss.float32, (3, 2 * length), 5)
    for view in (lambda x: x[:, ::2], lambda x: x.t(), lambda x: x[:, 1:], lambda x: x.flip(1)):
        check(lambda device, v=view: v(tensor(values, device)).sort(-1))
        check(lambda device, v=view: v(tensor(values, device)).topk(2, 0))
        check(lambda device, v=view: v(tensor(values, device)).median(0, True))


def test_ends_of_integers() -> None:
    for dtype in (ss.int8, ss.int32, ss.int64):
        low, high = ss.iinfo(dtype).min, ss.iinfo(dtype).max
        for count in (1, 600):
            values = np.array([3, high, low, 0, -1, high, low] * count, dtype.numpy)
            check(lambda device, x=values: orders(tensor(x, device), 0))


@pytest.mark.parametrize("length", [50, 5000])
def test_signs_of_zeros_are_kept(length: int) -> None:
    x = tensor(special(ss.float32, (length,), 6), "cpu")
    for found, wanted in zip(orders(x.cuda(), 0), orders(x, 0), strict=True):
        if found.is_floating_point():
            assert np.signbit(found.cpu().numpy()).tolist() == np.signbit(wanted.numpy()).tolist()


def test_distinct_elements() -> None:
    for dtype in (ss.float32, ss.int64, ss.uint8):
        values = np.round(numbers(7, (3000,), dtype))
        check(lambda device, x=values: tensor(x, device).unique(
            return_inverse=True, return_counts=True))
    pairs = np.round(numbers(8, (40, 2)))
    check(lambda device: tensor(pairs, device).unique(dim=0, return_counts=True))
    check(lambda device: tensor(pairs.reshape(-1), device).unique_consecutive(
        return_inverse=True, return_counts=True))


def test_gradients() -> None:
    values = numbers(9, (3, 50))

    def slopes(device: str) -> list[Any]:
        found = []
        for call in (lambda x: x.sort(1).values, lambda x: x.topk(4).values,
                     lambda x: x.kthvalue(3).values, lambda x: x.median(0).values):
            x = tensor(values, device).requires_grad_()
            (call(x) ** 2).sum().backward()
            found.append(x.grad)
        return found

    check(slopes, 4.0)


@pytest.mark.parametrize("table", [ss.float32, ss.float64, ss.int32, ss.int64, ss.float16], ids=str)
@pytest.mark.parametrize("given", [ss.float32, ss.int64, ss.bfloat16], ids=str)
def test_searching(table: Any, given: Any) -> None:
    row = np.sort(special(table, (45,), 10))
    rows = np.sort(special(table, (3, 12), 11), -1)
    values = special(given, (3, 7), 12)
    for right in (False, True):
        check(lambda device, r=right: ss.searchsorted(
            tensor(row, device), tensor(values, device), right=r))
        check(lambda device, r=right: ss.searchsorted(
            tensor(rows, device), tensor(values, device), right=r, out_int32=True))
        check(lambda device, r=right: ss.bucketize(
            tensor(values, device).t(), tensor(row, device), right=r))
    order = np.argsort(numbers(13, (45,)))
    mixed = np.empty_like(row)
    mixed[order] = row
    check(lambda device: ss.searchsorted(tensor(mixed, device), tensor(values, device),
                                         sorter=tensor(order, device)))


def test_a_sorter_that_points_outside() -> None:
    table, values = tensor(numbers(14, (5,)), "cuda"), tensor(numbers(15, (3,)), "cuda")
    sorter = ss.tensor([0, 1, 9, 3, 4], device="cuda")
    found = ss.searchsorted(table, values, sorter=sorter)
    with pytest.raises(IndexError, match="out of bounds"):
        wait(Device("cuda"), "test")
    assert ((found.cpu() >= 0) & (found.cpu() <= 5)).all()
