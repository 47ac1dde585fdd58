"""Streams, events, virtual time and waits of the simulated driver."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.core.native.driver import DriverError

SLOW = """
extern "C" __global__ void kernel(int* out, int value) { if (threadIdx.x == 0) *out = value; }
"""


def test_nothing_runs_before_a_wait(card):
    pinned = card.driver.allocate_host(4)
    seen = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_int * 1).from_address(pinned))
    seen[0] = 0
    out = card.room(1, np.int32)
    card.launch(card.kernel(SLOW), 1, 1, "Qi", out, 5)
    card.driver.copy(pinned, out, 4, "to_host", card.stream)
    assert seen[0] == 0
    card.driver.wait_stream(card.stream)
    assert seen[0] == 5


def test_pageable_sources_are_read_at_the_call(card):
    values = np.full(4, 7, np.float32)
    out = card.put(values)
    values[:] = 0
    assert card.fetch(out, 4).tolist() == [7] * 4


def test_pinned_sources_are_read_late(card):
    pinned, out = card.driver.allocate_host(4), card.room(1, np.int32)
    seen = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_int * 1).from_address(pinned))
    seen[0] = 1
    card.driver.copy(out, pinned, 4, "to_device", card.stream)
    seen[0] = 2
    assert card.fetch(out, 1, np.int32)[0] == 2


def test_polling_comes_to_an_end(card):
    event = card.driver.create_event()
    card.driver.record_event(event, card.stream)
    out = card.room(1, np.int32)
    card.launch(card.kernel(SLOW), 1, 1, "Qi", out, 5)
    assert not card.driver.query_stream(card.stream)
    polls = 0
    while not card.driver.query_stream(card.stream):
        polls += 1
    assert polls < 1000
    assert card.driver.query_event(event)


def test_idle_time_lets_work_run(card):
    card.launch(card.kernel(SLOW), 1, 1, "Qi", card.room(1, np.int32), 5)
    before = card.driver.virtual_time()
    card.driver.advance(1e-3)
    assert card.driver.virtual_time() == pytest.approx(before + 1e-3)
    assert not card.driver.schedule.pending


def test_events_measure_virtual_time(card):
    start, end = (card.driver.create_event(timing=True) for _ in range(2))
    x = card.driver.allocate(1 << 20)
    card.driver.record_event(start, card.stream)
    for _ in range(20):
        card.driver.fill(x, 0, 4, 1 << 18, card.stream)
    card.driver.record_event(end, card.stream)
    with pytest.raises(DriverError, match="NOT_READY"):
        card.driver.elapsed(start, end)
    card.driver.wait_event(end)
    assert 0.005 < card.driver.elapsed(start, end) < 1
    assert card.driver.elapsed(start, start) == 0
    plain = card.driver.create_event()
    card.driver.record_event(plain, card.stream)
    with pytest.raises(DriverError, match="need timing"):
        card.driver.elapsed(start, plain)


def test_streams_overlap_in_virtual_time(make_card):
    def spent(streams: int) -> float:
        card = make_card(seed=1, race=False)
        x = [card.driver.allocate(8 << 20) for _ in range(4)]
        queues = [card.driver.create_stream() for _ in range(streams)]
        before = card.driver.virtual_time()
        for place, each in enumerate(x):
            card.driver.fill(each, 0, 4, 2 << 20, queues[place % streams])
        card.wait()
        return card.driver.virtual_time() - before

    assert spent(4) < 0.6 * spent(1)


def test_an_event_that_was_never_recorded_is_done(card):
    event = card.driver.create_event()
    assert card.driver.query_event(event)
    card.driver.wait_event(event)
    card.driver.stream_wait_event(card.stream, event)
    with pytest.raises(DriverError):
        card.driver.elapsed(event, event)


def test_a_wait_is_for_the_record_at_its_call(make_card):
    for seed in range(8):
        card = make_card(seed=seed, race=False)
        other, event = card.driver.create_stream(), card.driver.create_event()
        kernel, out, seen = card.kernel(SLOW), card.room(1, np.int32), card.room(1, np.int32)
        card.driver.wait_stream(card.stream)
        card.launch(kernel, 1, 1, "Qi", out, 1)
        card.driver.record_event(event, card.stream)
        card.driver.stream_wait_event(other, event)
        card.driver.copy(seen, out, 4, "within", other)
        card.launch(kernel, 1, 1, "Qi", out, 2)
        card.driver.record_event(event, card.stream)
        card.driver.wait_stream(other)
        assert card.fetch(seen, 1, np.int32, other)[0] in (1, 2)


def test_a_destroyed_stream_finishes(card):
    other, out = card.driver.create_stream(), card.room(1, np.int32)
    card.launch(card.kernel(SLOW), 1, 1, "Qi", out, 9, stream=other)
    card.driver.destroy_stream(other)
    card.wait()
    assert card.fetch(out, 1, np.int32)[0] == 9
    with pytest.raises(DriverError, match="INVALID_HANDLE"):
        card.driver.wait_stream(other)


def test_a_destroyed_event_still_orders(card):
    other, event = card.driver.create_stream(), card.driver.create_event()
    out = card.room(1, np.int32)
    card.launch(card.kernel(SLOW), 1, 1, "Qi", out, 1)
    card.driver.record_event(event, card.stream)
    card.driver.stream_wait_event(other, event)
    card.driver.destroy_event(event)
    card.launch(card.kernel(SLOW), 1, 1, "Qi", out, 2, stream=other)
    card.wait()
    assert card.fetch(out, 1, np.int32)[0] == 2


def test_a_deep_queue_runs_before_it_is_waited_for(card):
    kernel, out = card.kernel(SLOW), card.room(1, np.int32)
    for place in range(1200):
        card.launch(kernel, 1, 1, "Qi", out, place)
    assert card.driver.schedule.pending == 1024
    assert card.fetch(out, 1, np.int32)[0] == 1199


def test_devices_do_not_mix(card):
    driver = card.driver
    driver.use(driver.context(1))
    stream, event = driver.create_stream(), driver.create_event()
    kernel = card.kernel(SLOW)  # of device 1, launched on a stream of device 0
    for call in (lambda: driver.record_event(event, card.stream),
                 lambda: card.launch(kernel, 1, 1, "Qi", 0, 0)):
        with pytest.raises(DriverError, match="different devices"):
            call()
    driver.record_event(event, stream)
    driver.stream_wait_event(card.stream, event)
    driver.synchronize()
    with pytest.raises(DriverError, match="INVALID_DEVICE"):
        driver.context(2)
    with pytest.raises(DriverError, match="INVALID_HANDLE"):
        driver.use(1234)


def test_copies_between_devices(card):
    driver, values = card.driver, np.arange(16, dtype=np.float32)
    here = card.put(values)
    driver.use(driver.context(1))
    stream, there = driver.create_stream(), driver.allocate(64)
    driver.wait_stream(card.stream)
    driver.copy(there, here, 64, "within", stream)
    np.testing.assert_array_equal(card.fetch(there, 16, stream=stream), values)


@pytest.mark.parametrize(("width", "value"), [(1, 0xAB), (2, 0xABCD), (4, 0x12345678), (4, 0)])
def test_fills(card, width, value):
    x = card.put(np.full(64, 3, np.uint8))
    card.driver.fill(x + 8, value, width, 10, card.stream)
    want = np.full(64, 3, np.uint8)
    want[8 : 8 + 10 * width] = np.full(10, value, f"u{width}").view(np.uint8)
    np.testing.assert_array_equal(card.fetch(x, 64, np.uint8), want)


def test_copies_and_fills_that_cannot_be(card):
    driver, x, host = card.driver, card.room(16), np.zeros(16, np.float32)
    here = host.ctypes.data
    for arguments in ((x, here, 64, "to_host"), (here, x, 64, "to_device"),
                      (here, here, 8, "within"), (x, 0, 8, "to_device"),
                      (x, here, -1, "to_device"), (x, here, 8, "sideways"),
                      (x, here, 1 << 20, "to_device"), (x, x, 1 << 20, "within")):
        with pytest.raises(DriverError, match="INVALID_VALUE"):
            driver.copy(*arguments, card.stream)
    for arguments in ((x, 0, 3, 4), (x + 1, 0, 4, 4), (x, 0, 4, 1 << 20), (here, 0, 4, 4)):
        with pytest.raises(DriverError, match="INVALID_VALUE"):
            driver.fill(*arguments, card.stream)
    driver.copy(0, 0, 0, "within", card.stream)
    driver.fill(0, 0, 4, 0, card.stream)
    for call in (driver.wait_stream, driver.query_stream, driver.destroy_stream):
        with pytest.raises(DriverError, match="INVALID_HANDLE"):
            call(0)


def test_counts(card):
    x, event = card.put(np.zeros(4, np.float32)), card.driver.create_event()
    card.launch(card.kernel(SLOW), 1, 1, "Qi", x, 5)
    card.driver.fill(x, 0, 4, 4, card.stream)
    card.driver.record_event(event, card.stream)
    card.driver.wait_event(event)
    card.wait()
    counts = card.driver.statistics()
    wanted = {"kernel_launches": 1, "copies": 1, "fills": 1, "allocations": 1, "event_records": 1,
              "synchronizations": 2, "graph_launches": 0, "launch": 1, "wait_event": 1}
    assert {name: counts[name] for name in wanted} == wanted
