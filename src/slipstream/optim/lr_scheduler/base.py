"""What all schedulers share."""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import slipstream as ss
from slipstream.optim.optimizer import Optimizer

Rates = list[Any]


class LRScheduler:
    """Sets the learning rates of an optimizer's groups, one step an epoch.

    A subclass defines ``get_lr``, which gives the rates at ``last_epoch`` from those now in force.
    ``last_epoch``: -1 to start; otherwise the groups must have ``initial_lr`` (KeyError).
    """

    _get_lr_called_within_step = False
    # In the first step, whose rates are those that the groups already have.
    _is_initial = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        for number, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError("param 'initial_lr' is not specified in "
                               f"param_groups[{number}] when resuming an optimizer")
        self.base_lrs: Rates = [copied(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        count_steps(optimizer)
        self._step_count = 0
        self._last_lr: Rates = []
        self._initial_step()

    def _initial_step(self) -> None:
        """Take the step that making a scheduler takes: to the epoch after ``last_epoch``."""
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> Rates:
        """The rates that the last step set."""
        return self._last_lr

    def get_lr(self) -> Rates:
        """The rates at ``last_epoch``."""
        raise NotImplementedError

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch, or to a given one, and set the rates."""
        if self._step_count == 1 and not getattr(self.optimizer, "_opt_called", False):
            warnings.warn("Detected call of `lr_scheduler.step()` before `optimizer.step()`: call "
                          "them in the opposite order, or the first value of the schedule is "
                          "skipped.", UserWarning, stacklevel=2)
        self._step_count += 1
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        """Go to the next epoch, or a given one, without counting the step."""
        if epoch is None:
            self.last_epoch += 1
            values = self.get_lr()
        else:
            self.last_epoch = epoch
            closed = getattr(self, "_get_closed_form_lr", None)
            values = self.get_lr() if closed is None else closed()
        self._set(values)

    def _set(self, values: Sequence[Any]) -> None:
        for group, value in zip(self.optimizer.param_groups, values, strict=True):
            set_rate(group, value)
        self._last_lr = [copied(group["lr"]) for group in self.optimizer.param_groups]

    def _current(self) -> Rates:
        return [group["lr"] for group in self.optimizer.param_groups]

    def _scaled(self, factor: float) -> Rates:
        return [rate * factor for rate in self._current()]


def copied(rate: Any) -> Any:
    """A rate that does not change with the group's."""
    return rate.clone() if isinstance(rate, ss.Tensor) else rate


def set_rate(group: dict[str, Any], rate: Any) -> None:
    """Set a group's rate; where that is a tensor, in place: a captured step reads it there."""
    if isinstance(group["lr"], ss.Tensor):
        group["lr"].fill_(rate.item() if isinstance(rate, ss.Tensor) else rate)
    else:
        group["lr"] = rate


def count_steps(optimizer: Optimizer) -> None:
    """Let the optimizer's steps leave a mark: a scheduler's first step should come after one."""
    inner = optimizer.step
    if getattr(inner, "counted", False):
        return
    # Weakly, so that an optimizer still goes when its last user lets go of it.
    known = weakref.ref(optimizer)
    function = getattr(inner, "__func__", None)

    @functools.wraps(function or inner)
    def step(*args: Any, **kwargs: Any) -> Any:
        owner: Any = known()
        owner._opt_called = True
        return inner(*args, **kwargs) if function is None else function(owner, *args, **kwargs)

    if function is not None:
        inner = None  # type: ignore[assignment]
    step.counted = True  # type: ignore[attr-defined]
    optimizer.step = step  # type: ignore[method-assign]


def listed(value: Any, optimizer: Optimizer, name: str) -> list[Any]:
    """One value for each group; ValueError for a list of another length."""
    count = len(optimizer.param_groups)
    if not isinstance(value, list | tuple):
        return [copied(value) for _ in range(count)]
    if len(value) != count:
        raise ValueError(f"{name} must have the same length as optimizer.param_groups. {name} has "
                         f"{len(value)} values, param_groups has {count}.")
    return [copied(each) for each in value]
