"""Who holds a device's memory, by the line that asked for it: the text of the error."""

from __future__ import annotations

import sys
import traceback
from typing import Any, NamedTuple

from slipstream.core.memory.graphs import largest, look
from slipstream.core.memory.ladder import again
from slipstream.core.memory.statistics import format_bytes, largest_hole
from slipstream.core.native.driver import DriverError
from slipstream.core.vocab.errors import OutOfMemoryError
from slipstream.core.vocab.modes import decode_site

# How many lines an error names.
LINES = 10


class Holder(NamedTuple):
    """A line of the user's program, and what blocks that it asked for are in use."""

    file: str
    line: int
    nbytes: int
    blocks: int

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.file else "no line is known"
        many = "block" if self.blocks == 1 else "blocks"
        return f"{format_bytes(self.nbytes)} in {self.blocks} {many}: {place}"


def holders(allocator: Any) -> list[Holder]:
    """Every line that holds memory, the largest holder first; bytes are those asked for."""
    sums: dict[tuple[Any, int], list[int]] = {}
    for address, size, _ in allocator.live_blocks():
        code, instruction, nbytes = allocator.ledger.site(address)
        total = sums.setdefault((code, instruction), [0, 0])
        total[0] += nbytes or size
        total[1] += 1
    lines: dict[tuple[str, int], list[int]] = {}
    for (code, instruction), total in sums.items():
        line = lines.setdefault(decode_site(code, instruction), [0, 0])
        line[0] += total[0]
        line[1] += total[1]
    found = [Holder(*place, *total) for place, total in lines.items()]
    return sorted(found, key=lambda holder: (-holder.nbytes, holder.file, holder.line))


def card_text(allocator: Any, reserved: int) -> str:
    """What the driver says of the card: free, total, and what others hold."""
    try:
        free, total = allocator.memory.info()
    except (DriverError, AttributeError):
        return ""
    others = max(0, total - free - reserved)
    return (f"GPU {allocator.ordinal} has a total capacity of {format_bytes(total)} of which "
            f"{format_bytes(free)} is free; {format_bytes(others)} is held by the CUDA context, "
            "libraries and other processes. ")


def out_of_memory(allocator: Any, nbytes: int) -> OutOfMemoryError:
    """The error for a request that no memory was found for; it carries text, no frames."""
    pieces = allocator.pieces
    reserved = pieces.held()
    limit = f", limit {format_bytes(pieces.limit)}" if pieces.limit else ""
    found = holders(allocator)
    lines = [f"  {holder}" for holder in found[:LINES]]
    if len(found) > LINES:
        rest = sum(holder.nbytes for holder in found[LINES:])
        lines.append(f"  {format_bytes(rest)} by {len(found) - LINES} other lines")
    listing = "\n".join(["\nMemory in use by the line that asked for it:", *lines])
    return OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate {format_bytes(nbytes)}. "
        f"{card_text(allocator, reserved)}"
        f"This process has {format_bytes(allocator.live_bytes)} in use, "
        f"{format_bytes(reserved)} reserved{limit}, "
        f"largest hole {format_bytes(largest_hole(allocator))}. "
        f"Python's collector, asked for more, freed {format_bytes(allocator.collected)}."
        f"{listing if lines else ''}\n  mend: {mend_of(allocator, nbytes)}"
    )


def mend_of(allocator: Any, nbytes: int) -> str:
    """What the user can do about a request that no memory was found for."""
    kept = kept_text(allocator)
    if kept:
        # More room would only put it off.
        return kept
    pieces = allocator.pieces
    if pieces.limit and nbytes + allocator.live_bytes <= card_free(allocator) + pieces.held():
        return ("the card has room: raise the limit that "
                "cuda.memory.set_per_process_memory_fraction() set")
    if allocator.live_bytes < nbytes:
        return ("this request alone is too large: make it in parts, in a narrower dtype, or on the "
                "CPU")
    return ("let go (del) of what a line above holds and is not needed, take a smaller batch, or "
            "compute parts again in backward (utils.checkpoint); cuda.memory_report() shows this "
            "at any time, `slipstream memory script.py` what held the peak")


def kept_text(allocator: Any) -> str:
    """Which results keep their graphs alive, where these hold much; "" where they do not."""
    sizes = {address: allocator.ledger.site(address)[2] or size
             for address, size, _ in allocator.live_blocks()}
    whole = sum(sizes.values())
    found = largest(look().kept, sizes, whole)
    return "" if found is None else found[0].text(found[1], whole)


def card_free(allocator: Any) -> int:
    """What the driver has free; 0 where it does not tell."""
    try:
        return int(allocator.memory.info()[0])
    except (DriverError, AttributeError):
        return 0


def release_pools(allocator: Any, nbytes: int) -> int:
    """Rung: free memory of pools goes back to the card, but what a graph's replays use."""
    allocator.release_abandoned()
    found = [memory for memory in allocator.beside() if not memory.held and memory.pieces.held()]
    for memory in found:
        memory.empty_cache()
    return again(allocator, nbytes)


def forget_frames(allocator: Any, nbytes: int) -> int:
    """Rung: while an error of this kind is handled, its traceback holds frames, and they tensors.

    Functions that have ended let go of their variables, so that a smaller batch may go on inside
    the ``except`` block.
    """
    error = sys.exc_info()[1]
    cleared = False
    while error is not None:
        if isinstance(error, OutOfMemoryError):
            traceback.clear_frames(error.__traceback__)
            cleared = True
        error = error.__context__
    return again(allocator, nbytes) if cleared else 0
