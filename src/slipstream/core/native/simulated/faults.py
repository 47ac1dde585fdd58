"""What went wrong in a piece of work, in words."""

from __future__ import annotations

from typing import Any

from slipstream.core.native.driver import DriverError
from slipstream.core.vocab.modes import decode_site

OUTSIDE, NOWHERE, MISALIGNED, TRAP, DEADLOCK, RACE, UNMAPPED, CRASH = range(1, 9)
READ, WRITE, ATOMIC = 1, 2, 4
KINDS = {
    OUTSIDE: ("OUT_OF_BOUNDS", "ILLEGAL_ADDRESS"),
    NOWHERE: ("USE_AFTER_FREE", "ILLEGAL_ADDRESS"),
    MISALIGNED: ("MISALIGNED", "MISALIGNED_ADDRESS"),
    TRAP: ("TRAP", "LAUNCH_FAILED"),
    DEADLOCK: ("DEADLOCK", "LAUNCH_TIMEOUT"),
    RACE: ("RACE", "ILLEGAL_STATE"),
    UNMAPPED: ("UNMAPPED", "ILLEGAL_ADDRESS"),
    CRASH: ("CRASH", "ILLEGAL_ADDRESS"),
}


class SimulatedFault(DriverError):
    """The simulated driver saw work do what no program should; the device lives on.

    ``kind``: OUT_OF_BOUNDS, USE_AFTER_FREE (or memory that never was), MISALIGNED, UNMAPPED, RACE,
    TRAP, DEADLOCK or CRASH.  ``work`` names the kernel or copy, ``site`` its (code, instruction);
    ``other`` and ``other_site`` are those of the other side of a race.  ``address`` and ``block``
    (address, bytes) say where; ``others`` is how many more faults the same wait found.
    """

    def __init__(self, kind: str, code: str, text: str) -> None:
        super().__init__("simulated device", code, text)
        self.kind = kind
        self.work = ""
        self.site: Any = None
        self.other = ""
        self.other_site: Any = None
        self.address = 0
        self.block = (0, 0)
        self.others = 0


def place(site: Any) -> str:
    """Where in the user's source something was called, as `` at file:line``; empty if unknown."""
    if not site or site[0] is None:
        return ""
    file, line = decode_site(*site)
    return f" at {file}:{line}"


def verb(access: int) -> str:
    """What an access does."""
    if access & WRITE:
        return "writes"
    return "updates" if access & ATOMIC else "reads"


def describe_block(record: Any, blocks: dict[int, list[Any]]) -> str:
    """The block of a record, with the lines that handed it out and took it back."""
    text = f"the block of {record.size} bytes at {record.start:#x}"
    handed, taken = blocks.get(record.identity, (None, None))
    notes = []
    if place(handed):
        notes.append(f"handed out{place(handed)}")
    if place(taken):
        notes.append(f"taken back{place(taken)}")
    return f"{text} ({', '.join(notes)})" if notes else text


def distance(record: Any) -> str:
    """How an address lies to a block."""
    offset = record.address - record.start
    if offset < 0:
        return f"{-offset} bytes before"
    if offset >= record.size:
        return f"{offset - record.size} bytes past the end of"
    return f"at byte {offset} of"


def where(record: Any) -> str:
    """The thread that did it."""
    block, thread = tuple(record.block), tuple(record.thread)
    return f"in block {block}, thread {thread}"


def illegal(record: Any, work: str, blocks: dict[int, list[Any]]) -> str:
    """The text of an access to bytes that the work may not touch."""
    what = f"{work} {verb(record.access)} {record.nbytes} bytes at {record.address:#x}"
    if record.kind == UNMAPPED:
        return f"{what}, where memory was unmapped while work that uses it was pending"
    if record.kind == MISALIGNED:
        return f"{what}, which is not a multiple of the element's size"
    if record.kind == OUTSIDE:
        return f"{what}, {distance(record)} {describe_block(record, blocks)}"
    if record.other:
        return f"{what}, memory that this device cannot reach (another device's or the host's)"
    if record.size:
        return f"{what}, {distance(record)} {describe_block(record, blocks)}, taken back before"
    return f"{what}, which lies in no block"


def racing(record: Any, work: str, other: str, blocks: dict[int, list[Any]]) -> str:
    """The text of a race."""
    target = f"byte {record.address:#x}"
    if record.size:
        offset = record.address - record.start
        target = f"byte {offset} of {describe_block(record, blocks)}"
    mine, theirs = record.access & 255, record.access >> 8
    return (f"race: {work} {verb(mine)} {target}, which {other} {verb(theirs)}, and nothing puts "
            "the two in order; let one stream wait for the other (wait_stream, an event), or wait "
            "on the host")


def fault_of(record: Any, label: tuple[str, Any], other: tuple[str, Any],
             blocks: dict[int, list[Any]]) -> SimulatedFault:
    """The error that a record of the engine stands for; labels are (name, site) of works."""
    kind, code = KINDS[record.kind]
    work = f"{label[0]}{place(label[1])}"
    if record.kind == RACE:
        text = racing(record, work, f"{other[0]}{place(other[1])}", blocks)
    elif record.kind == DEADLOCK:
        text = (f"{work}: threads of block {tuple(record.block)} wait for each other for ever "
                "(a barrier or warp operation that not all of them reach)")
    elif record.kind in (TRAP, CRASH):
        text = f"{work}: {record.text.decode()}, {where(record)}"
    else:
        text = f"{illegal(record, work, blocks)}, {where(record)}"
    fault = SimulatedFault(kind, code, text)
    fault.work, fault.site = label
    fault.other, fault.other_site = other if record.kind == RACE else ("", None)
    fault.address, fault.block = record.address, (record.start, record.size)
    return fault
