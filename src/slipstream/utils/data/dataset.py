"""Data sets: by index or as a stream, and what cuts and joins them."""

from __future__ import annotations

import bisect
import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import slipstream as ss
from slipstream.utils.data.sampler import home_of

T = TypeVar("T", covariant=True)


class Dataset(Generic[T]):
    """Samples by index: subclasses define ``__getitem__`` and, for most uses, ``__len__``.

    A ``__getitems__(indices)`` that returns the samples of a whole batch is used where it exists.
    """

    def __getitem__(self, index: Any) -> T:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset[Any]) -> Dataset[Any]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T], Iterable[T]):
    """A stream of samples: subclasses define ``__iter__``.

    Every worker of a DataLoader iterates over the whole stream; `get_worker_info` tells a worker
    which share of it to give.
    """

    def __add__(self, other: Dataset[Any]) -> ChainDataset:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Any, ...]]):
    """Rows of tensors: sample i is a tuple of the i-th row of each.

    Raises AssertionError unless all first dimensions are equal.
    """

    def __init__(self, *tensors: Any) -> None:
        if any(each.size(0) != tensors[0].size(0) for each in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple([each[index] for each in self.tensors])

    def __len__(self) -> int:
        return int(self.tensors[0].size(0))


class ConcatDataset(Dataset[Any]):
    """Several data sets, one after the other.

    Raises AssertionError for no data sets, or for one that is a stream.
    """

    @staticmethod
    def cumsum(sequence: Iterable[Any]) -> list[int]:
        """The number of samples up to the end of each data set."""
        return list(itertools.accumulate(len(each) for each in sequence))

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(each, IterableDataset) for each in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = self.cumsum(self.datasets)

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, idx: int) -> Any:
        if idx < 0:
            if -idx > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            idx += len(self)
        place = bisect.bisect_right(self.cumulative_sizes, idx)
        before = self.cumulative_sizes[place - 1] if place else 0
        return self.datasets[place][idx - before]


class ChainDataset(IterableDataset[Any]):
    """Several streams, one after the other.  AssertionError, once used, for what is no stream."""

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = datasets

    def _streams(self) -> Iterator[Any]:
        for each in self.datasets:
            if not isinstance(each, IterableDataset):
                raise AssertionError("ChainDataset only supports IterableDataset")
            yield each

    def __iter__(self) -> Iterator[Any]:
        for each in self._streams():
            yield from each

    def __len__(self) -> int:
        return sum(len(each) for each in self._streams())


class Subset(Dataset[T]):
    """The samples of ``dataset`` at ``indices``.

    Raises NotImplementedError for a subclass with a ``__getitem__`` but no ``__getitems__`` of its
    own: loaders call the second.
    """

    def __init__(self, dataset: Dataset[T], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices
        mine = type(self)
        if (mine.__getitem__ is not Subset.__getitem__
                and mine.__getitems__ is Subset.__getitems__):
            raise NotImplementedError(
                f"{mine.__name__} overrides __getitem__ but not __getitems__.\n"
                "  mend: def __getitems__(self, indices): return [self[i] for i in indices]")

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, list):
            return self.dataset[[self.indices[each] for each in idx]]
        return self.dataset[self.indices[idx]]

    def __getitems__(self, indices: list[int]) -> list[T]:
        """The samples of a batch, taken at once where the whole data set can do so."""
        chosen = [self.indices[each] for each in indices]
        together = getattr(self.dataset, "__getitems__", None)
        if callable(together):
            return together(chosen)
        return [self.dataset[each] for each in chosen]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Any, lengths: Sequence[float],
                 generator: Any = ss.default_generator) -> list[Subset[Any]]:
    """Cut a data set at random into subsets of ``lengths``, or of fractions that sum to 1.

    What fractions leave over after rounding down goes to the first subsets, one sample each.
    Raises ValueError where the lengths do not sum to the data set's, or for a fraction outside
    [0, 1].
    """
    size = len(dataset)
    total = sum(lengths)
    if math.isclose(total, 1) and total <= 1:
        lengths = _lengths_of(lengths, size)
    if sum(lengths) != size:
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    order = iter(ss.randperm(size, generator=generator, device=home_of(generator)).tolist())
    return [Subset(dataset, list(itertools.islice(order, int(each)))) for each in lengths]


def _lengths_of(fractions: Sequence[float], size: int) -> list[int]:
    for place, each in enumerate(fractions):
        if not 0 <= each <= 1:
            raise ValueError(f"Fraction at index {place} is not between 0 and 1")
    sizes = [math.floor(size * each) for each in fractions]
    for place in range(size - sum(sizes)):
        sizes[place % len(sizes)] += 1
    for place, each in enumerate(sizes):
        if each == 0:
            warnings.warn(f"Length of split at index {place} is 0. This might result in an empty "
                          "dataset.", stacklevel=3)
    return sizes
