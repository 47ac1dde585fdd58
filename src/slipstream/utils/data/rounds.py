"""One round over a DataLoader: in this thread, or by workers."""

from __future__ import annotations

import warnings
import weakref
from typing import Any

import slipstream as ss
from slipstream.core.api.profiling import profiling, span
from slipstream.utils.data.crew import Crew
from slipstream.utils.data.pinning import pin_memory
from slipstream.utils.data.sampler import home_of
from slipstream.utils.data.workers import RESUME, Ended, Failure, Fetcher, Job

NO_MORE = object()


class Round:
    """The iterator of a DataLoader: batches in the sampler's order.

    It keeps what it needs of the loader, never the loader: that one holds a persistent iterator,
    and workers should end when both are dropped, not when the collector finds them.
    """

    def __init__(self, loader: Any) -> None:
        self.dataset = loader.dataset
        self.num_workers = loader.num_workers
        self.index_sampler = loader._index_sampler
        self.promised = loader._promised
        self.pins = bool(loader.pin_memory) and ss.cuda.is_available()
        if loader.pin_memory and not self.pins:
            warnings.warn("'pin_memory' argument is set as true but no accelerator is found, then "
                          "device pinned memory won't be used.", stacklevel=4)
        self.indices = iter(self.index_sampler)
        # Drawn in every round, with or without workers: the generator goes on alike.
        drawn = ss.empty((), dtype=ss.int64, device=home_of(loader.generator))
        self.base_seed = int(drawn.random_(generator=loader.generator).item())
        self.given = 0

    def __iter__(self) -> Round:
        return self

    def __len__(self) -> int:
        return len(self.index_sampler)

    def __next__(self) -> Any:
        if not profiling():
            return self._next()
        with span("DataLoader", data=True) as record:
            found = self._next()
            # Of a batch one more than the workers, 0 where the round ends.
            record.value = self.num_workers + 1
            return found

    def _next(self) -> Any:
        batch = self.next_batch()
        self.given += 1
        if self.promised is not None and self.given > self.promised:
            self._warn_of_more()
        return pin_memory(batch) if self.pins else batch

    def next_batch(self) -> Any:
        """The next batch, not pinned yet.  Raises StopIteration at the end."""
        raise NotImplementedError

    def _warn_of_more(self) -> None:
        warnings.warn(
            f"Length of IterableDataset {self.dataset} was reported to be {self.promised} (when "
            f"accessing len(dataloader)), but {self.given} samples have been fetched. With workers "
            "this may mean that each gives the whole stream: see get_worker_info.", stacklevel=3)

    def __getstate__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled")


class RoundHere(Round):
    """A round in the thread that asks for it."""

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        if loader.timeout != 0:
            raise AssertionError("a DataLoader without workers has no timeout")
        self.fetcher = Fetcher(loader.dataset, loader._auto_collation, loader.collate_fn,
                               loader.drop_last)

    def next_batch(self) -> Any:
        """Fetch the samples of the sampler's next indices."""
        return self.fetcher.fetch(next(self.indices))


class RoundByWorkers(Round):
    """A round by workers, which are ``prefetch_factor`` batches ahead each.

    Batch i is made by worker i modulo their number, as long as no stream is at its end.  The
    workers end with the round, or, if persistent, with this object.
    """

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        if loader.prefetch_factor <= 0:
            raise AssertionError("prefetch_factor must be greater than 0 where there are workers")
        self.prefetch_factor = loader.prefetch_factor
        self.timeout = loader.timeout
        self.in_order = loader.in_order
        self.persists = loader.persistent_workers
        self.crew = Crew(loader._worker_context())
        # Ends the workers when this iterator is dropped, and at the interpreter's exit.
        self.end = weakref.finalize(self, self.crew.close)
        try:
            for worker in range(self.num_workers):
                self.crew.start(self._job(loader, worker))
        except BaseException:
            self.end()
            raise
        self._begin()

    def _job(self, loader: Any, worker: int) -> Job:
        return Job(loader.dataset, loader._auto_collation, loader.collate_fn, loader.drop_last,
                   loader.worker_init_fn, self.base_seed, worker, loader.num_workers,
                   self.crew.context is None)

    def _begin(self) -> None:
        count = self.num_workers
        self.active = [True] * count
        self.load = [0] * count
        self.turn = 0
        self.next_worker = 0
        self.pending: dict[int, int] = {}
        self.arrived: dict[int, Any] = {}
        for _ in range(count * self.prefetch_factor):
            self._assign()

    def restart(self, loader: Any) -> None:
        """Begin another round with the same workers; what is left of the last one is dropped."""
        if not self.end.alive:
            raise RuntimeError("the workers of this DataLoader have ended")
        try:
            self.indices = iter(self.index_sampler)
            self.promised = loader._promised
            self.given = 0
            self._resume_all()
            self._begin()
        except BaseException:
            # Workers of which some may still be in the last round would mix the two.
            self._abandon()
            raise

    def _resume_all(self) -> None:
        waiting = self.num_workers
        for worker in range(waiting):
            self.crew.give(worker, RESUME)
        while waiting:
            turn, _ = self.crew.receive(self.timeout)
            waiting -= turn == RESUME

    def _assign(self) -> None:
        """Give the next indices to the worker whose turn it is, if there are any of both."""
        wanted = next(self.indices, NO_MORE)
        worker = self._choose()
        if wanted is NO_MORE or worker < 0:
            return
        self.crew.give(worker, (self.turn, wanted))
        self.pending[self.turn] = worker
        self.load[worker] += 1
        self.turn += 1

    def _choose(self) -> int:
        count = self.num_workers
        turns = [(self.next_worker + step) % count for step in range(count)]
        able = [each for each in turns if self.active[each]]
        if not able:
            return -1
        chosen = able[0] if self.in_order else min(able, key=self.load.__getitem__)
        self.next_worker = chosen + 1
        return chosen

    def next_batch(self) -> Any:
        """The batch whose turn it is, or the first that arrived if not ``in_order``.

        Raises what was raised in a worker, with its traceback in the message.
        """
        while self.pending:
            source = self.pending if self.in_order else self.arrived
            turn = next(iter(source), -1)
            if turn in self.arrived:
                return self._deliver(turn)
            self._take()
        if not self.persists:
            self.end()
        raise StopIteration

    def _take(self) -> None:
        try:
            turn, answer = self.crew.receive(self.timeout)
        except BaseException:
            # After a dead worker or a time-out nothing that comes could be trusted to be complete.
            self._abandon()
            raise
        if isinstance(answer, Ended):
            self._retire(answer.worker)
            self._assign()
        else:
            self.arrived[turn] = answer

    def _abandon(self) -> None:
        self.pending = {}
        self.arrived = {}
        self.end()

    def _retire(self, worker: int) -> None:
        """A worker's stream is at its end: what it was still to make is left out."""
        self.active[worker] = False
        self.pending = {turn: each for turn, each in self.pending.items()
                        if each != worker or turn in self.arrived}

    def _deliver(self, turn: int) -> Any:
        self.load[self.pending.pop(turn)] -= 1
        answer = self.arrived.pop(turn)
        self._assign()
        if isinstance(answer, Failure):
            raise answer.error()
        return answer
