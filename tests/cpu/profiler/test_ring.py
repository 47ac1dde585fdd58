"""The profiler's ring: fixed records, totals that outlive them, layers of the host's time."""

from __future__ import annotations

import sys
import threading
import time

import pytest

import slipstream as ss
from slipstream.core.vocab import ring as records
from slipstream.core.vocab.cells import Cells
from slipstream.core.vocab.modes import modes
from slipstream.core.vocab.ring import Ring, packed


class Ticks:
    """A clock that a test moves by hand: time is what the test says, on any machine."""

    def __init__(self) -> None:
        self.time = 1000
        self.reads = 0

    def now(self) -> int:
        self.reads += 1
        return self.time

    def call(self) -> None:
        self.time += 10

    def dispatched(self) -> None:
        self.time += 5


@pytest.fixture
def clock():
    return Ticks()


@pytest.fixture
def ring(clock):
    ring = Ring(8, clock)
    modes.ring = ring
    yield ring
    modes.ring = None


def test_cells_grow_and_add():
    cells = Cells(3)
    cells.add(0, 5, 7)
    cells.add(1000, 2, -3)
    cells.add(1000, 2, 4)
    assert [cells.get(place) for place in range(3)] == [1, 5, 7]
    assert [cells.get(3000 + place) for place in range(3)] == [2, 4, 1]
    assert cells.get(10**6) == 0


def test_what_the_ring_drops_is_counted_and_stays_in_the_totals():
    ring = Ring(8, Ticks())
    name = ring.name_of("thing")
    site = ring.site_of(test_cells_grow_and_add.__code__, 4)
    for number in range(21):
        ring.write(records.SPAN | 9 << 8, name, site, number, number + 3, 2)
    assert (ring.written, ring.dropped) == (21, 13)
    kept = ring.records()
    assert [record.number for record in kept] == list(range(13, 21))
    assert [record.start for record in kept] == list(range(13, 21))
    assert kept[0] == records.Record(records.SPAN, kept[0].thread, name, site, 0, 13, 16, 2, 9, 13)
    assert ring.totals(ring.by_site, site, records.SPAN) == (21, 63, 42)
    assert ring.totals(ring.by_name, name, records.SPAN) == (21, 63, 42)
    assert ring.totals(ring.by_name, name, records.OP) == (0, 0, 0)


def test_amended_times_are_in_the_totals_whenever_these_are_asked_for():
    ring = Ring(8, Ticks())
    name, site = ring.name_of("thing"), ring.site_of(test_cells_grow_and_add.__code__, 4)
    for number in range(5):
        ring.write(records.SPAN, name, site, number, number + 3, 2)
    ring.amend(2, 100, 150)
    assert ring.totals(ring.by_name, name, records.SPAN) == (5, 4 * 3 + 50, 10)
    ring.amend(3, 100, 140, 1 << 34)
    assert ring.totals(ring.by_site, site, records.SPAN) == (5, 3 * 3 + 90, 10)
    for number in range(5, 12):
        ring.write(records.SPAN, name, site, number, number + 3, 2)
    # It was overwritten: what was counted stays.
    ring.amend(3, 0, 1_000)
    assert ring.totals(ring.by_name, name, records.SPAN) == (12, 10 * 3 + 90, 24)
    assert [record.start for record in ring.records()] == [4, *range(5, 12)]


def test_a_launchs_begin_is_looked_at_in_the_first_calls_of_a_plan_and_in_some_later_ones():
    ring = Ring(8)
    code, plans = test_cells_grow_and_add.__code__, (object(), object())
    begun = ring.last
    looks = dict.fromkeys(plans, 0)
    for _ in range(records.LOOKED_AT + 4 * records.EACH):
        for plan in plans:
            ring.enter(modes.current())
            start = ring.begin(plan, False, modes.current())
            assert (start, ring.layer) == (ring.entered, records.LAUNCH)
            looks[plan] += not ring.owed
            ring.finish(ring.launching, code, 4, start, modes.current())
            assert sum(ring.layers.get(i) for i in range(len(records.LAYERS))) == ring.last - begun
    later = 4 * records.EACH if records.__file__.endswith(".py") else 4
    count = records.LOOKED_AT + later
    assert list(looks.values()) == [count, count]
    assert all(ring.layers.get(layer) for layer in (
        records.PYTHON, records.DISPATCH, records.LAUNCH))


