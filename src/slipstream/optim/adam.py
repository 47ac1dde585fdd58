"""Adam and AdamW."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import slipstream as ss
from slipstream.optim.elementwise import Elementwise, moments
from slipstream.optim.gating import corrected
from slipstream.optim.optimizer import (
    Group,
    check_options,
    kept,
    number_of,
    refuse_sought,
    require,
)
from slipstream.optim.parts import Part

Betas = tuple[float | ss.Tensor, float | ss.Tensor]

# How weight decay enters: not at all, through the gradient, or beside it.
NO_DECAY = "none"
IN_GRADIENT = "gradient"
DECOUPLED = "decoupled"


@dataclass(frozen=True)
class AdamRule:
    """The update as a formula of parameter, gradient, exp_avg, exp_avg_sq (and max_exp_avg_sq)."""

    maximize: bool
    amsgrad: bool
    decay: str

    def __call__(self, at: Any) -> tuple[Any, ...]:
        """The new parameter and averages."""
        parameter = at.parameter
        gradient = -at.gradient if self.maximize else at.gradient
        if self.decay == DECOUPLED:
            parameter = parameter * at.shrink
        elif self.decay == IN_GRADIENT:
            gradient = gradient + at.weight_decay * parameter
        first = at.beta1 * at.exp_avg + at.rate1 * gradient
        second = at.beta2 * at.exp_avg_sq + at.rate2 * (gradient * gradient)
        extra: tuple[Any, ...] = ()
        largest = second
        if self.amsgrad:
            # maximum(max_exp_avg_sq, second), in which a nan of second wins.
            smaller = second <= at.max_exp_avg_sq
            largest = at.max_exp_avg_sq.where(smaller, second)
            extra = (largest,)
        denominator = largest ** 0.5 / at.root + at.eps
        return parameter - at.step_size * first / denominator, first, second, *extra


class Adam(Elementwise):
    """parameter -= lr * m / (sqrt(v) + eps), with running averages m and v of the gradient.

    m averages the gradient (``betas[0]``), v its square (``betas[1]``), both corrected for their
    start at zero.  ``weight_decay`` adds weight_decay * parameter to the gradient, or with
    ``decoupled_weight_decay`` shrinks the parameter by lr * weight_decay first.  ``amsgrad`` uses
    the largest v so far.  Raises ValueError for options out of range.
    """

    later = (("amsgrad", False), ("maximize", False), ("foreach", None), ("capturable", False),
             ("differentiable", False), ("fused", None), ("decoupled_weight_decay", False))
    uniform = True
    counts_steps = True

    def __init__(self, params: Iterable[Any], lr: float | ss.Tensor = 1e-3,
                 betas: Betas = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0,
                 amsgrad: bool = False, *, foreach: bool | None = None, maximize: bool = False,
                 capturable: bool = False, differentiable: bool = False,
                 fused: bool | None = None, decoupled_weight_decay: bool = False) -> None:
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "amsgrad": amsgrad, "maximize": maximize, "foreach": foreach,
            "capturable": capturable, "differentiable": differentiable, "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        check_tensor_options(defaults)
        require(eps >= 0.0, "epsilon value", eps)
        for index, beta in enumerate(betas):
            require(0.0 <= number_of(beta) < 1.0, f"beta parameter at index {index}", beta)
        check_options(defaults)
        super().__init__(params, defaults)

    def _first_state(self, parameter: ss.Tensor, group: Group) -> dict[str, Any]:
        return moments(parameter, *names_of(group["amsgrad"]))

    def _plan(self, group: Group, state: dict[str, Any]) -> tuple[Any, tuple[str, ...], Any]:
        return plan_at(group, state["step"].item())

    def _plan_of(self, part: Part) -> tuple[Any, tuple[str, ...], Any]:
        # The counters were just read together.
        return self._plan(part.group, part.states[0]) if part.steps is None else plan_at(
            part.group, part.steps.latest)

    def _gates(self, group: Group) -> bool:
        return True

    def _plan_on_device(self, part: Part) -> tuple[Any, tuple[str, ...], Any, dict[str, Any]]:
        assert part.counters is not None
        group = part.group
        rule, names = rule_of(group["maximize"], group["amsgrad"], decay_of(group))
        lr = group["lr"]
        # A rate on the card is read there, too: a schedule may write it between replays.
        stays = isinstance(lr, ss.Tensor) and lr.device.type == "cuda"
        # Of step 1, whose corrections are left out: the device has its own.
        numbers = adam_numbers({**group, "lr": 1.0} if stays else group, 1.0)
        del numbers["step_size"], numbers["root"]
        wide = any(each.dtype is ss.float64 for each in part.params)
        shared = corrected(part.counters[0], ss.float64 if wide else ss.float32, {
            "lr": 1.0 if stays else number_of(lr), "log_beta1": log_of(numbers["beta1"]),
            "log_beta2": log_of(numbers["beta2"])})
        if stays:
            shared["step_size"] = shared["step_size"] * lr
            shared["shrink"] = 1 - lr * numbers.pop("weight_decay")
            del numbers["shrink"]
            numbers["weight_decay"] = group["weight_decay"]
        return rule, names, numbers, shared


class AdamW(Adam):
    """Adam whose weight decay shrinks the parameter and stays out of the averages."""

    def __init__(self, params: Iterable[Any], lr: float | ss.Tensor = 1e-3,
                 betas: Betas = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 1e-2,
                 amsgrad: bool = False, *, maximize: bool = False, foreach: bool | None = None,
                 capturable: bool = False, differentiable: bool = False,
                 fused: bool | None = None) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach,
                         maximize=maximize, capturable=capturable, differentiable=differentiable,
                         fused=fused, decoupled_weight_decay=True)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True


def check_tensor_options(defaults: dict[str, Any]) -> None:
    """Raise ValueError for options as tensors that PyTorch's lists do not take, as it does."""
    betas = defaults["betas"]
    if isinstance(betas[0], ss.Tensor) != isinstance(betas[1], ss.Tensor):
        raise ValueError("betas must be either both floats or both Tensors")
    for name, value in (("lr", defaults["lr"]), ("betas[0]", betas[0]), ("betas[1]", betas[1])):
        if not isinstance(value, ss.Tensor):
            continue
        if defaults["foreach"] and not defaults["capturable"]:
            raise ValueError(f"{name} as a Tensor is not supported for capturable=False and "
                             "foreach=True")
        if value.numel() != 1:
            raise ValueError(f"Tensor {name} must be 1-element")


