"""Calls of attention, and what NumPy makes of them in double precision."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from catalogue import host

import slipstream as ss

attention = ss.nn.functional.scaled_dot_product_attention
NEAR = {ss.float64: 1e-13, ss.float32: 4e-6, ss.float16: 2e-3, ss.bfloat16: 1.5e-2}
HALVES = (ss.bfloat16, ss.float16)


def numbers(seed: int, shape: Any, dtype: Any) -> np.ndarray:
    """Normal numbers as a dtype has them, in double precision."""
    return host(ss.tensor(np.random.RandomState(seed).randn(*shape)).to(dtype)).astype(np.float64)


def cuda(array: np.ndarray, dtype: Any) -> Any:
    """The array on the device."""
    return ss.tensor(array).to(dtype).to("cuda")


def weights_of(q: np.ndarray, k: np.ndarray, mask: Any, scale: float) -> np.ndarray:
    """softmax(q @ k^T * scale + mask); a row without any key has none."""
    scores = q @ np.swapaxes(k, -1, -2) * scale
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    largest = scores.max(-1, keepdims=True)
    grown = np.exp(scores - np.where(np.isneginf(largest), 0, largest))
    total = grown.sum(-1, keepdims=True)
    return grown / np.where(total == 0, 1, total)


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, g: np.ndarray, mask: Any = None,
              kept: Any = 1.0, scale: float | None = None) -> list[np.ndarray]:
    """The result, and the gradients by queries, keys and values; ``kept``: factors by dropout."""
    group = q.shape[-3] // k.shape[-3]
    keys, values = np.repeat(k, group, -3), np.repeat(v, group, -3)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    weights = weights_of(q, keys, mask, scale)
    slope = g @ np.swapaxes(values, -1, -2) * kept
    slope = weights * (slope - (weights * slope).sum(-1, keepdims=True)) * scale
    by_head = [np.swapaxes(slope, -1, -2) @ q, np.swapaxes(weights * kept, -1, -2) @ g]
    return [weights * kept @ values, slope @ keys,
            *[each.reshape(*k.shape[:-2], group, *each.shape[-2:]).sum(-3) for each in by_head]]


def assert_near(found: Any, wanted: np.ndarray, dtype: Any) -> None:
    """Within what a dtype's weights and slopes are rounded by: a slope is a difference of numbers

    near 1, also where it is 0.
    """
    assert found.dtype is dtype
    assert tuple(found.shape) == wanted.shape
    largest = max(float(np.abs(wanted).max()), 1.0)
    worst = float(np.abs(host(found).astype(np.float64) - wanted).max())
    assert worst <= NEAR[dtype] * largest


class Case:
    """One call: sizes (batch, heads, heads of keys, queries, keys, widths), and what is asked."""

    def __init__(self, sizes: tuple[int, ...], dtype: Any, **facts: Any) -> None:
        batch, heads, key_heads, rows, keys, width, depth = sizes
        self.dtype = dtype
        self.facts = {"enable_gqa": heads != key_heads, **facts}
        self.arrays = [numbers(seed, (batch, each, length, wide), dtype)
                       for seed, (each, length, wide) in enumerate((
                           (heads, rows, width), (key_heads, keys, width),
                           (key_heads, keys, depth), (heads, rows, depth)))]

    def operands(self) -> list[Any]:
        """Queries, keys and values that want gradients."""
        return [cuda(each, self.dtype).requires_grad_() for each in self.arrays[:3]]

    def check(self, mask: Any = None, kept: Any = 1.0, operands: Any = None) -> Any:
        """Compare the result and its gradients; the result."""
        operands = operands or self.operands()
        given = None if mask is None else ss.tensor(mask).to("cuda")
        out = attention(*operands, given, **self.facts)
        out.backward(cuda(self.arrays[3], self.dtype))
        if self.facts.get("is_causal"):
            mask = np.tril(np.ones((out.shape[-2], self.arrays[1].shape[-2]), bool))
        wanted = reference(*self.arrays, mask, kept, self.facts.get("scale"))
        for found, each in zip((out, *[x.grad for x in operands]), wanted, strict=True):
            assert_near(found, each, self.dtype)
        return out


def mask_of(kind: str, rows: int, keys: int) -> Any:
    """A mask with a row that has no key."""
    random = np.random.RandomState(7)
    mask = random.rand(rows, keys) > 0.4
    mask[1] = False
    if kind == "bool":
        return mask
    return np.where(mask, random.randn(rows, keys), -np.inf).astype(np.float32)
