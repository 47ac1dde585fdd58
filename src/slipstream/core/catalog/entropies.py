# cython: annotation_typing=False
"""Cross entropy of class indices in two kernels forward and one backward, where a device has it."""

from __future__ import annotations

from typing import Any

from slipstream.core.catalog.table import define, ops
from slipstream.core.dispatch.entry import COMPOSITE, LIBRARY, Entry
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.modes import modes

# Fewer classes are quickly done by log_softmax and nll_loss; of more rows than this a block of the
# gradient does not count the targets for itself.
LEAST_CLASSES = 256
MOST_ROWS = 65536


def fits(scores: Any, target: Any, weight: Any, smoothing: float) -> bool:
    """Whether the kernels of this file take a call; all others go by log_softmax and nll_loss."""
    spec, given = scores.spec, target.spec
    if spec.device.type != "cuda" or given.device != spec.device or weight is not None:
        return False
    if smoothing or spec.ndim != 2 or given.ndim != 1 or given.dtype is not dtypes.int64:
        return False
    rows, classes = spec.shape
    if spec.dtype.kind != "float" or given.shape[0] != rows or not 0 < rows <= MOST_ROWS:
        return False
    return (LEAST_CLASSES <= classes < 2**31 and spec.strides[1] == 1
            and spec.strides[0] >= classes and given.strides[0] == 1)


def cross_entropy(scores: Any, target: Any, ignore_index: int, reduction: str) -> Any:
    """The loss of a call that `fits`."""
    logsum = ops.class_logsum.call((ops.detach.call((scores,), None),), None)
    return ops.softmax_loss.call((scores, target, logsum, ignore_index, reduction), None)


def _logsum(self: Any) -> Any:
    """max + log sum e^(x - max) of every row."""
    largest = self.amax(1, keepdim=True)
    return (self - largest).exp().sum(1, keepdim=True).log() + largest


def _logsum_dtypes(call: Any) -> Any:
    own = call.spec("self").dtype
    return own, dtypes.float64 if own.itemsize == 8 else dtypes.float32


def _slope(g: Any, self: Any, target: Any, logsum: Any, ignore_index: int, reduction: str) -> Any:
    if not modes.current().grad_enabled:
        return ops.softmax_loss_grad.call((g, self, target, logsum, ignore_index, reduction), None)
    # To be differentiated again: the gradient by log_softmax, through log_softmax.
    part = ops.class_loss_grad.call(
        (g, target, None, self.spec.shape, ignore_index, reduction, 0.0), None)
    return part - ops.softmax.call((self, 1), None) * part.sum(1, keepdim=True)


def _loss_shape(call: Any) -> Any:
    spec = call.spec("self")
    return [(spec.dtype, spec.shape[:1] if call["reduction"] == "none" else ())]


define(Entry(
    "class_logsum(Tensor self)", COMPOSITE, formula=_logsum, promotion=_logsum_dtypes, path="",
    method=False, dtypes=("float",),
    doc="The logarithm of the sum of e^score of every row (N, C) as (N, 1), in float32 at least.",
))
define(Entry(
    "softmax_loss(Tensor self, Tensor target, Tensor logsum, int ignore_index, str reduction)",
    LIBRARY, shape=_loss_shape, gradient={"self": _slope}, path="", method=False,
    dtypes=("float",),
    doc="Cross entropy of scores (N, C) and classes (N), from the rows' class_logsum. IndexError "
        "for a target that is no class.",
), cuda="entropies.forward")
define(Entry(
    "softmax_loss_grad(Tensor grad, Tensor self, Tensor target, Tensor logsum, int ignore_index, "
    "str reduction)", LIBRARY,
    shape=lambda call: [(call.spec("self").dtype, call.spec("self").shape)], path="",
    method=False, dtypes=("float",), doc="The gradient of softmax_loss by its scores.",
), cuda="entropies.backward")
