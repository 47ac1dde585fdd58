"""Timing of statements: `Timer`, which warms up, synchronizes the GPU and repeats enough."""

from __future__ import annotations

import contextlib
import textwrap
import timeit
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import slipstream as ss

__all__ = ["Measurement", "TaskSpec", "Timer", "select_unit", "timer"]

# Quartiles further apart than these shares of the median are warned of.
SUSPICIOUS = 0.1
GROSS = 0.25
# A block lasts at least a thousandth of all the time, so that reading the clock is no matter.
BLOCK_SHARE = 1000
MOST_RUNS = 1_000_000


def timer() -> float:
    """The time in seconds, after the GPU has done all it was given."""
    if ss.cuda.is_available() and ss.cuda.is_initialized():
        ss.cuda.synchronize()
    return timeit.default_timer()


def select_unit(t: float) -> tuple[str, float]:
    """The unit in which ``t`` seconds are written with few digits, and its length in seconds."""
    for name, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if t >= scale:
            return name, scale
    return "ns", 1e-9


@dataclass(frozen=True)
class TaskSpec:
    """What was timed, in words."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The labels, or else the statement."""
        title = self.label or self.stmt
        if self.sub_label is None:
            return title
        return f"{title}: {self.sub_label}"

    def setup_str(self) -> str:
        """The setup as it stands in a report."""
        if self.setup in ("", "pass"):
            return ""
        if "\n" in self.setup:
            return "setup:\n" + textwrap.indent(self.setup, "  ")
        return f"setup: {self.setup}"

    def summarize(self) -> str:
        """The task's part of a report."""
        return "\n".join([each for each in (self.title, self.description or "", self.setup_str())
                          if each])


@dataclass(repr=False)
class Measurement:
    """Times of one task: ``raw_times`` in seconds, each of ``number_per_run`` runs."""

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        if name in TaskSpec.__dataclass_fields__:
            return getattr(self.task_spec, name)
        raise AttributeError(f"'Measurement' object has no attribute '{name}'")

    @property
    def times(self) -> list[float]:
        """Seconds per run."""
        return [each / self.number_per_run for each in self.raw_times]

    @property
    def median(self) -> float:
        """The median of ``times``."""
        return float(np.median(self.times))

    @property
    def mean(self) -> float:
        """The mean of ``times``."""
        return float(np.mean(self.times))

    @property
    def iqr(self) -> float:
        """The distance of the quartiles of ``times``."""
        low, high = np.quantile(self.times, (0.25, 0.75))
        return float(high - low)

    @property
    def title(self) -> str:
        """The task's title."""
        return self.task_spec.title

    def meets_confidence(self, threshold: float = SUSPICIOUS) -> bool:
        """Whether the quartiles are less than this share of the median apart."""
        return self.iqr / self.median < threshold

    @property
    def has_warnings(self) -> bool:
        """Whether the times vary so much that they mean little."""
        return not self.meets_confidence()

    def _warning(self) -> str:
        share = 100 * self.iqr / self.median
        cause = ("could indicate system fluctuation" if self.meets_confidence(GROSS)
                 else "suggests significant environmental influence")
        return (f"  WARNING: Interquartile range is {share:.1f}% of the median measurement.\n"
                f"           This {cause}.")

    def __repr__(self) -> str:
        unit, scale = select_unit(self.median)
        count, threads = len(self.raw_times), self.task_spec.num_threads
        low, high = np.quantile(self.times, (0.25, 0.75)) / scale
        several = count > 1
        runs = f"{self.number_per_run} runs" + (" per measurement" if several else "")
        lines = [object.__repr__(self), self.task_spec.summarize(),
                 f"  {'Median: ' if several else ''}{self.median / scale:.2f} {unit}"]
        if count >= 4:
            lines.append(f"  IQR:    {high - low:.2f} {unit} ({low:.2f} to {high:.2f})")
        lines.append(f"  {count} measurement{'s' if several else ''}, {runs}, {threads} "
                     f"thread{'s' if threads > 1 else ''}")
        if self.has_warnings:
            lines.append(self._warning())
        return "\n".join(lines)

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """One measurement for each task, with the times of all of that task's."""
        groups: dict[TaskSpec, list[float]] = {}
        for each in measurements:
            groups.setdefault(each.task_spec, []).extend(each.times)
        return [Measurement(1, times, task) for task, times in groups.items()]


