"""`DataLoader`: batches of a data set, made here or by workers."""

from __future__ import annotations

import itertools
import math
import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.context import BaseContext
from typing import Any

from slipstream.utils.data.collate import default_collate, default_convert
from slipstream.utils.data.dataset import Dataset, IterableDataset
from slipstream.utils.data.rounds import Round, RoundByWorkers, RoundHere
from slipstream.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
)
from slipstream.utils.data.workers import get_worker_info

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]

THREAD = "thread"
START_METHODS = (THREAD, "forkserver", "spawn")
# A loader that exists keeps these: its samplers were made of them.
FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


class Endless(Sampler[Any]):
    """None for ever: the sampler of streams, whose samples have no index."""

    def __iter__(self) -> Iterator[Any]:
        return itertools.repeat(())


class DataLoader:
    """Batches of a data set, in the order of a sampler.

    ``num_workers`` workers make them ahead of time.  ``multiprocessing_context``: "thread" (the
    default: nothing is pickled, and scripts need no ``__main__`` guard), "forkserver" or "spawn"
    (processes, which do not share the interpreter's lock), or a context of `multiprocessing`.
    Every round draws a base seed from ``generator``; worker i of a process has Python's, NumPy's
    and our generators seeded with base seed + i; in a worker thread that holds for what we draw on
    the CPU, and generators of all three so seeded are in ``get_worker_info().rng``.  Raises
    ValueError for options that exclude each other.
    """

    _ready = False

    def __init__(self, dataset: Any, batch_size: int | None = 1, shuffle: bool | None = None,
                 sampler: Iterable[Any] | None = None,
                 batch_sampler: Iterable[list[Any]] | None = None, num_workers: int = 0,
                 collate_fn: Callable[[Any], Any] | None = None, pin_memory: bool = False,
                 drop_last: bool = False, timeout: float = 0,
                 worker_init_fn: Callable[[int], None] | None = None,
                 multiprocessing_context: Any = None, generator: Any = None, *,
                 prefetch_factor: int | None = None, persistent_workers: bool = False,
                 pin_memory_device: str = "", in_order: bool = True) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        self.dataset: Dataset[Any] = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.in_order = in_order
        self.generator = generator
        self.persistent_workers = persistent_workers
        self._streams = isinstance(dataset, IterableDataset)
        if self._streams:
            _check_stream(shuffle, sampler, batch_sampler)
        _check_batches(batch_size, bool(shuffle), sampler, batch_sampler, drop_last)
        self.batch_size = None if batch_sampler is not None else batch_size
        self.drop_last = drop_last
        self.sampler: Any = self._default_sampler(shuffle) if sampler is None else sampler
        if batch_sampler is None and self.batch_size is not None:
            batch_sampler = BatchSampler(self.sampler, self.batch_size, drop_last)
        self.batch_sampler: Any = batch_sampler
        self.collate_fn = collate_fn or (default_collate if self._auto_collation
                                         else default_convert)
        # What len() said of a stream, to warn where more comes.
        self._promised: int | None = None
        self._iterator: RoundByWorkers | None = None
        self._ready = True
        self.check_worker_number_rationality()

    def _default_sampler(self, shuffle: bool | None) -> Sampler[Any]:
        data: Any = self.dataset
        if self._streams:
            return Endless()
        return RandomSampler(data, generator=self.generator) if shuffle else SequentialSampler(data)

    @property
    def multiprocessing_context(self) -> Any:
        """How workers are started: None, "thread", or a context of `multiprocessing`."""
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, value: Any) -> None:
        if value is not None and self.num_workers == 0:
            raise ValueError("multiprocessing_context can only be used with multi-process loading "
                             f"(num_workers > 0), but got num_workers={self.num_workers}")
        self._context = _checked_context(value)

    def _worker_context(self) -> Any:
        """The context that makes processes; None for threads."""
        return None if self._context in (None, THREAD) else self._context

    def __setattr__(self, name: str, value: Any) -> None:
        if self._ready and name in FIXED:
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is "
                             "initialized")
        super().__setattr__(name, value)

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def __iter__(self) -> Round:
        if self.num_workers == 0:
            return RoundHere(self)
        if not self.persistent_workers:
            return RoundByWorkers(self)
        if self._iterator is None or not self._iterator.end.alive:
            self._iterator = RoundByWorkers(self)
        else:
            self._iterator.restart(self)
        return self._iterator

    def __len__(self) -> int:
        """The number of batches.  TypeError for a stream without a length."""
        if not self._streams:
            return len(self._index_sampler)
        data: Any = self.dataset
        samples = self._promised = len(data)
        if self.batch_size is None:
            return samples
        return (samples // self.batch_size if self.drop_last
                else math.ceil(samples / self.batch_size))

    def check_worker_number_rationality(self) -> None:
        """Warn where there are more workers than processors."""
        processors = len(os.sched_getaffinity(0))
        if self.num_workers > processors:
            warnings.warn(
                f"This DataLoader will create {self.num_workers} worker processes in total. Our "
                f"suggested max number of worker in current system is {processors}, which is "
                "smaller than what this DataLoader is going to create.", stacklevel=3)


def _check_workers(num_workers: int, timeout: float, prefetch_factor: int | None,
                   persistent: bool) -> None:
    if num_workers < 0:
        raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable "
                         "multiprocessing.")
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError("prefetch_factor option could only be specified in multiprocessing. Let "
                         "num_workers > 0 to enable multiprocessing, otherwise set "
                         "prefetch_factor to None.")
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError("prefetch_factor option should be non-negative")
    if persistent and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")


def _check_stream(shuffle: bool | None, sampler: Any, batch_sampler: Any) -> None:
    given = {"shuffle": shuffle or None, "sampler": sampler, "batch_sampler": batch_sampler}
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"DataLoader with IterableDataset: expected unspecified {name} "
                             f"option, but got {name}={value}")


def _check_batches(batch_size: int | None, shuffle: bool, sampler: Any, batch_sampler: Any,
                   drop_last: bool) -> None:
    if sampler is not None and shuffle:
        raise ValueError("sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None:
        if batch_size != 1 or shuffle or sampler is not None or drop_last:
            raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, "
                             "sampler, and drop_last")
    elif batch_size is None and drop_last:
        raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive "
                         "with drop_last")


def _checked_context(value: Any) -> Any:
    if isinstance(value, str):
        if value not in START_METHODS:
            raise ValueError("multiprocessing_context option should specify a valid start method "
                             f"in {START_METHODS!r}, but got multiprocessing_context={value!r}")
        return value if value == THREAD else multiprocessing.get_context(value)
    if value is None:
        return None
    if not isinstance(value, BaseContext):
        raise TypeError("multiprocessing_context option should be a valid context object or a "
                        "string specifying the start method, but got "
                        f"multiprocessing_context={value}")
    if value.get_start_method() == "fork":
        raise ValueError("multiprocessing_context 'fork' would copy a process whose threads hold "
                         "locks\n  mend: use 'thread', 'forkserver' or 'spawn'")
    return value
