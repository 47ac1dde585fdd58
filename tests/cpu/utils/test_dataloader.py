"""The DataLoader: alone, with threads, with processes."""

from __future__ import annotations

import gc
import os
import threading
import time
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest

import slipstream as ss
from slipstream.utils import data
from slipstream.utils.data import DataLoader, get_worker_info

# Where there is one processor only, two workers are warned of.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
HOW = [{}, {"num_workers": 2}, {"num_workers": 2, "multiprocessing_context": "forkserver"}]


class Squares(data.Dataset):
    def __init__(self, size=7, bad=-1, action="raise"):
        self.size, self.bad, self.action = size, bad, action

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        if index == self.bad:
            self.fail()
        return ss.tensor(index * index)

    def fail(self):
        if self.action == "exit":
            os._exit(3)
        if self.action == "sleep":
            time.sleep(1.5)
        raise KeyError("no such sample")


class Sharded(data.IterableDataset):
    step, start = 1, 0

    def __iter__(self):
        return iter(range(self.start, 10, self.step))


def shard(worker):
    info = get_worker_info()
    assert info.id == worker
    info.dataset.start, info.dataset.step = info.id, info.num_workers


class Seeds(data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        info = get_worker_info()
        return info.id, info.seed, ss.initial_seed()


def as_lock(batch):
    return threading.Lock()


def values(loader):
    return [each.tolist() for each in loader]


@pytest.mark.parametrize("how", HOW, ids=["alone", "threads", "processes"])
def test_order_errors_and_shutdown(how):
    assert get_worker_info() is None
    assert values(DataLoader(Squares(), 3, **how)) == [[0, 1, 4], [9, 16, 25], [36]]
    loader = DataLoader(Squares(bad=3), batch_size=2, drop_last=True, **how)
    found = iter(loader)
    assert next(found).tolist() == [0, 1]
    with pytest.raises(KeyError, match="no such sample") as caught:
        next(found)
    if how:
        assert "Caught KeyError in DataLoader worker" in str(caught.value)
        assert "in fail" in str(caught.value)
    assert next(found).tolist() == [16, 25]
    assert list(found) == []


def test_shuffled_alike_with_and_without_workers():
    rounds = [values(DataLoader(Squares(20), 4, shuffle=True, **how,
                                generator=ss.Generator().manual_seed(3))) for how in HOW[:2]]
    assert rounds[0] == rounds[1]
    found = [each for batch in rounds[0] for each in batch]
    assert sorted(found) == [each * each for each in range(20)]


@pytest.mark.parametrize("how", HOW[1:], ids=["threads", "processes"])
def test_streams_are_shared_out_and_workers_persist(how):
    loader = DataLoader(Sharded(), 3, worker_init_fn=shard, persistent_workers=True, **how)
    expected = [[0, 2, 4], [1, 3, 5], [6, 8], [7, 9]]
    first = iter(loader)
    workers = first.crew.workers
    assert next(first).tolist() == expected[0]
    # The round is left in the middle; the next one begins anew with the same workers.
    assert values(loader) == expected
    assert values(loader) == expected
    assert loader._iterator.crew.workers is workers
    del loader, first
    gc.collect()
    assert not any(each.is_alive() for each in workers)


def test_seeds():
    loader = DataLoader(Seeds(), None, **HOW[2], generator=ss.Generator().manual_seed(1))
    (_, first, set_first), (_, second, set_second) = list(loader)
    assert second == first + 1
    assert (set_first, set_second) == (first, second)
    again = DataLoader(Seeds(), None, num_workers=1, generator=ss.Generator().manual_seed(1))
    assert next(iter(again))[1] == first


def test_a_dead_process_and_what_cannot_be_sent():
    found = iter(DataLoader(Squares(bad=0, action="exit"), num_workers=1,
                            multiprocessing_context="spawn"))
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        next(found)
    assert list(found) == []
    with pytest.raises(TypeError, match=r"cannot pickle '_thread\.lock'"):
        next(iter(DataLoader(Squares(), num_workers=1, collate_fn=as_lock,
                             multiprocessing_context="forkserver")))
    with pytest.raises(Exception, match=r"pickle|local object"):
        iter(DataLoader(Squares(), num_workers=1, collate_fn=lambda batch: batch,
                        multiprocessing_context="spawn"))


def test_pinning_without_a_gpu_is_said():
    if ss.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.warns(UserWarning, match="no accelerator is found"):
        assert len(list(DataLoader(Squares(), pin_memory=True))) == 7


def test_timeout_and_threads_end():
    before = set(threading.enumerate())
    with pytest.raises(RuntimeError, match=r"timed out after 0\.2 seconds"):
        next(iter(DataLoader(Squares(bad=0, action="sleep"), num_workers=1, timeout=0.2)))
    found = iter(DataLoader(Squares(), num_workers=2, in_order=False))
    assert sorted(each.item() for each in found) == [each * each for each in range(7)]
    gc.collect()
    # Threads of tests before may end meanwhile.
    assert set(threading.enumerate()) <= before


def test_length_of_a_stream():
    class Short(Sharded):
        def __len__(self):
            return 1

    loader = DataLoader(Short(), None)
    assert len(loader) == 1
    with pytest.warns(UserWarning, match="reported to be 1"):
        list(loader)
    with pytest.raises(TypeError):
        len(DataLoader(Sharded()))


@pytest.mark.parametrize("options", [
    {"num_workers": -1}, {"timeout": -1}, {"prefetch_factor": 2}, {"persistent_workers": True},
    {"sampler": [1], "shuffle": True}, {"batch_sampler": [[1]], "batch_size": 2},
    {"batch_size": None, "drop_last": True}, {"multiprocessing_context": "spawn"},
    {"num_workers": 1, "multiprocessing_context": "fork"}, {"batch_size": 0},
])
def test_options_that_exclude_each_other(options):
    with pytest.raises(ValueError):
        DataLoader(Squares(), **options)


def test_streams_take_no_sampler_and_loaders_stay_as_made():
    for options in ({"shuffle": True}, {"sampler": [1]}, {"batch_sampler": [[1]]}):
        with pytest.raises(ValueError, match="expected unspecified"):
            DataLoader(Sharded(), **options)
    loader = DataLoader(Squares())
    with pytest.raises(ValueError, match="should not be set"):
        loader.batch_size = 2


class Drawn(data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return ss.rand(()).item()


def drawn(seed, init=None):
    """What two worker threads draw without naming a generator."""
    generator = ss.Generator().manual_seed(seed)
    loader = data.DataLoader(Drawn(), 3, num_workers=2, generator=generator, worker_init_fn=init)
    return [batch.tolist() for batch in loader]


def test_threads_draw_numbers_of_their_own():
    before = ss.get_rng_state().tolist()
    first = drawn(1)
    assert first == drawn(1)
    assert first != drawn(2)
    assert len({number for batch in first for number in batch}) == 12
    assert ss.get_rng_state().tolist() == before


def test_a_seed_set_in_a_thread_is_that_workers_alone():
    before, seed = ss.get_rng_state().tolist(), ss.initial_seed()
    seeds = []

    def init(worker):
        seeds.append(ss.initial_seed())
        ss.manual_seed(100 + worker)
        with ss.fork_rng():
            ss.manual_seed(3)

    assert drawn(1, init) == drawn(2, init)
    assert len(set(seeds)) == 4
    assert seed not in seeds
    assert ss.initial_seed() == seed
    assert ss.get_rng_state().tolist() == before


def seen(samples):
    return get_worker_info().dataset


@pytest.mark.parametrize("make", [np.arange, ss.arange], ids=["array", "tensor"])
def test_threads_share_the_elements_of_a_dataset(make):
    numbers = make(6)
    for found in DataLoader(numbers, 3, num_workers=2, collate_fn=seen):
        assert np.shares_memory(np.asarray(found), np.asarray(numbers))


class History(data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        leaf = ss.ones(2, requires_grad=True)
        return leaf * 2 if index else leaf


def test_no_history_is_lost_between_processes():
    found = iter(DataLoader(History(), None, num_workers=1, multiprocessing_context="forkserver"))
    assert next(found).requires_grad
    with pytest.raises(RuntimeError, match="non-leaf tensor which requires_grad"):
        next(found)
    with pytest.raises(RuntimeError, match="non-leaf tensor which requires_grad"):
        ForkingPickler.dumps([ss.ones(1, requires_grad=True) * 2])