def test_a_thread_that_comes_between_takes_nothing_of_what_another_is_in():
    ring = Ring(8)
    code, plan, begun = test_cells_grow_and_add.__code__, object(), ring.last

    def call():
        ring.enter(modes.current())
        ring.finish(ring.name_of("other"), code, 4, ring.entered, modes.current())

    for number in range(records.LOOKED_AT + 2):
        ring.enter(modes.current())
        start = ring.begin(plan, False, modes.current())
        if number > records.LOOKED_AT - 2:
            other = threading.Thread(target=call)
            other.start()
            other.join()
        ring.finish(ring.name_of(plan), code, 4, start, modes.current())
    (_, layers, calls), *others = ring.counted()
    assert calls == records.LOOKED_AT + 2
    assert sum(layers.get(i) for i in range(len(records.LAYERS))) == ring.last - begun
    assert sum(each[2] for each in others) == 3


def test_large_values_come_back_whole():
    ring = Ring(2, Ticks())
    big = (1 << 62) - 1
    ring.write(records.COPY | ((1 << 34) + 7) << 8, 1, 1, big - 5, big, big)
    (record,) = ring.records()
    assert (record.start, record.end, record.value, record.where) == (
        big - 5, big, big, (1 << 34) + 7)


def test_names_and_lines_are_interned():
    ring = Ring(4)
    code = test_cells_grow_and_add.__code__
    other = test_large_values_come_back_whole.__code__
    first = [ring.site_of(code, 2), ring.site_of(other, 2), ring.site_of(code, 6)]
    assert len(set(first)) == 3
    assert [ring.site_of(code, 2), ring.site_of(other, 2), ring.site_of(code, 6)] == first
    assert ring.site_of(None, 0) == 0
    thing = object()
    assert ring.name_of("a") != ring.name_of(thing)
    assert ring.name_of("a") == ring.name_of("a")
    assert ring.names[ring.name_of(thing)] is thing


def test_an_op_is_one_record_with_its_line(ring, clock):
    a, b = ss.ones(3), ss.ones(3)
    a + b
    count = ring.written
    a + b
    assert ring.written == count + 1
    record = ring.record(count)
    plan = ring.names[record.name]
    assert (record.kind, plan.op.name) == (records.OP, "add")
    code, _ = ring.sites[record.site]
    assert code is test_an_op_is_one_record_with_its_line.__code__
    # The call came to the door at its cost of 10, and was dispatched in 5.
    assert record.end - record.start == 5


@pytest.mark.parametrize(("call", "most"), [
    (lambda a, leaf: a + a, 4), (lambda a, leaf: a.sum(), 4), (lambda a, leaf: a[1:], 2),
    (lambda a, leaf: leaf * 2.0, 6)], ids=["add", "sum", "view", "tape"])
def test_a_call_looks_at_the_clock_a_few_times(ring, clock, call, most):
    a, leaf = ss.ones(3), ss.ones(3, requires_grad=True)
    for _ in range(3):
        call(a, leaf)
    reads, written = clock.reads, ring.written
    for _ in range(10):
        call(a, leaf)
    # One more each than with the machine's clock, where the virtual host's cost is put down.
    assert clock.reads - reads <= 10 * (most + 1)
    assert ring.written - written == 10


def test_names_and_lines_are_told_apart_where_they_are_many():
    ring = Ring(4)
    plans, code = [object() for _ in range(10_000)], test_parts_share_a_span.__code__
    numbers = [(ring.name_of(plan), ring.site_of(code, place)) for place, plan in enumerate(plans)]
    assert len(set(numbers)) == len(plans)
    assert [ring.names[name] for name, _ in numbers] == plans
    assert [ring.sites[site] for _, site in numbers] == [(code, i) for i in range(len(plans))]
    again = [(ring.name_of(plan), ring.site_of(code, place)) for place, plan in enumerate(plans)]
    assert again == numbers
    # Equal strings are one name, wherever they lie.
    assert len({ring.name_of(f"{part}d") for part in ("ad", ring.names[0][:0] + "ad")}) == 1


