"""Steps that a device leaves out by itself, where a loss scaler found what is not finite.

The host learns nothing of it, so that it waits for nothing: the number of the step is counted on
the device too, and what a formula needs of that number is computed there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import slipstream as ss
from slipstream.optim.optimizer import Group
from slipstream.optim.update import apply_update


@dataclass(frozen=True)
class Gated:
    """A rule whose targets keep their values where ``found`` is not 0."""

    rule: Callable[[Any], tuple[Any, ...]]
    names: tuple[str, ...]

    def __call__(self, at: Any) -> tuple[Any, ...]:
        """The new values, or the old ones."""
        old = [getattr(at, name) for name in ("parameter", *self.names)]
        return tuple(before.where(at.found > 0, after)
                     for before, after in zip(old, self.rule(at), strict=True))


def corrections(at: Any) -> tuple[Any, ...]:
    """lr / (1 - beta1^step) and sqrt(1 - beta2^step), as Adam's formula takes them.

    1 - beta^step is -expm1(step log beta), which loses no digits where beta is close to 1.
    """
    first = -(at.step * at.log_beta1).expm1()
    second = -(at.step * at.log_beta2).expm1()
    return at.lr / first, second ** 0.5


def corrected(counter: ss.Tensor, dtype: ss.dtype, numbers: dict[str, float]) -> dict[str, Any]:
    """What `corrections` gives for a counter on its device, as tensors of one number."""
    made = {name: ss.empty((), dtype=dtype, device=counter.device)
            for name in ("step_size", "root")}
    apply_update(corrections, made, {"step": counter}, numbers)
    return made


def gate_of(optimizer: Any, gates: Callable[[Group], bool]) -> ss.Tensor | None:
    """The scaler's finding, if it lies on the device of every parameter and can gate each group.

    None where there is none, and where looking at it costs no wait.
    """
    found: ss.Tensor | None = getattr(optimizer, "found_inf", None)
    if found is None or found.device.type != "cuda" or optimizer.defaults["differentiable"]:
        return None
    device = found.device
    for group in optimizer.param_groups:
        if not gates(group) or any(each.device != device or each.is_complex()
                                   for each in group["params"]):
            return None
    return found


def counters_to(device: Any, states: Any) -> None:
    """Move counters of steps to a device; none of it waits."""
    for state in states:
        counter = state.get("step")
        if isinstance(counter, ss.Tensor) and counter.device != device:
            state["step"] = counter.to(device, non_blocking=True)
