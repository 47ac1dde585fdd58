"""When an event happened: a host that is woken late would place all of a profile's work late."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from slipstream.core.launch.cuda.sends import AHEAD, Span, done_of, moments
from slipstream.core.launch.cuda.timing import LOOKS, TRIES, Clock

# ns of a call, of the way to the card, and until a sleeping host is woken.
CALL, WAY, WAKE = 100, 3_000, 40_000


class Card:
    """A driver and its hot calls on a clock of their own; ``late``: tries that are disturbed."""

    def __init__(self, way: int, late: tuple[int, ...] = ()) -> None:
        self.way = way
        self.late = late
        self.time = 0
        self.happened: dict[int, int] = {}
        self.destroyed: list[int] = []
        self.made = 0

    def now(self) -> int:
        return self.time

    def create_event(self, timing: bool) -> int:
        assert timing
        self.made += 1
        return self.made

    def record_event(self, event: int, stream: int) -> None:
        self.time += CALL
        self.happened[event] = self.time + self.way
        if event in self.late:
            self.time += WAKE

    def query_event(self, event: int) -> bool:
        self.time += CALL
        return self.time >= self.happened[event]

    def wait_event(self, event: int) -> None:
        self.time = max(self.time, self.happened[event]) + WAKE

    def destroy_event(self, event: int) -> None:
        self.destroyed.append(event)


@pytest.mark.parametrize(("card", "most"), [
    (lambda: Card(WAY), WAY),
    # All tries but one are disturbed.
    (lambda: Card(WAY, (1, 2, 4)), WAY),
    # It takes longer than there are looks: then the host sleeps.
    (lambda: Card(2 * LOOKS * CALL), LOOKS * CALL + WAKE)])
def test_the_closest_try_counts(card: Callable[[], Card], most: int) -> None:
    driver = card()
    clock = Clock(driver, driver, 0, driver.now)  # type: ignore[arg-type]
    assert abs(clock.at - driver.happened[clock.base]) <= most
    assert driver.made == TRIES
    assert sorted([*driver.destroyed, clock.base]) == list(range(1, TRIES + 1))


class Told:
    """A clock by which an event happened at its own number."""

    def of(self, event: int) -> int:
        return event


def span(where: int, begun: int, last: int, first: int = 0) -> Span:
    return Span(first, last, None, where, begun, 5)  # type: ignore[arg-type]


def test_work_without_an_event_before_it_begins_where_its_stream_was_free() -> None:
    ended: dict[int, int] = {}

    def found(*facts: int) -> tuple[int, int]:
        return moments(span(*facts), Told(), ended)  # type: ignore[arg-type]

    stream, other, graph = 1 << 8, 2 << 8, 1 << 32
    assert found(stream, 100, 900) == (100, 900)
    # Behind other work of its stream, of whatever kind; not behind another stream's.
    assert found(stream | graph, 200, 1500) == (900, 1500)
    assert found(other, 200, 1600) == (200, 1600)
    # The stream is empty again.
    assert found(stream, 2000, 2100) == (2000, 2100)
    # The clocks are not quite the same.
    assert found(other, 1700, 1699) == (1699, 1699)
    assert found(stream, 2000, 2600, 2300) == (2300, 2600)


class Looks:
    """Events up to a number have happened; how often somebody looked."""

    def __init__(self, happened: set[int]) -> None:
        self.happened = happened
        self.count = 0

    def query_event(self, event: int) -> bool:
        self.count += 1
        return event in self.happened


@pytest.mark.parametrize("done", [0, 1, 5, 31, 32])
def test_spans_of_one_stream_are_found_done_by_few_looks(done: int) -> None:
    pending = deque(span(1 << 8 | (number % 2) << 32, 0, number) for number in range(32))
    looks, found = Looks(set(range(done))), 0
    while pending:
        count = done_of(pending, looks)
        if not count:
            break
        found += count
        for _ in range(count):
            pending.popleft()
    assert found == done
    # One for each would be 33 at most.
    assert looks.count <= 1 + done // AHEAD + 3 * AHEAD.bit_length() - 2


def test_another_streams_event_says_nothing_of_this_ones() -> None:
    one, other = 1 << 8, 2 << 8
    pending = deque([span(one, 0, 0), span(other, 0, 1), span(one, 0, 2), span(other, 0, 3)])
    assert done_of(pending, Looks({1, 3})) == 0
    assert done_of(pending, Looks({0, 1, 2, 3})) == 1
