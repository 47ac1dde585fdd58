"""Operators between a tensor and a NumPy array: NumPy computes them, and the result is a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.core.api import interop
from slipstream.core.vocab.records import TensorBase


def with_array(ufunc: Any, a: Any, b: Any) -> Any:
    """``ufunc(a, b)`` as a tensor, in the dtype that NumPy's promotion gives.

    Raises RuntimeError for a tensor that requires grad and TypeError for one that is not on the
    CPU: NumPy cannot compute with these.
    """
    return wrapped(ufunc(*[interop.to_numpy(each) if isinstance(each, TensorBase) else each
                           for each in (a, b)]))


def wrapped(array: Any) -> Any:
    """NumPy's result as a tensor."""
    return interop.from_numpy(np.asarray(array))


def array_wrap(self: Any, array: np.ndarray, context: Any = None,
               return_scalar: bool = False) -> Any:
    """What a NumPy function that was called with a tensor makes of its result: a tensor."""
    return wrapped(array)
