"""A copy on a side stream and products on the default one: nothing puts them in order.

The simulated driver's calls are logged with their streams: what would make one stream wait for the
other is a call of its own.
"""

from __future__ import annotations

from typing import Any

import slipstream as ss

NAMES = ("copy", "launch", "launch_graph", "record_event", "stream_wait_event", "wait_event",
         "create_physical")
# Which argument of each call is the stream.
STREAM_AT = {"copy": 4, "launch": 4, "launch_graph": 1, "record_event": 1, "stream_wait_event": 0}


class Log:
    """The calls of a driver, (name, stream), from here on."""

    def __init__(self, driver: Any) -> None:
        self.calls: list[tuple[str, int]] = []
        for name in NAMES:
            setattr(driver, name, self.logged(name, getattr(driver, name)))

    def logged(self, name: str, call: Any) -> Any:
        def noted(*arguments: Any) -> Any:
            at = STREAM_AT.get(name, -1)
            self.calls.append((name, arguments[at] if at >= 0 else 0))
            return call(*arguments)
        return noted

    def take(self) -> list[tuple[str, int]]:
        """The calls since the last time."""
        calls, self.calls = self.calls, []
        return calls


class Both:
    """A pinned copy on a side stream, and two products on the default one."""

    def __init__(self, count: int) -> None:
        self.host = ss.zeros(count).pin_memory()
        # Their results lie in segments, as the copy does.
        self.a = ss.rand(1024, 4, device="cuda")
        self.side = ss.cuda.Stream()

    def copy(self) -> Any:
        with ss.cuda.stream(self.side):
            return self.host.to("cuda", non_blocking=True)

    def product(self) -> Any:
        return (self.a @ self.a.t()) @ self.a


def rounds(both: Both, count: int, *steps: Any) -> None:
    """Steps together, then a wait; what they made is let go of after it."""
    for _ in range(count):
        held = [step() for step in steps]
        ss.cuda.synchronize()
        del held


def warm(both: Both) -> None:
    """Each alone, then together: their blocks lie side by side in one segment."""
    rounds(both, 3, both.copy)
    rounds(both, 3, both.product)
    rounds(both, 2, both.copy, both.product)


def test_a_copy_on_a_side_stream_and_products_do_not_wait_for_each_other(restart: Any) -> None:
    driver = restart(zero_cost=True)
    both = Both(1 << 20)
    warm(both)
    log = Log(driver)
    for _ in range(4):
        log.take()
        rounds(both, 1, both.copy, both.product)
        calls = log.take()
        names = [name for name, _ in calls]
        assert "stream_wait_event" not in names
        assert "wait_event" not in names
        assert "create_physical" not in names
        # The copy leaves at once, on its own stream; the products' graph on theirs.
        side, default = both.side.queue.stream, ss.cuda.default_stream().queue.stream
        assert calls[0] == ("copy", side)
        assert {stream for name, stream in calls if name in ("launch", "launch_graph")} == {default}


def test_the_two_overlap_in_virtual_time(restart: Any) -> None:
    restart(race=False, arrays=False)
    both = Both(1 << 22)
    warm(both)
    begin, copied, done = (ss.cuda.Event(enable_timing=True) for _ in range(3))
    begin.record(both.side)
    held = both.copy()
    copied.record(both.side)
    result = both.product()
    done.record()
    ss.cuda.synchronize()
    # The products are over long before the copy is: had they waited for it, they were after it.
    assert begin.elapsed_time(done) < begin.elapsed_time(copied)
    assert held.shape == (1 << 22,)
    assert result.shape == (1024, 4)


def test_a_second_copy_of_one_pinned_tensor_lets_the_host_go_on(restart: Any) -> None:
    driver = restart()
    host = ss.arange(4096.0).pin_memory()
    side = ss.cuda.Stream()
    first = host.to("cuda", non_blocking=True)
    log = Log(driver)
    second = host.to("cuda", non_blocking=True)
    with ss.cuda.stream(side):
        third = host.to("cuda", non_blocking=True)
    names = [name for name, _ in log.take()]
    assert "wait_event" not in names
    assert names.count("copy") == 2
    # A write of the host waits for all three.
    host.zero_()
    ss.cuda.synchronize()
    for copy in (first, second, third):
        assert copy.tolist() == list(range(4096))


def test_a_copy_out_of_a_tensor_that_a_copy_fills_comes_after_it(restart: Any) -> None:
    for seed in range(6):
        restart(seed=seed)
        host = ss.zeros(4096).pin_memory()
        side = ss.cuda.Stream()
        source = ss.arange(4096.0, device="cuda")
        host.copy_(source, non_blocking=True)
        with ss.cuda.stream(side):
            there = host.to("cuda", non_blocking=True)
        side.synchronize()
        assert there.tolist() == list(range(4096))
