"""The order in which samples are taken: one index, or one list of indices, after the other."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

import slipstream as ss

T = TypeVar("T", covariant=True)
# So many indices are drawn at once where they may repeat.
DRAWN_AT_ONCE = 32


def _require_positive(value: Any, name: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} should be a positive integer value, but got {name}={value}")


def home_of(generator: Any) -> Any:
    """The device that a generator draws on: indices come from there, not the default device."""
    return "cpu" if generator is None else generator.device


class Sampler(Generic[T]):
    """The base of all samplers: subclasses define ``__iter__`` and may define ``__len__``."""

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError


class SequentialSampler(Sampler[int]):
    """0, 1, 2, ... up to the length of ``data_source``."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """A random order of all indices, or with ``replacement`` independent draws.

    More than ``len(data_source)`` samples without replacement are one random order after the other.
    Without a generator one is seeded from the default generator.  Raises TypeError for a
    ``replacement`` that is no bool, ValueError unless ``num_samples`` is a positive integer, and
    when drawing without replacement where there is nothing to draw from.
    """

    def __init__(self, data_source: Sized, replacement: bool = False,
                 num_samples: int | None = None, generator: Any = None) -> None:
        if not isinstance(replacement, bool):
            raise TypeError("replacement should be a boolean value, but got "
                            f"replacement={replacement}")
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        _require_positive(self.num_samples, "num_samples")

    @property
    def num_samples(self) -> int:
        """How many indices one round gives; the data set's length may change between rounds."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        generator = self.generator
        if generator is None:
            seed = int(ss.empty((), dtype=ss.int64, device="cpu").random_().item())
            generator = ss.Generator().manual_seed(seed)
        draw = self._independent if self.replacement else self._orders
        return itertools.islice(draw(generator), self.num_samples)

    def _independent(self, generator: Any) -> Iterator[int]:
        size, left = len(self.data_source), self.num_samples
        while left > 0:
            count = min(left, DRAWN_AT_ONCE)
            yield from ss.randint(0, size, (count,), generator=generator,
                                  device=home_of(generator)).tolist()
            left -= count

    def _orders(self, generator: Any) -> Iterator[int]:
        while True:
            size = len(self.data_source)
            if not size:
                # One empty order after the other would never come to the first index.
                raise ValueError(f"RandomSampler: no samples to draw from, but {self.num_samples} "
                                 "are asked for")
            yield from ss.randperm(size, generator=generator, device=home_of(generator)).tolist()

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices in a random order."""

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        order = ss.randperm(len(self.indices), generator=self.generator,
                            device=home_of(self.generator))
        for place in order.tolist():
            yield self.indices[place]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """``num_samples`` indices, each as likely as its weight; the weights need not sum to 1.

    Raises ValueError for weights that are not 1-d, a ``num_samples`` that is no positive integer
    or a ``replacement`` that is no bool.
    """

    def __init__(self, weights: Sequence[float], num_samples: int, replacement: bool = True,
                 generator: Any = None) -> None:
        _require_positive(num_samples, "num_samples")
        if not isinstance(replacement, bool):
            raise ValueError(
                f"replacement should be a boolean value, but got replacement={replacement}")
        self.weights = ss.as_tensor(weights, dtype=ss.float64)
        if self.weights.dim() != 1:
            raise ValueError("weights should be a 1d sequence but given weights have shape "
                             f"{tuple(self.weights.shape)}")
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        home = self.weights.device if self.generator is None else self.generator.device
        drawn = ss.multinomial(self.weights.to(home), self.num_samples, self.replacement,
                               generator=self.generator)
        yield from drawn.tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of ``batch_size`` indices of another sampler; ``drop_last`` leaves out a short one.

    Raises ValueError for a ``batch_size`` that is no positive integer or a ``drop_last`` that is
    no bool.
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        _require_positive(batch_size, "batch_size")
        if not isinstance(drop_last, bool):
            raise ValueError(
                f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler: Any = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (1 if rest and not self.drop_last else 0)
