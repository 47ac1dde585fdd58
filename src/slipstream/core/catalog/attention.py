# cython: annotation_typing=False
"""Attention: by products and a softmax, or, on CUDA devices, in one kernel that keeps no scores."""

from __future__ import annotations

import functools
import inspect
import math
from typing import Any, NamedTuple

import numpy as np

from slipstream.core.catalog import reasons
from slipstream.core.catalog.products import turned
from slipstream.core.catalog.table import define, ops
from slipstream.core.dispatch.entry import COMPOUND, LIBRARY, Entry
from slipstream.core.engine.tape import tape
from slipstream.core.kernels.cpu.philox import philox
from slipstream.core.native.drivers import drivers
from slipstream.core.shapes.broadcast import broadcast_shapes
from slipstream.core.shapes.strides import dense_strides
from slipstream.core.vocab import dtypes, optional
from slipstream.core.vocab.generators import Generator, defaults
from slipstream.core.vocab.modes import modes

# What the kernel takes: elements of a head's vector, queries or keys of a head and of all heads.
WIDEST, LONGEST, MOST_ROWS = 256, 1 << 30, 1 << 34


@functools.lru_cache(maxsize=1024)
def _check(query: Any, key: Any, value: Any, attn_mask: Any, is_causal: bool) -> None:
    """Raise where a call with operands of these specs is wrong."""
    names = ("query", "key", "value")
    for name, each in zip(names, (query, key, value), strict=True):
        if each.ndim < 2:
            raise RuntimeError("scaled_dot_product_attention: query, key, and value to be at least "
                               f"2 dimensional, but got {name}: {each!r}")
        if each.dtype is not query.dtype:
            raise RuntimeError("Expected query, key, and value to have the same dtype, but got "
                               + ", ".join(t.dtype.name for t in (query, key, value)))
    for size, first, second in ((-1, "query", "key"), (-2, "key", "value")):
        sizes = [{"query": query, "key": key, "value": value}[name].shape[size]
                 for name in (first, second)]
        if sizes[0] != sizes[1]:
            what = "last size" if size == -1 else "second last size"
            raise RuntimeError(f"scaled_dot_product_attention: the {what} of {first}, {sizes[0]}, "
                               f"and of {second}, {sizes[1]}, have to agree")
    if attn_mask is None:
        return
    if is_causal:
        raise RuntimeError("scaled_dot_product_attention: Explicit attn_mask should not be set "
                           "when is_causal=True")
    if attn_mask.dtype not in (dtypes.bool_, query.dtype, dtypes.float32):
        raise RuntimeError("Expected attn_mask dtype to be bool or float or to match query dtype, "
                           f"but got {attn_mask.dtype.name}")


# -- by products and a softmax -------------------------------------------------------------------
def _repeated(query: Any, tensor: Any) -> Any:
    """A head of keys or values for each head of queries."""
    heads, own = query.spec.shape[-3], tensor.spec.shape[-3]
    if own and heads % own:
        raise RuntimeError(f"scaled_dot_product_attention: {own} heads of keys and values do not "
                           f"divide the {heads} of queries: {query.spec!r} and {tensor.spec!r}")
    times = heads // max(own, 1)
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


def _weights(query: Any, key: Any, attn_mask: Any, is_causal: bool, scale: float) -> Any:
    """softmax(query @ key^T * scale + mask); zeros in a row without any key."""
    scores = ops.matmul.call((query * scale, turned(key)), None)
    scores = _masked(scores, attn_mask, is_causal)
    if attn_mask is None or not attn_mask.spec.numel:
        return ops.softmax.call((scores, -1), None)
    dead = _without_keys(attn_mask)
    weights = ops.softmax.call((ops.where.call((dead, 0, scores), None), -1), None)
    return ops.where.call((dead, 0, weights), None)


def _without_keys(attn_mask: Any) -> Any:
    """Rows of a mask in which no key takes part."""
    if attn_mask.spec.dtype is dtypes.bool_:
        return ops.logical_not.call((ops.any.call((attn_mask, -1, True), None),), None)
    return ops.detach.call((attn_mask,), None).amax(-1, keepdim=True) == -math.inf


