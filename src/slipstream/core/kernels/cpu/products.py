"""Matrix products on the CPU: NumPy's BLAS, or NumPy's loops for integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.core.native.blas import blas
from slipstream.core.vocab import dtypes

NARROW = (dtypes.float16.numpy, dtypes.bfloat16.numpy)


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32) if x.dtype in NARROW else x


# Products of fewer multiplications than this run on one thread.
SMALL = 1 << 23


def _set_threads(a: np.ndarray, out: np.ndarray) -> None:
    """By size alone, so that the same product is always cut the same way."""
    blas.use_threads(1 if out.size * a.shape[-1] < SMALL else blas.most)


def matmul(outputs: list[Any], inputs: list[Any], numbers: tuple[Any, ...], plan: Any) -> None:
    """out = a @ b, with NumPy's rules for ranks and broadcasting."""
    a, b = inputs
    out = outputs[0]
    _set_threads(a, out)
    if a.dtype in NARROW or not out.ndim:
        out[...] = np.matmul(_wide(a), _wide(b))
    else:
        np.matmul(a, b, out=out)


def addmm(outputs: list[Any], inputs: list[Any], numbers: tuple[Any, ...], plan: Any) -> None:
    """out = beta * c + alpha * (a @ b); c is not read where beta is 0."""
    c, a, b = inputs
    beta, alpha = numbers
    _set_threads(a, outputs[0])
    product = np.matmul(_wide(a), _wide(b))
    if alpha != 1:
        product = product * np.asarray(alpha, product.dtype)
    if beta == 0:
        outputs[0][...] = product
    elif beta == 1:
        np.add(product, _wide(c), out=product)
        outputs[0][...] = product
    else:
        outputs[0][...] = product + _wide(c) * np.asarray(beta, product.dtype)


def addmm_activated(outputs: list[Any], inputs: list[Any], numbers: tuple[Any, ...],
                    plan: Any) -> None:
    """The activation of c + a @ b, rounded once; what it is taken of goes before it if wanted."""
    c, a, b = inputs
    (use_gelu,) = plan.statics
    _set_threads(a, outputs[0])
    total = np.matmul(_wide(a), _wide(b)) + _wide(c)
    if len(outputs) == 2:
        outputs[0][...] = total
    if use_gelu:
        inner = 0.7978845608028654 * (total + 0.044715 * total * total * total)
        outputs[-1][...] = 0.5 * total * (1 + np.tanh(inner))
    else:
        outputs[-1][...] = np.maximum(total, 0)


def linear(outputs: list[Any], inputs: list[Any], numbers: tuple[Any, ...], plan: Any) -> None:
    """out = a @ weight^T (+ bias)."""
    a, weight = inputs[:2]
    out = outputs[0]
    _set_threads(a, out)
    if a.dtype in NARROW or not out.ndim:
        product = np.matmul(_wide(a), _wide(weight).T)
        out[...] = product + _wide(inputs[2]) if len(inputs) == 3 else product
        return
    np.matmul(a, weight.T, out=out)
    if len(inputs) == 3:
        np.add(out, inputs[2], out=out)
