"""Shows why the checks of fused optimizers differ: PyTorch's results contradict PyTorch's.

A transposed parameter gets a gradient whose rows lie one after the other.  Fused, PyTorch's CPU
kernels pair the elements as they lie in memory; unfused they pair them by their places, as
slipstream does in both forms.  A gradient that lies as the parameter does gives all of them the
same step.  Runs in the peer's environment, one line an optimizer.
Usage: PYTHONPATH=src python conformance/fused.py
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch

import slipstream

OPTIMIZERS = ("SGD", "Adam", "AdamW", "Adagrad")


def stepped(module: Any, name: str, order: Any = "C", **options: bool) -> np.ndarray:
    """A transposed parameter of zeros after one step along a gradient of both signs."""
    parameter = module.from_numpy(np.zeros((2, 3), np.float32, order="F")).requires_grad_(True)
    gradient = np.array([[1, -2, 3], [-4, 5, -6]], np.float32, order=order)
    parameter.grad = module.from_numpy(gradient)
    getattr(module.optim, name)([parameter], lr=1.0, **options).step()
    return parameter.detach().numpy()


def main() -> int:
    """Compare; the status is the number of optimizers for which the reason does not hold."""
    wrong = 0
    for name in OPTIMIZERS:
        plain, fused = stepped(torch, name), stepped(torch, name, fused=True)
        ours = stepped(slipstream, name, fused=True)
        holds = np.allclose(ours, plain, atol=1e-6) and not np.allclose(fused, plain, atol=0.1)
        # The strides alone make the difference.
        holds &= np.allclose(stepped(torch, name, "F", fused=True), plain, atol=1e-6)
        print(f"fused {name:10}", "ok" if holds else "differs: is the exception still needed?")
        wrong += not holds
    return wrong


if __name__ == "__main__":
    sys.exit(main())
