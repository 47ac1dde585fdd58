"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import slipstream as ss
from slipstream.optim.elementwise import Elementwise
from slipstream.optim.optimizer import Group, check_options, option_of, require
from slipstream.optim.parts import Part


@dataclass(frozen=True)
class SGDRule:
    """The update as a formula of parameter, gradient and momentum_buffer, where there is one.

    In the ``first`` step the buffer is the gradient itself, without damping.
    """

    maximize: bool
    decay: bool
    momentum: bool
    first: bool
    nesterov: bool

    def __call__(self, at: Any) -> tuple[Any, ...]:
        """The new parameter and, with momentum, the new buffer."""
        gradient = -at.gradient if self.maximize else at.gradient
        if self.decay:
            gradient = gradient + at.weight_decay * at.parameter
        if not self.momentum:
            return (at.parameter - at.lr * gradient,)
        buffer = gradient
        if not self.first:
            buffer = at.momentum * at.momentum_buffer + at.rate * gradient
        direction = gradient + at.momentum * buffer if self.nesterov else buffer
        return at.parameter - at.lr * direction, buffer


class SGD(Elementwise):
    """parameter -= lr * buffer, where buffer = momentum * buffer + (1 - dampening) * gradient.

    The gradient first gets weight_decay * parameter added.  ``nesterov`` goes along gradient +
    momentum * buffer.  Raises ValueError for negative options and for nesterov without momentum or
    with dampening.
    """

    later = (("nesterov", False), ("maximize", False), ("foreach", None),
             ("differentiable", False), ("fused", None))
    uniform = True

    def __init__(self, params: Iterable[Any], lr: float | ss.Tensor = 1e-3, momentum: float = 0,
                 dampening: float = 0, weight_decay: float | ss.Tensor = 0,
                 nesterov: bool = False, *, maximize: bool = False, foreach: bool | None = None,
                 differentiable: bool = False, fused: bool | None = None) -> None:
        defaults = {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
            "nesterov": nesterov, "maximize": maximize, "foreach": foreach,
            "differentiable": differentiable, "fused": fused,
        }
        require(momentum >= 0.0, "momentum value", momentum)
        check_options(defaults)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, defaults)

    _momenta: list[bool] | None = None

    def _parts(self, gate: ss.Tensor | None) -> list[Part]:
        momenta = [group["momentum"] != 0 for group in self.param_groups]
        if momenta != self._momenta:
            # Buffers begin where a schedule turns momentum on.
            self._momenta, self._lists = momenta, None
        return super()._parts(gate)

    def _begin(self, parameter: ss.Tensor, group: Group) -> tuple[dict[str, Any], Any]:
        if group["momentum"] == 0:
            return {}, False
        state = self.state[parameter]
        first = state.get("momentum_buffer") is None
        if first:
            # Of a first step that a device leaves out, zeros remain: without dampening they make
            # the next one a first step.
            state["momentum_buffer"] = ss.zeros_like(parameter).detach()
        return state, first

    def _gates(self, group: Group) -> bool:
        return group["momentum"] == 0 or group["dampening"] == 0

    def _plan_of(self, part: Part) -> tuple[Any, tuple[str, ...], Any]:
        group, numbers = part.group, sgd_numbers(part.group)
        momentum = numbers["momentum"] != 0
        if part.kind:
            # The next step is another: the buffers have begun.
            self._lists = None
        rule = SGDRule(group["maximize"], numbers["weight_decay"] != 0, momentum, bool(part.kind),
                       group["nesterov"])
        return rule, ("momentum_buffer",) if momentum else (), numbers


def sgd_numbers(group: Group) -> dict[str, Any]:
    """The numbers of the formula, from a group's options."""
    # 1 - dampening is taken in double precision here: in the formula it would be rounded.
    return {
        "lr": option_of(group, "lr"), "momentum": group["momentum"],
        "rate": 1 - group["dampening"], "weight_decay": option_of(group, "weight_decay"),
    }
