"""Optimizers that scale each element by its own history: RMSprop, Adagrad, Adadelta, Rprop."""

from __future__ import annotations

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
    trained,
)

Rate: TypeAlias = "float | ss.Tensor"


@dataclass(frozen=True)
class RMSpropRule:
    """square_avg' = alpha square_avg + (1 - alpha) g^2; the step is lr g / (sqrt of it + eps)."""

    maximize: bool
    decay: bool
    centered: bool
    momentum: bool

    def __call__(self, at: Any) -> tuple[Any, ...]:
        """The new parameter, average of squares, and the buffer and average where there are."""
        gradient = decayed(at, self.maximize, self.decay)
        square = at.alpha * at.square_avg + at.rate * (gradient * gradient)
        spread = square
        extra: tuple[Any, ...] = ()
        if self.centered:
            mean = at.grad_avg + at.rate * (gradient - at.grad_avg)
            spread = square - mean * mean
            extra = (mean,)
        direction = gradient / (spread ** 0.5 + at.eps)
        if not self.momentum:
            return at.parameter - at.lr * direction, square, *extra
        buffer = at.momentum * at.momentum_buffer + direction
        return at.parameter - at.lr * buffer, square, buffer, *extra


class RMSprop(Elementwise):
    """parameter -= lr * g / (sqrt(average of g^2) + eps).

    ``centered`` subtracts the squared average of g; ``momentum`` averages the steps.  Raises
    ValueError for negative options.
    """

    uniform = True
    later = (("momentum", 0), ("centered", False), *Elementwise.later)

    def __init__(self, params: Iterable[Any], lr: Rate = 1e-2, alpha: float = 0.99,
                 eps: float = 1e-8, weight_decay: float = 0, momentum: float = 0,
                 centered: bool = False, capturable: bool = False, foreach: bool | None = None,
                 maximize: bool = False, differentiable: bool = False) -> None:
        defaults = {
            "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered,
            "weight_decay": weight_decay, "capturable": capturable, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable,
        }
        for name, value in (("epsilon", eps), ("momentum", momentum), ("alpha", alpha)):
            require(value >= 0.0, f"{name} value", value)
        check_options({**defaults, "fused": None})
        super().__init__(params, defaults)

    def _first_state(self, parameter: ss.Tensor, group: Group) -> dict[str, Any]:
        names = ["square_avg"]
        names += ["momentum_buffer"] if group["momentum"] > 0 else []
        names += ["grad_avg"] if group["centered"] else []
        return moments(parameter, *names)

    def _plan(self, group: Group, state: dict[str, Any]) -> tuple[Any, tuple[str, ...], Any]:
        rule = RMSpropRule(group["maximize"], group["weight_decay"] != 0, group["centered"],
                           group["momentum"] > 0)
        names = ("square_avg", *(("momentum_buffer",) if rule.momentum else ()),
                 *(("grad_avg",) if rule.centered else ()))
        alpha = group["alpha"]
        return rule, names, {"lr": option_of(group, "lr"), "alpha": alpha, "rate": 1 - alpha,
                             "eps": group["eps"], "momentum": group["momentum"],
                             "weight_decay": group["weight_decay"]}


@dataclass(frozen=True)
class AdagradRule:
    """sum' = sum + g^2; the step is lr g / (sqrt(sum') + eps)."""

    maximize: bool
    decay: bool

    def __call__(self, at: Any) -> tuple[Any, ...]:
        """The new parameter and sum."""
        gradient = decayed(at, self.maximize, self.decay)
        total = at.sum + gradient * gradient
        return at.parameter - at.lr * (gradient / (total ** 0.5 + at.eps)), total


class Adagrad(Elementwise):
    """parameter -= lr / (1 + steps * lr_decay) * g / (sqrt(sum of g^2) + eps)."""

    counts_steps = True
    later = (("foreach", None), ("maximize", False), ("differentiable", False), ("fused", None))

    uniform = True

    def __init__(self, params: Iterable[Any], lr: Rate = 1e-2, lr_decay: float = 0,
                 weight_decay: float = 0, initial_accumulator_value: float = 0,
                 eps: float = 1e-10, foreach: bool | None = None, *, maximize: bool = False,
                 differentiable: bool = False, fused: bool | None = None) -> None:
        require(lr_decay >= 0.0, "lr_decay value", lr_decay)
        require(initial_accumulator_value >= 0.0, "initial_accumulator_value value",
                initial_accumulator_value)
        require(eps >= 0.0, "epsilon value", eps)
        defaults = {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "fused": fused,
        }
        check_options(defaults)
        super().__init__(params, defaults)
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter] = self._first_state(parameter, group)

    def _first_state(self, parameter: ss.Tensor, group: Group) -> dict[str, Any]:
        start = group["initial_accumulator_value"]
        value = complex(start, start) if parameter.is_complex() else start
        return {"step": step_counter(), "sum": ss.full_like(parameter, value).detach()}

    def _plan(self, group: Group, state: dict[str, Any]) -> tuple[Any, tuple[str, ...], Any]:
        rate = option_of(group, "lr") / (1 + (state["step"].item() - 1) * group["lr_decay"])
        return (AdagradRule(group["maximize"], group["weight_decay"] != 0), ("sum",),
                {"lr": rate, "eps": group["eps"], "weight_decay": group["weight_decay"]})


