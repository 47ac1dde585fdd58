"""What users set and ask of the runtime: threads, determinism, the limits of dtypes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from slipstream.core.dispatch.promotion import defaults
from slipstream.core.kernels.cpu.machine import THREADS_MOST, workers
from slipstream.core.native.blas import blas
from slipstream.core.vocab.dtypes import DType, spelled


def get_num_threads() -> int:
    """How many threads one op may use on the CPU."""
    return workers.threads


def set_num_threads(num: int) -> None:
    """Let one op use so many threads on the CPU, at most 257; no result depends on it.

    Raises TypeError for what is no int, RuntimeError for less than one.
    """
    if not isinstance(num, int) or isinstance(num, bool):
        raise TypeError(f"set_num_threads expects an int, but got {type(num).__name__}")
    if num < 1:
        raise RuntimeError("set_num_threads expects a positive integer")
    workers.threads = blas.most = min(num, THREADS_MOST)


def get_num_interop_threads() -> int:
    """How many ops run at a time on the CPU: one."""
    return 1


class Determinism:
    """What `use_deterministic_algorithms` was last told."""

    wanted = False
    warns = False


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Ask for the same bits at every run, which every op gives anyway.

    Ops are deterministic by default; what is not is asked for by an argument of the op.
    """
    Determinism.wanted = bool(mode)
    Determinism.warns = bool(mode and warn_only)


def are_deterministic_algorithms_enabled() -> bool:
    """Whether `use_deterministic_algorithms` was last called with True."""
    return Determinism.wanted


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether `use_deterministic_algorithms` was last called with warn_only."""
    return Determinism.warns


class finfo:
    """The limits of a float dtype, of the parts of a complex one; the default dtype's without.

    Raises TypeError for other dtypes.
    """

    def __init__(self, type: DType | None = None) -> None:
        dtype = defaults.dtype if type is None else spelled(type)
        if not isinstance(dtype, DType):
            raise TypeError(f"finfo(): argument 'type' must be dtype, not {dtype!r}")
        if dtype.category < 2:
            raise TypeError(f"slipstream.finfo() requires a floating point input type. Use "
                            f"slipstream.iinfo to handle '{dtype!r}'")
        real = dtype.to_real()
        facts: Any = ml_dtypes.finfo(real.numpy)
        self.dtype = real.name
        self.bits = real.itemsize * 8
        self.max = float(facts.max)
        self.min = float(facts.min)
        self.eps = float(facts.eps)
        self.tiny = self.smallest_normal = float(facts.tiny)
        self.resolution = float(facts.resolution)

    def __repr__(self) -> str:
        return (f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, "
                f"eps={self.eps:g}, smallest_normal={self.smallest_normal:g}, "
                f"tiny={self.tiny:g}, dtype={self.dtype})")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, finfo) and other.dtype == self.dtype

    def __hash__(self) -> int:
        return hash((finfo, self.dtype))


class iinfo:
    """The limits of an integer dtype; raises TypeError for other dtypes."""

    def __init__(self, type: DType) -> None:
        type = spelled(type)
        if not isinstance(type, DType):
            raise TypeError(f"iinfo(): argument 'type' must be dtype, not {type!r}")
        if type.category != 1:
            raise TypeError(f"slipstream.iinfo() requires an integer input type. Use "
                            f"slipstream.finfo to handle '{type!r}'")
        facts = np.iinfo(type.numpy)
        self.dtype = type.name
        self.bits = type.itemsize * 8
        self.max = int(facts.max)
        self.min = int(facts.min)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, iinfo) and other.dtype == self.dtype

    def __hash__(self) -> int:
        return hash((iinfo, self.dtype))


def can_cast(from_: DType, to: DType) -> bool:
    """Whether an op's result of dtype ``from_`` may be written to a tensor of dtype ``to``.

    Raises TypeError for what is no dtype.
    """
    from_, to = spelled(from_), spelled(to)
    for given in (from_, to):
        if not isinstance(given, DType):
            raise TypeError(f"can_cast(): arguments must be dtypes, not {type(given).__name__}")
    return from_.category <= to.category


NAMES = ("get_num_threads", "set_num_threads", "get_num_interop_threads",
         "use_deterministic_algorithms", "are_deterministic_algorithms_enabled",
         "is_deterministic_algorithms_warn_only_enabled", "finfo", "iinfo", "can_cast")
