"""Shows why L-BFGS in float32 may end elsewhere: PyTorch's sine, cosine and sums, not its steps.

The function of the check is minimised twice on both: with sine, cosine, sums and dot products of
float64, rounded once, every place that is looked at agrees bit for bit.  Runs in the peer's
environment, one line a search.  Usage: PYTHONPATH=src python conformance/last_bits.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import slipstream

SIZES = (3, 7)
STEPS = 5
SEARCHES: tuple[dict[str, Any], ...] = (
    {"lr": 0.5}, {"lr": 1, "line_search_fn": "strong_wolfe", "history_size": 5})


def exactly(module: Any, values: Any) -> Any:
    """float64 values as a tensor of float32."""
    return module.from_numpy(np.array(values, np.float32))


def wide(tensor: Any) -> np.ndarray:
    """A tensor's values in float64."""
    return tensor.detach().numpy().astype(np.float64)


def closure_of(module: Any, optimizer: Any, parameters: list[Any],
               seen: list[np.ndarray]) -> Callable[[], Any]:
    """Loss and gradients of sum x^2 / 2 + sin x, each rounded once from float64."""
    def closure() -> Any:
        optimizer.zero_grad()
        values = [wide(each) for each in parameters]
        for parameter, x in zip(parameters, values, strict=True):
            parameter.grad = exactly(module, x + np.cos(x))
        seen.append(np.concatenate(values))
        return exactly(module, sum((x * x / 2 + np.sin(x)).sum() for x in values))
    return closure


def places(module: Any, options: dict[str, Any]) -> list[np.ndarray]:
    """Every place that the search looks at."""
    random = np.random.RandomState(1)
    parameters = [module.from_numpy(random.standard_normal(size).astype(np.float32))
                  .requires_grad_(True) for size in SIZES]
    optimizer = module.optim.LBFGS(parameters, **options)
    seen: list[np.ndarray] = []
    for _ in range(STEPS):
        optimizer.step(closure_of(module, optimizer, parameters, seen))
    return seen


def main() -> int:
    """Compare; the status is the number of searches whose places differ."""
    for module in (torch, slipstream):
        module.Tensor.dot = (lambda a, b, module=module:  # type: ignore[method-assign]
                             exactly(module, (wide(a) * wide(b)).sum()))
    wrong = 0
    for options in SEARCHES:
        expected, found = places(torch, options), places(slipstream, options)
        same = len(expected) == len(found) and all(map(np.array_equal, expected, found))
        name = options.get("line_search_fn", "fixed steps")
        print(f"L-BFGS {name:13}", f"ok, {len(found)} places" if same else "differs in its steps")
        wrong += not same
    return wrong


if __name__ == "__main__":
    sys.exit(main())
