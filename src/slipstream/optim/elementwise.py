"""What optimizers share whose update is one formula of the elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import slipstream as ss
from slipstream.optim.optimizer import Closure, Group, Optimizer, run_closure, trained
from slipstream.optim.update import apply_update


def step_counter() -> ss.Tensor:
    """The number of steps so far, on the CPU, as PyTorch keeps it."""
    dtype = ss.float64 if ss.get_default_dtype() == ss.float64 else ss.float32
    return ss.zeros((), dtype=dtype, device="cpu")


def decayed(at: Any, maximize: bool, decay: bool) -> Any:
    """The gradient to descend along, with the decay's part of it."""
    gradient = -at.gradient if maximize else at.gradient
    return gradient + at.weight_decay * at.parameter if decay else gradient


class Elementwise(Optimizer):
    """A subclass says what a parameter's state is, and gives each step's formula and numbers."""

    # Options that older states lack, with what they mean then.
    later: tuple[tuple[str, Any], ...] = (
        ("foreach", None), ("maximize", False), ("differentiable", False), ("capturable", False))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self.later:
                if name in self.defaults:
                    group.setdefault(name, value)
        for values in self.state.values():
            if "step" in values and not isinstance(values["step"], ss.Tensor):
                values["step"] = step_counter() + float(values["step"])

    def step(self, closure: Closure | None = None) -> Any:
        """Update every parameter that has a gradient; return what ``closure`` returns."""
        loss = run_closure(closure)
        if not self.ready():
            return loss
        with ss.set_grad_enabled(self.defaults["differentiable"]):
            for group in self.param_groups:
                for parameter in trained(group):
                    self._update(parameter, group)
        return loss

    def _first_state(self, parameter: ss.Tensor, group: Group) -> dict[str, Any]:
        """The state before the first step."""
        raise NotImplementedError

    def _plan(self, group: Group, state: dict[str, Any]) -> tuple[Any, tuple[str, ...], Any]:
        """This step's formula, the names of the tensors it writes, and its numbers."""
        raise NotImplementedError

    def _update(self, parameter: ss.Tensor, group: Group) -> None:
        state = self.state[parameter]
        if not state:
            state.update(self._first_state(parameter, group))
        state["step"] += 1
        rule, names, numbers = self._plan(group, state)
        written = {"parameter": parameter, **{name: state[name] for name in names}}
        write(rule, written, parameter.grad, numbers)


def write(rule: Callable[[Any], tuple[Any, ...]], targets: dict[str, Any], gradient: Any,
          numbers: dict[str, float]) -> None:
    """Carry out a formula; complex tensors as their real parts."""
    if gradient.is_complex():
        targets = {name: as_real(value) for name, value in targets.items()}
        gradient = as_real(gradient)
    apply_update(rule, targets, {"gradient": gradient}, numbers)


def as_real(value: ss.Tensor) -> ss.Tensor:
    """Real and imaginary parts as numbers of their own; NotImplementedError until there is a view.
    """
    view = getattr(ss, "view_as_real", None)
    if view is None:
        raise NotImplementedError("optimizers do not take complex parameters yet: hold the real "
                                  "and the imaginary part as two parameters")
    return view(value)


def moments(parameter: ss.Tensor, *names: str) -> dict[str, Any]:
    """A step counter, and zeros like the parameter under each name."""
    return {"step": step_counter(),
            **{name: ss.zeros_like(parameter).detach() for name in names}}
