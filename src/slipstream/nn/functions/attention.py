"""Attention of several heads."""

from __future__ import annotations

import math
from typing import Any

import slipstream as ss


def _projected(inputs: tuple[ss.Tensor, ss.Tensor, ss.Tensor], weights: Any,
               bias: ss.Tensor | None) -> list[ss.Tensor]:
    """Queries, keys and values; ``weights``: one for all three, or one each."""
    width = inputs[0].shape[-1]
    if isinstance(weights, ss.Tensor):
        parts = list(weights.split(width, 0))
    else:
        parts = list(weights)
    biases = [None] * 3 if bias is None else list(bias.split(bias.shape[0] // 3, 0))
    return [ss.linear(each, weight, own) for each, weight, own in zip(
        inputs, parts, biases, strict=True)]


def canonical_mask(mask: ss.Tensor | None, dtype: Any, name: str) -> ss.Tensor | None:
    """A mask that is added: minus infinity where a bool one is true.

    AssertionError for integers, of which nobody knows whether they hide or are added.
    """
    if mask is None or mask.is_floating_point():
        return mask
    if mask.dtype is not ss.bool:
        raise AssertionError(f"only bool and floating types of {name} are supported, not "
                             f"{mask.dtype.name}\n  mend: {name}.bool()")
    zeros = ss.zeros(tuple(mask.shape), dtype=dtype, device=mask.device)
    return zeros.masked_fill(mask, -math.inf)


def _heads(tensor: ss.Tensor, batch: int, heads: int) -> ss.Tensor:
    """(L, N, E) as (N, heads, L, E / heads)."""
    length, width = tensor.shape[0], tensor.shape[-1] // heads
    return tensor.reshape(length, batch * heads, width).transpose(0, 1).reshape(
        batch, heads, length, width)


def _extended(tensor: ss.Tensor, bias: ss.Tensor | None) -> ss.Tensor:
    """One more key, or value, for every sequence."""
    if bias is None:
        return tensor
    return ss.cat([tensor, bias.expand(1, tensor.shape[1], tensor.shape[2])], 0)


def _check_extra(biases: tuple[Any, Any], static: tuple[Any, Any]) -> None:
    """One more key comes with one more value, and with none that are given whole."""
    key, value = [each is not None for each in biases]
    if key != value:
        raise AssertionError("bias_k and bias_v have to be given together")
    for name, each in zip(("key", "value"), static, strict=True):
        if key and each is not None:
            raise AssertionError(f"bias cannot be added to static {name}.")


def _replaced(own: ss.Tensor, static: ss.Tensor | None, name: str) -> ss.Tensor:
    """The keys, or values, of (N * heads, S, width) that stand for the projected ones."""
    if static is None:
        return own
    batch, heads, _, width = own.shape
    for dim, wanted in ((0, batch * heads), (2, width)):
        if static.shape[dim] != wanted:
            raise AssertionError(f"expecting {name}.size({dim}) of {wanted}, but got "
                                 f"{static.shape[dim]}")
    return static.reshape(batch, heads, static.shape[1], width)


def _widened(mask: ss.Tensor | None, count: int) -> ss.Tensor | None:
    """A mask that hides none of ``count`` more keys."""
    if mask is None or not count:
        return mask
    return ss.cat([mask, mask.new_zeros(*mask.shape[:-1], count)], -1)


def _joint_mask(attn_mask: ss.Tensor | None, padding: ss.Tensor | None, batch: int,
                heads: int) -> ss.Tensor | None:
    """Both masks as one of (N or 1, heads or 1, L, S)."""
    joint = None
    if attn_mask is not None:
        joint = attn_mask.unsqueeze(0) if attn_mask.ndim == 2 else attn_mask.reshape(
            batch, heads, *attn_mask.shape[1:])
        joint = joint.unsqueeze(0) if joint.ndim == 3 else joint
    if padding is not None:
        hidden = padding.reshape(batch, 1, 1, padding.shape[-1])
        joint = hidden if joint is None else joint + hidden
    return joint


def _check_shapes(query: ss.Tensor, key: ss.Tensor, value: ss.Tensor, facts: Any) -> None:
    embed_dim, heads, attn_mask = facts
    if query.shape[-1] != embed_dim:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim}, but got "
                             f"{query.shape[-1]}")
    if embed_dim % heads:
        raise AssertionError(f"embed_dim {embed_dim} not divisible by num_heads {heads}")
    if key.shape[:2] != value.shape[:2]:
        raise AssertionError(f"key's sequence and batch dims {list(key.shape[:2])} do not match "
                             f"value's {list(value.shape[:2])}")
    if attn_mask is None:
        return
    rows, columns = query.shape[0], key.shape[0]
    allowed = [(rows, columns), (query.shape[1] * heads, rows, columns)]
    if tuple(attn_mask.shape) not in allowed:
        raise RuntimeError(f"The shape of the {attn_mask.ndim}D attn_mask is "
                           f"{tuple(attn_mask.shape)}, but should be "
                           f"{allowed[attn_mask.ndim == 3]}.")


