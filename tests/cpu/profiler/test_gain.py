"""What a mend gains, reckoned from units and counts: the three slow examples as an H200 ran them.

The units are that machine's, in ns; the gains were measured there without a profile.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from slipstream.core.api.pacing import pace_of
from slipstream.core.api.recording import Event, PlanFacts, Recording
from slipstream.core.api.units import Shown, Units
from slipstream.profiler.budgets import Work, dearness, own_time, waits_of, work_of
from slipstream.profiler.diagnosis import diagnose

H200 = Units(replayed=1030, alone=5700, wait=40_000, copy=8_000, byte=0.1)
SHOWN = Shown(pace=1500, gap=30_000, waiting=30_000, waited=5_000, lone_extra=1600,
              graph_extra=9_000, node_extra=300)


@pytest.mark.parametrize(("now", "after", "steps", "gained"), [
    # 40 launches alone; then replayed.
    (Work(40, 40, [], [], 0.0, 37_000), Work(40, 0, [], [], 0.0, 37_000), (230.3, 41.2), 5.58),
    # 64 launches in graphs of four, between 16 waits.
    (Work(64, 0, [("", 0.0)] * 16, [], 0.0, 77_600),
     Work(64, 0, [], [], 0.0, 77_600), (786.9, 73.3), 10.73),
    # 18 launches and one MiB.
    (Work(18, 0, [], [("", 1 << 20)], 0.0, 26_400),
     Work(18, 0, [], [], 0.0, 26_400), (135.6, 25.4), 5.33)])
def test_the_examples_on_an_h200(now: Work, after: Work, steps: tuple[float, float],
                                 gained: float) -> None:
    reckoned = [work.budget(H200, 1).step for work in (now, after)]
    assert reckoned == pytest.approx(steps, rel=0.15)
    assert reckoned[0] / reckoned[1] == pytest.approx(gained, rel=0.2)


def test_dearer_ops_are_dearer_before_and_after() -> None:
    work = Work(64, 0, [], [], 1_000.0, 0.0, dearer=970.0)
    assert work.budget(H200, 1).step == pytest.approx(1 + 64 * 2)


def test_no_step_is_shorter_than_the_cards_work() -> None:
    assert Work(10, 0, [], [], 5_000.0, 2e6).budget(H200, 2).step == pytest.approx(1000.0)
    assert Work(10, 0, [], [], 5_000.0, 2e3).budget(H200, 2).step == pytest.approx(7.65)


def event(kind: str, start: int, end: int, value: int = 0, **more: object) -> Event:
    found = Event(kind, kind, "main.py", 7, "main", start, end, 1, value)
    return replace(found, **more)  # type: ignore[arg-type]


def recorded(events: list[Event], layers: dict[str, int], **more: object) -> Recording:
    plans = {1: PlanFacts("mul", ((4,),), 32, 16, "cuda:0", 1),
             2: PlanFacts("mul", ((4,),), 32, 16, "cpu", 0)}
    calls = sum(each.kind in ("op", "view") for each in events)
    found = Recording(events, [], layers, plans, 0, 10**6, calls, len(events), 0, 0, False,
                      [("MainThread", calls, layers)])
    return replace(found, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("wait", "card", "longer"), [
    (30_000, 5_000, 0.0),
    # The host was slow to wake, the card had nothing to do; the card's work was done before.
    (90_000, 5_000, 0.0), (30_000, 65_000, 0.0),
    (5_030_000, 4_900_000, 4_895_000.0)])
def test_a_wait_is_long_where_host_and_card_say_so(wait: int, card: int, longer: float) -> None:
    begin = 10**7
    seen = recorded([event("kernel", begin - 10, begin - 10 + card, device=0),
                     event("wait", begin, begin + wait)], {})
    assert waits_of(seen, SHOWN) == [("main.py:7", longer)]
    # What came before a wait is nothing to the next one.
    later = event("wait", begin + 10**7, begin + 10**7 + 5_030_000)
    assert waits_of(recorded([*seen.events, later], {}), SHOWN)[1] == ("main.py:7", 0.0)


def calls(count: int, gap: int, length: int, **more: object) -> list[Event]:
    """Ops that follow one another."""
    pitch = gap + length
    return [event("op", pitch * place, pitch * place + length, plan=1, op="mul", **more)
            for place in range(count)]


def test_the_pace_is_that_of_most_ops() -> None:
    events = calls(100, 400, 800)
    assert pace_of(recorded(events, {})) == 1200
    # What comes now and then, another thread's ops and what lies beside a launch do not count.
    late = [replace(each, start=each.start + 10**6, end=each.end + 10**6) for each in events]
    others = [replace(each, thread=2) for each in calls(50, 10, 10)]
    send = event("send", late[3].start + 1, late[3].start + 90_000)
    late[3] = replace(late[3], end=late[3].start + 100_000)
    seen = recorded(sorted([*events, *late, *others, send], key=lambda each: each.start), {})
    assert pace_of(seen) == 1200
    drained = replace(event("send", events[5].start - 1, events[5].end + 1), thread=3)
    seen = recorded(sorted([*events, drained], key=lambda each: each.start), {})
    assert pace_of(seen) == 1200
    # Each line has its own.
    slow = [replace(each, line=8) for each in calls(50, 1000, 2000)]
    slow = [replace(each, start=each.start + 10**7, end=each.end + 10**7) for each in slow]
    assert pace_of(recorded(events + slow, {})) == pytest.approx((99 * 1200 + 50 * 3000) / 149,
                                                                 rel=0.01)
    assert pace_of(recorded([], {})) == pace_of(recorded(events[:1], {})) == 0.0


def test_dearer_ops_are_dearer_without_a_profile_too() -> None:
    assert dearness(recorded(calls(50, 600, 900), {}), SHOWN) == 0.0
    assert dearness(recorded(calls(50, 1000, 2000), {}), SHOWN) == 0.0
    assert dearness(recorded(calls(50, 2000, 3000), {}), SHOWN) == 5000 - SHOWN.pace
    stacks = calls(50, 2000, 3000, stack=(("main.py", 7, "main"),))
    assert dearness(recorded(stacks, {}), SHOWN) == 0.0


def apart(groups: int, gap: int, size: int = 5) -> list[Event]:
    """Ops of a line in groups, with a long gap before each but the first."""
    events = calls(groups * size, 400, 800)
    return [replace(each, start=each.start + place // size * gap,
                    end=each.end + place // size * gap) for place, each in enumerate(events)]


def test_gaps_of_a_loop_are_the_programs_own_work() -> None:
    assert own_time(recorded(calls(100, 400, 800), {}), SHOWN) == 0.0
    # Up to what is usual around waits they are not.
    assert own_time(recorded(apart(20, 100_000), {}), SHOWN) == 0.0
    assert own_time(recorded(apart(20, 300_000), {}), SHOWN) == 19 * 300_000
    assert own_time(recorded(apart(20, 300_000, 100), {}), SHOWN) == 19 * 300_000
    # Loading is said to be; what the host computes lies between.
    events = apart(2, 300_000, 50)
    loading = event("data", 60_100, 359_900)
    assert own_time(recorded([*events[:50], loading, *events[50:]], {}), SHOWN) == 299_800
    each = replace(event("op", 60_100, 359_900), plan=2, op="mul")
    assert own_time(recorded([*apart(20, 300_000), each], {}), SHOWN) == 19 * 300_000


def test_what_a_neighbour_takes_is_no_work_of_the_programs() -> None:
    events = calls(400, 400, 800)

    def held_up(*places: int, gap: int = 4_000_000) -> list[Event]:
        return [replace(each, start=each.start + gap * sum(place >= at for at in places),
                        end=each.end + gap * sum(place >= at for at in places))
                for place, each in enumerate(events)]

    for places in ((77,), (77, 205), (31, 77, 190, 205, 333)):
        assert own_time(recorded(held_up(*places), {}), SHOWN) == 0.0
    # What comes rarely and is long is the program's, as is what comes regularly.
    assert own_time(recorded(held_up(77, gap=10**8), {}), SHOWN) == 10**8
    assert own_time(recorded(held_up(*range(40, 400, 40)), {}), SHOWN) == 9 * 4_000_000


def test_many_waits_of_a_line_are_as_long_as_most() -> None:
    def waited(*lengths: int) -> list[float]:
        events, at = [], 10**7
        for length in lengths:
            events += [event("kernel", at - 10, at - 10 + length, device=0),
                       event("wait", at, at + length)]
            at += 10**7
        return [longer for _, longer in waits_of(recorded(events, {}), SHOWN)]

    usual = 30_000
    assert waited(*[usual] * 18, 4_000_000, 4_000_000) == [0.0] * 20
    assert waited(*[usual + 50_000] * 20) == [50_000] * 20
    # Few are taken as they are.
    assert waited(usual, 4_030_000) == [0.0, 4_000_000]


def test_what_a_profile_shows_beyond_the_cards_time_is_left_out() -> None:
    events = [event("send", 0, 5, 1), event("send", 5, 9, 10, replayed=True)]
    work = work_of(recorded(events, {}), H200, SHOWN, 50_000)
    assert work.alone == 1
    assert work.card == pytest.approx(50_000 - 1600 - 9_000 - 10 * 300)


def test_bytes_that_a_wait_reads_are_no_copy_beside_it() -> None:
    reading = [event("wait", 0, 9, 4), event("host copy", 7, 8, 4)]
    assert work_of(recorded(reading, {}), H200, SHOWN, 0).moves == []
    alone = [event("host copy", 7, 8, 4096)]
    assert work_of(recorded(alone, {}), H200, SHOWN, 0).moves == [("main.py:7", 4096)]


def copying_step(begin: int) -> list[Event]:
    """A step of `examples/slow/copying.py`, as an H200 ran it while CUPTI looked on."""
    found = [event("op", begin + 3_700 + 1_580 * place, begin + 4_900 + 1_580 * place, plan=1,
                   op="mul") for place in range(16)]
    found.append(event("op", begin + 46_300, begin + 255_400, plan=1, op="copy_across"))
    found.append(event("send", begin + 72_800, begin + 111_330, 18, replayed=True))
    found += [event("kernel", begin + 110_700 + 1_400 * place, begin + 112_040 + 1_400 * place,
                    device=0, replayed=True) for place in range(18)]
    found.append(event("host copy", begin + 131_800, begin + 249_940, 1 << 20))
    found.append(event("copy", begin + 231_800, begin + 268_310, 1 << 20, device=0))
    found.append(event("op", begin + 260_200, begin + 265_570, plan=1, op="mul"))
    found.append(event("op", begin + 268_000, begin + 271_900, plan=1, op="add"))
    found.append(event("step", begin, begin + 290_000))
    return found


def test_a_copy_is_blamed_though_cupti_makes_launches_dear() -> None:
    events = [each for number in range(10) for each in copying_step(290_000 * number)]
    seen = recorded(sorted(events, key=lambda each: (each.start, -each.end)), {"Python": 1},
                    timed_by="CUPTI 13.0", end=2_900_000)
    found = diagnose(seen)
    assert found.bound == "copy"
    # What CUPTI takes of the launches is nobody's; the rest of the call is the copy's.
    launching = 38_530 - 630
    assert sum(found.parts.values()) == pytest.approx(found.span - 10 * launching, rel=0.03)
    # By events the launches take what they take.
    assert sum(diagnose(replace(seen, timed_by="events")).parts.values()) == found.span


def test_a_wait_that_reads_is_no_copy() -> None:
    begin = [1_000 * place for place in range(4)]
    events = [event("kernel", 0, 1_000, device=0),
              event("op", begin[1], 60_000, plan=1, op="copy_across"),
              event("wait", begin[2], 55_000, 4), event("host copy", 50_000, 51_000, 4),
              event("kernel", 70_000, 71_000, device=0)]
    found = diagnose(recorded(events, {"Python": 1}, end=71_000))
    assert (found.bound, found.parts["copy"]) == ("wait", 1_000)


@pytest.mark.parametrize(("plans", "said"), [
    (2, "though their shapes repeat: a longer run replays them, profile more steps"),
    (40, "the mend is shapes that repeat, so that windows are replayed")])
def test_a_short_run_is_told_from_shapes_that_never_come_again(plans: int, said: str) -> None:
    events = [event("kernel", 10_000 * place, 10_000 * place + 1_000, device=0,
                    plan=place % plans) for place in range(40)]
    events.append(replace(event("send", 0, 1, 40), name="first sight"))
    found = diagnose(recorded(events, {"Python": 1}, end=400_000))
    assert found.bound == "launch"
    assert found.verdict.startswith("launch-bound: 40 launches, ")
    assert said in found.verdict
