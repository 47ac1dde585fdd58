"""Attention of several heads."""

from __future__ import annotations

from typing import Any

import slipstream as ss
from slipstream.nn import functional, init
from slipstream.nn.modules.linear import Linear
from slipstream.nn.modules.module import Module
from slipstream.nn.parameter import Parameter


class MultiheadAttention(Module):
    """Attention of ``num_heads`` heads over projections of queries, keys and values.

    Inputs (L, N, E), (N, L, E) with ``batch_first``, or (L, E).  ``kdim`` and ``vdim``: widths of
    keys and values where they differ.  AssertionError unless num_heads divides embed_dim.
    """

    in_proj_weight: Parameter | None
    q_proj_weight: Parameter | None
    k_proj_weight: Parameter | None
    v_proj_weight: Parameter | None
    in_proj_bias: Parameter | None

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
                 add_bias_kv: bool = False, add_zero_attn: bool = False, kdim: int | None = None,
                 vdim: int | None = None, batch_first: bool = False, device: Any = None,
                 dtype: ss.dtype | None = None) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(f"embed_dim and num_heads must be greater than 0, got embed_dim="
                             f"{embed_dim} and num_heads={num_heads} instead")
        assert embed_dim % num_heads == 0, "embed_dim must be divisible by num_heads"
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        self.add_zero_attn = add_zero_attn
        place: Any = {"device": device, "dtype": dtype}
        self._make_projections(place, bias)
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, **place)
        for name in ("bias_k", "bias_v"):
            extra = Parameter(ss.empty(1, 1, embed_dim, **place)) if add_bias_kv else None
            setattr(self, name, extra)
        self._reset_parameters()

    def _make_projections(self, place: Any, bias: bool) -> None:
        width = self.embed_dim
        together = self._qkv_same_embed_dim
        if together:
            self.in_proj_weight = Parameter(ss.empty(3 * width, width, **place))
        widths = {"q": width, "k": self.kdim, "v": self.vdim}
        for name, own in widths.items():
            weight = None if together else Parameter(ss.empty(width, own, **place))
            self.register_parameter(f"{name}_proj_weight", weight)
        if not together:
            self.register_parameter("in_proj_weight", None)
        self.register_parameter(
            "in_proj_bias", Parameter(ss.empty(3 * width, **place)) if bias else None)

    def _reset_parameters(self) -> None:
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            weight = getattr(self, name)
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            assert self.out_proj.bias is not None
            init.zeros_(self.out_proj.bias)
        for extra in (self.bias_k, self.bias_v):
            if extra is not None:
                init.xavier_normal_(extra)

    def forward(self, query: ss.Tensor, key: ss.Tensor, value: ss.Tensor,
                key_padding_mask: ss.Tensor | None = None, need_weights: bool = True,
                attn_mask: ss.Tensor | None = None, average_attn_weights: bool = True,
                is_causal: bool = False) -> tuple[ss.Tensor, ss.Tensor | None]:
        """Return the output and the weights, or None without ``need_weights``.

        ``key_padding_mask`` (N, S) hides keys, ``attn_mask`` (L, S) or (N * heads, L, S) pairs: a
        bool mask where it is true, another is added to the scores.
        """
        swaps = self.batch_first and query.ndim == 3
        if swaps:
            query, key, value = [each.transpose(0, 1) for each in (query, key, value)]
        output, weights = functional.multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight,
            self.in_proj_bias, self.bias_k, self.bias_v, self.add_zero_attn, self.dropout,
            self.out_proj.weight, self.out_proj.bias, training=self.training,
            key_padding_mask=key_padding_mask, need_weights=need_weights, attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim,
            q_proj_weight=self.q_proj_weight, k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight, average_attn_weights=average_attn_weights,
            is_causal=is_causal)
        return (output.transpose(0, 1) if swaps else output), weights
