"""What an allocator did and holds: PyTorch's statistics, a summary, a map of its memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from slipstream.core.vocab.errors import OutOfMemoryError

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
COLUMNS = ("current", "peak", "allocated", "freed")
ROWS = (
    ("Allocated memory", "allocated_bytes"),
    ("Requested memory", "requested_bytes"),
    ("Reserved memory", "reserved_bytes"),
    ("Allocations", "allocation"),
    ("Pieces reserved", "segment"),
)


def format_bytes(nbytes: int) -> str:
    """A number of bytes as people read it."""
    value = float(nbytes)
    for unit in UNITS:
        if abs(value) < 1024 or unit == UNITS[-1]:
            return f"{nbytes} B" if unit == "B" else f"{value:.2f} {unit}"
        value /= 1024
    raise AssertionError


def largest_hole(allocator: Any) -> int:
    """The size of the largest free block, of a segment or a slab."""
    allocator.settled()
    holes = [block.size for block in allocator.large.holes[-1:]]
    free = [shelf.size for shelf in allocator.shelves if shelf.free_slots()]
    return max([0, *holes, *free])


def out_of_memory(allocator: Any, nbytes: int) -> OutOfMemoryError:
    """The error for a request that no memory was found for.

    It carries text, no frames: what the caller lets go of comes back while it is handled.
    """
    pieces = allocator.pieces
    reserved = pieces.reserved.taken - pieces.reserved.given
    limit = f", limit {format_bytes(pieces.limit)}" if pieces.limit else ""
    return OutOfMemoryError(
        f"no memory for {format_bytes(nbytes)}: {format_bytes(allocator.live_bytes)} in use, "
        f"{format_bytes(reserved)} reserved{limit}, "
        f"largest hole {format_bytes(largest_hole(allocator))}"
    )


def taken_blocks(allocator: Any) -> int:
    """How many blocks were handed out so far."""
    return allocator.large_blocks.taken + sum(shelf.taken for shelf in allocator.shelves)


def flow(current: int, taken: int, peak: int | None = None) -> dict[str, int]:
    """The figures of one quantity: what is out, the most there was, what came, what went."""
    peaks = {} if peak is None else {"peak": peak}
    return {"current": current, **peaks, "allocated": taken, "freed": taken - current}


class MemoryStatistics:
    """The counts of an allocator at one moment.

    ``flows``: name -> {current, peak, allocated, freed}, the name as in PyTorch
    (``allocated_bytes.all``, ``reserved_bytes.large_pool``, ...).  Peaks are kept of bytes
    allocated, of what was reserved, and of the large pool.  ``counts``: single numbers by name.
    """

    def __init__(self, allocator: Any) -> None:
        allocator.settled()
        self.flows: dict[str, dict[str, int]] = {}
        pieces = allocator.pieces
        self.add_blocks(allocator)
        self.add_pieces("segment", pieces.count, pieces.count_large)
        self.add_pieces("reserved_bytes", pieces.reserved, pieces.reserved_large)
        asked = allocator.requested_taken
        self.flows["requested_bytes.all"] = flow(asked - allocator.requested_given, asked)
        # Without streams every block that is not free is in use.
        for key in ("all", "large_pool", "small_pool"):
            self.flows[f"active.{key}"] = self.flows[f"allocation.{key}"]
            self.flows[f"active_bytes.{key}"] = self.flows[f"allocated_bytes.{key}"]
        self.counts = {
            "num_alloc_retries": allocator.retries,
            "num_ooms": allocator.failures,
            "num_device_alloc": pieces.count.taken,
            "num_device_free": pieces.count.given,
            "largest_hole": largest_hole(allocator),
        }

    def add_blocks(self, allocator: Any) -> None:
        """Write down the blocks and their bytes: small ones are counted by size class."""
        shelves = allocator.shelves
        blocks, nbytes = allocator.large_blocks.counts(), allocator.large_bytes.counts()
        taken = sum(shelf.taken for shelf in shelves)
        live = sum(shelf.slots - shelf.free_slots() for shelf in shelves)
        size = sum(shelf.taken * shelf.size for shelf in shelves)
        out = allocator.live_bytes - nbytes["current"]
        self.flows["allocation.small_pool"] = flow(live, taken)
        self.flows["allocation.large_pool"] = blocks
        all_taken = taken + blocks["allocated"]
        self.flows["allocation.all"] = flow(live + blocks["current"], all_taken)
        self.flows["allocated_bytes.small_pool"] = flow(out, size)
        self.flows["allocated_bytes.large_pool"] = nbytes
        self.flows["allocated_bytes.all"] = flow(
            allocator.live_bytes, size + nbytes["allocated"], allocator.peak_bytes
        )

    def add_pieces(self, name: str, whole: Any, large: Any) -> None:
        """Write down what was reserved: all, for large blocks, for small ones."""
        every, big = whole.counts(), large.counts()
        self.flows[f"{name}.all"] = every
        self.flows[f"{name}.large_pool"] = big
        current, taken = (every[key] - big[key] for key in ("current", "allocated"))
        self.flows[f"{name}.small_pool"] = flow(current, taken)

    def as_dict(self) -> dict[str, int]:
        """All counts under PyTorch's flat keys."""
        flat = {
            f"{name}.{key}": value
            for name, figures in self.flows.items()
            for key, value in figures.items()
        }
        return dict(sorted((flat | self.counts).items()))


