"""The BLAS that NumPy brought along: how many threads it uses.

Small products on several threads wait for one another longer than they compute.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import cast

import numpy as np

_SETTERS = ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_",
            "openblas_set_num_threads")


def _libraries(folder: str) -> list[str]:
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [os.path.join(folder, name) for name in names if "openblas" in name]


def _find_setter() -> Callable[[int], None] | None:
    # os.path: pathlib would cost a tenth of what importing Slipstream takes.
    folder = os.path.dirname(np.__file__)
    places = (os.path.join(os.path.dirname(folder), "numpy.libs"), os.path.join(folder, ".dylibs"))
    for path in [path for place in places for path in _libraries(place)]:
        library = ctypes.CDLL(path)
        for name in _SETTERS:
            setter = getattr(library, name, None)
            if setter is not None:
                setter.argtypes = [ctypes.c_int]
                return cast(Callable[[int], None], setter)
    return None


class Blas:
    """Sets the number of threads; a singleton, `blas`.  Finds the library at the first use."""

    def __init__(self) -> None:
        self.most = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        self.current = 0
        self._setter: Callable[[int], None] | None = None
        self._sought = False

    def use_threads(self, count: int) -> None:
        """Let the next products use at most ``count`` threads."""
        if count == self.current:
            return
        if not self._sought:
            self._sought = True
            self._setter = _find_setter()
        self.current = count
        if self._setter is not None:
            self._setter(count)


blas = Blas()