def test_the_clock_is_the_machines():
    ring = Ring(4)
    begun, latest = time.perf_counter_ns(), 0
    while time.perf_counter_ns() - begun < 50_000_000:
        before, now, after = time.perf_counter_ns(), ring.now(), time.perf_counter_ns()
        assert before <= now + 1_000_000
        assert now <= after + 1_000_000
        assert now >= latest
        latest = now


def test_parts_share_a_span():
    ring = Ring(8, Ticks())
    rows = [(records.KERNEL | 5 << 8, 1, 2, 7, 0.0, 0.25), (records.KERNEL, 3, 4, 8, 0.25, 1.0)]
    assert ring.write_parts(packed(rows), 1000, 400, 1.0) == 0
    assert ring.write_parts(packed(rows), 2000, 400, 0.5) == 2
    found = [(each.name, each.site, each.value, each.start, each.end, each.where)
             for each in ring.records()]
    assert found == [(1, 2, 7, 1000, 1100, 5), (3, 4, 8, 1100, 1400, 0),
                     (1, 2, 7, 2050, 2100, 5), (3, 4, 8, 2250, 2400, 0)]


def test_layers_add_up(ring, clock):
    ring.layers = Cells(len(records.LAYERS))
    ring.last = begun = clock.now()
    x = ss.ones(3, requires_grad=True)
    y = (x * 2.0).sum()
    y.backward()
    spent = [ring.layers.get(place) for place in range(len(records.LAYERS))]
    assert sum(spent) == ring.last - begun
    # Each call costs 10 of Python (of the tape's walk, inside backward), each launch 5 to dispatch.
    assert spent[records.DISPATCH] > 0
    assert (spent[records.DISPATCH] + spent[records.HOST_KERNEL]) % 5 == 0
    assert ring.layer == ring.outside == records.PYTHON


def test_each_thread_has_layers_of_its_own(ring, clock):
    a = ss.ones(3)
    layers, calls, thread = ring.layers, ring.calls, ring.thread
    spent = [layers.get(place) for place in range(len(records.LAYERS))]
    worker = threading.Thread(target=lambda: a + 1.0, name="worker")
    worker.start()
    worker.join()
    record = ring.record(ring.written - 1)
    assert ring.names[record.name].op.name == "add"
    assert record.thread != ring.record(ring.dropped).thread
    assert [layers.get(place) for place in range(len(records.LAYERS))] == spent
    counted = {name: (cells, count) for name, cells, count in ring.counted()}
    assert counted["worker"][1] == 1
    assert counted["worker"][0].get(records.DISPATCH) > 0
    assert counted[threading.current_thread().name] == (layers, calls)
    a + 1.0
    assert (ring.thread, ring.layers, ring.calls) == (thread, layers, calls + 1)


def test_views_and_compound_ops(ring):
    x = ss.ones(2, 3)
    count = ring.written
    x.flatten()
    kinds = [ring.record(number).kind for number in range(count, ring.written)]
    assert records.VIEW in kinds
    assert kinds[-1] == records.SPAN
    assert ring.names[ring.record(ring.written - 1).name] == "flatten"


def test_nothing_is_called_or_kept_while_nobody_listens():
    assert modes.ring is None
    a, b, leaf = ss.ones(3), ss.ones(3), ss.ones(3, requires_grad=True)
    seen = []

    def watch(frame, event, argument):
        if event == "call":
            seen.append(frame.f_code.co_filename)

    def work():
        a + b
        leaf * b
        a[1:]
        a.add_(b)

    for _ in range(50):
        work()
    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(None)
    ours = ("/vocab/ring.py", "/timing.py", "/profiling.py")
    assert not [file for file in seen if file.endswith(ours)]
    for _ in range(3):
        before = sys.getallocatedblocks()
        for _ in range(200):
            work()
        if sys.getallocatedblocks() - before < 20:
            return
    raise AssertionError("blocks of memory are kept on the cached path")