@dataclass(frozen=True)
class AdadeltaRule:
    """The step is lr g sqrt(acc_delta + eps) / sqrt(square_avg' + eps)."""

    maximize: bool
    decay: bool

    def __call__(self, at: Any) -> tuple[Any, ...]:
        """The new parameter and averages."""
        gradient = decayed(at, self.maximize, self.decay)
        square = at.rho * at.square_avg + at.rate * (gradient * gradient)
        delta = (at.acc_delta + at.eps) ** 0.5 / (square + at.eps) ** 0.5 * gradient
        moved = at.rho * at.acc_delta + at.rate * (delta * delta)
        return at.parameter - at.lr * delta, square, moved


class Adadelta(Elementwise):
    """Steps in the units of the parameter: g times the ratio of past steps and gradients."""

    uniform = True

    def __init__(self, params: Iterable[Any], lr: Rate = 1.0, rho: float = 0.9, eps: float = 1e-6,
                 weight_decay: float = 0, foreach: bool | None = None, *, capturable: bool = False,
                 maximize: bool = False, differentiable: bool = False) -> None:
        require(0.0 <= rho <= 1.0, "rho value", rho)
        require(eps >= 0.0, "epsilon value", eps)
        defaults = {
            "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "capturable": capturable, "foreach": foreach, "differentiable": differentiable,
        }
        check_options({**defaults, "fused": None})
        super().__init__(params, defaults)

    def _first_state(self, parameter: ss.Tensor, group: Group) -> dict[str, Any]:
        return moments(parameter, "square_avg", "acc_delta")

    def _plan(self, group: Group, state: dict[str, Any]) -> tuple[Any, tuple[str, ...], Any]:
        rho = group["rho"]
        return (AdadeltaRule(group["maximize"], group["weight_decay"] != 0),
                ("square_avg", "acc_delta"),
                {"lr": option_of(group, "lr"), "rho": rho, "rate": 1 - rho, "eps": group["eps"],
                 "weight_decay": group["weight_decay"]})


@dataclass(frozen=True)
class RpropRule:
    """The size of each element's step grows while its gradient keeps its sign."""

    maximize: bool

    def __call__(self, at: Any) -> tuple[Any, ...]:
        """The new parameter, remembered gradient and step size."""
        gradient = -at.gradient if self.maximize else at.gradient
        agreement = gradient * at.prev
        grown = at.step_size * at.larger
        shrunk = at.step_size * at.smaller
        size = grown.where(agreement > 0, shrunk.where(agreement < 0, at.step_size))
        size = size.clamp(at.least, at.most)
        # After a change of sign the element waits for a step.
        kept = (gradient * 0).where(agreement < 0, gradient)
        return at.parameter - kept.sign() * size, kept, size


class Rprop(Elementwise):
    """Steps by the signs of the gradient alone, each element with a size of its own."""

    uniform = True

    def __init__(self, params: Iterable[Any], lr: Rate = 1e-2,
                 etas: tuple[float, float] = (0.5, 1.2),
                 step_sizes: tuple[float, float] = (1e-6, 50), *, capturable: bool = False,
                 foreach: bool | None = None, maximize: bool = False,
                 differentiable: bool = False) -> None:
        require(number_of(lr) >= 0.0, "learning rate", lr)
        require(0.0 < etas[0] < 1.0 < etas[1], "eta values", etas)
        super().__init__(params, {
            "lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        })

    def _gates(self, group: Group) -> bool:
        # Sizes begin with the rate of the first step that is taken: whether this one is, is
        # looked at.
        return all(self.state.get(parameter) for parameter in trained(group))

    def _first_state(self, parameter: ss.Tensor, group: Group) -> dict[str, Any]:
        refuse_sought(group, "lr")
        rate = number_of(group["lr"])
        value = complex(rate, rate) if parameter.is_complex() else rate
        return {**moments(parameter, "prev"), "step_size": ss.full_like(parameter, value).detach()}

    def _plan(self, group: Group, state: dict[str, Any]) -> tuple[Any, tuple[str, ...], Any]:
        smaller, larger = group["etas"]
        least, most = group["step_sizes"]
        return (RpropRule(group["maximize"]), ("prev", "step_size"),
                {"smaller": smaller, "larger": larger, "least": least, "most": most})