def _widened(*tensors: Any) -> list[Any]:
    """Scores and weights of narrow floats are not rounded in between."""
    own = tensors[0].spec.dtype
    if own.kind == "float" and own.itemsize < 4:
        return [ops.to_dtype.call((each, dtypes.float32), None) for each in tensors]
    return list(tensors)


def _by_products(query: Any, key: Any, value: Any, attn_mask: Any, *facts: Any) -> Any:
    dropout_p, is_causal, scale, enable_gqa = facts
    own = query.spec.dtype
    query, key, value = _widened(query, key, value)
    if enable_gqa:
        key, value = _repeated(query, key), _repeated(query, value)
    weights = _weights(query, key, attn_mask, is_causal, scale)
    if dropout_p:
        weights = ops.dropout.call((weights, dropout_p, True), None)
    return ops.cast.call((ops.matmul.call((weights, value), None), own), None)


# -- in one kernel -------------------------------------------------------------------------------
def _lead(query: Any, key: Any, value: Any, enable_gqa: bool) -> Any:
    """Batch dims, heads of queries and heads of keys; None where the kernel has no such form."""
    q, k, v = query.shape, key.shape, value.shape
    if q[-1] != k[-1] or k[-2] != v[-2] or max(q[-1], v[-1]) > WIDEST:
        return None
    heads = [shape[-3] if len(shape) > 2 else 1 for shape in (q, k, v)]
    try:
        batch = broadcast_shapes(*[shape[:-3] for shape in (q, k, v)])
        if not enable_gqa:
            (head,) = broadcast_shapes(*[(each,) for each in heads])
            return batch, head, head
    except (RuntimeError, ValueError):
        return None
    if heads[1] != heads[2] or not heads[1] or heads[0] % heads[1]:
        return None
    return batch, heads[0], heads[1]


def _mask_fits(attn_mask: Any, shape: tuple[int, ...]) -> bool:
    """Whether a mask is broadcast to the scores, and asks for no gradient."""
    if modes.current().grad_enabled and tape.requires_grad(attn_mask):
        return False
    try:
        return broadcast_shapes(attn_mask.spec.shape, shape) == shape
    except (RuntimeError, ValueError):
        return False


class Form(NamedTuple):
    """How the kernel takes a call: dims before rows of queries and of keys, and of weights.

    ``ready``: the operands are laid out so; ``width`` is the wider of a head's vectors.
    """

    queries: tuple[int, ...]
    keys: tuple[int, ...]
    weights: tuple[int, ...]
    ready: bool
    width: int


@functools.lru_cache(maxsize=1024)
def _form(query: Any, key: Any, value: Any, enable_gqa: bool) -> Form | None:
    """The kernel's form for operands of these specs; None where it has none."""
    specs = (query, key, value)
    if query.device.type != "cuda" or any(each.device is not query.device for each in specs):
        return None
    if query.dtype.kind != "float" or any(each.numel == 0 for each in specs):
        return None
    lead = _lead(query, key, value, enable_gqa)
    if lead is None or max(query.shape[-2], key.shape[-2]) >= LONGEST:
        return None
    queries, keys = (*lead[0], lead[1]), (*lead[0], lead[2])
    weights = (*queries, query.shape[-2], key.shape[-2])
    if max(math.prod(weights[:-1]), math.prod((*keys, key.shape[-2]))) >= MOST_ROWS:
        return None
    ready = all(each.strides[-1] == 1 and each.shape[:-2] == dims
                for each, dims in zip(specs, (queries, keys, keys), strict=True))
    return Form(queries, keys, weights, ready, max(query.shape[-1], value.shape[-1]))


def _form_if_tiled(query: Any, key: Any, value: Any, attn_mask: Any, enable_gqa: bool) -> Any:
    """What `_form` finds where the kernel takes the mask and the card has the kernel; else None."""
    spec = query.spec
    form = _form(spec, key.spec, value.spec, enable_gqa)
    if form is None:
        return None
    if attn_mask is not None and (attn_mask.spec.device is not spec.device
                                  or not attn_mask.spec.numel
                                  or not _mask_fits(attn_mask, form.weights)):
        return None
    kernels = optional.load("core.kernels.cuda.attention")
    return form if kernels.supports(spec.device, spec.dtype, form.width) else None


