"""The constructor of the class Tensor as PyTorch has it since before `slipstream.tensor`."""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.core.api import interop
from slipstream.core.catalog.table import ops
from slipstream.core.vocab.devices import CPU, Device
from slipstream.core.vocab.records import TensorBase


def construct(cls: Any, data: tuple[Any, ...], device: Any) -> Any:
    """A tensor on the CPU, as an instance of ``cls``.

    ``data``: nothing (no elements), sizes (the elements are not set), a sequence or an array of
    numbers, all three in the default dtype, or a tensor, whose memory and history it shares.
    Raises TypeError for other data, RuntimeError for another device.
    """
    if device is not None and Device(device) is not CPU:
        raise RuntimeError(f"{cls.__name__}(): the constructor of the class makes tensors on the "
                           f"cpu only, not on {Device(device)}\n"
                           f"  mend: slipstream.tensor(data, device='{Device(device)}')")
    single = data[0] if len(data) == 1 else None
    if isinstance(single, TensorBase):
        made = ops.view.call((single, single.spec.shape), None)
    elif single is not None and is_data(single):
        made = interop.tensor(single, dtype=interop.default_dtype(), device=CPU)
    else:
        made = ops.empty.call((sizes_of(cls, data),), {"device": CPU})
    return interop.as_class(made, cls)


def is_data(value: Any) -> bool:
    """Whether a single argument holds elements; a size, or a shape of a tensor, does not."""
    known = isinstance(value, (list, tuple, range, np.ndarray))
    return known and not hasattr(value, "numel") and getattr(value, "ndim", 1) > 0


def sizes_of(cls: Any, data: tuple[Any, ...]) -> tuple[int, ...]:
    """The arguments as sizes; without any, a single size of 0."""
    if len(data) == 1 and isinstance(data[0], tuple):
        data = data[0]
    for value in data:
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise TypeError(f"{cls.__name__}(): the arguments have to be sizes, or one sequence of "
                            f"numbers, or a tensor, not {type(value).__name__}\n"
                            "  mend: slipstream.tensor(data) makes a tensor of any data")
    return tuple(int(value) for value in data) if data else (0,)
