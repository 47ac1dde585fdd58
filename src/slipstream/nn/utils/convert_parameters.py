"""Parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

import slipstream as ss


def parameters_to_vector(parameters: Iterable[ss.Tensor]) -> ss.Tensor:
    """All elements of ``parameters``, which are on one device, in one tensor of 1 dim."""
    return ss.cat([parameter.reshape(-1) for parameter in parameters])


def vector_to_parameters(vec: ss.Tensor, parameters: Iterable[ss.Tensor]) -> None:
    """Make slices of ``vec`` the data of ``parameters``, in order.

    Raises TypeError if ``vec`` is no tensor, RuntimeError if it is too short.
    """
    if not isinstance(vec, ss.Tensor):
        raise TypeError(f"expected a tensor, but got: {type(vec).__name__}")
    start = 0
    for parameter in parameters:
        stop = start + parameter.numel()
        parameter.data = vec[start:stop].view(parameter.shape).detach()
        start = stop
