"""conv2d and conv1d against the definition and finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from slopes import check_slopes

import slipstream as ss

RANDOM = np.random.RandomState(3)

CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 6, 5), (4, 3, 3, 2), {}),
    ((2, 4, 7, 7), (6, 2, 3, 3), {"stride": 2, "padding": (1, 2), "groups": 2}),
    ((3, 5, 5), (2, 3, 3, 3), {"padding": "same", "dilation": (1, 2)}),
    ((2, 3, 6, 6), (4, 3, 2, 4), {"padding": "same"}),
    ((2, 6, 9, 8), (6, 1, 3, 3), {"stride": (2, 3), "dilation": 2, "padding": 2, "groups": 6}),
    ((1, 2, 3, 3), (3, 2, 1, 1), {}),
    ((2, 4, 6, 6), (4, 2, 5, 3), {"groups": 2, "padding": "valid", "dilation": (1, 2)}),
]


def pair(value: Any) -> tuple[int, int]:
    return tuple(value) if isinstance(value, tuple) else (value, value)


def by_definition(x: np.ndarray, weight: np.ndarray, stride: Any = 1, padding: Any = 0,
                  dilation: Any = 1, groups: int = 1) -> np.ndarray:
    """Every output pixel as the sum over its window."""
    if x.ndim == 3:
        return by_definition(x[None], weight, stride, padding, dilation, groups)[0]
    steps, apart = pair(stride), pair(dilation)
    spans = [gap * (n - 1) for gap, n in zip(apart, weight.shape[2:], strict=True)]
    named = {"same": [(s // 2, s - s // 2) for s in spans], "valid": [(0, 0)] * 2}
    pads = named[padding] if isinstance(padding, str) else [(p, p) for p in pair(padding)]
    x = np.pad(x, [(0, 0), (0, 0), *pads])
    counts = [(n - s - 1) // step + 1
              for n, s, step in zip(x.shape[2:], spans, steps, strict=True)]
    out = np.zeros((len(x), len(weight), *counts), np.result_type(x, weight))
    own, share = weight.shape[1], len(weight) // groups
    for o, i, j in np.ndindex(len(weight), *counts):
        first = o // share * own
        window = x[:, first:first + own, i * steps[0]:i * steps[0] + spans[0] + 1:apart[0],
                   j * steps[1]:j * steps[1] + spans[1] + 1:apart[1]]
        out[:, o, i, j] = (window * weight[o]).sum((1, 2, 3))
    return out


@pytest.mark.parametrize(("shape", "kernel", "facts"), CASES)
def test_values(shape: tuple[int, ...], kernel: tuple[int, ...], facts: dict[str, Any]) -> None:
    x, weight, bias = RANDOM.randn(*shape), RANDOM.randn(*kernel), RANDOM.randn(kernel[0])
    found = ss.conv2d(ss.tensor(x), ss.tensor(weight), ss.tensor(bias), **facts)
    wanted = by_definition(x, weight, **facts) + bias[:, None, None]
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-10, atol=1e-12)
    assert found.is_contiguous()


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "int64", "complex64", "float16",
                                   "bfloat16"])
def test_dtypes(dtype: str) -> None:
    x, weight = RANDOM.randint(0, 4, (2, 2, 4, 4)), RANDOM.randint(0, 3, (3, 2, 3, 3))
    found = ss.conv2d(*[ss.tensor(a).to(getattr(ss, dtype)) for a in (x, weight)])
    assert found.dtype is getattr(ss, dtype)
    assert found.to(ss.int64).tolist() == by_definition(x, weight).tolist()


def test_many_images_are_done_in_parts() -> None:
    x, weight = RANDOM.randn(70, 8, 12, 12), RANDOM.randn(4, 8, 3, 3)
    found = ss.conv2d(ss.tensor(x), ss.tensor(weight), padding=1)
    wanted = by_definition(x, weight, padding=1)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-9, atol=1e-11)


def test_gradients_of_many_images() -> None:
    # <conv(x, w), g> is linear in each: it equals <x, dx> and <w, dw>.
    x = ss.tensor(RANDOM.randn(70, 8, 12, 12)).requires_grad_(True)
    weight = ss.tensor(RANDOM.randn(4, 8, 3, 3)).requires_grad_(True)
    value = (ss.conv2d(x, weight, padding=1) * ss.tensor(RANDOM.randn(70, 4, 12, 12))).sum()
    value.backward()
    for leaf in (x, weight):
        assert abs((leaf.data * leaf.grad).sum().item() - value.item()) < 1e-8


def test_channels_last_is_kept() -> None:
    x = ss.tensor(RANDOM.randn(2, 3, 5, 5))
    weight = ss.tensor(RANDOM.randn(4, 3, 3, 3))
    wanted = ss.conv2d(x, weight)
    found = ss.conv2d(x.contiguous(memory_format=ss.channels_last), weight)
    assert found.is_contiguous(memory_format=ss.channels_last)
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-12)


def test_empty_batch_and_strided_views() -> None:
    weight = ss.tensor(RANDOM.randn(4, 3, 3, 3)).requires_grad_(True)
    found = ss.conv2d(ss.zeros(0, 3, 5, 5, dtype=ss.float64), weight)
    assert tuple(found.shape) == (0, 4, 3, 3)
    found.sum().backward()
    assert weight.grad.abs().sum().item() == 0.0
    x = RANDOM.randn(5, 6, 3, 2)
    turned = ss.tensor(x).permute(3, 2, 1, 0)
    np.testing.assert_allclose(ss.conv2d(turned, weight.data).numpy(),
                               by_definition(x.transpose(3, 2, 1, 0), weight.data.numpy()),
                               rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("facts", "text"), [
    ({"groups": 3}, "expected input\\[2, 4, 5, 5\\] to have 12 channels, but got 4"),
    ({"groups": 0}, "non-positive groups"),
    ({"stride": 0}, "non-positive stride"),
    ({"padding": -1}, "negative padding"),
    ({"dilation": 0}, "non-positive dilation"),
    ({"dilation": 3}, r"Calculated padded input size per channel: \(5 x 5\)"),
    ({"padding": "same", "stride": 2}, "not supported for strided"),
    ({"padding": "around"}, "Invalid padding string"),
    ({"stride": (1, 1, 1)}, "expected stride to be a single integer value or a list of 2"),
    ({"bias": ss.ones(5)}, "expected bias to be 1-dimensional with 6 elements"),
    ({"bias": ss.ones(6, dtype=ss.float64)}, "bias type"),
])
def test_refusals(facts: dict[str, Any], text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        ss.conv2d(ss.zeros(2, 4, 5, 5), ss.zeros(6, 4, 3, 3), **facts)


def test_refusals_of_operands() -> None:
    with pytest.raises(RuntimeError, match=r"Expected 3D .unbatched. or 4D"):
        ss.conv2d(ss.zeros(5, 5), ss.zeros(6, 4, 3, 3))
    with pytest.raises(RuntimeError, match="should be the same"):
        ss.conv2d(ss.zeros(1, 4, 5, 5, dtype=ss.float64), ss.zeros(6, 4, 3, 3))
    with pytest.raises(NotImplementedError):
        ss.conv2d(ss.ones(1, 1, 3, 3, dtype=ss.bool), ss.ones(1, 1, 1, 1, dtype=ss.bool))


@pytest.mark.parametrize(("shape", "kernel", "facts"), [
    ((1, 2, 4, 3), (2, 2, 2, 2), {}),
    ((2, 2, 5, 4), (2, 1, 2, 2), {"stride": (2, 1), "padding": 1, "groups": 2}),
    ((1, 1, 4, 4), (1, 1, 2, 2), {"padding": "same"}),
    ((2, 4, 4), (1, 2, 2, 2), {"dilation": 2, "padding": (0, 1)}),
])
def test_gradients(shape: tuple[int, ...], kernel: tuple[int, ...], facts: dict[str, Any]) -> None:
    check_slopes(lambda x, w, b: ss.conv2d(x, w, b, **facts), RANDOM.randn(*shape),
                 RANDOM.randn(*kernel), RANDOM.randn(kernel[0]))


def test_rows() -> None:
    x, weight = RANDOM.randn(2, 3, 8), RANDOM.randn(4, 3, 3)
    found = ss.conv1d(ss.tensor(x), ss.tensor(weight), stride=2, padding=1)
    wanted = by_definition(x[:, :, None], weight[:, :, None], stride=(1, 2), padding=(0, 1))
    np.testing.assert_allclose(found.numpy(), wanted[:, :, 0], rtol=1e-10, atol=1e-12)
    with pytest.raises(RuntimeError, match="Expected 2D"):
        ss.conv1d(ss.zeros(1, 2, 3, 4), ss.zeros(1, 2, 3))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_few_pixels_of_any_strides(dtype: Any) -> None:
    # The loops of small convolutions go by strides: every operand is turned round here.
    x, weight = RANDOM.randn(3, 4, 5, 2).astype(dtype), RANDOM.randn(2, 3, 2, 4).astype(dtype)
    bias = RANDOM.randn(8).astype(dtype)
    found = ss.conv2d(ss.tensor(x).permute(3, 1, 2, 0)[:, :2], ss.tensor(weight).permute(3, 0, 1, 2)
                      [:, :1], ss.tensor(bias)[::2], padding=1, groups=2)
    wanted = by_definition(x.transpose(3, 1, 2, 0)[:, :2], weight.transpose(3, 0, 1, 2)[:, :1],
                           padding=1, groups=2) + bias[::2, None, None]
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-5)
    assert found.dtype.numpy == np.dtype(dtype)
