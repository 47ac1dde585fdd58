"""Distances, embeddings in bags, dropout of whole channels, and other functions of modules."""

from __future__ import annotations

from typing import Any

import slipstream as ss
from slipstream.core.api.autocasting import autocast_as
from slipstream.nn.functions.widening import in_float32

# selu's value at minus infinity.
SELU_LOW = -1.0507009873554805 * 1.6732632423543772


# -- distances and norms -------------------------------------------------------------------------
@autocast_as(cuda="float32")
def cosine_similarity(x1: ss.Tensor, x2: ss.Tensor, dim: int = 1, eps: float = 1e-8) -> ss.Tensor:
    """The cosine of the angle between x1 and x2 along a dim, both at least ``eps`` long."""
    if not (x1.is_floating_point() or x2.is_floating_point()):
        raise RuntimeError("expected common dtype to be floating point, yet common dtype is "
                           f"{ss.promote_types(x1.dtype, x2.dtype).name}")
    first, second = ss.broadcast_tensors(x1, x2)
    sizes = [_bounded(ss.norm(each, 2, dim, True), eps) for each in (first, second)]
    return ((first / sizes[0]) * (second / sizes[1])).sum(dim)


def _bounded(size: ss.Tensor, eps: float) -> ss.Tensor:
    """At least eps in value; the slope goes through."""
    return size + (size.detach().clamp(min=eps) - size.detach())


def pairwise_distance(x1: ss.Tensor, x2: ss.Tensor, p: float = 2.0, eps: float = 1e-6,
                      keepdim: bool = False) -> ss.Tensor:
    """The norm of x1 - x2 + eps over the last dim."""
    return ss.norm(x1 - x2 + eps, p, -1, keepdim)


def normalize(input: ss.Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12,
              out: ss.Tensor | None = None) -> ss.Tensor:
    """The input divided by its norm along a dim, which counts as at least ``eps``."""
    size = ss.norm(input, p, dim, True).clamp(min=eps)
    return ss.div(input, size.expand_as(input), out=out)