def multi_head_attention_forward(
    query: ss.Tensor, key: ss.Tensor, value: ss.Tensor, embed_dim_to_check: int, num_heads: int,
    in_proj_weight: ss.Tensor | None, in_proj_bias: ss.Tensor | None, bias_k: ss.Tensor | None,
    bias_v: ss.Tensor | None, add_zero_attn: bool, dropout_p: float, out_proj_weight: ss.Tensor,
    out_proj_bias: ss.Tensor | None, training: bool = True,
    key_padding_mask: ss.Tensor | None = None, need_weights: bool = True,
    attn_mask: ss.Tensor | None = None, use_separate_proj_weight: bool = False,
    q_proj_weight: ss.Tensor | None = None, k_proj_weight: ss.Tensor | None = None,
    v_proj_weight: ss.Tensor | None = None, static_k: ss.Tensor | None = None,
    static_v: ss.Tensor | None = None, average_attn_weights: bool = True, is_causal: bool = False,
) -> tuple[ss.Tensor, ss.Tensor | None]:
    """Attention of heads over projections of (L, N, E), or (L, E), queries, keys and values.

    Returns the output and the weights, averaged over heads unless told otherwise, or None.
    """
    single = query.ndim == 2
    if single:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    _check_shapes(query, key, value, (embed_dim_to_check, num_heads, attn_mask))
    weights: Any = in_proj_weight
    if use_separate_proj_weight:
        weights = (q_proj_weight, k_proj_weight, v_proj_weight)
    q, k, v = _projected((query, key, value), weights, in_proj_bias)
    masks = [canonical_mask(attn_mask, query.dtype, "attn_mask"),
             canonical_mask(key_padding_mask, query.dtype, "key_padding_mask")]
    _check_extra((bias_k, bias_v), (static_k, static_v))
    k, v = _extended(k, bias_k), _extended(v, bias_v)
    masks = [_widened(mask, int(bias_k is not None)) for mask in masks]
    batch = query.shape[1]
    q, k, v = [_heads(each, batch, num_heads) for each in (q, k, v)]
    k, v = _replaced(k, static_k, "static_k"), _replaced(v, static_v, "static_v")
    if add_zero_attn:
        k, v = [ss.cat([each, each.new_zeros(*each.shape[:2], 1, each.shape[3])], 2)
                for each in (k, v)]
        masks = [_widened(mask, 1) for mask in masks]
    joint = _joint_mask(masks[0], masks[1], batch, num_heads)
    chance = dropout_p if training else 0.0
    output, shares = _attended((q, k, v), joint, chance, need_weights)
    output = output.permute(2, 0, 1, 3).reshape(query.shape[0] * batch, embed_dim_to_check)
    output = ss.linear(output, out_proj_weight, out_proj_bias)
    output = output.reshape(query.shape[0], batch, output.shape[1])
    if shares is not None and average_attn_weights:
        shares = shares.mean(1)
    if single:
        output = output.squeeze(1)
        shares = None if shares is None else shares.squeeze(0)
    return output, shares


def _attended(inputs: Any, mask: ss.Tensor | None, chance: float,
              need_weights: bool) -> tuple[ss.Tensor, ss.Tensor | None]:
    q, k, v = inputs
    if not need_weights:
        return ss.scaled_dot_product_attention(q, k, v, mask, chance), None
    scores = (q * (1.0 / math.sqrt(q.shape[-1]))) @ k.transpose(-2, -1)
    scores = scores if mask is None else scores + mask
    shares = ss.softmax(scores, -1)
    if chance:
        shares = ss.dropout(shares, chance, True)
    return shares @ v, shares
