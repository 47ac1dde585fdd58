"""What a worker of a DataLoader does, as a thread or as a process."""

from __future__ import annotations

import copy
import itertools
import multiprocessing
import queue
import random
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import slipstream as ss
from slipstream.core.vocab import generators
from slipstream.core.vocab.devices import CPU
from slipstream.utils.data.dataset import IterableDataset
from slipstream.utils.data.packing import packed, unpacked

# So often, in seconds, a waiting worker looks whether its parent lives, and the other way round.
LOOKS_AFTER = 1.0
RESUME = "resume"


@dataclass
class WorkerRandom:
    """The random numbers of one worker thread; processes have the global generators to themselves.

    ``random_generator``: of Python; ``torch_generator``: ours; ``numpy_generator``: NumPy's.
    """

    random_generator: random.Random
    torch_generator: Any
    numpy_generator: np.random.Generator


@dataclass
class WorkerInfo:
    """Which worker this is: ``id`` of ``num_workers``, its ``seed`` and its copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any
    rng: WorkerRandom | None = None
    worker_method: str = "multiprocessing"


_here = threading.local()


def get_worker_info() -> WorkerInfo | None:
    """The running worker's `WorkerInfo`; None outside workers."""
    return getattr(_here, "info", None)


@dataclass
class Ended:
    """A worker's stream is at its end."""

    worker: int


class Failure:
    """An error in a worker, with its traceback as text: tracebacks cannot be sent."""

    def __init__(self, error: BaseException, where: str) -> None:
        self.kind: Any = type(error)
        self.text = "".join(traceback.format_exception(error))
        self.where = where

    def error(self) -> BaseException:
        """An error of the same type, or a RuntimeError where that type wants other arguments."""
        text = f"Caught {self.kind.__name__} {self.where}.\nOriginal {self.text}"
        if self.kind is StopIteration or not issubclass(self.kind, Exception):
            # It would end the caller's loop, or the program, in silence.
            return RuntimeError(text)
        try:
            # The message of a KeyError is shown by its repr: a str that reprs as itself.
            return self.kind(_Verbatim(text) if self.kind is KeyError else text)
        except Exception:
            return RuntimeError(text)


