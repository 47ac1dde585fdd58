"""What modules and optimizers both do with gradients."""

from __future__ import annotations

import slipstream as ss


def clear_gradient(parameter: ss.Tensor, set_to_none: bool) -> None:
    """Drop ``parameter``'s gradient, or fill it with zero and cut it from its history."""
    gradient = parameter.grad
    if gradient is None:
        return
    if set_to_none:
        parameter.grad = None
        return
    if gradient.grad_fn is not None:
        gradient.detach_()
    else:
        gradient.requires_grad_(False)
    gradient.zero_()