def names_of(amsgrad: bool) -> tuple[str, ...]:
    """The tensors of a parameter's state that the update writes."""
    return ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if amsgrad else ()))


@functools.cache
def rule_of(maximize: bool, amsgrad: bool, decay: str) -> tuple[AdamRule, tuple[str, ...]]:
    """The rule for these options, and the names of what it writes: the same objects each step."""
    return AdamRule(maximize, amsgrad, decay), names_of(amsgrad)


def plan_at(group: Group, step: float) -> tuple[AdamRule, tuple[str, ...], dict[str, Any]]:
    """The formula, the names of what it writes, and the numbers of a group's step."""
    rule, names = rule_of(group["maximize"], group["amsgrad"], decay_of(group))
    return rule, names, adam_numbers(group, step)


def decay_of(group: Group) -> str:
    """How a group's weight decay enters."""
    if group["weight_decay"] == 0:
        return NO_DECAY
    return DECOUPLED if group["decoupled_weight_decay"] else IN_GRADIENT


def log_of(beta: float) -> float:
    """The logarithm; minus infinity for 0."""
    return math.log(beta) if beta else -math.inf


def adam_numbers(group: Group, step: float) -> dict[str, Any]:
    """The numbers of the formula at this step.

    All are computed in double precision here: in the formula 1 - beta2 would be rounded to the
    parameter's dtype, which for 0.999 in float32 is 5e-5 off.  An option that is a tensor is
    combined in its own dtype, but read as a number where the group is fused, as in PyTorch.
    """
    lr, decay = group["lr"], group["weight_decay"]
    lr = number_of(lr) if group.get("fused") else lr
    refuse_sought(group, "betas")
    beta1, beta2 = group["betas"]
    if isinstance(beta1, ss.Tensor) or isinstance(beta2, ss.Tensor):
        beta1, beta2 = number_of(beta1), number_of(beta2)
    return {
        "beta1": beta1, "rate1": 1 - beta1, "beta2": beta2, "rate2": 1 - beta2,
        "step_size": kept(group, lr / (1 - beta1 ** step)), "root": math.sqrt(1 - beta2 ** step),
        "eps": group["eps"], "weight_decay": decay, "shrink": kept(group, 1 - lr * decay),
    }
