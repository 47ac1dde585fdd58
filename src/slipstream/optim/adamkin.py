"""Relatives of Adam: Adamax, NAdam, RAdam; and averaged SGD."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import slipstream as ss
from slipstream.optim.elementwise import Elementwise, decayed, moments, step_counter
from slipstream.optim.optimizer import (
    Group,
    check_options,
    number_of,
    option_of,
    refuse_sought,
    require,
)

Rate: TypeAlias = "float | ss.Tensor"
Betas = tuple[float, float]


def check_betas(betas: Betas, eps: float) -> None:
    """ValueError for betas outside [0, 1) or a negative eps."""
    require(eps >= 0.0, "epsilon value", eps)
    for index, beta in enumerate(betas):
        require(0.0 <= beta < 1.0, f"beta parameter at index {index}", beta)


@dataclass(frozen=True)
class AdamaxRule:
    """exp_inf' = max(beta2 exp_inf, |g| + eps); the step is rate exp_avg' / exp_inf'."""

    maximize: bool
    decay: bool

    def __call__(self, at: Any) -> tuple[Any, ...]:
        """The new parameter, average and maximum."""
        gradient = decayed(at, self.maximize, self.decay)
        average = at.exp_avg + at.rate1 * (gradient - at.exp_avg)
        size = gradient.abs() + at.eps
        faded = at.beta2 * at.exp_inf
        largest = faded.where(size <= faded, size)
        return at.parameter - at.step_size * average / largest, average, largest


class Adamax(Elementwise):
    """Adam with the largest gradient of late in the place of the root mean square."""

    uniform = True
    counts_steps = True

    def __init__(self, params: Iterable[Any], lr: Rate = 2e-3, betas: Betas = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0, foreach: bool | None = None, *,
                 maximize: bool = False, differentiable: bool = False,
                 capturable: bool = False) -> None:
        check_betas(betas, eps)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "foreach": foreach, "maximize": maximize, "differentiable": differentiable,
            "capturable": capturable,
        }
        check_options({**defaults, "fused": None})
        super().__init__(params, defaults)

    def _first_state(self, parameter: ss.Tensor, group: Group) -> dict[str, Any]:
        return moments(parameter, "exp_avg", "exp_inf")

    def _plan(self, group: Group, state: dict[str, Any]) -> tuple[Any, tuple[str, ...], Any]:
        beta1, beta2 = group["betas"]
        size = option_of(group, "lr") / (1 - beta1 ** state["step"].item())
        return (AdamaxRule(group["maximize"], group["weight_decay"] != 0), ("exp_avg", "exp_inf"),
                {"rate1": 1 - beta1, "beta2": beta2, "eps": group["eps"], "step_size": size,
                 "weight_decay": group["weight_decay"]})


@dataclass(frozen=True)
class MomentRule:
    """Averages of g and g^2, and a step along both g and its average."""

    maximize: bool
    decay: bool
    decoupled: bool

    def __call__(self, at: Any) -> tuple[Any, ...]:
        """The new parameter and averages."""
        gradient = decayed(at, self.maximize, self.decay and not self.decoupled)
        parameter = at.parameter * at.shrink if self.decay and self.decoupled else at.parameter
        first = at.exp_avg + at.rate1 * (gradient - at.exp_avg)
        second = at.beta2 * at.exp_avg_sq + at.rate2 * (gradient * gradient)
        root = (second / at.correction) ** 0.5 + at.eps
        return parameter - at.along * gradient / root - at.ahead * first / root, first, second


class NAdam(Elementwise):
    """Adam with Nesterov's momentum, whose factor grows over time by ``momentum_decay``."""

    counts_steps = True
    later = (*Elementwise.later, ("decoupled_weight_decay", False))
    counters = ("mu_product",)

    def __init__(self, params: Iterable[Any], lr: Rate = 2e-3, betas: Betas = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0, momentum_decay: float = 4e-3,
                 decoupled_weight_decay: bool = False, *, foreach: bool | None = None,
                 maximize: bool = False, capturable: bool = False,
                 differentiable: bool = False) -> None:
        check_betas(betas, eps)
        require(momentum_decay >= 0.0, "momentum_decay value", momentum_decay)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "momentum_decay": momentum_decay, "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "differentiable": differentiable,
        }
        check_options({**defaults, "fused": None})
        super().__init__(params, defaults)

    def _first_state(self, parameter: ss.Tensor, group: Group) -> dict[str, Any]:
        return {"step": step_counter(), "mu_product": step_counter() + 1,
                **{name: value for name, value in moments(
                    parameter, "exp_avg", "exp_avg_sq").items() if name != "step"}}

    def _plan(self, group: Group, state: dict[str, Any]) -> tuple[Any, tuple[str, ...], Any]:
        beta1, beta2 = group["betas"]
        lr, step = option_of(group, "lr"), state["step"].item()
        now, later = [beta1 * (1.0 - 0.5 * 0.96 ** (at * group["momentum_decay"]))
                      for at in (step, step + 1)]
        state["mu_product"] *= now
        product = state["mu_product"].item()
        numbers = {
            "rate1": 1 - beta1, "beta2": beta2, "rate2": 1 - beta2, "eps": group["eps"],
            "correction": 1 - beta2 ** step, "weight_decay": group["weight_decay"],
            "shrink": 1 - lr * group["weight_decay"], "along": lr * (1.0 - now) / (1.0 - product),
            "ahead": lr * later / (1.0 - product * later),
        }
        rule = MomentRule(group["maximize"], group["weight_decay"] != 0,
                          group["decoupled_weight_decay"])
        return rule, ("exp_avg", "exp_avg_sq"), numbers


