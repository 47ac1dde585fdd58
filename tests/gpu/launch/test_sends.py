"""What a profile notes of a send: the same launches of the same lines are known again."""

from __future__ import annotations

from typing import Any

from slipstream.core.launch.cuda.launches import KernelCode, Launch
from slipstream.core.launch.cuda.sends import Parts, Sends, Work, shared
from slipstream.core.launch.cuda.words import BASIS, MASK, PRIME, Words
from slipstream.core.vocab.ring import KERNEL, Ring


class Making(Sends):
    """Counts how often parts are made."""

    def __init__(self) -> None:
        super().__init__(Ring(8))
        self.made = 0

    def make_parts(self, work: Work, where: int) -> Parts:
        self.made += 1
        items = [(KERNEL, 1, work.trace(place), 0, 1.0) for place in range(len(work.launches))]
        return shared(items, where, work.launches)


def launch_of(name: str) -> Launch:
    return Launch(KernelCode(name, f"// {name}"), 0, ((1, 1, 1), (1, 1, 1), 0), (), b"")


LAUNCHES = [launch_of("first"), launch_of("second")]


def work_with(words: list[int], traces: list[int] | None = None, hollow: int = 0) -> Work:
    found = Work([LAUNCHES[each] for each in words], [])
    if traces is not None:
        found.traces = Words()
        for each in traces:
            found.traces.append(each)
        found.offset = len(traces) - len(words)
        found.hollow = hollow
    return found


def lines_of(parts: Parts) -> list[Any]:
    return [row[2] for row in parts.rows]


def test_the_same_launches_are_known_again():
    sends = Making()
    first = sends.parts_of(work_with([0, 0], [5, 7]), 1 << 8)
    assert sends.parts_of(work_with([0, 0], [5, 7]), 1 << 8) is first
    # The last two of a window whose first has gone out.
    assert sends.parts_of(work_with([0, 0], [9, 5, 7]), 1 << 8) is first
    assert (sends.made, lines_of(first)) == (1, [5, 7])
    # A joined launch has the line and the op of the last of its parts.
    others = [sends.parts_of(work, where) for work, where in (
        (work_with([0, 1], [5, 7]), 1 << 8), (work_with([0, 0], [7, 5]), 1 << 8),
        (work_with([0, 0], [5, 7]), 2 << 8), (work_with([0], [5]), 1 << 8))]
    assert len({id(each) for each in (first, *others)}) == 5
    assert [lines_of(each) for each in others] == [[5, 7], [7, 5], [5, 7], [5]]
    assert sends.parts_of(work_with([0, 0], [5, 7]), 1 << 8) is first


def test_launches_of_one_digest_are_told_apart():
    step = (BASIS ^ 5) * PRIME & MASK
    other = (BASIS ^ 6) * PRIME & MASK
    one, same = work_with([0, 0], [5, 7]), work_with([0, 0], [6, 7 ^ step ^ other])
    assert one.traces.digest() == same.traces.digest()
    sends = Making()
    for work in (one, same, one):
        assert lines_of(sends.parts_of(work, 1 << 8)) == [work.trace(0), work.trace(1)]


def test_a_window_that_is_used_again_changes_nothing_that_is_known():
    sends, work = Making(), work_with([0, 0], [5, 7])
    first = sends.parts_of(work, 1 << 8)
    work.traces.replace(1, 8)
    assert lines_of(sends.parts_of(work, 1 << 8)) == [5, 8]
    assert sends.parts_of(work_with([0, 0], [5, 7]), 1 << 8) is first


def test_what_was_recorded_before_the_profile_is_not_kept():
    sends = Making()
    for _ in range(2):
        found = sends.parts_of(work_with([0, 0, 0], [7], hollow=2), 1 << 8)
        assert lines_of(found) == [0, 0, 7]
    assert sends.made == 2
    # A captured graph's are known by their list.
    captured = work_with([0, 0])
    assert sends.parts_of(captured, 1 << 8) is sends.parts_of(captured, 1 << 8)
    assert sends.parts_of(work_with([0, 0]), 1 << 8) is not sends.parts_of(captured, 1 << 8)
