"""max_pool2d against the definition and finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from slopes import check_slopes

import slipstream as ss

RANDOM = np.random.RandomState(4)
CASES: list[dict[str, Any]] = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": (3, 2), "stride": (2, 1), "dilation": (1, 2), "ceil_mode": True},
    {"kernel_size": 2, "stride": 3, "ceil_mode": True},
    {"kernel_size": 3, "stride": 1, "padding": 1, "dilation": 2},
]


def by_windows(x: np.ndarray, kernel_size: Any, stride: Any = None, padding: Any = 0,
               dilation: Any = 1, ceil_mode: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Values and indices, window by window."""
    stride = kernel_size if stride is None else stride
    kernel, steps, pad, apart = [value if isinstance(value, tuple) else (value, value)
                                 for value in (kernel_size, stride, padding, dilation)]
    counts = []
    for n, k, step, p, gap in zip(x.shape[-2:], kernel, steps, pad, apart, strict=True):
        room = n + 2 * p - gap * (k - 1) - 1
        count = -(-room // step) + 1 if ceil_mode else room // step + 1
        counts.append(count - (ceil_mode and (count - 1) * step >= n + p))
    shape = (*x.shape[:-2], *counts)
    values, indices = np.zeros(shape), np.zeros(shape, np.int64)
    for i, j in np.ndindex(*counts):
        cells = [(r, c) for r in range(i * steps[0] - pad[0], x.shape[-2], apart[0])[:kernel[0]]
                 for c in range(j * steps[1] - pad[1], x.shape[-1], apart[1])[:kernel[1]]
                 if r >= 0 and c >= 0]
        inside = np.stack([x[..., r, c] for r, c in cells], -1)
        best = inside.argmax(-1)
        values[..., i, j] = inside.max(-1)
        indices[..., i, j] = np.array([r * x.shape[-1] + c for r, c in cells])[best]
    return values, indices


@pytest.mark.parametrize("facts", CASES)
@pytest.mark.parametrize("shape", [(2, 3, 9, 8), (3, 8, 7)])
def test_values_and_indices(facts: dict[str, Any], shape: tuple[int, ...]) -> None:
    x = RANDOM.randint(-9, 9, shape).astype(np.float64)
    values, indices = ss.max_pool2d(ss.tensor(x), **facts, return_indices=True)
    wanted = by_windows(x, **facts)
    np.testing.assert_array_equal(values.numpy(), wanted[0])
    np.testing.assert_array_equal(indices.numpy(), wanted[1])


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float16", "bfloat16", "float32"])
def test_dtypes(dtype: str) -> None:
    x = RANDOM.randint(0, 9, (2, 4, 4))
    found = ss.max_pool2d(ss.tensor(x).to(getattr(ss, dtype)), 2, padding=1)
    assert found.dtype is getattr(ss, dtype)
    np.testing.assert_array_equal(found.to(ss.float64).numpy(), by_windows(x, 2, padding=1)[0])


@pytest.mark.parametrize("padding", [0, 1])
def test_nan_wins(padding: int) -> None:
    x = np.arange(16.0).reshape(1, 4, 4)
    x[0, 0, 0] = np.nan
    values, indices = ss.max_pool2d(ss.tensor(x), 2, padding=padding, return_indices=True)
    assert np.isnan(values[0, 0, 0].item())
    assert indices[0, 0, 0].item() == 0
    assert np.isnan(values.numpy()).sum() == 1


def test_images_of_minus_infinity() -> None:
    values, indices = ss.max_pool2d(ss.full((1, 2, 2), -np.inf), 2, padding=1, return_indices=True)
    assert values.flatten().tolist() == [-np.inf] * 4
    assert indices.flatten().tolist() == [0, 1, 2, 3]


def test_channels_last_and_empty_batch() -> None:
    x = ss.tensor(RANDOM.randn(2, 3, 4, 4))
    found = ss.max_pool2d(x.contiguous(memory_format=ss.channels_last), 2)
    assert found.is_contiguous(memory_format=ss.channels_last)
    np.testing.assert_array_equal(found.numpy(), ss.max_pool2d(x, 2).numpy())
    assert tuple(ss.max_pool2d(x[:0], 2).shape) == (0, 3, 2, 2)


@pytest.mark.parametrize(("facts", "text"), [
    ({"kernel_size": 2, "padding": 2}, "at most half"),
    ({"kernel_size": 2, "stride": 0}, "stride should not be zero"),
    ({"kernel_size": 6}, "Output size is too small"),
    ({"kernel_size": 2, "dilation": 0}, "dilation should be greater"),
    ({"kernel_size": (2, 2, 2)}, "kernel_size must either be a single int"),
    ({"kernel_size": 2, "padding": -1}, "non-negative"),
])
def test_refusals(facts: dict[str, Any], text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        ss.max_pool2d(ss.zeros(2, 4, 5, 5), **facts)


def test_refusals_of_operands() -> None:
    with pytest.raises(RuntimeError, match="3D or 4D"):
        ss.max_pool2d(ss.zeros(5, 5), 2)
    with pytest.raises(NotImplementedError):
        ss.max_pool2d(ss.ones(1, 4, 4, dtype=ss.bool), 2)


@pytest.mark.parametrize("facts", CASES)
def test_gradients(facts: dict[str, Any]) -> None:
    # Distinct values: a tie has no gradient.
    x = RANDOM.permutation(48).reshape(1, 8, 6) / 10.0
    check_slopes(lambda x: ss.max_pool2d(x, **facts), x, second=facts["kernel_size"] == 2)


def test_gradients_add_up_where_windows_overlap() -> None:
    x = ss.zeros(1, 3, 3)
    x[0, 1, 1] = 1.0
    x.requires_grad_(True)
    ss.max_pool2d(x, 2, stride=1).sum().backward()
    assert x.grad.flatten().tolist() == [0.0] * 4 + [4.0] + [0.0] * 4
