"""L-BFGS: a quasi-Newton method that remembers the last few steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import slipstream as ss
from slipstream.optim.optimizer import Closure, Optimizer, number_of, require
from slipstream.optim.wolfe import Point, search


class LBFGS(Optimizer):
    """Steps along an estimate of the inverse Hessian times the gradient.

    One group of parameters only; ``step`` needs a closure that computes the loss anew and returns
    it.  ``line_search_fn``: None (steps of ``lr``) or "strong_wolfe".
    """

    def __init__(self, params: Iterable[Any], lr: float | ss.Tensor = 1, max_iter: int = 20,
                 max_eval: int | None = None, tolerance_grad: float = 1e-7,
                 tolerance_change: float = 1e-9, history_size: int = 100,
                 line_search_fn: str | None = None) -> None:
        require(number_of(lr) >= 0.0, "learning rate", lr)
        super().__init__(params, {
            "lr": lr, "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change,
            "history_size": history_size, "line_search_fn": line_search_fn,
        })
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        if line_search_fn not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported")
        self._params = self.param_groups[0]["params"]

    # The parameters as one vector.

    def _gradient(self) -> ss.Tensor:
        return ss.cat([real_of(ss.zeros_like(each) if each.grad is None else each.grad).reshape(-1)
                       for each in self._params])

    def _values(self) -> list[ss.Tensor]:
        return [each.detach().clone() for each in self._params]

    def _move(self, start: list[ss.Tensor], size: Any, direction: ss.Tensor) -> None:
        """Put the parameters at start + size * direction."""
        first = 0
        for parameter, value in zip(self._params, start, strict=True):
            numbers = real_of(value)
            part = direction[first:first + numbers.numel()].reshape(numbers.shape)
            moved = added(numbers, part, size)
            parameter.copy_(ss.view_as_complex(moved) if value.is_complex() else moved)
            first += numbers.numel()

    def step(self, closure: Closure) -> Any:  # type: ignore[override]
        """Iterate up to ``max_iter`` times; return the loss that the first call of closure gave."""
        group = self.param_groups[0]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)

        def evaluate() -> Any:
            with ss.enable_grad():
                return closure()

        with ss.no_grad():
            first = evaluate()
            state["func_evals"] += 1
            gradient = self._gradient()
            # Of nan the step is taken, and shows.
            if not gradient.abs().max().item() <= group["tolerance_grad"]:
                Iteration(self, group, state, evaluate).run(float(first), gradient)
        return first


def real_of(value: ss.Tensor) -> ss.Tensor:
    """The tensor; of a complex one its real and imaginary parts, as numbers of their own."""
    return ss.view_as_real(value) if value.is_complex() else value


def added(value: ss.Tensor, direction: ss.Tensor, size: Any) -> ss.Tensor:
    """value + size * direction, rounded once: where a search ends depends on the last bit."""
    return ss.fma(direction, size, value)


class Iteration:
    """The iterations of one step: history, direction, and how far along it."""

    def __init__(self, owner: LBFGS, group: Any, state: Any, evaluate: Any) -> None:
        self.owner = owner
        self.group = group
        self.state = state
        self.evaluate = evaluate
        self.evaluations = 1

    def run(self, loss: float, gradient: ss.Tensor) -> None:
        """Iterate until something ends it."""
        group, state = self.group, self.state
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            direction = self._direction(gradient)
            before = gradient.clone()
            state["prev_flat_grad"], state["prev_loss"] = before, loss
            rate = number_of(group["lr"])
            size: Any = rate
            if state["n_iter"] == 1:
                inverse: Any = 1.0 / gradient.abs().sum()
                size = min(1.0, inverse) * rate
            # Whatever ends this step, the next one takes in what is known of it.
            state["d"], state["t"] = direction, size
            slope = gradient.dot(direction)
            if slope > -group["tolerance_change"]:
                break
            size, new_loss, gradient = self._walk(size, (loss, gradient, slope), direction,
                                                  iteration)
            state["t"] = size
            if self._is_done(iteration, gradient, direction * size, new_loss - loss):
                break
            loss = new_loss

    def _walk(self, size: float, here: tuple[float, ss.Tensor, ss.Tensor], direction: ss.Tensor,
              iteration: int) -> tuple[float, float, ss.Tensor]:
        """Go along the direction; the step, the loss and the gradient there."""
        loss, gradient, slope = here
        start = self.owner._values()

        def at(distance: float) -> Point:
            self.owner._move(start, distance, direction)
            value = float(self.evaluate())
            found = self.owner._gradient()
            return Point(distance, value, found, found.dot(direction))

        if self.group["line_search_fn"] is not None:
            found, count = search(at, Point(0, loss, gradient, slope), size,
                                  direction.abs().max(),
                                  self.group["max_eval"] - self.evaluations)
            self.owner._move(start, found.at, direction)
            self._count(count)
            return found.at, found.value, found.gradient
        self.owner._move(start, size, direction)
        if iteration != self.group["max_iter"]:
            # The last place is looked at by the next step.
            loss = float(self.evaluate())
            gradient = self.owner._gradient()
            self._count(1)
        return size, loss, gradient

    def _count(self, evaluations: int) -> None:
        self.evaluations += evaluations
        self.state["func_evals"] += evaluations

    def _is_done(self, iteration: int, gradient: ss.Tensor, moved: ss.Tensor,
                 change: float) -> bool:
        group = self.group
        if iteration == group["max_iter"] or self.evaluations >= group["max_eval"]:
            return True
        return (gradient.abs().max().item() <= group["tolerance_grad"]
                or moved.abs().max().item() <= group["tolerance_change"]
                or abs(change) < group["tolerance_change"])

    def _direction(self, gradient: ss.Tensor) -> ss.Tensor:
        """Minus the inverse Hessian's estimate times the gradient."""
        state = self.state
        if state["n_iter"] == 1:
            state["old_dirs"], state["old_stps"], state["ro"] = [], [], []
            state["H_diag"] = 1
            return -gradient
        self._remember(gradient)
        changes, steps, scales = state["old_dirs"], state["old_stps"], state["ro"]
        q, shares = -gradient, []
        for y, s, scale in zip(reversed(changes), reversed(steps), reversed(scales), strict=True):
            share = s.dot(q) * scale
            q = added(q, y, -share)
            shares.append(share)
        r = q * state["H_diag"]
        for y, s, scale, share in zip(changes, steps, scales, reversed(shares), strict=True):
            r = added(r, s, share - y.dot(r) * scale)
        return r

    def _remember(self, gradient: ss.Tensor) -> None:
        """Take in the last step, if the curvature along it is positive."""
        state = self.state
        y = gradient - state["prev_flat_grad"]
        s = state["d"] * state["t"]
        curvature = y.dot(s)
        if curvature.item() <= 1e-10:
            return
        if len(state["old_dirs"]) == self.group["history_size"]:
            for name in ("old_dirs", "old_stps", "ro"):
                state[name].pop(0)
        state["old_dirs"].append(y)
        state["old_stps"].append(s)
        state["ro"].append(1.0 / curvature)
        state["H_diag"] = curvature / y.dot(y)