class _Verbatim(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Fetcher:
    """Makes batches: ``fetch(indices)``.  Raises StopIteration at the end of a stream."""

    def __init__(self, dataset: Any, batched: bool, collate_fn: Callable[[Any], Any],
                 drop_last: bool) -> None:
        self.dataset = dataset
        self.batched = batched
        self.collate_fn = collate_fn
        self.drop_last = drop_last
        self.stream = iter(dataset) if isinstance(dataset, IterableDataset) else None
        self.ended = False

    def fetch(self, wanted: Any) -> Any:
        """The collated samples at ``wanted``; a stream gives as many as there are indices."""
        if self.stream is not None:
            return self.collate_fn(self._next_of_stream(wanted))
        if not self.batched:
            return self.collate_fn(self.dataset[wanted])
        together = getattr(self.dataset, "__getitems__", None)
        if together:
            return self.collate_fn(together(wanted))
        return self.collate_fn([self.dataset[each] for each in wanted])

    def _next_of_stream(self, wanted: Any) -> Any:
        if self.ended:
            raise StopIteration
        stream: Any = self.stream
        if not self.batched:
            return next(stream)
        samples = list(itertools.islice(stream, len(wanted)))
        self.ended = len(samples) < len(wanted)
        if not samples or (self.ended and self.drop_last):
            raise StopIteration
        return samples


@dataclass
class Job:
    """All that a worker must know; sent to its process by pickle."""

    dataset: Any
    batched: bool
    collate_fn: Callable[[Any], Any]
    drop_last: bool
    init_fn: Callable[[int], None] | None
    base_seed: int
    worker: int
    num_workers: int
    is_thread: bool

    @property
    def where(self) -> str:
        """Where an error happened, in words."""
        return f"in DataLoader worker {'thread' if self.is_thread else 'process'} {self.worker}"

    def fetcher(self) -> Fetcher:
        """Begin a round over the dataset."""
        return Fetcher(self.dataset, self.batched, self.collate_fn, self.drop_last)


def _numpy_seed(job: Job) -> np.random.SeedSequence:
    """NumPy's seed, of both numbers: unlike Python's, so that their streams differ."""
    low, high = job.base_seed & 0xFFFFFFFF, job.base_seed >> 32
    return np.random.SeedSequence([job.worker, low, high, 0])


def _settle(job: Job) -> None:
    """Seed this worker and tell it who it is."""
    seed = job.base_seed + job.worker
    numpy_seed = _numpy_seed(job)
    rng = None
    if job.is_thread:
        # What a worker_init_fn sets on the dataset is this worker's alone, as in a process.
        job.dataset = _own_copy(job.dataset)
        rng = WorkerRandom(random.Random(seed), ss.Generator().manual_seed(seed),
                           np.random.default_rng(numpy_seed))
        # What the dataset draws without naming a generator repeats, as it does in a process.
        generators.defaults.own.by_device = {CPU: rng.torch_generator}
    else:
        ss.set_num_threads(1)
        random.seed(seed)
        ss.manual_seed(seed)
        np.random.seed(numpy_seed.generate_state(4))
    _here.info = WorkerInfo(job.worker, job.num_workers, seed, job.dataset, rng,
                            "thread" if job.is_thread else "multiprocessing")


def _own_copy(dataset: Any) -> Any:
    if isinstance(dataset, (np.ndarray, ss.Tensor)):
        # Has nothing to set but its elements, and NumPy's copy takes them along.
        return dataset
    try:
        return copy.copy(dataset)
    except Exception:
        # What cannot be copied is shared.
        return dataset


class Worker:
    """Answers tasks until it is told to stop; results are sent as pickles between processes."""

    def __init__(self, job: Job, tasks: Any, results: Any, stop: Any) -> None:
        self.job = job
        self.tasks = tasks
        self.results = results
        self.stop = stop
        self.fetcher: Fetcher | None = None
        self.failure: Failure | None = None
        self.ended = False

    def run(self) -> None:
        """Work; a KeyboardInterrupt is the parent's to report."""
        try:
            self._begin()
            while (task := self._next_task()) is not None:
                self._answer(task)
        except KeyboardInterrupt:
            pass
        finally:
            _here.info = None
            if not self.job.is_thread and self.stop.is_set():
                # Nobody reads what is left: do not wait for it to be read.
                self.results.cancel_join_thread()

    def _begin(self) -> None:
        try:
            _settle(self.job)
            if self.job.init_fn is not None:
                self.job.init_fn(self.job.worker)
            self.fetcher = self.job.fetcher()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # A SystemExit too: the parent waits for an answer.
            self.failure = Failure(error, self.job.where)

    def _next_task(self) -> Any:
        """The next task; None to stop, also where the parent is gone."""
        parent = None if self.job.is_thread else multiprocessing.parent_process()
        while not self.stop.is_set():
            try:
                return unpacked(self.tasks.get(timeout=LOOKS_AFTER))
            except queue.Empty:
                if parent is not None and not parent.is_alive():
                    return None
        return None

    def _answer(self, task: Any) -> None:
        if task == RESUME:
            self.ended = False
            self._resume()
            self._send((RESUME, self.job.worker))
        elif not self.ended:
            turn, wanted = task
            self._send((turn, self._fetch(wanted)))

    def _resume(self) -> None:
        # Where the new stream does not begin, the old one must not go on in its place.
        self.fetcher = self.failure = None
        try:
            self.fetcher = self.job.fetcher()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.failure = Failure(error, self.job.where)

    def _fetch(self, wanted: Any) -> Any:
        if self.fetcher is None or self.failure is not None:
            failure, self.failure = self.failure, None
            return failure or Failure(RuntimeError("the worker did not start"), self.job.where)
        try:
            return self.fetcher.fetch(wanted)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if isinstance(error, StopIteration) and self.fetcher.stream is not None:
                self.ended = True
                return Ended(self.job.worker)
            return Failure(error, self.job.where)

    def _send(self, message: tuple[Any, Any]) -> None:
        if self.job.is_thread:
            self.results.put(message)
            return
        try:
            sent = packed(message)
        except Exception as error:
            # Packed here, not in the queue's thread, so that the parent hears of it.
            sent = packed((message[0], self._sendable(message[1], error)))
        self.results.put(sent)

    def _sendable(self, answer: Any, error: Exception) -> Failure:
        failure = answer if isinstance(answer, Failure) else Failure(error, self.job.where)
        try:
            packed(failure)
        except Exception:
            failure.kind = RuntimeError
        return failure


def work(job: Job, tasks: Any, results: Any, stop: Any) -> None:
    """What threads and processes run."""
    Worker(job, tasks, results, stop).run()
