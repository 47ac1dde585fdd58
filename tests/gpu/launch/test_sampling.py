"""Which launches of graphs are timed kernel by kernel, and what times the others' kernels take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from slipstream.core.launch.cuda.sampling import AGAIN, CALM, FIRST, LONG, PERIOD, Content, Sampler


class Library:
    """CUPTI's switch: how it was turned, and whether it turns."""

    def __init__(self, turns: bool = True) -> None:
        self.turned: list[bool] = []
        self.turns = turns

    def whole_graphs(self, whole: bool) -> bool:
        """Turn it."""
        self.turned.append(whole)
        return self.turns


def test_the_first_launches_are_timed_and_later_ones_now_and_then() -> None:
    library = Library()
    sampler = Sampler(library, False)
    whole = [sampler.choose(1, 64, 64.0) for _ in range(PERIOD * 10)]
    early = FIRST + CALM
    assert whole[:early + 1] == [False] * early + [True]
    timed = [number for number in range(early, len(whole)) if not whole[number]]
    # As many of each period, and the switch is turned but twice for them.
    assert len(timed) == 10 * AGAIN - 1 + (10 * PERIOD) % PERIOD
    assert {(number + 1) % PERIOD for number in timed} == set(range(AGAIN))
    assert library.turned == [True, *([False, True] * 9), False]


def test_new_content_is_timed() -> None:
    library = Library()
    sampler = Sampler(library, False)
    for _ in range(20):
        sampler.choose(1, 8, 8.0)
    assert [sampler.choose(2, 8, 8.0) for _ in range(FIRST)] == [False] * FIRST
    # Others that are launched between them are timed too: the switch is not turned for each.
    assert [sampler.choose(1, 8, 8.0) for _ in range(CALM + 1)] == [False] * CALM + [True]
    assert library.turned == [True, False, True]


def test_long_kernels_are_always_timed() -> None:
    sampler = Sampler(Library(), False)
    assert not any(sampler.choose(1, 8, 8.0 * LONG + 1) for _ in range(200))
    assert any(sampler.choose(2, 8, 8.0 * LONG) for _ in range(200))


@pytest.mark.parametrize(("every", "turns", "asked"), [(True, True, 0), (False, False, 1)])
def test_all_are_timed_where_that_is_wanted_or_cupti_has_it_so(
        every: bool, turns: bool, asked: int) -> None:
    library = Library(turns)
    sampler = Sampler(library, every)
    assert not any(sampler.choose(1, 8, 8.0) for _ in range(200))
    assert len(library.turned) == asked


def whole(start: int, end: int) -> Any:
    """Work of which there is one record."""
    return SimpleNamespace(span=(start, end), times=[])


def lengths(work: Any) -> list[int]:
    """How long its kernels took."""
    return [end - start for start, end in work.times]


def test_kernels_take_the_mean_and_what_one_launch_takes_longer() -> None:
    content = Content()
    content.timed = [[(0, 10), (30, 60)], [(100, 120), (130, 170)]]
    content.whole = [whole(1000, 1070), whole(2000, 2050), whole(3000, 3060)]
    assert content.fill() == 6
    # The means are 15 and 35, and 10 between them where the whole takes 60.
    assert lengths(content.whole[2]) == [15, 35]
    assert content.whole[2].times == [(3000, 3015), (3025, 3060)]
    assert lengths(content.whole[0]) == [18, 42]
    assert lengths(content.whole[1]) == [12, 28]
    for work in content.whole:
        assert work.times[0][0] == work.span[0]
        assert work.times[-1][1] == work.span[1]
        assert work.times[0][1] <= work.times[1][0]


def test_kernels_are_never_longer_than_their_graph() -> None:
    content = Content()
    content.timed = [[(0, 50), (50, 100)]]
    content.whole = [whole(0, 80), whole(200, 240)]
    content.fill()
    assert [lengths(work) for work in content.whole] == [[40, 40], [20, 20]]
    assert content.whole[1].times == [(200, 220), (220, 240)]


def test_kernels_side_by_side_stay_so() -> None:
    content = Content()
    content.timed = [[(0, 100), (20, 90)]]
    content.whole = [whole(1000, 1050)]
    content.fill()
    # They take their means, and begin where the graph is as far.
    assert content.whole[0].times == [(1000, 1100), (1010, 1080)]


def test_what_was_never_timed_has_no_mean() -> None:
    content = Content()
    content.whole = [whole(0, 80)]
    assert content.fill() == 0
    assert content.whole[0].times == []