def local_response_norm(input: ss.Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75,
                        k: float = 1.0) -> ss.Tensor:
    """input / (k + alpha * the average of squares over ``size`` channels) ** beta."""
    if input.ndim < 3:
        raise ValueError("Expected 3D or higher dimensionality input (got "
                         f"{input.ndim} dimensions)")
    if not input.numel():
        return input
    squares = (input * input).reshape(input.shape[0], input.shape[1], -1)
    padded = ss.nn.functional.pad(squares, (0, 0, size // 2, (size - 1) // 2))
    channels = input.shape[1]
    total = padded[:, 0:channels]
    for place in range(1, size):
        total = total + padded[:, place:place + channels]
    return input / (total.reshape(input.shape) * (alpha / size) + k) ** beta


@autocast_as(cuda="widest", cpu="asleep")
def bilinear(input1: ss.Tensor, input2: ss.Tensor, weight: ss.Tensor,
             bias: ss.Tensor | None = None) -> ss.Tensor:
    """sum over i and j of input1[i] weight[o, i, j] input2[j], plus bias[o]."""
    if input1.shape[:-1] != input2.shape[:-1]:
        raise RuntimeError("bilinear(): input dimensions do not match: got "
                           f"{list(input1.shape)} and {list(input2.shape)}")
    for name, given, place in (("input1", input1, 1), ("input2", input2, 2)):
        if given.shape[-1] != weight.shape[place]:
            raise RuntimeError(f"bilinear(): {name} size does not match weight size: got "
                               f"{given.shape[-1]} but expected {weight.shape[place]}")
    out = ss.einsum("...i,oij,...j->...o", input1, weight, input2)
    return out if bias is None else out + bias


# -- embeddings ----------------------------------------------------------------------------------
@autocast_as("asleep")
def embedding_bag(input: ss.Tensor, weight: ss.Tensor, offsets: ss.Tensor | None = None,
                  max_norm: float | None = None, norm_type: float = 2,
                  scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
                  per_sample_weights: ss.Tensor | None = None, include_last_offset: bool = False,
                  padding_idx: int | None = None) -> ss.Tensor:
    """The sum, mean or max of the rows of each bag of indices.

    ``input``: (N, L), a bag a row, or a vector whose bags begin at ``offsets``.  Rows of the
    padding count nowhere.
    """
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError("embedding_bag: per_sample_weights was not None. "
                                  "per_sample_weights is only supported for mode='sum'")
    _check_bags(input, weight, offsets, include_last_offset)
    if per_sample_weights is not None and per_sample_weights.shape != input.shape:
        raise ValueError(f"embedding_bag: per_sample_weights ({list(per_sample_weights.shape)}) "
                         f"must have the shape of the input ({list(input.shape)})")
    flat, bags, count = _bags(input, offsets, include_last_offset)
    if max_norm is not None:
        ss.nn.functional.limit_rows(weight, flat, max_norm, norm_type)
    rows = ss.embedding(weight, flat, -1 if padding_idx is None else padding_idx % weight.shape[0],
                        scale_grad_by_freq)
    kept = ss.ones_like(flat, dtype=ss.bool)
    if include_last_offset and offsets is not None:
        # The last offset ends the last bag; what follows is in none.
        kept = ss.arange(flat.numel(), device=flat.device) < offsets[-1]
    if padding_idx is not None:
        kept = kept & (flat != padding_idx % weight.shape[0])
    if per_sample_weights is not None and per_sample_weights.dtype is not weight.dtype:
        raise RuntimeError(f"expected per_sample_weights of {weight.dtype}, the weight's type, but "
                           f"got {per_sample_weights.dtype}")
    return _bagged(rows, per_sample_weights, (bags, count, kept), mode)


@in_float32
def _bagged(rows: ss.Tensor, shares: ss.Tensor | None, bags: tuple[ss.Tensor, int, ss.Tensor],
            mode: str) -> ss.Tensor:
    """The sum, mean or max of the rows of each bag, of those that are kept."""
    places, count, truths = bags
    kept = truths.to(rows.dtype)
    if shares is not None:
        rows = rows * shares.reshape(-1, 1)
    if mode == "max":
        return _largest(rows, places, count, kept)
    total = rows.new_zeros(count, rows.shape[1]).index_add(0, places, rows * kept.unsqueeze(1))
    if mode == "sum":
        return total
    each = kept.new_zeros(count).index_add(0, places, kept).clamp(min=1)
    return total / each.unsqueeze(1)


def _check_bags(input: ss.Tensor, weight: ss.Tensor, offsets: ss.Tensor | None,
                include_last: bool) -> None:
    """Raise ValueError for ranks that don't fit, RuntimeError for bags that begin elsewhere."""
    if weight.ndim != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.ndim}")
    if input.ndim not in (1, 2):
        raise ValueError("input has to be 1D or 2D Tensor, but got Tensor of dimension "
                         f"{input.ndim}")
    if input.ndim == 2:
        if offsets is not None:
            raise ValueError("if input is 2D, then offsets has to be None, as input is treated is "
                             "a mini-batch of fixed length sequences.")
        return
    if offsets is None or offsets.ndim != 1:
        raise ValueError("offsets has to be a 1D Tensor, but got "
                         f"{'None' if offsets is None else list(offsets.shape)}")
    if include_last and not offsets.numel():
        raise RuntimeError("include_last_offset: number of offset should be at least 1")
    # Another device is not waited for.
    if offsets.device.type != "cpu" or not offsets.numel():
        return
    if int(offsets[0]) != 0:
        raise RuntimeError("offsets[0] has to be 0, i.e., the first sequence in the mini-batch has "
                           f"to start from position 0. However, got {int(offsets[0])}")
    if int(offsets[-1]) > input.numel():
        raise RuntimeError(f"offsets[-1] can not be greater than input's length {input.numel()} "
                           f"but got offsets[-1] of {int(offsets[-1])}")


def _bags(input: ss.Tensor, offsets: ss.Tensor | None,
          include_last: bool) -> tuple[ss.Tensor, ss.Tensor, int]:
    """Indices one after another, the bag of each, and how many bags there are."""
    if offsets is None:
        rows = ss.arange(input.shape[0], device=input.device)
        return (input.reshape(-1), rows.repeat_interleave(input.shape[1]), input.shape[0])
    starts = offsets[:-1] if include_last else offsets
    places = ss.arange(input.numel(), device=input.device)
    bags = ss.searchsorted(starts.to(ss.int64), places, right=True) - 1
    return input, bags, starts.numel()


def _largest(rows: ss.Tensor, bags: ss.Tensor, count: int, kept: ss.Tensor) -> ss.Tensor:
    found = []
    for bag in range(count):
        own = rows[(bags == bag) & (kept > 0)]
        # An empty bag's zeros keep their history.
        found.append(own.max(0).values if own.shape[0] else rows[:0].sum(0))
    return ss.stack(found)


# -- dropout of channels -------------------------------------------------------------------------
def check_chance(p: float) -> None:
    """ValueError unless p is a probability."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def _delivered(input: ss.Tensor, output: ss.Tensor, inplace: bool) -> ss.Tensor:
    return input.copy_(output) if inplace else output


def _whole_channels(input: ss.Tensor, p: float, training: bool, inplace: bool,
                    lead: int) -> ss.Tensor:
    check_chance(p)
    if not training or not p:
        return input
    shape = tuple(input.shape[:lead]) + (1,) * (input.ndim - lead)
    mask = ss.dropout(ss.ones(shape, dtype=input.dtype, device=input.device), p, True)
    return _delivered(input, input * mask, inplace)


def dropout1d(input: ss.Tensor, p: float = 0.5, training: bool = True,
              inplace: bool = False) -> ss.Tensor:
    """Whole channels of (N, C, L) or (C, L) zeroed with probability p, the others scaled."""
    if input.ndim not in (2, 3):
        raise RuntimeError(f"dropout1d: Expected 2D or 3D input, but received a {input.ndim}D "
                           "input.")
    return _whole_channels(input, p, training, inplace, input.ndim - 1)


def dropout2d(input: ss.Tensor, p: float = 0.5, training: bool = True,
              inplace: bool = False) -> ss.Tensor:
    """Whole channels of (N, C, H, W) zeroed with probability p, the others scaled."""
    return _whole_channels(input, p, training, inplace, min(2, input.ndim))


def dropout3d(input: ss.Tensor, p: float = 0.5, training: bool = True,
              inplace: bool = False) -> ss.Tensor:
    """Whole channels of (N, C, D, H, W) or (C, D, H, W) zeroed with probability p, the others
    scaled.
    """
    return _whole_channels(input, p, training, inplace,
                           1 if input.ndim == 4 else min(2, input.ndim))


def _alpha(input: ss.Tensor, p: float, training: bool, shape: tuple[int, ...]) -> ss.Tensor:
    """Dropped elements get selu's lowest value; mean and variance stay."""
    check_chance(p)
    if not training or not p:
        return input
    if p == 1:
        return input * 0
    kept = ss.rand(shape, device=input.device) >= p
    scale = ((1 - p) * (1 + p * SELU_LOW ** 2)) ** -0.5
    dropped = ss.where(kept, input, ss.full_like(input, SELU_LOW))
    return dropped * scale - scale * p * SELU_LOW


def alpha_dropout(input: ss.Tensor, p: float = 0.5, training: bool = False,
                  inplace: bool = False) -> ss.Tensor:
    """Dropout that keeps the mean and variance of selu's outputs."""
    return _delivered(input, _alpha(input, p, training, tuple(input.shape)), inplace and training)


def feature_alpha_dropout(input: ss.Tensor, p: float = 0.5, training: bool = False,
                          inplace: bool = False) -> ss.Tensor:
    """alpha_dropout of whole channels."""
    shape = tuple(input.shape[:2]) + (1,) * (input.ndim - 2)
    return _delivered(input, _alpha(input, p, training, shape), inplace and training)


# -- others --------------------------------------------------------------------------------------
def softmin(input: ss.Tensor, dim: int | None = None, _stacklevel: int = 3,
            dtype: ss.dtype | None = None) -> ss.Tensor:
    """softmax(-input)."""
    return ss.nn.functional.softmax(-input, dim, dtype=dtype)


def gumbel_softmax(logits: ss.Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10,
                   dim: int = -1) -> ss.Tensor:
    """A sample of softmax with Gumbel noise; ``hard``: one-hot, with the soft sample's slope."""
    noise = -ss.empty_like(logits).exponential_().log()
    soft = ss.softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    best = soft.max(dim, keepdim=True).indices
    return ss.zeros_like(soft).scatter(dim, best, 1.0) - soft.detach() + soft


def rrelu(input: ss.Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3,
          training: bool = False, inplace: bool = False) -> ss.Tensor:
    """leaky_relu whose slope is drawn for each element in training, else the middle one."""
    if training:
        slope = ss.empty_like(input).uniform_(lower, upper)
        output = ss.where(input >= 0, input, input * slope.detach())
        return _delivered(input, output, inplace)
    return ss.nn.functional.leaky_relu(input, (lower + upper) / 2, inplace)

