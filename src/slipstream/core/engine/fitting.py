"""Gradients in the shape and dtype, and on the device, of what they belong to."""

from __future__ import annotations

from typing import Any

import cython

from slipstream.core.engine.views import Operations, operations
from slipstream.core.vocab.records import Node, Spec, TensorBase

__all__ = ["Node", "Operations", "Spec", "TensorBase", "fit"]


def fit(grad: Any, spec: Spec, node: Node, place: int = 0) -> TensorBase:
    """A gradient in the shape and dtype of its input: what broadcasting repeated is summed.

    Raises RuntimeError for one of another shape, or on another device; a number is moved.
    """
    if grad.spec.shape != spec.shape:
        if not _reduces_to(grad.spec.shape, spec.shape):
            raise RuntimeError(f"Function {node.name()} returned an invalid gradient at index "
                               f"{place} - got {list(grad.spec.shape)} but expected shape "
                               f"compatible with {list(spec.shape)}")
        grad = _sum_to(grad, spec.shape)
    if grad.spec.dtype is not spec.dtype:
        if grad.spec.dtype.is_complex and not spec.dtype.is_complex:
            grad = grad.real
        grad = operations.cast(grad, spec.dtype) if grad.spec.dtype is not spec.dtype else grad
    if grad.spec.device is not spec.device:
        if spec.shape:
            raise RuntimeError(f"Function {node.name()} returned an invalid gradient at index "
                               f"{place} - expected device {spec.device} but got "
                               f"{grad.spec.device}: {grad.spec!r} for {spec!r}\n"
                               f"  mend: move it in the backward, with .to('{spec.device}')")
        grad = operations.move(grad, spec.device)
    return grad


# (shape, wanted shape): the leading dims to sum over; None where that is not all there is to do.
leading: dict[tuple[Any, Any], tuple[int, ...] | None] = {}
MOST = 1024


def _sum_to(grad: TensorBase, wanted: tuple[Any, ...]) -> Any:
    """Sum over the dims that broadcasting repeated; the common case is looked up."""
    shape = grad.spec.shape
    key = (shape, wanted)
    known: dict = leading
    dims: Any = known.get(key, known)
    if dims is known:
        if len(known) >= MOST:
            known.clear()
        extra = len(shape) - len(wanted)
        dims = tuple(range(extra)) if extra > 0 and shape[extra:] == wanted else None
        known[key] = dims
    if dims is None:
        return operations.sum_to(grad, wanted)
    return operations.sum.call((grad, dims), None)


def _reduces_to(shape: tuple[Any, ...], wanted: tuple[Any, ...]) -> cython.bint:
    """Whether broadcasting ``wanted`` can give ``shape``."""
    extra: cython.Py_ssize_t = len(shape) - len(wanted)
    place: cython.Py_ssize_t
    if extra < 0:
        return False
    for place in range(len(wanted)):
        if wanted[place] != shape[place + extra] and wanted[place] != 1:
            return False
    return True
