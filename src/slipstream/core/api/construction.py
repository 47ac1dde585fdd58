"""PyTorch's constructor of tensors, by sizes or by values."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from slipstream.core.api import interop
from slipstream.core.api.size import Size
from slipstream.core.catalog.table import ops
from slipstream.core.vocab.devices import CPU, Device
from slipstream.core.vocab.records import TensorBase


def construct(cls: Any, data: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """``Tensor()``, ``Tensor(2, 3)``, ``Tensor(size)``, ``Tensor(values)``, ``Tensor(tensor)``.

    Sizes give memory that is not filled, values a copy of them, both of the default dtype on the
    CPU; a tensor gives an alias with its history.  Raises TypeError for anything else.
    """
    given = dict(options)
    device = Device(given.pop("device", None) or CPU)
    for name in ("data", "size"):
        if name in given and not data:
            data = (given.pop(name) if name == "data" else Size(given.pop(name)),)
    if given or device is not CPU:
        raise TypeError("new() takes sizes, a sequence of values or a tensor, on the CPU, but got "
                        f"{', '.join(options)}")
    return interop.as_class(_made(data), cls)


def _made(data: tuple[Any, ...]) -> Any:
    first = data[0] if len(data) == 1 else None
    if isinstance(first, TensorBase):
        return ops.view.call((first, first.spec.shape), None)
    if isinstance(first, (list, tuple, range, np.ndarray)) and not isinstance(first, Size):
        return interop.tensor(first, dtype=interop.default_dtype(), device=CPU)
    sizes = first if isinstance(first, Size) else data or (0,)
    return ops.empty.call((tuple([_size(each) for each in sizes]),), {"device": CPU})


def _size(value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"new(): data must be a sequence (got {type(value).__name__})")
    return operator.index(value)
