"""Running an update rule: a formula from old values to new ones, written in place.

A rule is a pure function of one namespace that holds tensors and numbers under their names.  It
uses operators and methods that tensors and symbols of formulas share, never branches on a value,
and returns the new values of its targets in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import slipstream as ss

Formula = Callable[[Any], tuple[Any, ...]]


def apply_update(formula: Formula, targets: Mapping[str, ss.Tensor],
                 inputs: Mapping[str, ss.Tensor], numbers: Mapping[str, float]) -> None:
    """Write what ``formula`` makes of all tensors and numbers into ``targets``, in place.

    All new values are computed before the first is written, so each may depend on every old one.
    """
    values = formula(SimpleNamespace(**targets, **inputs, **numbers))
    for target, value in zip(targets.values(), values, strict=True):
        target.copy_(value)