class Timer:
    """Times ``stmt``, which sees ``globals`` and what ``setup`` leaves.

    Runs with ``num_threads`` threads.  Raises ValueError for a statement that is no str, and for a
    ``language`` other than Python.
    """

    def __init__(self, stmt: str = "pass", setup: str = "pass", global_setup: str = "",
                 timer: Callable[[], float] = timer, globals: dict[str, Any] | None = None,
                 label: str | None = None, sub_label: str | None = None,
                 description: str | None = None, env: str | None = None, num_threads: int = 1,
                 language: str = "python") -> None:
        if not isinstance(stmt, str):
            raise ValueError("Currently only a `str` stmt is supported.")
        if str(language).lower() not in ("python", "py"):
            raise ValueError(f"language must be Python, but got {language!r}")
        if global_setup:
            raise ValueError("global_setup is C++ only, got "
                             f"`{global_setup}`. Most likely this code can simply be moved to "
                             "`setup`.")
        stmt, setup = textwrap.dedent(stmt).strip(), textwrap.dedent(setup).strip()
        names = {"torch": ss, "slipstream": ss, **(globals or {})}
        self._clock = timer
        self._timer = timeit.Timer(stmt, setup, timer, names)
        self._task_spec = TaskSpec(stmt, setup, global_setup, label, sub_label, description, env,
                                   num_threads)

    def _time(self, number: int) -> float:
        return max(self._timer.timeit(number), 1e-9)

    @contextlib.contextmanager
    def _threads(self) -> Iterator[None]:
        before = ss.get_num_threads()
        ss.set_num_threads(self._task_spec.num_threads)
        try:
            yield
        finally:
            ss.set_num_threads(before)

    def timeit(self, number: int = 1000000) -> Measurement:
        """The time of ``number`` runs in a row, after some to warm up."""
        with self._threads():
            self._time(max(number // 100, 2))
            return Measurement(number, [self._time(number)], self._task_spec)

    def blocked_autorange(self, callback: Callable[[int, float], Any] | None = None,
                          min_run_time: float = 0.2) -> Measurement:
        """Times of blocks of runs, ``min_run_time`` seconds in all at least.

        ``callback(number, seconds)`` is called after each block.
        """
        return self._repeated(min_run_time, lambda result: True, min_run_time, callback)

    def adaptive_autorange(self, threshold: float = 0.1, *, min_run_time: float = 0.01,
                           max_run_time: float = 10.0,
                           callback: Callable[[int, float], Any] | None = None) -> Measurement:
        """As ``blocked_autorange``, until the quartiles are within ``threshold`` of the median."""
        return self._repeated(
            min_run_time,
            lambda result: len(result.raw_times) > 3 and result.meets_confidence(threshold),
            max_run_time, callback)

    def _repeated(self, least: float, enough: Callable[[Measurement], bool], most: float,
                  callback: Callable[[int, float], Any] | None) -> Measurement:
        with self._threads():
            number, total = self._block_size(least), 0.0
            result = Measurement(number, [], self._task_spec)
            while total < least or (total < most and not enough(result)):
                seconds = self._time(number)
                result.raw_times.append(seconds)
                total += seconds
                if callback is not None:
                    callback(number, seconds)
        return result

    def _block_size(self, least: float) -> int:
        """So many runs that reading the clock takes a ten-thousandth of the block, or more."""
        overhead = min(self._clock_reading() for _ in range(5))
        number = 1
        while True:
            seconds = self._time(number)
            long_enough = seconds >= least / BLOCK_SHARE and overhead / seconds <= 1e-4
            if long_enough or seconds >= least or number >= MOST_RUNS:
                return number
            number *= 10

    def _clock_reading(self) -> float:
        return max(timeit.Timer("pass", timer=self._clock).timeit(0), 1e-9)
