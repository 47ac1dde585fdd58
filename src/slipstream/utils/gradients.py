"""What modules and optimizers both do with gradients."""

from __future__ import annotations

from collections.abc import Iterable

import slipstream as ss
from slipstream.core.api.updates import drop_gradients


def clear_gradients(parameters: Iterable[ss.Tensor], set_to_none: bool) -> None:
    """Drop the parameters' gradients, or fill them with zero and cut them from their history."""
    if set_to_none:
        drop_gradients(list(parameters))
        return
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    for gradient in gradients:
        if gradient.grad_fn is not None:
            gradient.detach_()
        else:
            gradient.requires_grad_(False)
    if gradients:
        ss._foreach_zero_(gradients)
