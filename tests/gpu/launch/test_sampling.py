"""Which launches are timed kernel by kernel, and what times the others' kernels take."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from slipstream.core.launch.cuda.activities import Noted, fill, resampled
from slipstream.core.launch.cuda.sampling import (
    BESIDE,
    BUDGET,
    CALM,
    FIRST,
    INTERVAL,
    LONG,
    MOST_AGAIN,
    MOST_CALM,
    SHARE,
    Content,
    Sampler,
)


class Library:
    """CUPTI's switch: how it was turned, and whether it turns."""

    def __init__(self, turns: bool = True) -> None:
        self.turned: list[bool] = []
        self.turns = turns

    def time_kernels(self, wanted: bool) -> bool:
        """Turn it."""
        self.turned.append(wanted)
        return self.turns


def sent(sampler: Sampler, content: int, cost: float = 8.0, now: int = 1) -> bool:
    """A send of eight kernels; whether they were timed."""
    timed = not sampler.begin(content, 8, cost, now)
    sampler.end()
    return timed


def late(timed: list[bool], early: int) -> list[int]:
    """Which sends after the first ones were timed."""
    assert timed[:early + 1] == [True] * early + [False]
    return [number for number in range(early, len(timed)) if timed[number]]


def test_the_first_sends_are_timed_and_later_ones_at_steady_intervals() -> None:
    library = Library()
    sampler = Sampler(library, False)
    # As slow as can be, so that the share counts; then so quick that the interval does.
    slow = [sent(sampler, 1, now=1 + number * INTERVAL) for number in range(SHARE * 10)]
    begins = [number for number in late(slow, FIRST + CALM) if not slow[number - 1]]
    assert {after - before for before, after in pairwise(begins)} == {
        SHARE + 2}
    assert sum(slow) == FIRST + CALM + 2 * len(begins)
    assert library.turned == [False] + [True, False] * len(begins)
    sampler = Sampler(Library(), False)
    quick = [sent(sampler, 1, now=1 + number * INTERVAL // 100) for number in range(1000)]
    begins = [number for number in late(quick, FIRST + CALM) if not quick[number - 1]]
    assert len(begins) == 9
    assert {after - before for before, after in pairwise(begins)} <= {101, 102}


class Host:
    """Sends by a host's clock: ns of one, what is added where it is timed, and where it turns."""

    def __init__(self, timed: int, turn: int) -> None:
        self.library = Library()
        self.sampler = Sampler(self.library, False)
        self.timed = timed
        self.turn = turn
        self.now = 1
        self.added = 0

    def send(self, content: int = 1, put_aside: int = 0) -> bool:
        """One send, after which as much time passes; whether it was timed."""
        turned = len(self.library.turned)
        timed = not self.sampler.begin(content, 8, 8.0, self.now)
        added = self.timed * timed + self.turn * (len(self.library.turned) - turned)
        self.now += 30_000 + added + put_aside
        self.sampler.end(self.now)
        self.now += 120_000
        self.added += added
        return timed


@pytest.mark.parametrize("contents", [1, 4])
@pytest.mark.parametrize(("timed", "turn"), [(40_000, 35_000), (200_000, 100_000), (2_000, 1_000)])
def test_laps_take_no_more_than_their_part_of_the_time(
        timed: int, turn: int, contents: int) -> None:
    host = Host(timed, turn)
    for number in range(64 * contents):
        host.send(1 + number % contents)
    begun, spent, laps = host.now, host.added, len(host.library.turned)
    found = [host.send(1 + number % contents) for number in range(20_000)]
    assert host.added - spent <= 1.05 * (host.now - begun) / BUDGET
    # It is used where it is the limit, and each lap is still one.
    laps = (len(host.library.turned) - laps) / 2
    assert laps >= 20
    each = (contents + 1) * timed + 2 * turn
    assert laps >= 0.7 * (host.now - begun) / max(
        BUDGET * each, INTERVAL, SHARE * contents * 150_000)
    assert sum(found) == pytest.approx(laps * (contents + 1), abs=contents + 1)


def test_the_price_of_a_lap_is_what_it_adds() -> None:
    host = Host(40_000, 35_000)
    for _ in range(400):
        host.send()
    assert host.sampler.price == pytest.approx(2 * 40_000 + 2 * 35_000, rel=0.02)


def test_a_neighbours_turn_in_a_lap_is_not_its_price() -> None:
    host = Host(40_000, 35_000)
    for _ in range(400):
        host.send()
    before = host.sampler.price
    while not host.send():
        pass
    host.send(put_aside=50_000_000)
    for _ in range(400):
        host.send()
    assert host.sampler.price == before


def test_sends_of_two_threads_at_once_have_no_price() -> None:
    host = Host(40_000, 35_000)
    for _ in range(20):
        host.send()
    sampler = host.sampler
    usual = dict(sampler.usual)
    sampler.begin(1, 8, 8.0, host.now)
    sampler.begin(1, 8, 8.0, host.now)
    sampler.end(host.now + 5)
    assert sampler.usual == usual


@pytest.mark.parametrize("contents", [1, 3, 7, MOST_AGAIN + 5])
def test_each_content_of_a_loop_is_timed_again(contents: int) -> None:
    sampler = Sampler(Library(), False)
    for number in range(FIRST * contents + MOST_CALM + 1):
        sent(sampler, 1 + number % contents)
    timed = [sent(sampler, 1 + number % contents, now=INTERVAL * number)
             for number in range(SHARE * contents * 40)]
    seen = [sum(timed[place::contents]) for place in range(contents)]
    # No more than one send in so many, however many contents there are.
    assert sum(timed) <= 1.1 * len(timed) * (contents + 1) / contents / SHARE + contents
    assert min(seen) >= 20


def test_new_content_is_timed_and_turns_cost_patience() -> None:
    library = Library()
    sampler = Sampler(library, False)
    for _ in range(20):
        sent(sampler, 1)
    for number in range(2, 5):
        assert all(sent(sampler, number) for _ in range(FIRST))
        calm = min(CALM << (number - 1), MOST_CALM)
        assert [sent(sampler, 1) for _ in range(calm + 1)] == [True] * calm + [False]
    assert library.turned == [False] + [True, False] * 3


def test_what_comes_again_and_again_between_is_timed_always() -> None:
    library = Library()
    sampler = Sampler(library, False)
    # 0: launches that are always to be told of, such as a library's.
    timed = [sent(sampler, 0 if number % 10 == 0 else 1) for number in range(600)]
    assert all(timed[100:])
    assert len(library.turned) < 10


def test_long_kernels_are_always_timed() -> None:
    sampler = Sampler(Library(), False)
    assert all(sent(sampler, 1, 8.0 * LONG + 1) for _ in range(200))
    assert not all(sent(sampler, 2, 8.0 * LONG) for _ in range(200))


def test_nothing_is_turned_while_another_send_is_under_way() -> None:
    library = Library()
    sampler = Sampler(library, False)
    sampler.begin(7, 1, 1.0, 1)
    assert all(sent(sampler, 1) for _ in range(50))
    sampler.end()
    assert not sent(sampler, 1)


@pytest.mark.parametrize(("every", "turns", "asked"), [(True, True, 0), (False, False, 1)])
def test_all_are_timed_where_that_is_wanted_or_cupti_has_it_so(
        every: bool, turns: bool, asked: int) -> None:
    library = Library(turns)
    sampler = Sampler(library, every)
    assert all(sent(sampler, 1) for _ in range(200))
    assert len(library.turned) == asked


def work(start: int, end: int, busy: bool = True, graph: bool = True) -> Any:
    """Work that CUPTI did not tell of."""
    return SimpleNamespace(span=(start, end, busy), graph=graph, times=[])


def filled(timed: list[Any], *others: Any) -> list[list[tuple[int, int]]]:
    """The times that others get."""
    content = Content()
    content.timed = [(number, times) for number, times in enumerate(timed)]
    content.others = [(len(timed), each) for each in others]
    assert content.fill() == sum(len(timed[0]) for _ in others)
    return [each.times for each in others]


def test_kernels_take_the_mean() -> None:
    timed = [[(0, 10), (30, 60)], [(100, 120), (130, 170)]]
    # The means are 15 and 35: the rest lies before them.
    assert filled(timed, work(1000, 1060)) == [[(1005, 1020), (1025, 1060)]]


def test_the_mean_is_that_of_sends_beside() -> None:
    # The card slows down: what was timed long before or after is not counted.
    content = Content()
    content.timed = [(10 * number, [(0, 10 + number)]) for number in range(8)]
    content.others = [(10 * number + 5, work(0, 1_000)) for number in range(8)]
    assert content.fill() == 8
    found = [end - start for _, noted in content.others for start, end in noted.times]
    assert BESIDE == 2
    assert found == [round(each) for each in (11, 11.5, 12.5, 13.5, 14.5, 15.5, 16, 16.5)]


def test_one_short_span_shortens_no_other() -> None:
    # On an empty stream kernels take their own times, though another send took less.
    long, short = work(0, 500, busy=False), work(600, 612)
    assert filled([[(0, 10), (10, 20)]], long, short) == [
        [(480, 490), (490, 500)], [(600, 606), (606, 612)]]


def drifting(count: int, swing: float, steps: int = 40) -> list[Noted]:
    """Launches of some contents that CUPTI told of, whose kernels grow longer and shorter."""
    rows = [[(number,)] * 4 for number in range(count)]
    notes = []
    for number in range(count * steps):
        scale = 1 + swing * abs((number / (count * steps)) * 4 % 2 - 1)
        noted = Noted(rows[number % count], ("kernel",) * 4, True, -1)
        noted.begun = 1 + 200_000 * number
        length = round(4_000 * (1 + number % count) * scale)
        noted.times = [(noted.begun + place * length, noted.begun + (place + 1) * length)
                       for place in range(4)]
        noted.span = noted.begun, noted.begun + 4 * length + 50_000, False
        notes.append(noted)
    return notes


@pytest.mark.parametrize("count", [1, 3, 6])
def test_sums_of_a_sample_are_those_of_the_same_launches(count: int) -> None:
    notes = drifting(count, 0.13, 80)
    before = [list(noted.times) for noted in notes]
    found = resampled(notes)
    assert [noted.times for noted in notes] == before
    assert found.kernels == 4 * len(notes)
    assert found.told == sum(end - start for times in before for start, end in times)
    # Most take the mean, though clocks swing by 13 %.
    assert found.averaged > 0.75 * found.kernels
    assert abs(found.sampled / found.told - 1) < 0.02


def test_kernels_are_never_longer_than_their_span() -> None:
    timed = [[(0, 50), (50, 100)]]
    assert filled(timed, work(0, 80), work(200, 240)) == [
        [(0, 40), (40, 80)], [(200, 220), (220, 240)]]


def test_a_graph_on_an_empty_stream_begins_when_it_can() -> None:
    timed = [[(0, 10), (14, 24)]]
    # The event before it happened at once: the graph came later, and took 24 at most.
    assert filled(timed, work(0, 500, busy=False)) == [[(478, 488), (490, 500)]]
    # Others that followed one another show that it takes less.
    assert filled(timed, work(0, 500, busy=False), work(500, 522))[0] == [(479, 489), (490, 500)]
    # Launches that arrive one by one are apart.
    assert filled(timed, work(0, 500, busy=False, graph=False)) == [[(240, 250), (490, 500)]]


def test_kernels_side_by_side_stay_so() -> None:
    assert filled([[(0, 100), (20, 90)]], work(1000, 1050)) == [[(1000, 1100), (1010, 1080)]]


def test_what_was_never_timed_has_no_mean() -> None:
    content = Content()
    content.others = [(0, work(0, 80))]
    assert content.fill() == 0
    assert content.others[0][1].times == []


def test_times_that_do_not_fit_between_the_events_are_not_believed() -> None:
    rows = [(), ()]

    def told(at: int, first: int) -> Noted:
        noted = Noted(rows, ("one", "other"), True, -1)
        noted.span = at, at + 100, True
        noted.times = [(first, at + 30), (at + 30, at + 60)]
        return noted

    right, wrong = [told(at, at + 10) for at in (2_000_000, 3_000_000)], told(4_000_000, 60_000)
    assert fill([*right, wrong]) == 2
    assert (wrong.untold, [noted.untold for noted in right]) == (True, [False, False])
    assert [end - start for start, end in wrong.times if start >= 4_000_000] == [20, 30]


def test_times_without_events_around_them_are_believed() -> None:
    noted = Noted([()], ("one",), True, -1)
    noted.times = [(60_000, 4_000_000)]
    assert fill([noted]) == 0
    assert noted.times == [(60_000, 4_000_000)]