def _lined(tensor: Any, lead: tuple[int, ...]) -> Any:
    """With these leading dims, and elements of a row next to each other."""
    shape = (*lead, *tensor.spec.shape[-2:])
    if tensor.spec.shape != shape:
        tensor = ops.expand.call((tensor, shape), None)
    return tensor if tensor.spec.strides[-1] == 1 else ops.contiguous.call((tensor,), None)


def _stream(query: Any, shape: tuple[int, ...], dropout_p: float) -> tuple[int, int]:
    """Seed and first counter of the numbers that bernoulli_mask of the weights would draw."""
    draws = philox.draws(math.prod(shape), dtypes.bool_, "bernoulli")
    return defaults.of(query.spec.device).draw(draws)


def _tiled(query: Any, key: Any, value: Any, attn_mask: Any, *facts: Any) -> Any:
    dropout_p, is_causal, scale, form = facts
    flat = False
    if not form.ready:
        flat = all(each.spec.ndim == 2 for each in (query, key, value))
        query = _lined(query, form.queries)
        key, value = _lined(key, form.keys), _lined(value, form.keys)
    seed, base = _stream(query, form.weights, dropout_p) if dropout_p else (0, 0)
    out = ops.attention.call((query, key, value, attn_mask, seed, base, dropout_p, is_causal,
                              scale), None)[0]
    return ops.squeeze.call((out, 0), None) if flat else out


@functools.lru_cache(maxsize=1024)
def _plain_scale(driver: int, specs: tuple[Any, Any, Any], scale: float | None,
                 enable_gqa: bool) -> float | None:
    """The scale of a call that the kernel takes as it is, on the card of a driver; else None.

    ``driver``: its number, as what is kept here must hold no driver.
    """
    _check(*specs, None, False)
    form = _form(*specs, enable_gqa)
    if form is None or not form.ready:
        return None
    kernels = optional.load("core.kernels.cuda.attention")
    if not kernels.supports(specs[0].device, specs[0].dtype, form.width):
        return None
    return 1.0 / math.sqrt(specs[0].shape[-1]) if scale is None else scale


