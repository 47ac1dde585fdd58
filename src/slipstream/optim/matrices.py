"""Optimizers that look at whole matrices: Adafactor and Muon."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeAlias

import slipstream as ss
from slipstream.optim.elementwise import counters_from_numbers, step_counter
from slipstream.optim.optimizer import (
    Closure,
    Group,
    Optimizer,
    number_of,
    require,
    run_closure,
    trained,
)

Rate: TypeAlias = "float | ss.Tensor"


class Adafactor(Optimizer):
    """Adam's denominator from the means of rows and columns alone; steps relative to the size.

    ``eps``: (least variance, by default that of the dtype; least size of a parameter); ``d`` bounds
    the size of an update.
    """

    counts_steps = True

    def __init__(self, params: Iterable[Any], lr: Rate = 1e-2, beta2_decay: float = -0.8,
                 eps: tuple[float | None, float] = (None, 1e-3), d: float = 1.0,
                 weight_decay: float = 0.0, *, foreach: bool | None = None,
                 maximize: bool = False) -> None:
        require(number_of(lr) >= 0.0, "learning rate", lr)
        require(beta2_decay <= 0.0, "beta2_decay", beta2_decay)
        require((eps[0] is None or eps[0] >= 0.0) and eps[1] >= 0.0, "epsilon values", eps)
        require(d >= 1.0, "clipping threshold d", d)
        require(weight_decay >= 0.0, "weight_decay value", weight_decay)
        super().__init__(params, {
            "lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d,
            "weight_decay": weight_decay, "foreach": foreach, "maximize": maximize,
        })

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("foreach", None)
            group.setdefault("maximize", False)
        counters_from_numbers(self.state.values(), ("step",))

    def step(self, closure: Closure | None = None) -> Any:
        """Update every parameter that has a gradient; return what ``closure`` returns."""
        loss = run_closure(closure)
        with ss.no_grad():
            for group in self.param_groups:
                for parameter in trained(group):
                    self._update(parameter, group)
        return loss

    def _first_state(self, gradient: ss.Tensor) -> dict[str, Any]:
        if gradient.ndim < 2:
            return {"step": step_counter(), "variance": ss.zeros_like(gradient)}
        rows, columns = gradient.shape[-2:]
        lead = tuple(gradient.shape[:-2])
        return {"step": step_counter(), "row_var": gradient.new_zeros((*lead, rows, 1)),
                "col_var": gradient.new_zeros((*lead, 1, columns))}

    def _update(self, parameter: ss.Tensor, group: Group) -> None:
        gradient = -parameter.grad if group["maximize"] else parameter.grad
        if gradient.is_complex():
            raise RuntimeError("Adafactor does not support complex parameters")
        state = self.state[parameter]
        if not state:
            state.update(self._first_state(parameter.grad))
        state["step"] += 1
        step, lr = state["step"].item(), number_of(group["lr"])
        least, smallest = group["eps"]
        least = ss.finfo(parameter.dtype).eps if least is None else least
        size = parameter.norm(2).item() / math.sqrt(parameter.numel())
        rate = max(smallest, size) * min(lr, 1 / math.sqrt(step))
        if group["weight_decay"]:
            parameter.mul_(1 - lr * group["weight_decay"])
        spread = variance_of(state, gradient, step ** group["beta2_decay"], least)
        update = spread.clamp(min=least * least).rsqrt() * gradient
        bound = update.norm(2).item() / (math.sqrt(update.numel()) * group["d"])
        parameter.add_(update, alpha=-rate / max(1.0, bound))


def variance_of(state: dict[str, Any], gradient: ss.Tensor, share: float,
                least: float) -> ss.Tensor:
    """Move the averages towards this gradient's squares; return the variances they stand for."""
    if gradient.ndim < 2:
        state["variance"].lerp_(gradient * gradient, share)
        return state["variance"]
    squares = gradient * gradient
    state["row_var"].lerp_(squares.mean(-1, keepdim=True), share)
    state["col_var"].lerp_(squares.mean(-2, keepdim=True), share)
    rows = state["row_var"]
    return rows @ state["col_var"] / rows.mean(-2, keepdim=True).clamp(min=least)


class Muon(Optimizer):
    """Momentum whose matrix is made orthogonal before each step; parameters are matrices.

    ``adjust_lr_fn``: "original" (the default) scales by the matrix's aspect, "match_rms_adamw" to
    the size of AdamW's steps.  ValueError for parameters of another rank.
    """

    def __init__(self, params: Iterable[Any], lr: Rate = 1e-3, weight_decay: float = 0.1,
                 momentum: float = 0.95, nesterov: bool = True,
                 ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
                 eps: float = 1e-7, ns_steps: int = 5, adjust_lr_fn: str | None = None) -> None:
        if isinstance(lr, ss.Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        require(number_of(lr) >= 0.0, "learning rate", lr)
        require(momentum >= 0.0, "momentum value", momentum)
        require(weight_decay >= 0.0, "weight_decay value", weight_decay)
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        super().__init__(params, {
            "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
            "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        })
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.ndim != 2:
                    raise ValueError("Muon only supports 2D parameters whereas we found a "
                                     f"parameter with size: {list(parameter.shape)}")

    def step(self, closure: Closure | None = None) -> Any:
        """Update every parameter that has a gradient; return what ``closure`` returns."""
        loss = run_closure(closure)
        with ss.no_grad():
            for group in self.param_groups:
                for parameter in trained(group):
                    self._update(parameter, group)
        return loss

    def _update(self, parameter: ss.Tensor, group: Group) -> None:
        if parameter.is_complex():
            raise RuntimeError("Muon does not support complex parameters")
        state, gradient = self.state[parameter], parameter.grad
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = ss.zeros_like(gradient)
        buffer = state["momentum_buffer"]
        buffer.lerp_(gradient, 1 - group["momentum"])
        direction = gradient.lerp(buffer, group["momentum"]) if group["nesterov"] else buffer
        update = orthogonal(direction, group)
        lr = number_of(group["lr"])
        parameter.mul_(1 - lr * group["weight_decay"])
        parameter.add_(update.to(parameter.dtype),
                       alpha=-lr * aspect(group["adjust_lr_fn"], *parameter.shape))


def aspect(kind: str | None, rows: int, columns: int) -> float:
    """The factor of the learning rate for a matrix of this shape."""
    if kind == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1, rows / columns))


def orthogonal(matrix: ss.Tensor, group: Group) -> ss.Tensor:
    """The matrix with all its singular values moved near one, by Newton and Schulz, in bfloat16.

    X' = a X + (b A + c A A) X with A = X X^T.
    """
    a, b, c = group["ns_coefficients"]
    if group["ns_steps"] >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    turned = matrix.shape[0] > matrix.shape[1]
    x = matrix.bfloat16()
    x = x.T if turned else x
    x = x / x.norm().clamp(min=group["eps"])
    for _ in range(group["ns_steps"]):
        gram = x @ x.T
        x = ss.addmm(x, ss.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if turned else x
