"""Schedulers that go up and down within a run, step by step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from slipstream.optim.lr_scheduler.base import LRScheduler, Rates, copied, listed, set_rate
from slipstream.optim.optimizer import Optimizer


def momentum_key(optimizer: Optimizer) -> str:
    """The option that cycles against the rate: momentum, or the first of betas.

    ValueError for an optimizer that has neither.
    """
    for name in ("momentum", "betas"):
        if name in optimizer.defaults:
            return name
    raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option "
                     "enabled")


def set_momentum(group: dict[str, Any], name: str, value: float) -> None:
    """Set a group's momentum, or the first of its betas."""
    group[name] = (value, *group["betas"][1:]) if name == "betas" else value


class CyclicLR(LRScheduler):
    """Between ``base_lr`` and ``max_lr`` and back, over and over.

    ``mode``: triangular, triangular2 (half as high each time), exp_range (higher by gamma ** step);
    or ``scale_fn`` of the cycle or of the iterations.  ``cycle_momentum`` moves the momentum the
    other way.
    """

    def __init__(self, optimizer: Optimizer, base_lr: Any, max_lr: Any, step_size_up: int = 2000,
                 step_size_down: int | None = None, mode: str = "triangular", gamma: float = 1.0,
                 scale_fn: Callable[[float], float] | None = None, scale_mode: str = "cycle",
                 cycle_momentum: bool = True, base_momentum: Any = 0.8, max_momentum: Any = 0.9,
                 last_epoch: int = -1) -> None:
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        lows = listed(base_lr, optimizer, "base_lr")
        if last_epoch == -1:
            for low, group in zip(lows, optimizer.param_groups, strict=True):
                set_rate(group, copied(low))
        self.max_lrs = listed(max_lr, optimizer, "max_lr")
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up + down)
        self.step_ratio = step_size_up / self.total_size
        self.mode = mode
        self.gamma = gamma
        self._scale = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else (
            "iterations" if mode == "exp_range" else "cycle")
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._momentum = momentum_key(optimizer)
            self.base_momentums = listed(base_momentum, optimizer, "base_momentum")
            self.max_momentums = listed(max_momentum, optimizer, "max_momentum")
            if last_epoch == -1:
                self._start_momentum(optimizer)
        super().__init__(optimizer, last_epoch)
        # The first step above went from the groups' initial rates, as a resumed cycle does.
        self.base_lrs = lows

    def _start_momentum(self, optimizer: Optimizer) -> None:
        for low, high, group in zip(self.base_momentums, self.max_momentums,
                                    optimizer.param_groups, strict=True):
            set_momentum(group, self._momentum, high)
            group["max_momentum"], group["base_momentum"] = high, low

    def scale_fn(self, x: float) -> float:
        """How high the cycle at x goes."""
        if self._scale is not None:
            return self._scale(x)
        if self.mode == "triangular":
            return 1.0
        return 1 / 2.0 ** (x - 1) if self.mode == "triangular2" else self.gamma ** x

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer and a function of one's own."""
        state = super().state_dict()
        state.pop("_scale")
        return state

    def get_lr(self) -> Rates:
        """The rates at this step; sets the momentum too."""
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        place = 1.0 + self.last_epoch / self.total_size - cycle
        share = place / self.step_ratio if place <= self.step_ratio else (
            (place - 1) / (self.step_ratio - 1))
        height = share * self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for low, high, group in zip(self.base_momentums, self.max_momentums,
                                        self.optimizer.param_groups, strict=True):
                set_momentum(group, self._momentum, high - (high - low) * height)
        return [low + (high - low) * height
                for low, high in zip(self.base_lrs, self.max_lrs, strict=True)]


def cosine(start: float, end: float, share: float) -> float:
    """From start to end along half a cosine."""
    return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)


def straight(start: float, end: float, share: float) -> float:
    """From start to end along a line."""
    return (end - start) * share + start


