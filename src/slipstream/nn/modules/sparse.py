"""Embeddings."""

from __future__ import annotations

from typing import Any

import slipstream as ss
from slipstream.nn import functional, init
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


class EmbeddingBag(Module):
    """The sum, mean or max of the rows of each bag of indices; see `functional.embedding_bag`."""

    weight: Parameter

    def __init__(self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None,
                 norm_type: float = 2.0, scale_grad_by_freq: bool = False, mode: str = "mean",
                 sparse: bool = False, _weight: ss.Tensor | None = None,
                 include_last_offset: bool = False, padding_idx: int | None = None,
                 device: Any = None, dtype: ss.dtype | None = None) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset
        self.padding_idx = checked_padding(padding_idx, num_embeddings)
        if _weight is None:
            self.weight = Parameter(ss.empty((num_embeddings, embedding_dim), device=device,
                                             dtype=dtype))
            self.reset_parameters()
        else:
            self.weight = Parameter(_weight)

    def reset_parameters(self) -> None:
        """Draw the table anew from the standard normal distribution."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with ss.no_grad():
                self.weight[self.padding_idx].fill_(0)

    def forward(self, input: ss.Tensor, offsets: ss.Tensor | None = None,
                per_sample_weights: ss.Tensor | None = None) -> ss.Tensor:
        """Return a row for each bag."""
        return functional.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq,
            self.mode, self.sparse, per_sample_weights, self.include_last_offset,
            self.padding_idx)

    @classmethod
    def from_pretrained(cls, embeddings: ss.Tensor, freeze: bool = True,
                        max_norm: float | None = None, norm_type: float = 2.0,
                        scale_grad_by_freq: bool = False, mode: str = "mean",
                        sparse: bool = False, include_last_offset: bool = False,
                        padding_idx: int | None = None) -> EmbeddingBag:
        """Bags over this table (num_embeddings, embedding_dim), not trained if ``freeze``."""
        assert embeddings.ndim == 2, "Embeddings parameter is expected to be 2-dimensional"
        rows, columns = embeddings.shape
        made = cls(rows, columns, max_norm, norm_type, scale_grad_by_freq, mode, sparse,
                   _weight=embeddings, include_last_offset=include_last_offset,
                   padding_idx=padding_idx)
        made.weight.requires_grad = not freeze
        return made

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return f"{self.num_embeddings}, {self.embedding_dim}, mode={self.mode!r}"


def checked_padding(padding_idx: int | None, rows: int) -> int | None:
    """``padding_idx`` counted from the start; raises AssertionError if it is out of range."""
    if padding_idx is None:
        return None
    assert -rows <= padding_idx < rows, "Padding_idx must be within num_embeddings"
    return padding_idx % rows
