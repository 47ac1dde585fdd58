"""Data sets, samplers and collation."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest

import slipstream as ss
from slipstream.utils import data

Point = namedtuple("Point", "x y")


class Stream(data.IterableDataset):
    def __init__(self, *values):
        self.values = values

    def __iter__(self):
        return iter(self.values)

    def __len__(self):
        return len(self.values)


def test_tensor_concat_chain_and_subset():
    rows = data.TensorDataset(ss.arange(3), ss.arange(3) * 2)
    assert [each.item() for each in rows[2]] == [2, 4]
    both = rows + rows
    assert len(both) == 6
    assert both[4][0].item() == 1
    assert both[-1][0].item() == 2
    with pytest.raises(ValueError, match="absolute value"):
        both[-7]
    assert list(Stream(1, 2) + Stream(3)) == [1, 2, 3]
    assert len(Stream(1) + Stream(3)) == 2
    assert data.Subset(range(5, 9), [3, 0])[0] == 8
    for wrong in (lambda: data.TensorDataset(ss.ones(2), ss.ones(3)),
                  lambda: data.ConcatDataset([]), lambda: data.ConcatDataset([Stream()]),
                  lambda: list(data.ChainDataset([rows]))):
        with pytest.raises(AssertionError):
            wrong()


def test_random_split():
    parts = data.random_split(range(10), [3, 7], ss.Generator().manual_seed(1))
    assert sorted(each for part in parts for each in part) == list(range(10))
    assert [len(each) for each in data.random_split(range(11), [0.5, 0.3, 0.2])] == [6, 3, 2]
    with pytest.raises(ValueError, match="Sum of input lengths"):
        data.random_split(range(3), [1, 1])
    with pytest.raises(ValueError, match="Fraction at index 0"):
        data.random_split(range(3), [-0.5, 1.5])
    with pytest.warns(UserWarning, match="index 1 is 0"):
        data.random_split(range(1), [0.5, 0.5])


def test_samplers():
    seeded = [list(data.RandomSampler(range(9), generator=ss.Generator().manual_seed(5)))
              for _ in range(2)]
    assert seeded[0] == seeded[1]
    assert sorted(seeded[0]) == list(range(9))
    again = list(data.RandomSampler(range(4), num_samples=10))
    assert sorted(again[:4]) == sorted(again[4:8]) == [0, 1, 2, 3]
    assert len(again) == 10
    assert len(list(data.RandomSampler(range(4), True, 70))) == 70
    assert sorted(data.SubsetRandomSampler([7, 5])) == [5, 7]
    assert set(data.WeightedRandomSampler([0.0, 1.0], 5)) == {1}
    assert sorted(data.WeightedRandomSampler([1, 1, 1], 3, False)) == [0, 1, 2]
    batches = data.BatchSampler(data.SequentialSampler(range(5)), 2, False)
    assert (list(batches), len(batches)) == ([[0, 1], [2, 3], [4]], 3)
    short = data.BatchSampler(range(5), 2, True)
    assert (list(short), len(short)) == ([[0, 1], [2, 3]], 2)


@pytest.mark.parametrize(("make", "error"), [
    (lambda: data.RandomSampler([]), ValueError),
    (lambda: data.RandomSampler([1], 1), TypeError),
    (lambda: data.WeightedRandomSampler([[1.0]], 1), ValueError),
    (lambda: data.BatchSampler([1], 0, False), ValueError),
    (lambda: data.BatchSampler([1], 1, 1), ValueError),
])
def test_samplers_refuse(make, error):
    with pytest.raises(error):
        make()


class Empty:
    """Nothing, and an end to asking for it."""

    asked = 0

    def __len__(self):
        self.asked += 1
        assert self.asked < 100
        return 0


@pytest.mark.parametrize("replacement", [False, True])
def test_nothing_can_be_drawn_from_nothing(replacement):
    empty = data.RandomSampler(Empty(), replacement, 5)
    with pytest.raises(RuntimeError if replacement else ValueError, match=r"to draw|less than"):
        next(iter(empty))


def test_collate():
    batch = data.default_collate([{"a": 1, "b": (1.5, "x")}, {"a": 2, "b": (2.5, "y")}])
    assert batch["a"].tolist() == [1, 2]
    assert batch["b"][0].dtype is ss.float64
    assert batch["b"][1] == ("x", "y")
    assert data.default_collate([Point(1, 2), Point(3, 4)]).y.tolist() == [2, 4]
    assert data.default_collate([np.ones(2, np.float32)] * 2).dtype is ss.float32
    assert data.default_collate([np.float32(1), np.float32(2)]).dtype is ss.float32
    assert data.default_collate([True, False]).dtype is ss.bool
    assert data.default_convert([np.arange(2), "a"])[0].tolist() == [0, 1]
    with pytest.raises(TypeError, match="found <class 'object'>"):
        data.default_collate([object()])
    with pytest.raises(RuntimeError, match="equal size"):
        data.default_collate([[1], [1, 2]])


@pytest.mark.parametrize("generator", [None, ss.Generator().manual_seed(3)])
def test_orders_are_drawn_on_the_generators_device(generator):
    given = {"generator": generator}
    # A default device holds for what users make, not for the indices.
    with ss.device("meta"):
        samplers = [data.RandomSampler(range(4), **given),
                    data.RandomSampler(range(4), replacement=True, **given),
                    data.SubsetRandomSampler(range(4), **given)]
        for sampler in samplers:
            assert set(sampler) <= set(range(4))
        halves = data.random_split(range(4), [2, 2], **given)
        assert sorted(index for half in halves for index in half.indices) == [0, 1, 2, 3]
        loader = data.DataLoader(range(4), 2, shuffle=True, collate_fn=sorted, **given)
        assert sorted(index for batch in loader for index in batch) == [0, 1, 2, 3]