class OneCycleLR(LRScheduler):
    """Up to ``max_lr`` and down to far below the start, once, over ``total_steps``.

    The start is max_lr / ``div_factor``, the end that over ``final_div_factor``; ``pct_start`` of
    the steps go up.  ``three_phase``: down to the start first, then to the end.
    """

    def __init__(self, optimizer: Optimizer, max_lr: Any, total_steps: int | None = None,
                 epochs: int | None = None, steps_per_epoch: int | None = None,
                 pct_start: float = 0.3, anneal_strategy: str = "cos",
                 cycle_momentum: bool = True, base_momentum: Any = 0.85, max_momentum: Any = 0.95,
                 div_factor: float = 25.0, final_div_factor: float = 1e4,
                 three_phase: bool = False, last_epoch: int = -1) -> None:
        self.total_steps = planned_steps(total_steps, epochs, steps_per_epoch)
        if not 0 <= pct_start <= 1 or not isinstance(pct_start, float):
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError("anneal_strategy must be one of 'cos' or 'linear', instead got "
                             f"{anneal_strategy}")
        self._anneal_func_type = anneal_strategy
        self._phases = phases(self.total_steps, pct_start, three_phase)
        if last_epoch == -1:
            for high, group in zip(listed(max_lr, optimizer, "max_lr"), optimizer.param_groups,
                                   strict=True):
                group["initial_lr"] = high / div_factor
                group["max_lr"] = high
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        self.use_beta1 = False
        if cycle_momentum:
            self._momentum = momentum_key(optimizer)
            self.use_beta1 = self._momentum == "betas"
            if last_epoch == -1:
                self._start_momentum(optimizer, base_momentum, max_momentum)
        super().__init__(optimizer, last_epoch)

    def _start_momentum(self, optimizer: Optimizer, base: Any, highest: Any) -> None:
        for low, high, group in zip(listed(base, optimizer, "base_momentum"),
                                    listed(highest, optimizer, "max_momentum"),
                                    optimizer.param_groups, strict=True):
            set_momentum(group, self._momentum, high)
            group["max_momentum"], group["base_momentum"] = high, low

    def _between(self, start: float, end: float, share: float) -> float:
        return (cosine if self._anneal_func_type == "cos" else straight)(start, end, share)

    def get_lr(self) -> Rates:
        """The rates at this step; sets the momentum too.  ValueError beyond the last step."""
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(f"Tried to step {step} times. The specified number of total steps is "
                             f"{self.total_steps}")
        begin = 0.0
        for number, phase in enumerate(self._phases):
            if step <= phase["end_step"] or number == len(self._phases) - 1:
                break
            begin = phase["end_step"]
        share = (step - begin) / (phase["end_step"] - begin)
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(self._between(group[phase["start_lr"]], group[phase["end_lr"]], share))
            if self.cycle_momentum:
                set_momentum(group, self._momentum, self._between(
                    group[phase["start_momentum"]], group[phase["end_momentum"]], share))
        return rates


def planned_steps(total: int | None, epochs: int | None, each: int | None) -> int:
    """How many steps there will be; ValueError where that is not said, or not positive."""
    if total is None:
        if epochs is None or each is None:
            raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
        for name, value in (("epochs", epochs), ("steps_per_epoch", each)):
            if not isinstance(value, int) or value <= 0:
                raise ValueError(f"Expected positive integer {name}, but got {value}")
        return epochs * each
    if not isinstance(total, int) or total <= 0:
        raise ValueError(f"Expected positive integer total_steps, but got {total}")
    return total


def phases(total: int, share: float, three: bool) -> list[dict[str, Any]]:
    """The phases: where each ends, and between which options it goes."""
    up = float(share * total) - 1
    rising = {"end_step": up, "start_lr": "initial_lr", "end_lr": "max_lr",
              "start_momentum": "max_momentum", "end_momentum": "base_momentum"}
    falling = {"end_step": total - 1, "start_lr": "max_lr", "end_lr": "min_lr",
               "start_momentum": "base_momentum", "end_momentum": "max_momentum"}
    if not three:
        return [rising, falling]
    back = {"end_step": float(2 * share * total) - 2, "start_lr": "max_lr",
            "end_lr": "initial_lr", "start_momentum": "base_momentum",
            "end_momentum": "max_momentum"}
    last = {**falling, "start_lr": "initial_lr", "start_momentum": "max_momentum"}
    return [rising, back, last]