def _attention(query: Any, key: Any, value: Any, attn_mask: Any, *facts: Any) -> Any:
    dropout_p, is_causal, scale, enable_gqa = facts
    if attn_mask is None and dropout_p == 0 and (scale is None or type(scale) is float):
        known = _plain_scale(drivers.number, (query.spec, key.spec, value.spec), scale,
                             enable_gqa)
        if known is not None:
            return ops.attention.call((query, key, value, None, 0, 0, 0.0, bool(is_causal), known),
                                      None)[0]
    _check(query.spec, key.spec, value.spec, None if attn_mask is None else attn_mask.spec,
           is_causal)
    if not 0.0 <= dropout_p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {dropout_p}")
    if scale is None:
        scale = 1.0 / math.sqrt(query.spec.shape[-1]) if query.spec.shape[-1] else 1.0
    form = _form_if_tiled(query, key, value, attn_mask, enable_gqa)
    if form is None:
        return _by_products(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    return _tiled(query, key, value, attn_mask, float(dropout_p), bool(is_causal), float(scale),
                  form)


def _like(spec: Any, width: int) -> Any:
    """A result in the order of an operand's dims, elements of a row next to each other.

    Heads that were split from rows are so joined again without a copy.
    """
    shape = (*spec.shape[:-1], width)
    if 0 in spec.strides:
        return spec.dtype, shape
    order = sorted(range(spec.ndim - 2, -1, -1), key=lambda dim: spec.strides[dim])
    return spec.dtype, shape, dense_strides(shape, (spec.ndim - 1, *order))


def _shape(call: Any) -> Any:
    query, value = call.spec("query"), call.spec("value")
    sums = dtypes.float64 if query.dtype.itemsize == 8 else dtypes.float32
    return [_like(query, value.shape[-1]), (sums, (*query.shape[:-1], 2))]


def _slopes_shape(call: Any) -> Any:
    specs = [call.spec(name) for name in ("query", "key", "value")]
    return [_like(spec, spec.shape[-1]) for spec in specs]


# What the gradients are made of, in the order in which `_upstream` takes it.
_KNOWN = ("g", "query", "key", "value", "out", "out_1", "mask", "seed", "base", "dropout_p",
          "is_causal", "scale")


def _upstream(g: Any, *known: Any) -> Any:
    """The gradients by query, key and value."""
    if modes.current().grad_enabled:
        query, key, value, _, _, *rest = known
        return _slopes(g, query, key, value, *rest)
    if g.spec.strides[-1] != 1:
        g = ops.contiguous.call((g,), None)
    return ops.attention_slopes.call((g, *known), None)


_upstream.__signature__ = inspect.Signature([  # type: ignore[attr-defined]
    inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in _KNOWN])


def _slopes(g: Any, query: Any, key: Any, value: Any, mask: Any, *facts: Any) -> Any:
    """The same by operations that can be differentiated again.

    With W the weights: dV = W^T g, dS = W (dW - sum(W dW)), dQ = dS K scale, dK = dS^T Q scale.
    """
    seed, base, dropout_p, is_causal, scale = facts
    specs = [each.spec for each in (query, key, value)]
    g, query, key, value = _widened(g, query, key, value)
    key, value = _repeated(query, key), _repeated(query, value)
    weights = used = _weights(query, key, mask, is_causal, scale)
    slope = ops.matmul.call((g, turned(value)), None)
    if dropout_p:
        generator = Generator(weights.spec.device).manual_seed(seed)
        generator.set_offset(base)
        kept = ops.bernoulli_mask.call((weights, 1.0 - dropout_p, generator), None)
        factor = 1.0 / (1.0 - dropout_p) if dropout_p < 1.0 else 0.0
        used = ops.masked_scale.call((weights, kept, factor), None)
        slope = ops.masked_scale.call((slope, kept, factor), None)
    slope = weights * (slope - (weights * slope).sum(-1, keepdim=True)) * scale
    results = (ops.matmul.call((slope, key), None), ops.matmul.call((turned(slope), query), None),
               ops.matmul.call((turned(used), g), None))
    return tuple([_gathered(each, spec) for each, spec in zip(results, specs, strict=True)])


def _gathered(slope: Any, spec: Any) -> Any:
    """A gradient summed over the heads that share one, in the dtype of its operand."""
    if slope.spec.shape != spec.shape:
        *batch, heads, rows, width = spec.shape
        slope = ops.reshape.call((slope, (*batch, heads, -1, rows, width)), None).sum(-3)
    return ops.cast.call((slope, spec.dtype), None)


_FACTS = "Number seed, Number base, float dropout_p, bool is_causal, float scale"
define(Entry(
    f"attention(Tensor query, Tensor key, Tensor value, Tensor? mask, {_FACTS})", LIBRARY,
    shape=_shape, upstream=_upstream,
    gradient={"query": lambda g: g[0], "key": lambda g: g[1], "value": lambda g: g[2]},
    path="", method=False, dtypes=("float",),
    doc="softmax(query @ key^T * scale + mask) @ value of heads (..., H, L, E), (..., H', S, E) "
        "and (..., H', S, E'), and what its gradient needs of each row: its largest score and the "
        "logarithm of the sum of weights under it, (..., H, L, 2).",
), cuda="attention.forward")
define(Entry(
    "attention_slopes(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor out, "
    f"Tensor rows, Tensor? mask, {_FACTS})", LIBRARY, shape=_slopes_shape, path="",
    method=False, dtypes=("float",),
    doc="The gradients of attention by query, key and value; nothing is added up by several "
        "blocks, so that they are the same every time.",
), cuda="attention.backward")


# -- what users call -----------------------------------------------------------------------------
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
        "which keys take part, another is added; scale is 1 / sqrt(width) by default. A query "
        "without any key gives zeros. On CUDA one kernel forward and two backward, which keep no "
        "scores, for heads up to 256 wide and masks that want no gradient; weights of float16 and "
        "bfloat16 are rounded to them there before they are multiplied with values.",
    autocast="lower",
))
