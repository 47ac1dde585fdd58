"""The same calls on the CPU and on the device, and a comparison of what they give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from catalogue import host, precision, spec_of, wide

import slipstream as ss

FLOATS = (ss.float16, ss.bfloat16, ss.float32, ss.float64)
INTEGERS = (ss.uint8, ss.int8, ss.int16, ss.int32, ss.int64)
COMPLEX = (ss.complex64, ss.complex128)
DTYPES = (ss.bool, *INTEGERS, *FLOATS, *COMPLEX)


def numbers(seed: int, shape: Any, dtype: Any = ss.float32) -> np.ndarray:
    """Small numbers that every dtype holds, the same at every call."""
    values = np.random.RandomState(seed).uniform(-3.0, 3.0, shape)
    if dtype is ss.bool:
        return values > 0
    if dtype in INTEGERS:
        values = np.round(values * 4)
        return np.asarray(np.abs(values) if dtype is ss.uint8 else values).astype(dtype.numpy)
    if dtype in COMPLEX:
        values = values + 1j * np.roll(values, 1)
    return np.asarray(values).astype(dtype.numpy)


def places(seed: int, shape: Any, below: int) -> np.ndarray:
    """Indices below a number, with many duplicates where the shape has more elements."""
    return np.random.RandomState(seed).randint(0, below, shape)


def tensor(array: Any, device: str) -> Any:
    """The array's elements on a device."""
    return ss.tensor(np.asarray(array)).to(device)


def shifted(array: np.ndarray, device: str) -> Any:
    """The same as a view that begins at the second element of its memory."""
    flat = np.concatenate([np.zeros(1, array.dtype), array.reshape(-1)])
    return tensor(flat, device)[1:].view(array.shape)


def assert_same(device: Any, cpu: Any, ulps: float = 0.0) -> None:
    """The device's result is the CPU's; ``ulps``: how far floats may be apart."""
    assert spec_of(device) == spec_of(cpu)
    assert device.device.type == "cuda"
    found, wanted = host(device), host(cpu)
    near = precision(cpu.dtype) * ulps
    if not near:
        np.testing.assert_array_equal(found, wanted)
        return
    finite = np.abs(wide(wanted)[np.isfinite(wide(wanted))])
    scale = max(1.0, float(finite.max())) if finite.size else 1.0
    np.testing.assert_allclose(wide(found), wide(wanted), rtol=near, atol=near * scale)


def check(call: Callable[[str], Any], ulps: float = 0.0) -> Any:
    """Compare what ``call(device)`` returns, a tensor or several; returns the device's."""
    wanted, found = call("cpu"), call("cuda")
    pairs = zip(found, wanted, strict=True) if isinstance(found, (tuple, list)) else [
        (found, wanted)]
    for each, other in pairs:
        assert_same(each, other, ulps)
    return found
