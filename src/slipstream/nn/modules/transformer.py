"""Transformers: layers, stacks of them, and the whole."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import slipstream as ss
from slipstream.nn import functional, init
from slipstream.nn.modules.attention import MultiheadAttention
from slipstream.nn.modules.container import ModuleList
from slipstream.nn.modules.dropout import Dropout
from slipstream.nn.modules.linear import Linear
from slipstream.nn.modules.module import Module
from slipstream.nn.modules.normalization import LayerNorm

Activation = str | Callable[[ss.Tensor], ss.Tensor]


def activation_of(name: Activation) -> Callable[[ss.Tensor], ss.Tensor]:
    """The function that a name stands for; RuntimeError for an unknown one."""
    if not isinstance(name, str):
        return name
    if name in ("relu", "gelu"):
        return getattr(functional, name)
    raise RuntimeError(f"activation should be relu/gelu, not {name}")


def clones(module: Module, count: int) -> ModuleList:
    """Copies of a module."""
    return ModuleList([copy.deepcopy(module) for _ in range(count)])


class _Layer(Module):
    """What encoder and decoder layers share."""

    linear1: Linear
    linear2: Linear
    dropout: Dropout
    activation: Any
    norm_first: bool

    def _fed_forward(self, x: ss.Tensor, last: Dropout) -> ss.Tensor:
        return last(self.linear2(self.dropout(self.activation(self.linear1(x)))))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("activation", functional.relu)


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward network, each with a residual and a LayerNorm.

    ``norm_first``: the norms come before, not after.  Input (L, N, d_model), or (N, L, d_model)
    with ``batch_first``.
    """

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: Activation = "relu", layer_norm_eps: float = 1e-5,
                 batch_first: bool = False, norm_first: bool = False, bias: bool = True,
                 device: Any = None, dtype: ss.dtype | None = None) -> None:
        super().__init__()
        place: Any = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias,
                                            batch_first=batch_first, **place)
        self.linear1 = Linear(d_model, dim_feedforward, bias, **place)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **place)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, **place)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, **place)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.activation = activation_of(activation)

    def forward(self, src: ss.Tensor, src_mask: ss.Tensor | None = None,
                src_key_padding_mask: ss.Tensor | None = None,
                is_causal: bool = False) -> ss.Tensor:
        """Return the output, of the input's shape."""
        check_hints((src_mask, is_causal))
        masks = (src_mask, src_key_padding_mask)
        if self.norm_first:
            x = src + self._attended(self.norm1(src), masks)
            return x + self._fed_forward(self.norm2(x), self.dropout2)
        x = self.norm1(src + self._attended(src, masks))
        return self.norm2(x + self._fed_forward(x, self.dropout2))

    def _attended(self, x: ss.Tensor, masks: tuple[Any, Any]) -> ss.Tensor:
        found = self.self_attn(x, x, x, attn_mask=masks[0], key_padding_mask=masks[1],
                               need_weights=False)
        return self.dropout1(found[0])


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to a memory, and a feed-forward network; see the encoder's."""

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: Activation = "relu", layer_norm_eps: float = 1e-5,
                 batch_first: bool = False, norm_first: bool = False, bias: bool = True,
                 device: Any = None, dtype: ss.dtype | None = None) -> None:
        super().__init__()
        place: Any = {"device": device, "dtype": dtype}
        attention: Any = {"batch_first": batch_first, "bias": bias, **place}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, **attention)
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, **attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias, **place)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **place)
        self.norm_first = norm_first
        for number in (1, 2, 3):
            setattr(self, f"norm{number}", LayerNorm(d_model, layer_norm_eps, bias=bias, **place))
        for number in (1, 2, 3):
            setattr(self, f"dropout{number}", Dropout(dropout))
        self.activation = activation_of(activation)

    def forward(self, tgt: ss.Tensor, memory: ss.Tensor, tgt_mask: ss.Tensor | None = None,
                memory_mask: ss.Tensor | None = None,
                tgt_key_padding_mask: ss.Tensor | None = None,
                memory_key_padding_mask: ss.Tensor | None = None, tgt_is_causal: bool = False,
                memory_is_causal: bool = False) -> ss.Tensor:
        """Return the output, of the target's shape."""
        check_hints((tgt_mask, tgt_is_causal), (memory_mask, memory_is_causal))
        own, far = (tgt_mask, tgt_key_padding_mask), (memory_mask, memory_key_padding_mask)
        norms = (self.norm1, self.norm2, self.norm3)
        if self.norm_first:
            x = tgt + self._attended(norms[0](tgt), own)
            x = x + self._remembered(norms[1](x), memory, far)
            return x + self._fed_forward(norms[2](x), self.dropout3)
        x = norms[0](tgt + self._attended(tgt, own))
        x = norms[1](x + self._remembered(x, memory, far))
        return norms[2](x + self._fed_forward(x, self.dropout3))

    def _attended(self, x: ss.Tensor, masks: tuple[Any, Any]) -> ss.Tensor:
        found = self.self_attn(x, x, x, attn_mask=masks[0], key_padding_mask=masks[1],
                               need_weights=False)
        return self.dropout1(found[0])

    def _remembered(self, x: ss.Tensor, memory: ss.Tensor, masks: tuple[Any, Any]) -> ss.Tensor:
        found = self.multihead_attn(x, memory, memory, attn_mask=masks[0],
                                    key_padding_mask=masks[1], need_weights=False)
        return self.dropout2(found[0])


