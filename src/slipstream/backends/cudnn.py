"""cuDNN's flags.  There is no cuDNN here: convolutions are Slipstream's own, exact and
deterministic, and none of the flags changes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["allow_tf32", "benchmark", "benchmark_limit", "deterministic", "enabled", "flags",
           "is_acceptable", "is_available", "set_flags", "version"]

enabled = True
benchmark = False
benchmark_limit = 10
deterministic = True
allow_tf32 = False

FLAGS = ("enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32")


def is_available() -> bool:
    """Whether cuDNN computes anything: it does not."""
    return False


def version() -> int | None:
    """cuDNN's version: there is none."""
    return None


def is_acceptable(tensor: Any) -> bool:
    """Whether cuDNN could take a tensor: it is not here."""
    return False


def set_flags(_enabled: bool | None = None, _benchmark: bool | None = None,
              _benchmark_limit: int | None = None, _deterministic: bool | None = None,
              _allow_tf32: bool | None = None, **more: Any) -> tuple[Any, ...]:
    """Set the flags that are given; what they were before."""
    before = tuple(globals()[name] for name in FLAGS)
    given = (_enabled, _benchmark, _benchmark_limit, _deterministic, _allow_tf32)
    for name, value in zip(FLAGS, given, strict=True):
        if value is not None:
            globals()[name] = value
    return before


@contextmanager
def flags(enabled: bool = False, benchmark: bool = False, benchmark_limit: int = 10,
          deterministic: bool = False, allow_tf32: bool = True, **more: Any) -> Iterator[None]:
    """A scope with these flags."""
    before = set_flags(enabled, benchmark, benchmark_limit, deterministic, allow_tf32)
    try:
        yield
    finally:
        set_flags(*before)
