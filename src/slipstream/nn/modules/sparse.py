"""Embeddings."""

from __future__ import annotations

from typing import Any

import slipstream as ss
from slipstream.nn import init
from slipstream.nn.functional import embedding
from slipstream.nn.modules.module import Module
from slipstream.nn.parameter import Parameter


class Embedding(Module):
    """A table of vectors: integer indices (*) to (*, embedding_dim).

    Row ``padding_idx`` starts at zero and gets no gradient.  ``max_norm`` scales the rows used
    down to that norm, in place.  ``scale_grad_by_freq`` divides gradients by how often an index
    occurs.
    """

    weight: Parameter

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
                 max_norm: float | None = None, norm_type: float = 2.0,
                 scale_grad_by_freq: bool = False, sparse: bool = False,
                 _weight: ss.Tensor | None = None, _freeze: bool = False, device: Any = None,
                 dtype: ss.dtype | None = None) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = checked_padding(padding_idx, num_embeddings)
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        shape = (num_embeddings, embedding_dim)
        if _weight is None:
            empty = ss.empty(shape, device=device, dtype=dtype)
            self.weight = Parameter(empty, requires_grad=not _freeze)
            self.reset_parameters()
        else:
            assert tuple(_weight.shape) == shape, (
                f"the weight has shape {tuple(_weight.shape)}, not {shape}")
            self.weight = Parameter(_weight, requires_grad=not _freeze)

    def reset_parameters(self) -> None:
        """Draw the table anew from the standard normal distribution."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with ss.no_grad():
                self.weight[self.padding_idx].fill_(0)

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the rows at ``input``; raises IndexError for an index out of range."""
        return embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type,
                         self.scale_grad_by_freq, self.sparse)

    @classmethod
    def from_pretrained(cls, embeddings: ss.Tensor, freeze: bool = True,
                        padding_idx: int | None = None, max_norm: float | None = None,
                        norm_type: float = 2.0, scale_grad_by_freq: bool = False,
                        sparse: bool = False) -> Embedding:
        """An embedding of this table (num_embeddings, embedding_dim), not trained if ``freeze``."""
        assert embeddings.ndim == 2, "Embeddings parameter is expected to be 2-dimensional"
        rows, columns = embeddings.shape
        return cls(rows, columns, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse,
                   _weight=embeddings, _freeze=freeze)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.padding_idx is not None:
            text += f", padding_idx={self.padding_idx}"
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type}"
        if self.scale_grad_by_freq:
            text += ", scale_grad_by_freq=True"
        if self.sparse:
            text += ", sparse=True"
        return text


def checked_padding(padding_idx: int | None, rows: int) -> int | None:
    """``padding_idx`` counted from the start; raises AssertionError if it is out of range."""
    if padding_idx is None:
        return None
    assert -rows <= padding_idx < rows, "Padding_idx must be within num_embeddings"
    return padding_idx % rows