@dataclass(frozen=True)
class RAdamRule:
    """Averages of g and g^2; the second is used only once enough steps are behind it."""

    maximize: bool
    decay: bool
    decoupled: bool
    adaptive: bool

    def __call__(self, at: Any) -> tuple[Any, ...]:
        """The new parameter and averages."""
        gradient = decayed(at, self.maximize, self.decay and not self.decoupled)
        parameter = at.parameter * at.shrink if self.decay and self.decoupled else at.parameter
        first = at.exp_avg + at.rate1 * (gradient - at.exp_avg)
        second = at.beta2 * at.exp_avg_sq + at.rate2 * (gradient * gradient)
        direction = first / at.correction
        if self.adaptive:
            direction = direction * (at.factor / (second ** 0.5 + at.eps))
        return parameter - at.lr * direction, first, second


class RAdam(Elementwise):
    """Adam that starts without its denominator, until that is reliable."""

    counts_steps = True
    later = (*Elementwise.later, ("decoupled_weight_decay", False))

    uniform = True

    def __init__(self, params: Iterable[Any], lr: Rate = 1e-3, betas: Betas = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0,
                 decoupled_weight_decay: bool = False, *, foreach: bool | None = None,
                 maximize: bool = False, capturable: bool = False,
                 differentiable: bool = False) -> None:
        check_betas(betas, eps)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay, "differentiable": differentiable,
        }
        check_options({**defaults, "fused": None})
        super().__init__(params, defaults)

    def _first_state(self, parameter: ss.Tensor, group: Group) -> dict[str, Any]:
        return moments(parameter, "exp_avg", "exp_avg_sq")

    def _plan(self, group: Group, state: dict[str, Any]) -> tuple[Any, tuple[str, ...], Any]:
        beta1, beta2 = group["betas"]
        lr, step = option_of(group, "lr"), state["step"].item()
        factor = rectification(beta2, step)
        rule = RAdamRule(group["maximize"], group["weight_decay"] != 0,
                         group["decoupled_weight_decay"], factor is not None)
        return rule, ("exp_avg", "exp_avg_sq"), {
            "lr": lr, "rate1": 1 - beta1, "beta2": beta2, "rate2": 1 - beta2,
            "eps": group["eps"], "correction": 1 - beta1 ** step, "factor": factor or 0.0,
            "weight_decay": group["weight_decay"], "shrink": 1 - lr * group["weight_decay"],
        }


def rectification(beta2: float, step: float) -> float | None:
    """The factor for the variance of few steps; None while there are too few of them."""
    most = 2 / (1 - beta2) - 1
    correction = 1 - beta2 ** step
    length = most - 2 * step * beta2 ** step / correction
    if length <= 5.0:
        return None
    share = (length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)
    return math.sqrt(share) * math.sqrt(correction)


@dataclass(frozen=True)
class ASGDRule:
    """A step of SGD, and the average of where it went."""

    maximize: bool
    decay: bool
    follows: bool

    def __call__(self, at: Any) -> tuple[Any, ...]:
        """The new parameter and average."""
        gradient = decayed(at, self.maximize, self.decay)
        parameter = at.parameter * at.shrink - at.rate * gradient
        average = parameter if self.follows else at.ax + (parameter - at.ax) * at.share
        return parameter, average


class ASGD(Elementwise):
    """SGD with a falling rate, whose average from step ``t0`` on is kept in the state, ``ax``."""

    counts_steps = True
    counters = ("eta", "mu")

    def __init__(self, params: Iterable[Any], lr: Rate = 1e-2, lambd: float = 1e-4,
                 alpha: float = 0.75, t0: float = 1e6, weight_decay: float = 0,
                 foreach: bool | None = None, maximize: bool = False,
                 differentiable: bool = False, capturable: bool = False) -> None:
        defaults = {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay,
            "foreach": foreach, "maximize": maximize, "differentiable": differentiable,
            "capturable": capturable,
        }
        check_options({**defaults, "fused": None})
        super().__init__(params, defaults)

    def _first_state(self, parameter: ss.Tensor, group: Group) -> dict[str, Any]:
        refuse_sought(group, "lr")
        return {"step": step_counter(), "eta": step_counter() + number_of(group["lr"]),
                "mu": step_counter() + 1, "ax": ss.zeros_like(parameter).detach()}

    def _plan(self, group: Group, state: dict[str, Any]) -> tuple[Any, tuple[str, ...], Any]:
        rate, share = state["eta"].item(), state["mu"].item()
        rule = ASGDRule(group["maximize"], group["weight_decay"] != 0, share == 1)
        numbers = {"shrink": 1 - group["lambd"] * rate, "rate": rate, "share": share,
                   "weight_decay": group["weight_decay"]}
        lr = number_of(group["lr"])
        step = state["step"].item()
        # Over many tensors at once PyTorch computes the rate in the counter's own precision.
        counted = state["step"] if group["foreach"] or group["capturable"] else step
        fall = (1 + group["lambd"] * lr * counted) ** group["alpha"]
        state["eta"].fill_(lr / fall if counted is step else fall.reciprocal() * lr)
        state["mu"].fill_(1 / max(1, step - group["t0"]))
        return rule, ("ax",), numbers
