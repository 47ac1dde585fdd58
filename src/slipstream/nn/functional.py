"""The functions behind the modules.

Where PyTorch gives a function of this namespace its own signature, it is defined here over the op
of the same name; every other name is the op itself.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import slipstream as ss
from slipstream.core.api.install import functions
from slipstream.nn.functions import (
    arguments,
    attention,
    convolution,
    in_place,
    losses,
    others,
    padding,
    pooling,
    sequences,
)

adaptive_max_pool1d = pooling.adaptive_max_pool1d
adaptive_max_pool2d = pooling.adaptive_max_pool2d
adaptive_max_pool3d = pooling.adaptive_max_pool3d
avg_pool1d = pooling.avg_pool1d
avg_pool2d = pooling.avg_pool2d
avg_pool3d = pooling.avg_pool3d
lp_pool1d = pooling.lp_pool1d
lp_pool2d = pooling.lp_pool2d
lp_pool3d = pooling.lp_pool3d
max_pool1d = pooling.max_pool1d
max_pool1d_with_indices = pooling.max_pool1d_with_indices
max_pool2d_with_indices = pooling.max_pool2d_with_indices
max_pool3d = pooling.max_pool3d
max_pool3d_with_indices = pooling.max_pool3d_with_indices
conv2d = ss.conv2d
conv3d = convolution.conv3d
conv_transpose1d = convolution.conv_transpose1d
conv_transpose2d = convolution.conv_transpose2d
conv_transpose3d = convolution.conv_transpose3d
fold = convolution.fold
unfold = convolution.unfold
channel_shuffle = padding.channel_shuffle
interpolate = padding.interpolate
pad = padding.pad
pad_images = padding.pad_images
pixel_shuffle = padding.pixel_shuffle
pixel_unshuffle = padding.pixel_unshuffle
upsample = padding.upsample
cosine_embedding_loss = losses.cosine_embedding_loss
ctc_loss = sequences.ctc_loss
gaussian_nll_loss = losses.gaussian_nll_loss
hinge_embedding_loss = losses.hinge_embedding_loss
huber_loss = losses.huber_loss
kl_div = losses.kl_div
margin_ranking_loss = losses.margin_ranking_loss
multi_margin_loss = losses.multi_margin_loss
multilabel_margin_loss = losses.multilabel_margin_loss
multilabel_soft_margin_loss = losses.multilabel_soft_margin_loss
poisson_nll_loss = losses.poisson_nll_loss
smooth_l1_loss = losses.smooth_l1_loss
soft_margin_loss = losses.soft_margin_loss
triplet_margin_loss = losses.triplet_margin_loss
triplet_margin_with_distance_loss = losses.triplet_margin_with_distance_loss
alpha_dropout = others.alpha_dropout
bilinear = others.bilinear
cosine_similarity = others.cosine_similarity
dropout1d = others.dropout1d
dropout2d = others.dropout2d
dropout3d = others.dropout3d
embedding_bag = others.embedding_bag
feature_alpha_dropout = others.feature_alpha_dropout
gumbel_softmax = others.gumbel_softmax
local_response_norm = others.local_response_norm
normalize = others.normalize
pairwise_distance = others.pairwise_distance
rrelu = others.rrelu
softmin = others.softmin
celu_ = in_place.celu_
elu_ = in_place.elu_
hardtanh_ = in_place.hardtanh_
leaky_relu_ = in_place.leaky_relu_
rrelu_ = in_place.rrelu_
selu_ = in_place.selu_
threshold_ = in_place.threshold_
multi_head_attention_forward = attention.multi_head_attention_forward
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


@arguments.checked
def relu_(input: ss.Tensor) -> ss.Tensor:
    """max(input, 0), written into ``input``."""
    return input.relu_()


def relu(input: ss.Tensor, inplace: bool = False) -> ss.Tensor:
    """max(input, 0), written into ``input`` if ``inplace``."""
    return relu_(input) if inplace else ss.relu(input)


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
    if not isinstance(input, ss.Tensor):
        raise TypeError("softmax(): argument 'input' must be Tensor, not "
                        f"{type(input).__name__}")
    warnings.warn("softmax without dim takes the dim from the rank; name it: dim=...", UserWarning,
                  stacklevel=3)
    return 0 if input.ndim in (0, 1, 3) else 1


@arguments.checked
def embedding(input: ss.Tensor, weight: ss.Tensor, padding_idx: int | None = None,
              max_norm: float | None = None, norm_type: float = 2.0,
              scale_grad_by_freq: bool = False, sparse: bool = False) -> ss.Tensor:
    """The rows of ``weight`` (count, width) at the indices ``input``, of shape (*, width).

    Row ``padding_idx`` gets no gradient.  ``max_norm`` first scales the rows used, in place, to
    that norm if they exceed it.  Raises IndexError for an index out of range, AssertionError for
    such a ``padding_idx``, RuntimeError for a weight that is no matrix.
    """
    if weight.ndim != 2:
        raise RuntimeError("'weight' must be 2-D: rows of one width, but it is "
                           f"{weight.dtype.name}{list(weight.shape)}")
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
        norm = ss.norm(rows, norm_type, -1, True)
        weight[used] = ss.where(norm > max_norm, rows * (max_norm / (norm + 1e-7)), rows)


if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """What checkers see of the ops, which are filled in below."""

# Every other function of this namespace is the op itself, as its entry says.
for _name, _function in functions["nn.functional"].items():
    globals().setdefault(_name, _function)

for _name, _function in list(globals().items()):
    if getattr(_function, "__module__", "").startswith("slipstream.nn.functions."):
        globals()[_name] = arguments.checked(_function)
