"""How rounds and workers of a DataLoader end: interrupted, collected, left by what is no error."""

from __future__ import annotations

import gc
import os
import threading
import time

import pytest

from slipstream.utils import data
from slipstream.utils.data import DataLoader, crew, workers

# Where there is one processor only, two workers are warned of.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
PROCESSES = {"multiprocessing_context": "forkserver"}


class Numbers(data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return index


class Gated(Numbers):
    """Whose sample 2 waits for a gate."""

    def __init__(self):
        self.gate = threading.Event()

    def __getitem__(self, index):
        if index == 2:
            self.gate.wait(10)
        return index


class Rounds(data.Sampler):
    """0 to 15 in the first round, 100 to 115 in the second."""

    def __init__(self):
        self.begun = 0

    def __iter__(self):
        first = 100 * self.begun
        self.begun += 1
        return iter(range(first, first + 16))

    def __len__(self):
        return 16


def interrupted(*_):
    raise KeyboardInterrupt


def test_an_interrupted_restart_leaves_nothing_for_the_next_round(monkeypatch):
    monkeypatch.setattr(crew, "PATIENCE", 0.05)
    dataset = Gated()
    loader = DataLoader(dataset, 2, sampler=Rounds(), num_workers=2, persistent_workers=True)
    first = iter(loader)
    assert next(first).tolist() == [0, 1]
    with monkeypatch.context() as patch:
        patch.setattr(crew.Crew, "receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            iter(loader)
    found = iter(loader)
    assert next(found).tolist() == [100, 101]
    # One worker was still in the first round when the second one began.
    dataset.gate.set()
    assert [each.tolist() for each in found] == [[each, each + 1] for each in range(102, 116, 2)]
    assert list(first) == []


def test_a_persistent_loader_ends_its_workers_without_the_collector():
    gc.collect()
    gc.disable()
    try:
        loader = DataLoader(Numbers(), 2, num_workers=2, persistent_workers=True)
        assert len(list(loader)) == 8
        assert iter(loader) is iter(loader)
        made = loader._iterator.crew.workers
        assert all(each.is_alive() for each in made)
        del loader
        assert not any(each.is_alive() for each in made)
    finally:
        gc.enable()


def collected_elsewhere(pause):
    """Let other threads collect: from the first line to the last nothing is made here."""
    gc.enable()
    pause(0.3)
    gc.disable()


def test_the_collector_may_come_by_in_a_worker(monkeypatch):
    # So that the worker asks for tasks all the time, and the collector comes by in a get.
    monkeypatch.setattr(workers, "LOOKS_AFTER", 0.001)
    gc.collect()
    gc.disable()
    try:
        found = iter(DataLoader(Numbers(), 2, num_workers=1))
        made = found.crew.workers
        found.itself = found
        del found
        # More than the collector lets pass: the next thing made, by whatever thread, calls it.
        kept = [[] for _ in range(5000)]
        collected_elsewhere(time.sleep)
        assert len(kept) == 5000
        made[0].join(5)
        assert not made[0].is_alive()
    finally:
        gc.enable()


def test_a_worker_that_ends_the_crew_waits_for_the_others_alone():
    ready, done, left = threading.Event(), threading.Event(), []

    def collate(samples):
        ready.wait(10)
        if samples == [1]:
            found.crew.close()
            left.extend(each.is_alive() for each in found.crew.workers)
            done.set()
        return samples

    found = iter(DataLoader(Numbers(), 1, num_workers=3, collate_fn=collate))
    ready.set()
    assert done.wait(10)
    assert left == [False, True, False]


class Closes:
    """What ends a crew where its queue is fed to a process, with the queue's lock held."""

    def __init__(self, made, done):
        self.crew, self.done = made, done

    def __reduce__(self):
        with self.crew.tasks[0]._notempty:
            self.crew.close()
        self.done.set()
        return type(None), ()


def test_the_collector_may_come_by_where_a_queue_is_fed():
    found = iter(DataLoader(Numbers(), 2, num_workers=1, **PROCESSES))
    done = threading.Event()
    found.crew.tasks[0].cancel_join_thread()
    found.crew.tasks[0].put(Closes(found.crew, done))
    assert done.wait(10)
    found.crew.workers[0].join(10)
    assert not found.crew.workers[0].is_alive()


class Leaves(Numbers):
    """Whose sample 3 ends its worker, or tries to."""

    def __init__(self, how):
        self.how = how

    def __getitem__(self, index):
        if index == 3:
            self.how(0)
        return index


def leave(status):
    raise SystemExit(status)


def exits_at(worker):
    if worker == 1:
        leave(0)


class Stream(data.IterableDataset):
    """Numbers from 100 in the first round; no second round begins, then from 300 again."""

    def __init__(self, error=ValueError):
        self.begun = [0]
        self.error = error

    def __iter__(self):
        self.begun[0] += 1
        if self.begun[0] == 2:
            raise self.error("no second round")
        first = 100 * self.begun[0]
        return iter(range(first, first + 6))


@pytest.mark.parametrize("how", [{}, PROCESSES], ids=["threads", "processes"])
def test_what_is_no_error_in_a_worker_is_told_as_one(how):
    found = iter(DataLoader(Leaves(leave), 2, num_workers=1, timeout=20, **how))
    assert next(found).tolist() == [0, 1]
    with pytest.raises(RuntimeError, match="Caught SystemExit in DataLoader worker"):
        next(found)
    assert [each.tolist() for each in found][:2] == [[4, 5], [6, 7]]


def test_a_worker_that_left_while_it_began_is_told_of():
    found = iter(DataLoader(Numbers(), 2, num_workers=2, timeout=20, worker_init_fn=exits_at))
    assert next(found).tolist() == [0, 1]
    with pytest.raises(RuntimeError, match="Caught SystemExit in DataLoader worker"):
        next(found)


@pytest.mark.parametrize(("how", "ends", "named"), [
    ({}, interrupted, r"thread\(s\)"), (PROCESSES, os._exit, r"pid\(s\) \d+"),
], ids=["threads", "processes"])
def test_a_worker_that_ended_is_missed_whatever_its_status(monkeypatch, how, ends, named):
    monkeypatch.setattr(crew, "LOOKS_AFTER", 0.05)
    found = iter(DataLoader(Leaves(ends), 2, num_workers=1, timeout=20, **how))
    with pytest.raises(RuntimeError, match=named + ".* exited unexpectedly"):
        list(found)
    assert list(found) == []


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_no_old_stream_goes_on_where_the_new_one_does_not_begin(error):
    loader = DataLoader(Stream(error), 2, num_workers=1, persistent_workers=True)
    assert next(iter(loader)).tolist() == [100, 101]
    found = iter(loader)
    with pytest.raises((ValueError, RuntimeError), match="no second round"):
        next(found)
    with pytest.raises(RuntimeError, match="did not start"):
        next(found)
    assert [each.tolist() for each in loader] == [[300, 301], [302, 303], [304, 305]]
