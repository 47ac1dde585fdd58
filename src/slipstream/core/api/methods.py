"""Methods and functions made from ops: each binds its arguments and calls the door."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from slipstream.core.catalog.table import ops
from slipstream.core.dispatch.op import Op
from slipstream.core.vocab.autocast import MODE
from slipstream.core.vocab.modes import ModeTable, modes
from slipstream.core.vocab.records import Slots, TensorBase, slots

__all__ = ["ModeTable", "Slots", "contiguous", "delete_item", "function_of",
           "inplace_function_of", "inplace_of", "inplace_operator_of", "inverted", "method_of",
           "operator_of", "positive", "reflected_of"]


def contiguous(self: Any, *, memory_format: Any = None) -> Any:
    """The tensor itself if it lies in the memory format, else a copy that does."""
    if self is None:
        raise TypeError("expected a Tensor, but got None")
    tensor: TensorBase = self
    if memory_format is None and tensor.spec.contiguous and modes.current().special < MODE:
        return self
    return ops.contiguous.call((self,), {"memory_format": memory_format})


def positive(self: Any) -> Any:
    """The tensor itself, as ``+tensor`` gives it; RuntimeError for bools."""
    if not isinstance(self, TensorBase):
        raise TypeError(f"positive(): argument 'input' must be Tensor, not {type(self).__name__}")
    if self.spec.dtype.category == 0:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return self


def inverted(self: Any) -> Any:
    """``~tensor``: its bits, or the truth of bools, turned around; TypeError for other dtypes."""
    if self.spec.dtype.category > 1:
        raise TypeError("~ (operator.invert) is only implemented on integer and Boolean-type "
                        f"tensors: {self.spec!r}")
    return ops.bitwise_not.call((self,), None)


def delete_item(self: Any, _: Any) -> None:
    """``del tensor[index]``, which there is not."""
    raise TypeError("Tensor does not support deleting items")


def method_of(op: Op) -> Callable[..., Any]:
    """The method ``tensor.op(...)``, with ``out=`` where the op takes it."""
    bound: Op = op

    # The tensor is the first of the arguments: a tuple with it is what the door takes.
    def method(*args: Any, **kwargs: Any) -> Any:
        if kwargs and "out" in kwargs:
            return bound(*args, **kwargs)
        return bound.call(args, kwargs)

    return _named(method, op, op.name)


def inplace_of(op: Op) -> Callable[..., Any]:
    """The method ``tensor.op_(...)``."""
    bound: Op = op

    def method(*args: Any, **kwargs: Any) -> Any:
        return bound.call_inplace(args, kwargs)

    return _named(method, op, op.name + "_")


def operator_of(op: Op) -> Callable[..., Any]:
    """The operator ``tensor op value``; NumPy computes it where the value is an array."""
    bound: Op = op

    def method(self: Any, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return NotImplemented
        return bound.call2(self, value)

    return _named(method, op, op.name)


def reflected_of(op: Op, ufunc: Any) -> Callable[..., Any]:
    """The operator ``value op tensor``, where value is no tensor; with an array by ``ufunc``."""
    bound: Op = op

    def method(self: Any, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return slots.with_array(ufunc, value, self)
        return bound.call((value, self), None)

    return _named(method, op, op.name)


def inplace_operator_of(op: Op) -> Callable[..., Any]:
    """The operator ``tensor op= value``; with an array it gives a new tensor, as PyTorch's does."""
    bound: Op = op

    def method(self: Any, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return NotImplemented
        return bound.call_inplace((self, value), None)

    return _named(method, op, op.name + "_")


def function_of(op: Op) -> Callable[..., Any]:
    """The function ``slipstream.op(...)``."""
    bound: Op = op

    def function(*args: Any, **kwargs: Any) -> Any:
        if kwargs and "out" in kwargs:
            return bound(*args, **kwargs)
        return bound.call(args, kwargs)

    return _named(function, op, op.name)


def inplace_function_of(op: Op) -> Callable[..., Any]:
    """The function ``slipstream.op_(tensor, ...)``."""
    bound: Op = op

    def function(*args: Any, **kwargs: Any) -> Any:
        return bound.call_inplace(args, kwargs)

    return _named(function, op, op.name + "_")


def _named(function: Callable[..., Any], op: Op, name: str) -> Callable[..., Any]:
    function.__name__ = name
    function.__qualname__ = name
    function.__doc__ = op.entry.doc
    return function
