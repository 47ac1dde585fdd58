"""An old name: tensors record by themselves."""

from __future__ import annotations

import slipstream as ss


def Variable(data: ss.Tensor, requires_grad: bool = False) -> ss.Tensor:  # noqa: N802
    """The tensor itself, or outside the tape as a leaf that wants a gradient.

    TypeError for anything but a tensor.
    """
    if not isinstance(data, ss.Tensor):
        raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
    return data.detach().requires_grad_(True) if requires_grad else data
