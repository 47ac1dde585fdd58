"""The prelude's arithmetic, by ops that use it, against NumPy and the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from catalogue import host, wide

import slipstream as ss
from gpu.kernels.formulas import cuda
from slipstream.core.fuse.primitives import helper_names
from slipstream.core.kernels.cuda.access import divider
from slipstream.core.kernels.cuda.prelude import PRELUDE

NARROW = (ss.float16, ss.bfloat16)


def test_the_prelude_has_every_helper_of_the_primitives() -> None:
    for name in helper_names():
        family, _, cls = name.rpartition("_")
        written = f"{name}(" in PRELUDE
        single = f"SLIP_SINGLE({family.removeprefix('slip_')})"
        complex_function = cls == "c64" and single in PRELUDE
        assert written or complex_function or f"{family}_##CLS" in PRELUDE or (
            name.startswith("slip_cast_c") and "slip_cast_##CLS" in PRELUDE), name


def same_bits_but_nan(found: np.ndarray, wanted: np.ndarray) -> None:
    """To the bit, but for what a nan carries."""
    nan = np.isnan(wide(wanted))
    np.testing.assert_array_equal(np.isnan(wide(found)), nan)
    assert found[~nan].tobytes() == wanted[~nan].tobytes()


def all_of(dtype: Any) -> np.ndarray:
    """Every number of a dtype of two bytes."""
    return np.arange(65536, dtype=np.uint16).view(dtype.numpy)


@pytest.mark.parametrize("dtype", NARROW, ids=lambda dtype: dtype.name)
def test_every_narrow_float_is_widened(dtype: Any) -> None:
    every = all_of(dtype)
    for wider, made in ((np.float32, cuda(every).float()), (np.float64, cuda(every).double())):
        with np.errstate(all="ignore"):
            same_bits_but_nan(host(made), every.astype(wider))


def hard_to_round(dtype: Any, wider: Any) -> np.ndarray:
    """Numbers at and beside the midpoints between neighbours of a dtype."""
    with np.errstate(all="ignore"):
        every = all_of(dtype).astype(wider)
    every = np.sort(every[np.isfinite(every)])
    middle = every[:-1] / 2 + every[1:] / 2
    edges = [np.nextafter(middle, wider(np.inf)), np.nextafter(middle, wider(-np.inf))]
    special = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 65519.0, 65520.0, 3.3e38, 1e-45], wider)
    return np.concatenate([middle, *edges, special])


@pytest.mark.parametrize("dtype", NARROW, ids=lambda dtype: dtype.name)
def test_narrow_floats_are_rounded_to_nearest_even(dtype: Any) -> None:
    for wider in (np.float32, np.float64):
        values = hard_to_round(dtype, wider)
        with np.errstate(all="ignore"):
            # By way of float32, the class in which narrow floats are computed.
            wanted = values.astype(np.float32).astype(dtype.numpy)
        same_bits_but_nan(host(cuda(values).to(dtype)), wanted)


def test_integers_divide_without_trapping() -> None:
    low, high = -(2**63), 2**63 - 1
    values = np.array([0, 1, -1, 7, -7, low, high], np.int64)
    a, b = [each.reshape(-1) for each in np.meshgrid(values, values)]
    for call in (ss.floor_divide, ss.remainder, ss.fmod):
        found = host(call(cuda(a), cuda(b)))
        np.testing.assert_array_equal(found, host(call(ss.tensor(a), ss.tensor(b))))


def test_floats_divide_as_python_does() -> None:
    values = np.array([0.0, -0.0, 1.5, -1.5, 7.0, -7.0, 1e30, np.inf, -np.inf, np.nan])
    a, b = [each.reshape(-1) for each in np.meshgrid(values, values)]
    for dtype in (np.float32, np.float64):
        x, y = a.astype(dtype), b.astype(dtype)
        for call in (ss.floor_divide, ss.remainder, ss.fmod):
            found = host(call(cuda(x), cuda(y)))
            same_bits_but_nan(found, host(call(ss.tensor(x), ss.tensor(y))))


def test_floats_become_integers_as_on_the_cpu() -> None:
    values = np.array([0.0, -1.9, 1.9, 2.0**62, 2.0**63, -(2.0**63), 1e30, np.inf, -np.inf, np.nan])
    for dtype in (ss.int64, ss.int32, ss.uint8, ss.bool):
        found = host(cuda(values).to(dtype))
        np.testing.assert_array_equal(found, host(ss.tensor(values).to(dtype)))


FUNCTIONS = ("exp", "log", "sqrt", "sin", "cos", "tan", "tanh")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_complex_numbers(name: str) -> None:
    near = np.array([0.0, 1e-9, 0.3, -0.7, 1.0, -1.0, 1.0000001, 2.5, -30.0, 300.0])
    x, y = np.meshgrid(near, near)
    z = (x + 1j * y).reshape(-1)
    with np.errstate(all="ignore"):
        wanted = getattr(np, name)(z)
    found = host(getattr(ss, name)(cuda(z)))
    finite = np.isfinite(wanted)
    size = np.abs(wanted[finite])
    assert (np.abs(found[finite] - wanted[finite]) <= 1e-14 * np.maximum(size, 1e-3)).all()
    assert not np.isfinite(found[~finite]).any()


def test_complex_powers() -> None:
    z = np.array([1 + 2j, -0.5 + 0.1j, 3, 1j, 0])
    for exponent in (2, 3, -1, 0.5, 0):
        found = host(cuda(z) ** exponent)
        wanted = host(ss.tensor(z) ** exponent)
        np.testing.assert_allclose(found, wanted, rtol=1e-13, atol=1e-13)


def test_dividers_divide() -> None:
    random = np.random.RandomState(0)
    sizes = [1, 2, 3, 7, 64, 65, 1000, 2**16, 2**30, 2**30 + 1, 2**31 - 1]
    sizes += [int(each) for each in random.randint(1, 2**31 - 1, 200)]
    for size in sizes:
        word = divider(size)
        multiplier, shift = word & 0xFFFFFFFF, word >> 32
        assert word >> 32 < 32
        for number in (0, 1, size - 1, size, min(2 * size, 2**31 - 1), 2**31 - 1,
                       *map(int, random.randint(0, 2**31 - 1, 20))):
            assert ((number * multiplier >> 32) + number) >> shift == number // size
