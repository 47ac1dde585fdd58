"""Races are found in whatever order work happened to run; ordered work is not reported."""

from __future__ import annotations

import itertools
import random
import sys
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipstream.core.native.simulated import SimulatedFault

MOVE = """
extern "C" __global__ void kernel(int* out, const int* x, int first, int n, int add) {
    int i = first + blockIdx.x * blockDim.x + threadIdx.x;
    if (i < first + n) out[i] = x[i] * 3 + add;
}
"""
COUNT = """
extern "C" __global__ void kernel(int* total) { atomicAdd(total, 1); }
"""
N = 64


class Two:
    """A card with two streams and an event."""

    def __init__(self, card) -> None:
        self.card, self.driver = card, card.driver
        self.streams = (card.stream, card.driver.create_stream())
        self.event = card.driver.create_event()
        self.kernel = card.kernel(MOVE)

    def move(self, which: int, out: int, x: int, first: int = 0, n: int = N) -> None:
        frame = sys._getframe(1)
        self.driver.site = (frame.f_code, frame.f_lasti)
        self.card.launch(self.kernel, 1, 64, "QQiii", out, x, first, n, 1,
                         stream=self.streams[which])

    def edge(self, before: int, after: int) -> None:
        self.driver.record_event(self.event, self.streams[before])
        self.driver.stream_wait_event(self.streams[after], self.event)


@pytest.fixture
def two(card):
    return Two(card)


def lines_of(fault: SimulatedFault) -> set[int]:
    return {line for code, instruction in (fault.site, fault.other_site)
            for start, end, line in code.co_lines() if start <= instruction < end}


def test_each_thread_says_what_its_own_calls_are_for(two):
    found = []
    two.driver.site, two.driver.stamp, two.driver.stamps = "mine", 3, [("mine", 3)]

    def other() -> None:
        found.append((two.driver.site, two.driver.stamp, two.driver.stamps))
        two.driver.site, two.driver.stamp, two.driver.stamps = "its own", 4, []

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert found == [(None, None, None)]
    assert (two.driver.site, two.driver.stamp, two.driver.stamps) == ("mine", 3, [("mine", 3)])


def test_a_missing_wait_is_reported_with_both_lines(two):
    a, b, c = (two.card.room(N) for _ in range(3))
    two.move(0, b, a)
    first = sys._getframe().f_lineno - 1
    two.move(1, c, b)
    second = sys._getframe().f_lineno - 1
    with pytest.raises(SimulatedFault, match="race: kernel kernel") as caught:
        two.card.wait()
    fault = caught.value
    assert fault.kind == "RACE"
    assert lines_of(fault) == {first, second}
    assert f"{__file__}:{first}" in str(fault)
    assert f"{__file__}:{second}" in str(fault)


def test_its_twin_with_the_wait_is_not(two):
    a, b, c = (two.card.room(N) for _ in range(3))
    two.move(0, b, a)
    two.edge(0, 1)
    two.move(1, c, b)
    two.card.wait()


def test_a_missing_wait_gives_two_results_over_the_seeds(make_card):
    results = {"missing": set(), "there": set()}
    for kind, seed in itertools.product(results, range(20)):
        two = Two(make_card(seed=seed, race=False))
        a, b, c = (two.card.put(np.full(N, 10 * k, np.int32)) for k in range(3))
        two.card.wait()
        two.move(0, b, a)
        if kind == "there":
            two.edge(0, 1)
        two.move(1, c, b)
        two.card.wait()
        results[kind].add(tuple(two.card.fetch(c, N, np.int32)))
    assert len(results["missing"]) == 2
    assert len(results["there"]) == 1


