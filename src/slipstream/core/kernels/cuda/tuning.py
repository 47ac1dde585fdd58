"""The fastest of a library's algorithms for a size class, measured on the card and kept on disk."""

from __future__ import annotations

import contextlib
import hashlib
import statistics
from typing import Any

from slipstream.core.kernels.cuda.capturing import Library
from slipstream.core.launch.cuda.modules import folder, keep, read_kept
from slipstream.core.launch.waiting import host_waits
from slipstream.core.native.cublaslt import (
    ALGORITHM_BYTES,
    Addresses,
    Call,
    LibraryError,
    Product,
    algorithm_of,
    class_of,
)
from slipstream.core.vocab import dtypes

# Calls before the first one that is measured, and those that are.
WARM, MEASURED = 2, 5


class Tuner:
    """Picks algorithms by time on a card: those kept on disk, or the fastest of the candidates.

    ``results``: (product, microseconds of each candidate) of what was measured here.
    """

    def __init__(self, library: Library) -> None:
        self.library = library
        self.results: list[tuple[Product, list[float]]] = []

    def __call__(self, call: Call) -> Any:
        """The algorithm for a product."""
        name = self.name_of(call.product)
        path = folder() / name[:2] / name
        kept = read_kept(path, name)
        if kept is not None and len(kept) == ALGORITHM_BYTES and call.can_run(algorithm_of(kept)):
            return algorithm_of(kept)
        found = self.fastest(call)
        keep(path, name, bytes(found))
        return found

    def name_of(self, product: Product) -> str:
        """Where a size class's choice is kept: it holds for one card and version of the library."""
        library = self.library
        parts = ("cublaslt", library.lt.version(), library.card.name, class_of(product))
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def fastest(self, call: Call) -> Any:
        """The candidate whose median time is least."""
        candidates = call.candidates()
        times = self.measured(call, candidates)
        self.results.append((call.product, times))
        return candidates[times.index(min(times))]

    def measured(self, call: Call, candidates: list[Any]) -> list[float]:
        """Microseconds of each candidate, on memory of its own."""
        backend = self.library.backend
        blocks = [backend.scratch(nbytes) if nbytes else None for nbytes in bytes_of(call)]
        host_waits(backend.device, "tuning", backend.wait, bound=True)
        at = Addresses(*[block.address if block is not None else 0 for block in blocks])
        start, end = [backend.driver.create_event(timing=True) for _ in range(2)]
        try:
            return [self.time(call, each, at, (start, end)) for each in candidates]
        finally:
            backend.driver.destroy_event(start)
            backend.driver.destroy_event(end)

    def time(self, call: Call, algorithm: Any, at: Addresses, events: tuple[int, int]) -> float:
        """The median time of an algorithm; infinite where the library refuses it."""
        driver, stream = self.library.backend.driver, self.library.stream
        times = []
        with contextlib.suppress(LibraryError):
            for turn in range(WARM + MEASURED):
                driver.record_event(events[0], stream)
                call.run(at, stream, algorithm)
                driver.record_event(events[1], stream)
                host_waits(self.library.backend.device, "tuning", driver.wait_event, events[1],
                           bound=True)
                if turn >= WARM:
                    times.append(driver.elapsed(*events) * 1e3)
        return statistics.median(times) if times else float("inf")


def bytes_of(call: Call) -> list[int]:
    """Bytes of each operand, the bias and the auxiliary output too, and of the workspace."""
    product = call.product
    size = getattr(dtypes, product.d.dtype).itemsize
    sides = [each.elements * size for each in product[:3]]
    bias = product.d.rows * size if product.biased else 0
    return [*sides, bias, sides[2] if product.auxiliary else 0, call.workspace]
