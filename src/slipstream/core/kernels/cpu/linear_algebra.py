"""Decompositions and solvers on the CPU: LAPACK by NumPy, over batches of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from slipstream.core.vocab.errors import LinAlgError


def lapack(function: Callable[..., Any]) -> Any:
    """The kernel of a function of matrices; ``plan.statics`` follow them.

    Types that LAPACK lacks are computed in float32.  LinAlgError where it fails.
    """
    def run(outputs: list[Any], inputs: list[Any], numbers: tuple[Any, ...], plan: Any) -> None:
        wide = [each if each.dtype.char in "fdFD" else each.astype(np.float32) for each in inputs]
        try:
            found = function(*wide, *plan.statics)
        except np.linalg.LinAlgError as failure:
            raise LinAlgError(f"linalg: {failure}\n  mend: look at the matrix's rank and "
                              "symmetry, or add a small multiple of the identity") from None
        for out, each in zip(outputs, found if isinstance(found, tuple) else (found,),
                             strict=True):
            out[...] = each

    return run


def eigh(matrix: np.ndarray, triangle: Any) -> tuple[np.ndarray, np.ndarray]:
    """Vectors, then values, of a symmetric matrix of which one triangle is read."""
    values, vectors = np.linalg.eigh(matrix, triangle)
    return vectors, values


def cholesky(matrix: np.ndarray, upper: bool) -> np.ndarray:
    """The factor L of L L^H, or its adjoint, from the triangle that it fills."""
    if not upper:
        return np.linalg.cholesky(matrix)
    lower = np.linalg.cholesky(np.conj(np.swapaxes(matrix, -1, -2)))
    return np.conj(np.swapaxes(lower, -1, -2))


def svd(matrix: np.ndarray, full: bool) -> tuple[np.ndarray, ...]:
    """U, S and V^H."""
    return tuple(np.linalg.svd(matrix, full_matrices=full))


def singular_values(matrix: np.ndarray) -> np.ndarray:
    """The singular values, falling."""
    return np.linalg.svd(matrix, compute_uv=False)


def qr(matrix: np.ndarray, mode: Any) -> tuple[np.ndarray, ...]:
    """Q and R."""
    return tuple(np.linalg.qr(matrix, mode))


def slogdet(matrix: np.ndarray) -> tuple[np.ndarray, ...]:
    """The sign of the determinant, and the logarithm of its size."""
    return tuple(np.linalg.slogdet(matrix))
