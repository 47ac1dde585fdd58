"""The functions behind the modules.

Where PyTorch gives a function of this namespace its own signature, it is defined here over the op
of the same name; every other name is the op itself.
"""

from __future__ import annotations

import warnings
from typing import Any

import slipstream as ss
from slipstream.core.api.install import functions

conv2d = ss.conv2d
cross_entropy = ss.cross_entropy
dropout = ss.dropout
gelu = ss.gelu
layer_norm = ss.layer_norm
linear = ss.linear
max_pool2d = ss.max_pool2d
mse_loss = ss.mse_loss
nll_loss = ss.nll_loss
one_hot = ss.one_hot
sigmoid = ss.sigmoid
tanh = ss.tanh


def relu(input: ss.Tensor, inplace: bool = False) -> ss.Tensor:
    """max(input, 0), written into ``input`` if ``inplace``."""
    return input.relu_() if inplace else ss.relu(input)


def relu_(input: ss.Tensor) -> ss.Tensor:
    """max(input, 0), written into ``input``."""
    return input.relu_()


def softmax(input: ss.Tensor, dim: int | None = None, _stacklevel: int = 3,
            dtype: ss.dtype | None = None) -> ss.Tensor:
    """exp(input) / sum(exp(input), dim); computed in ``dtype`` if given.

    Without ``dim``: 0 for tensors of 0, 1 or 3 dims, else 1.
    """
    return ss.softmax(input, implicit_dim(input) if dim is None else dim, dtype=dtype)


def log_softmax(input: ss.Tensor, dim: int | None = None, _stacklevel: int = 3,
                dtype: ss.dtype | None = None) -> ss.Tensor:
    """log(softmax(input, dim)), without the loss of precision; ``dim`` as for softmax."""
    return ss.log_softmax(input, implicit_dim(input) if dim is None else dim, dtype=dtype)


def implicit_dim(input: ss.Tensor) -> int:
    """The dim of the classes where the caller names none, which deserves a warning."""
    warnings.warn("softmax without dim takes the dim from the rank; name it: dim=...", UserWarning,
                  stacklevel=3)
    return 0 if input.ndim in (0, 1, 3) else 1


def embedding(input: ss.Tensor, weight: ss.Tensor, padding_idx: int | None = None,
              max_norm: float | None = None, norm_type: float = 2.0,
              scale_grad_by_freq: bool = False, sparse: bool = False) -> ss.Tensor:
    """The rows of ``weight`` (count, width) at the indices ``input``, of shape (*, width).

    Row ``padding_idx`` gets no gradient.  ``max_norm`` first scales the rows used, in place, to
    that norm if they exceed it.  Raises IndexError for an index out of range, AssertionError for
    such a ``padding_idx``.
    """
    rows = weight.shape[0]
    if padding_idx is None:
        padding_idx = -1
    else:
        assert -rows <= padding_idx < rows, "Padding_idx must be within num_embeddings"
        padding_idx %= rows
    if max_norm is not None:
        limit_rows(weight, input, max_norm, norm_type)
    return ss.embedding(weight, input, padding_idx, scale_grad_by_freq, sparse)


def limit_rows(weight: ss.Tensor, indices: ss.Tensor, max_norm: float, norm_type: float) -> None:
    """Scale the rows of ``weight`` that ``indices`` name to norm ``max_norm`` where they exceed it.

    An index that occurs twice writes the same row twice.
    """
    with ss.no_grad():
        used = indices.reshape(-1)
        rows = weight[used]
        magnitude = ss.where(rows < 0, -rows, rows)
        norm = (magnitude ** norm_type).sum(-1, keepdim=True) ** (1.0 / norm_type)
        weight[used] = ss.where(norm > max_norm, rows * (max_norm / (norm + 1e-7)), rows)


def pad_indices(size: int, before: int, after: int, mode: str) -> list[int]:
    """For each place of a padded dim, the place whose value it shows.

    Raises RuntimeError if the padding is wider than the mode can fill.
    """
    widest = {"reflect": size - 1, "circular": size}.get(mode, max(before, after))
    if max(before, after) > widest or (size == 0 and before + after):
        raise RuntimeError(f"{mode} padding ({before}, {after}) is too wide for a dim of "
                           f"size {size}")
    places = range(-before, size + after)
    if mode == "circular":
        return [place % size for place in places]
    if mode == "reflect":
        return [size - 1 - abs(size - 1 - abs(place)) for place in places]
    return [min(max(place, 0), size - 1) for place in places]


def pad_images(input: ss.Tensor, padding: Any, mode: str) -> ss.Tensor:
    """Pad the last two dims by (left, right, top, bottom) with values of the input itself.

    ``mode``: reflect, replicate or circular.
    """
    left, right, top, bottom = padding
    height, width = input.shape[-2:]
    rows = ss.tensor(pad_indices(height, top, bottom, mode), device=input.device)
    columns = ss.tensor(pad_indices(width, left, right, mode), device=input.device)
    return input[..., rows.reshape(-1, 1), columns]


# Every other function of this namespace is the op itself, as its entry says.
for _name, _function in functions["nn.functional"].items():
    globals().setdefault(_name, _function)
