"""Which launches are timed kernel by kernel, and what times the others' kernels take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from slipstream.core.launch.cuda.activities import Noted, fill
from slipstream.core.launch.cuda.sampling import (
    AGAIN,
    CALM,
    FIRST,
    LONG,
    MOST_CALM,
    PERIOD,
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


def sent(sampler: Sampler, content: int, cost: float = 8.0) -> bool:
    """A send of eight kernels; whether they were timed."""
    timed = not sampler.begin(content, 8, cost)
    sampler.end()
    return timed


def test_the_first_sends_are_timed_and_later_ones_now_and_then() -> None:
    library = Library()
    sampler = Sampler(library, False)
    timed = [sent(sampler, 1) for _ in range(PERIOD * 10 - 1)]
    early = FIRST + CALM
    assert timed[:early + 1] == [True] * early + [False]
    late = [number + 1 for number in range(early, len(timed)) if timed[number]]
    assert late == [period * PERIOD + place for period in range(1, 10) for place in range(AGAIN)]
    assert library.turned == [False] + [True, False] * 9


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
    sampler.begin(7, 1, 1.0)
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
    content.timed, content.others = timed, list(others)
    assert content.fill() == sum(len(timed[0]) for _ in others)
    return [each.times for each in others]


def test_kernels_take_the_mean() -> None:
    timed = [[(0, 10), (30, 60)], [(100, 120), (130, 170)]]
    # The means are 15 and 35: the rest lies before them.
    assert filled(timed, work(1000, 1060)) == [[(1005, 1020), (1025, 1060)]]


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
    content.others = [work(0, 80)]
    assert content.fill() == 0
    assert content.others[0].times == []


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