def test_disjoint_halves_of_one_block_are_no_race(two):
    a, b = two.card.room(N), two.card.room(N)
    two.move(0, b, a, 0, N // 2)
    two.move(1, b, a, N // 2, N // 2)
    two.card.wait()
    two.move(0, b, a, 0, N // 2 + 1)
    two.move(1, b, a, N // 2, N // 2)
    with pytest.raises(SimulatedFault, match="race"):
        two.card.wait()


def test_two_readers_are_no_race_but_a_writer_among_them_is(two):
    a, b, c = (two.card.room(N) for _ in range(3))
    two.move(0, b, a)
    two.move(1, c, a)
    two.card.wait()
    two.move(0, b, a)
    two.move(1, c, a)
    two.edge(0, 1)
    two.move(1, a, a)
    two.card.wait()
    two.move(0, b, a)
    two.move(1, c, a)
    two.edge(0, 1)
    two.move(0, a, a)  # after its own reader, not after the other stream's
    with pytest.raises(SimulatedFault, match="race"):
        two.card.wait()


def test_a_wait_of_the_host_orders(two):
    a, b, c = (two.card.room(N) for _ in range(3))
    two.move(0, b, a)
    two.driver.wait_stream(two.streams[0])
    two.move(1, c, b)
    two.card.wait()
    two.move(0, b, a)
    two.driver.record_event(two.event, two.streams[0])
    two.move(0, a, a)
    two.driver.wait_event(two.event)
    two.move(1, c, b)
    two.card.wait()
    two.move(0, b, a)
    while not two.driver.query_stream(two.streams[0]):
        pass
    two.move(1, c, b)
    two.card.wait()


def test_order_goes_through_a_third_stream(two):
    a, b, c = (two.card.room(N) for _ in range(3))
    third = two.driver.create_stream()
    two.move(0, b, a)
    two.driver.record_event(two.event, two.streams[0])
    two.driver.stream_wait_event(third, two.event)
    two.driver.record_event(two.event, third)
    two.driver.stream_wait_event(two.streams[1], two.event)
    two.move(1, c, b)
    two.card.wait()


def test_atomics_do_not_race_with_each_other(two):
    total = two.card.put(np.zeros(1, np.int32))
    two.card.wait()
    count = two.card.kernel(COUNT)
    for stream in two.streams:
        two.card.launch(count, 1, 32, "Q", total, stream=stream)
    two.card.wait()
    assert two.card.fetch(total, 1, np.int32)[0] == 64
    two.card.launch(count, 1, 32, "Q", total, stream=two.streams[0])
    two.driver.fill(total, 0, 4, 1, two.streams[1])
    with pytest.raises(SimulatedFault, match="race"):
        two.card.wait()


def test_the_host_races_with_copies(two):
    a, pinned = two.card.room(N), two.driver.allocate_host(4 * N)
    two.driver.copy(pinned, a, 4 * N, "to_host", two.streams[0])
    two.driver.host_touch(pinned, 4, write=False)
    with pytest.raises(SimulatedFault, match="the host"):
        two.card.wait()
    two.driver.copy(pinned, a, 4 * N, "to_host", two.streams[0])
    two.driver.wait_stream(two.streams[0])
    two.driver.host_touch(pinned, 4 * N, write=True)
    two.driver.copy(a, pinned, 4 * N, "to_device", two.streams[1])
    two.card.wait()
    two.driver.copy(a, pinned, 4 * N, "to_device", two.streams[1])
    two.driver.host_touch(pinned + 8, 4, write=True)
    with pytest.raises(SimulatedFault, match="the host"):
        two.card.wait()


def test_stand_ins_race(two):
    a, b = two.card.room(N), two.card.room(N)
    two.move(0, b, a)
    two.driver.matmul_stand_in(two.streams[1], lambda: None, reads=((b, 4 * N),))
    with pytest.raises(SimulatedFault, match="library call"):
        two.card.wait()


def test_the_check_can_be_switched_off(make_card):
    two = Two(make_card(race=False))
    a, b, c = (two.card.room(N) for _ in range(3))
    two.move(0, b, a)
    two.move(1, c, b)
    two.card.wait()


def plan(seed: int, count: int) -> list[tuple[int, int, int, list[int]]]:
    """Random moves (stream, out, x) with the earlier moves of other streams each must follow."""
    draw = random.Random(seed)
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    moves = []
    for place in range(count):
        stream, out, x = draw.randrange(3), draw.randrange(4), draw.randrange(4)
        needed = {writer.get(x), writer.get(out), *readers.get(out, [])} - {None}
        moves.append((stream, out, x, sorted(needed)))
        writer[out], readers[out] = place, []
        readers.setdefault(x, []).append(place)
        if x == out:
            readers[x] = []
    return moves


def run(card, moves: list, left_out: int = -1) -> list[list[int]]:
    """Run moves on three streams with an event for each edge, but the one left out."""
    driver, kernel = card.driver, card.kernel(MOVE)
    streams = [driver.create_stream() for _ in range(3)]
    buffers = [card.put(np.full(4, k, np.int32)) for k in range(4)]
    card.wait()
    events, edge = [], 0
    for stream, out, x, needed in moves:
        for each in needed:
            if moves[each][0] != stream:
                edge += 1
                if edge - 1 != left_out:
                    driver.stream_wait_event(streams[stream], events[each])
        card.launch(kernel, 1, 32, "QQiii", buffers[out], buffers[x], 0, 4, len(events),
                    stream=streams[stream])
        events.append(driver.create_event())
        driver.record_event(events[-1], streams[stream])
    card.wait()
    return [card.fetch(each, 4, np.int32).tolist() for each in buffers]


@settings(max_examples=25, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_programs_with_all_waits_give_one_result_and_no_report(make_card, program, seed):
    moves = plan(program, 20)
    values = [np.full(4, k, np.int32) for k in range(4)]
    for place, (_, out, x, _) in enumerate(moves):
        values[out] = values[x] * np.int32(3) + np.int32(place)
    assert run(make_card(seed=seed), moves) == [each.tolist() for each in values]


def is_needed(moves: list, left_out: int) -> bool:
    """Whether nothing else orders the two ends of an edge."""
    after: list[set[int]] = []
    last: dict[int, int] = {}
    known: dict[int, set[int]] = {}
    edge, lost = 0, None
    for place, (stream, _, _, needed) in enumerate(moves):
        before = set(known.get(stream, set()))
        for each in needed:
            if moves[each][0] != stream:
                edge += 1
                if edge - 1 == left_out:
                    lost = (each, place)
                    continue
                before |= after[each] | {each}
        known[stream] = before | {place}
        after.append(before)
        last[stream] = place
    return lost is not None and lost[0] not in after[lost[1]]


@settings(max_examples=25, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 15))
def test_a_wait_left_out_is_reported_under_every_seed(make_card, program, seed, left_out):
    moves = plan(program, 20)
    card = make_card(seed=seed)
    if not is_needed(moves, left_out):
        run(card, moves, left_out)
        return
    with pytest.raises(SimulatedFault, match="race"):
        run(card, moves, left_out)