def check_hints(*hints: tuple[ss.Tensor | None, bool | None]) -> None:
    """Raise RuntimeError where a mask is said to be causal and there is none."""
    if any(causal and mask is None for mask, causal in hints):
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.\n  mend: pass the "
                           "mask too, Transformer.generate_square_subsequent_mask(length)")


class TransformerEncoder(Module):
    """Copies of an encoder layer, one after another, and a norm if given."""

    def __init__(self, encoder_layer: Module, num_layers: int, norm: Module | None = None,
                 enable_nested_tensor: bool = True, mask_check: bool = True) -> None:
        super().__init__()
        self.layers = clones(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(self, src: ss.Tensor, mask: ss.Tensor | None = None,
                src_key_padding_mask: ss.Tensor | None = None,
                is_causal: bool | None = None) -> ss.Tensor:
        """Return the output, of the input's shape."""
        check_hints((mask, is_causal))
        output = src
        for layer in self.layers:
            output = layer(output, src_mask=mask, src_key_padding_mask=src_key_padding_mask)
        return output if self.norm is None else self.norm(output)


class TransformerDecoder(Module):
    """Copies of a decoder layer, one after another, and a norm if given."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = clones(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(self, tgt: ss.Tensor, memory: ss.Tensor, tgt_mask: ss.Tensor | None = None,
                memory_mask: ss.Tensor | None = None,
                tgt_key_padding_mask: ss.Tensor | None = None,
                memory_key_padding_mask: ss.Tensor | None = None,
                tgt_is_causal: bool | None = None, memory_is_causal: bool = False) -> ss.Tensor:
        """Return the output, of the target's shape."""
        check_hints((tgt_mask, tgt_is_causal), (memory_mask, memory_is_causal))
        output = tgt
        for layer in self.layers:
            output = layer(output, memory, tgt_mask, memory_mask, tgt_key_padding_mask,
                           memory_key_padding_mask)
        return output if self.norm is None else self.norm(output)


class Transformer(Module):
    """An encoder and a decoder that attends to its output; weights drawn by Xavier's rule."""

    def __init__(self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6,
                 num_decoder_layers: int = 6, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: Activation = "relu", custom_encoder: Any = None,
                 custom_decoder: Any = None, layer_norm_eps: float = 1e-5,
                 batch_first: bool = False, norm_first: bool = False, bias: bool = True,
                 device: Any = None, dtype: ss.dtype | None = None) -> None:
        super().__init__()
        place: Any = {"device": device, "dtype": dtype}
        facts: tuple[Any, ...] = (d_model, nhead, dim_feedforward, dropout, activation,
                                  layer_norm_eps, batch_first, norm_first, bias)
        self.encoder = custom_encoder
        if custom_encoder is None:
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias, **place)
            self.encoder = TransformerEncoder(TransformerEncoderLayer(*facts, **place),
                                              num_encoder_layers, norm)
        self.decoder = custom_decoder
        if custom_decoder is None:
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias, **place)
            self.decoder = TransformerDecoder(TransformerDecoderLayer(*facts, **place),
                                              num_decoder_layers, norm)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def forward(self, src: ss.Tensor, tgt: ss.Tensor, src_mask: ss.Tensor | None = None,
                tgt_mask: ss.Tensor | None = None, memory_mask: ss.Tensor | None = None,
                src_key_padding_mask: ss.Tensor | None = None,
                tgt_key_padding_mask: ss.Tensor | None = None,
                memory_key_padding_mask: ss.Tensor | None = None,
                src_is_causal: bool | None = None, tgt_is_causal: bool | None = None,
                memory_is_causal: bool = False) -> ss.Tensor:
        """Return the decoder's output, of the target's shape."""
        check_hints((src_mask, src_is_causal), (tgt_mask, tgt_is_causal),
                    (memory_mask, memory_is_causal))
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        batch = 0 if self.batch_first else 1
        if src.ndim == 3 and src.shape[batch] != tgt.shape[batch]:
            raise RuntimeError("the batch number of src and tgt must be equal")
        memory = self.encoder(src, src_mask, src_key_padding_mask)
        return self.decoder(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask,
                            memory_key_padding_mask)

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None,
                                        dtype: ss.dtype | None = None) -> ss.Tensor:
        """A mask to add that hides later places: minus infinity above the diagonal."""
        whole = ss.full((sz, sz), float("-inf"), device=device,
                        dtype=dtype or ss.get_default_dtype())
        return ss.triu(whole, 1)