def memory_stats(allocator: Any) -> dict[str, int]:
    """The counts of an allocator under PyTorch's flat keys."""
    return MemoryStatistics(allocator).as_dict()


def all_flows(allocator: Any) -> tuple[Any, ...]:
    """Every quantity of an allocator that is counted by itself."""
    pieces = allocator.pieces
    return (
        allocator.large_blocks, allocator.large_bytes, pieces.reserved, pieces.reserved_large,
        pieces.count, pieces.count_large,
    )


def reset_peak(allocator: Any) -> None:
    """Let every peak begin again at what is in use now."""
    allocator.settled()
    allocator.peak_bytes = allocator.live_bytes
    for quantity in all_flows(allocator):
        quantity.reset_peak()


def reset_totals(allocator: Any) -> None:
    """Forget how much was allocated and freed so far."""
    allocator.settled()
    allocator.requested_taken -= allocator.requested_given
    allocator.requested_given = 0
    for shelf in allocator.shelves:
        shelf.taken = shelf.slots - shelf.free_slots()
    for quantity in all_flows(allocator):
        quantity.reset_totals()


class Count:
    """How many blocks were handed out in a `count_allocations` block, and their bytes."""

    def __init__(self) -> None:
        self.blocks = 0
        self.bytes = 0


@contextmanager
def count_allocations(allocator: Any) -> Iterator[Count]:
    """Count the blocks handed out inside a ``with`` block; the counts are set at its end."""
    count = Count()
    blocks, requested = taken_blocks(allocator), allocator.requested_taken
    try:
        yield count
    finally:
        count.blocks = taken_blocks(allocator) - blocks
        count.bytes = allocator.requested_taken - requested


def memory_summary(allocator: Any) -> str:
    """The statistics as a table."""
    statistics = MemoryStatistics(allocator)
    lines = [" " * 20 + "".join(f"{word:>16}" for word in COLUMNS)]
    for title, name in ROWS:
        figures = statistics.flows[f"{name}.all"]
        show = format_bytes if name.endswith("_bytes") else str
        cells = [show(figures[key]) if key in figures else "" for key in COLUMNS]
        lines.append(f"{title:<20}" + "".join(f"{cell:>16}" for cell in cells))
    hole = format_bytes(statistics.counts["largest_hole"])
    retries, failures = (statistics.counts[key] for key in ("num_alloc_retries", "num_ooms"))
    lines.append(f"largest hole {hole}; retries {retries}; out of memory {failures}")
    return "\n".join(lines)


def snapshot(allocator: Any) -> list[dict[str, Any]]:
    """Every piece of memory by address, each with its blocks: address, size, state.

    Keys as in PyTorch's snapshot: ``address``, ``total_size``, ``allocated_size``,
    ``segment_type`` (small or large), ``blocks``; a block's state is ``active_allocated`` or
    ``inactive``.
    """
    allocator.settled()
    pieces = []
    for shelf in allocator.shelves:
        free = shelf.free_addresses()
        pieces += [slab_map(slab, free) for slab in shelf.slabs]
    blocks = [*allocator.large.live.values(), *allocator.large.holes]
    pieces += [segment_map(block) for block in blocks if block.before is None]
    return sorted(pieces, key=lambda piece: piece["address"])


def block_map(address: int, size: int, free: bool) -> dict[str, Any]:
    """One block of a snapshot."""
    return {"address": address, "size": size, "state": "inactive" if free else "active_allocated"}


def piece_map(kind: str, address: int, nbytes: int, blocks: list[Any]) -> dict[str, Any]:
    """One piece of a snapshot."""
    live = sum(block["size"] for block in blocks if block["state"] != "inactive")
    return {
        "address": address,
        "total_size": nbytes,
        "allocated_size": live,
        "active_size": live,
        "segment_type": kind,
        "blocks": blocks,
    }


def slab_map(slab: Any, free: set[int]) -> dict[str, Any]:
    """A slab and its slots."""
    blocks = [
        block_map(address, slab.size, address in free)
        for address in range(slab.base, slab.base + slab.slots * slab.size, slab.size)
    ]
    return piece_map("small", slab.base, slab.nbytes, blocks)


def segment_map(first: Any) -> dict[str, Any]:
    """A segment and its blocks, from its first one on."""
    blocks, nbytes, block = [], 0, first
    while block is not None:
        blocks.append(block_map(block.address, block.size, block.free))
        nbytes += block.size
        block = block.after
    return piece_map("large", first.address, nbytes, blocks)
