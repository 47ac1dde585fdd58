"""Schedulers made of others, and the one that watches a metric."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from slipstream.optim.lr_scheduler.base import LRScheduler, Rates, copied, listed, set_rate
from slipstream.optim.optimizer import Optimizer


def _rates(optimizer: Optimizer) -> Rates:
    return [copied(group["lr"]) for group in optimizer.param_groups]


class _Several(LRScheduler):
    """The states of several schedulers as one."""

    _schedulers: list[Any]

    def _initial_step(self) -> None:
        self._uncount()
        super()._initial_step()

    def _uncount(self) -> None:
        """Let the next step be the first again: it comes before the optimizer's, and rightly so."""
        for each in self._starting():
            if isinstance(each, _Several):
                each._uncount()
            else:
                each._step_count = 0

    def _update_lr(self, epoch: int | None = None) -> None:
        """Begin anew: a sequence around this one comes to its turn."""
        for group in self.optimizer.param_groups:
            set_rate(group, copied(group["initial_lr"]))
        self._begin()

    def _starting(self) -> list[Any]:
        """The schedulers that take the first step."""
        return self._schedulers

    def _begin(self) -> None:
        """Go to epoch 0, from the rates that the groups have."""
        for each in self._starting():
            if isinstance(each, _Several):
                each._begin()
            else:
                each.last_epoch = -1
                each._initial_step()
        self._last_lr = _rates(self.optimizer)

    def recursive_undo(self, sched: Any = None) -> None:
        """Take back the step that making the schedulers took; the rates stay.

        Of schedulers made of others only those are put back, as in PyTorch: a sequence that begins
        another one comes to its own milestones a step early.
        """
        for each in (self if sched is None else sched)._schedulers:
            if hasattr(each, "_schedulers"):
                self.recursive_undo(each)
            elif hasattr(each, "last_epoch"):
                each.last_epoch -= 1

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer, and the states of the schedulers."""
        hidden = ("optimizer", "_schedulers")
        state = {key: value for key, value in self.__dict__.items() if key not in hidden}
        state["_schedulers"] = [each.state_dict() for each in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state."""
        self.__dict__.update({key: value for key, value in state_dict.items()
                              if key != "_schedulers"})
        for own, saved in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            own.load_state_dict(saved)


class SequentialLR(_Several):
    """One scheduler after another, from one milestone to the next."""

    def __init__(self, optimizer: Optimizer, schedulers: list[Any], milestones: list[int],
                 last_epoch: int = -1) -> None:
        if not schedulers:
            raise ValueError("SequentialLR expects at least one scheduler to be chained, but got "
                             "no scheduler.")
        check_parts("SequentialLR", schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError("Sequential Schedulers expects number of schedulers provided to be "
                             "one more than the number of milestone points, but got number of "
                             f"schedulers {len(schedulers)} and the number of milestones to be "
                             f"equal to {len(milestones)}")
        self.optimizer = optimizer
        self._schedulers = schedulers
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        # Making the schedulers set rates: take those steps back, then take the first one's again.
        for group in optimizer.param_groups:
            set_rate(group, copied(group["initial_lr"]))
        self.recursive_undo()
        schedulers[0]._initial_step()
        self._last_lr = schedulers[0].get_last_lr()

    def _starting(self) -> list[Any]:
        return self._schedulers[:1]

    def _begin(self) -> None:
        super()._begin()
        self.last_epoch = 0

    def step(self) -> None:  # type: ignore[override]
        """Step the scheduler whose turn it is."""
        self.last_epoch += 1
        turn = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[turn]
        if turn > 0 and self._milestones[turn - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_Several):
    """All schedulers at every step, each changing the rate that the one before left."""

    def __init__(self, schedulers: Sequence[Any], optimizer: Optimizer | None = None) -> None:
        if not schedulers:
            raise ValueError("ChainedScheduler expects at least one scheduler to be chained, but "
                             "got no scheduler.")
        self.optimizer = optimizer or schedulers[0].optimizer
        check_parts("ChainedScheduler", schedulers, self.optimizer)
        self._schedulers = list(schedulers)
        self._last_lr = _rates(self.optimizer)

    def step(self) -> None:  # type: ignore[override]
        """Step every scheduler."""
        for each in self._schedulers:
            each.step()
        self._last_lr = _rates(self.optimizer)


def check_parts(kind: str, schedulers: Sequence[Any], optimizer: Any) -> None:
    """Raise for what a scheduler made of others cannot hold: TypeError for what is no scheduler,
    ValueError for one of another optimizer or one that takes a metric."""
    for number, each in enumerate(schedulers):
        if not hasattr(each, "optimizer"):
            raise TypeError(f"{kind} at index {number} should have `optimizer` as its attribute.")
        if isinstance(each, ReduceLROnPlateau):
            raise ValueError(
                f"{kind} does not support `ReduceLROnPlateau` scheduler as it requires additional "
                f"kwargs to be specified when calling `step`, but got one at index {number} in the "
                "given schedulers sequence.")
        if each.optimizer is not optimizer:
            raise ValueError(f"{kind} expects all schedulers to belong to the same optimizer, but "
                             f"got scheduler at index {number} of another")


class ReduceLROnPlateau(LRScheduler):
    """The rate times ``factor`` when a metric has not improved for more than ``patience`` epochs.

    ``mode``: whether lower ("min") or higher values are better; ``threshold`` how much counts,
    relative or "abs"; ``cooldown`` epochs are waited for after each cut.
    """

    def __init__(self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1,
                 patience: int = 10, threshold: float = 1e-4, threshold_mode: str = "rel",
                 cooldown: int = 0, min_lr: Any = 0, eps: float = 1e-8) -> None:
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        self.factor = factor
        self.min_lrs = listed(min_lr, optimizer, "min_lrs")
        self.default_min_lr = None if isinstance(min_lr, list | tuple) else min_lr
        self.patience = patience
        self.cooldown = cooldown
        self.eps = eps
        self.mode = mode
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.last_epoch = 0
        self._last_lr = _rates(optimizer)
        self._reset()

    def _reset(self) -> None:
        """Forget the best value and the bad epochs."""
        self.best = math.inf if self.mode == "min" else -math.inf
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Take in a metric, and cut the rates when it is time."""
        current = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.is_better(current, self.best):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._cut()
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = _rates(self.optimizer)

    def _cut(self) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise RuntimeError(
                    f"The number of param groups in the `optimizer` ({len(groups)}) differs from "
                    f"when `ReduceLROnPlateau` was initialized ({len(self.min_lrs)}), usually due "
                    "to a new param group being added to the optimizer\n  mend: give `min_lrs` a "
                    "value for each group")
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, least in zip(groups, self.min_lrs, strict=True):
            old = float(group["lr"])
            new = max(old * self.factor, least)
            if old - new > self.eps:
                set_rate(group, new)

    @property
    def in_cooldown(self) -> bool:
        """Whether a cut was made too recently for another."""
        return self.cooldown_counter > 0

    def is_better(self, a: float, best: float) -> bool:
        """Whether ``a`` improves on the best by more than the threshold."""
        if self.threshold_mode == "rel":
            factor = 1.0 - self.threshold if self.mode == "min" else 1.0 + self.threshold
            bound = best * factor
        else:
            bound = best - self.threshold if self.mode == "min" else best + self.threshold
        return a < bound if self.mode == "min" else a > bound
