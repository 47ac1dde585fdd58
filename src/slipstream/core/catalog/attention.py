# cython: annotation_typing=False
"""Attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from slipstream.core.catalog import reasons
from slipstream.core.catalog.table import define, ops
from slipstream.core.dispatch.entry import COMPOUND, Entry
from slipstream.core.vocab import dtypes


def _check(query: Any, key: Any, value: Any, attn_mask: Any, is_causal: bool) -> None:
    names = ("query", "key", "value")
    for name, each in zip(names, (query, key, value), strict=True):
        if each.spec.ndim < 2:
            raise RuntimeError("scaled_dot_product_attention: query, key, and value to be at least "
                               f"2 dimensional, but got {name}: {each.spec!r}")
        if each.spec.dtype is not query.spec.dtype:
            raise RuntimeError("Expected query, key, and value to have the same dtype, but got "
                               + ", ".join(t.spec.dtype.name for t in (query, key, value)))
    if attn_mask is None:
        return
    if is_causal:
        raise RuntimeError("scaled_dot_product_attention: Explicit attn_mask should not be set "
                           "when is_causal=True")
    if attn_mask.spec.dtype not in (dtypes.bool_, query.spec.dtype, dtypes.float32):
        raise RuntimeError("Expected attn_mask dtype to be bool or float or to match query dtype, "
                           f"but got {attn_mask.spec.dtype.name}")


def _repeated(query: Any, tensor: Any) -> Any:
    """A head of keys or values for each head of queries."""
    times = query.spec.shape[-3] // max(tensor.spec.shape[-3], 1)
    return tensor if times == 1 else ops.repeat_interleave.call((tensor, times, -3), None)


def _masked(scores: Any, attn_mask: Any, is_causal: bool) -> Any:
    if is_causal:
        rows, columns = scores.spec.shape[-2:]
        attn_mask = ops.tril.call((ops.ones.call(
            ((rows, columns),), {"dtype": dtypes.bool_, "device": scores.spec.device}),), None)
    if attn_mask is None:
        return scores
    if attn_mask.spec.dtype is dtypes.bool_:
        return ops.where.call((attn_mask, scores, -math.inf), None)
    return scores + ops.cast.call((attn_mask, scores.spec.dtype), None)


def _attention(query: Any, key: Any, value: Any, attn_mask: Any, *facts: Any) -> Any:
    dropout_p, is_causal, scale, enable_gqa = facts
    _check(query, key, value, attn_mask, is_causal)
    own = query.spec.dtype
    if own.kind == "float" and own.itemsize < 4:
        # Scores and weights are not rounded in between.
        query, key, value = [ops.to_dtype.call((each, dtypes.float32), None)
                             for each in (query, key, value)]
    if enable_gqa:
        key, value = _repeated(query, key), _repeated(query, value)
    if scale is None:
        scale = 1.0 / math.sqrt(query.spec.shape[-1]) if query.spec.shape[-1] else 1.0
    scores = ops.matmul.call((query * scale, key.transpose(-2, -1)), None)
    scores = _masked(scores, attn_mask, is_causal)
    weights = ops.softmax.call((scores, -1), None)
    if attn_mask is not None and attn_mask.spec.dtype is dtypes.bool_:
        # A row without any key gives zeros, not nan.
        dead = ops.logical_not.call((ops.any.call((attn_mask, -1, True), None),), None)
        weights = ops.where.call((dead, 0, weights), None)
    if dropout_p:
        weights = ops.dropout.call((weights, dropout_p, True), None)
    return ops.cast.call((ops.matmul.call((weights, value), None), own), None)


def _reference(q: Any, k: Any, v: Any, mask: Any = None, is_causal: bool = False) -> Any:
    scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    if is_causal:
        mask = np.tril(np.ones(scores.shape[-2:], bool))
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    grown = np.exp(scores - scores.max(-1, keepdims=True))
    return grown / grown.sum(-1, keepdims=True) @ v


def _samples() -> Any:
    random = np.random.RandomState(24)
    q, k, v = random.randn(2, 3, 4), random.randn(2, 5, 4), random.randn(2, 5, 2)
    mask = random.rand(3, 5) > 0.3
    mask[:, 0] = True
    return [((q, k, v), {}), ((q, k, v, mask), {}), ((q, k, v), {"is_causal": True})]


define(Entry(
    "scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, "
    "Tensor? attn_mask=None, float dropout_p=0.0, bool is_causal=False, *, any scale=None, "
    "bool enable_gqa=False)", COMPOUND, function=_attention,
    path="nn.functional.scaled_dot_product_attention", method=False, dtypes=("float",),
    samples=_samples, reference=_reference,
    exceptions=reasons.ROUNDED,
    doc="softmax(query @ key^T * scale + mask) @ value, over the last two dims; a bool mask says "
        "which keys take part, another is added; scale is 1 / sqrt(width) by default.",
    autocast="lower",
))
