"""What a wait of the host puts in order: what was recorded before it, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import slipstream as ss
from slipstream.core.launch.door import backends
from slipstream.core.native.simulated import SimulatedFault
from slipstream.core.vocab.devices import Device

# Larger than what lies in slabs.
COUNT = 1 << 19


def run_beside(act: Callable[[], Any]) -> None:
    """Run a function in a thread of its own, to its end."""
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


def during(driver: Any, name: str, act: Callable[[], Any]) -> None:
    """Let another thread do something once, at the end of the next call of a driver's function."""
    call = getattr(driver, name)

    def instead(*arguments: Any) -> Any:
        result = call(*arguments)
        delattr(driver, name)
        run_beside(act)
        return result

    setattr(driver, name, instead)


def first_card() -> Any:
    """The backend of the first card."""
    return backends[Device("cuda", 0)]


def read_back(x: Any, _: Any) -> None:
    assert x.item() == 3.0


def read_into(x: Any, _: Any) -> None:
    assert x.cpu().tolist() == [3.0]


def finish_stream(_: Any, __: Any) -> None:
    ss.cuda.default_stream().synchronize()


def finish_device(_: Any, __: Any) -> None:
    ss.cuda.synchronize()


def wait_on_device(_: Any, side: Any) -> None:
    side.wait_stream(ss.cuda.default_stream())


def wait_for_event(_: Any, __: Any) -> None:
    ss.cuda.default_stream().record_event().synchronize()


WAITS = {
    "read_back": (read_back, "wait_event"),
    "read_into": (read_into, "wait_event"),
    "stream": (finish_stream, "wait_stream"),
    "device": (finish_device, "wait_stream"),
    "edge": (wait_on_device, "record_event"),
    "event": (wait_for_event, "record_event"),
}


@pytest.mark.parametrize("name", WAITS)
def test_what_another_thread_does_during_a_wait_is_not_waited_for(restart: Any, name: str) -> None:
    driver = restart(race=True)
    act, call = WAITS[name]
    side = ss.cuda.Stream()
    source = ss.ones(COUNT, device="cuda")
    x = ss.ones(1, device="cuda") + 2
    ss.cuda.synchronize()

    def other() -> None:
        # Its block is free again, and the driver has the launch that writes it.
        for _ in range(2):
            _ = source * 2
        first_card().default.send("test")

    during(driver, call, other)
    act(x, side)
    with ss.cuda.stream(side):
        held = [ss.full((COUNT,), 5.0, device="cuda") for _ in range(3)]
    # A race between the two streams would be told of here.
    ss.cuda.synchronize()
    assert all(float(each[7].item()) == 5.0 for each in held)


def test_a_wait_is_for_what_another_thread_is_sending(restart: Any) -> None:
    driver = restart()
    begun, over = threading.Event(), threading.Event()
    launch = driver.launch

    def slowly(*arguments: Any) -> Any:
        begun.set()
        # Until the other thread is done, which it is only where it does not wait for this send.
        over.wait(0.3)
        return launch(*arguments)

    x = ss.ones(64, device="cuda")
    ss.cuda.synchronize()
    y = x + 2
    driver.launch = slowly
    thread = threading.Thread(target=ss.cuda.default_stream().synchronize)
    thread.start()
    assert begun.wait(10)
    found = y.tolist()
    over.set()
    thread.join()
    assert found == [3.0] * 64


def ask_until(done: Callable[[], bool]) -> None:
    """Wait by asking."""
    while not done():
        pass


def ask_for_event(_: Any) -> None:
    ask_until(ss.cuda.default_stream().record_event().query)


HOST_WAITS = {
    "asked stream": lambda y: ask_until(ss.cuda.default_stream().query),
    "asked event": ask_for_event,
    "item": lambda y: y.sum().item(),
    "cpu": lambda y: y.cpu(),
    "stream": lambda y: ss.cuda.default_stream().synchronize(),
    "event": lambda y: ss.cuda.default_stream().record_event().synchronize(),
}


def forgotten(wait: Any, ordered: bool) -> tuple[int, int]:
    """Work on a side stream that the default one may not wait for; the lines of the two."""
    side = ss.cuda.Stream()
    x = ss.ones(4096, device="cuda")
    ss.cuda.synchronize()
    with ss.cuda.stream(side):
        x.mul_(2)
    if ordered:
        ss.cuda.current_stream().wait_stream(side)
    y = x + 1
    wait(y)
    ss.cuda.synchronize()
    first = forgotten.__code__.co_firstlineno
    return first + 6, first + 9


@pytest.mark.parametrize("name", HOST_WAITS)
def test_a_forgotten_edge_is_told_of_though_the_host_waits(restart: Any, name: str) -> None:
    for seed in range(6):
        restart(race=True, seed=seed)
        with pytest.raises(SimulatedFault, match="race") as caught:
            forgotten(HOST_WAITS[name], False)
        restart(race=True, seed=seed)
        for line in forgotten(HOST_WAITS[name], True):
            assert f"{__file__}:{line}" in str(caught.value)


def test_a_forgotten_edge_gives_several_results_over_the_seeds(restart: Any) -> None:
    found = set()
    for seed in range(20):
        restart(race=False, seed=seed)
        side = ss.cuda.Stream()
        x = ss.ones(64, device="cuda")
        ss.cuda.synchronize()
        with ss.cuda.stream(side):
            x.mul_(2)
        found.add((x + 1).sum().item())
        ss.cuda.synchronize()
    assert found == {128.0, 192.0}


def used_and_finished(x: Any) -> None:
    """Read what comes of a tensor; that may be over before another stream's work has run."""
    (x + 1).sum().item()
    ss.cuda.synchronize()


def test_a_pinned_copy_ahead_without_an_edge_is_told_of(restart: Any) -> None:
    for seed in range(6):
        restart(race=True, seed=seed)
        host, side = ss.ones(4096).pin_memory(), ss.cuda.Stream()
        with ss.cuda.stream(side):
            x = host.to("cuda", non_blocking=True) * 2
        with pytest.raises(SimulatedFault, match="race"):
            used_and_finished(x)


def copied(copy: Any, ordered: bool) -> int:
    """A copy that work on a side stream may not wait for; the line of that work."""
    side = ss.cuda.Stream()
    w = ss.ones(100, device="cuda") * 2
    ss.cuda.synchronize()
    y = copy()
    if ordered:
        side.wait_stream(ss.cuda.current_stream())
    with ss.cuda.stream(side):
        z = y * 2
    ss.cuda.synchronize()
    assert (z.shape, w[0].item()) == ((100,), 2.0)
    return copied.__code__.co_firstlineno + 9


@pytest.mark.parametrize("pinned", [True, False])
def test_a_race_with_a_copy_names_its_line(restart: Any, pinned: bool) -> None:
    for seed in range(3):
        restart(race=True, seed=seed)
        x = ss.randn(100)
        x = x.pin_memory() if pinned else x
        copy = lambda x=x: x.cuda(non_blocking=True)  # noqa: E731
        with pytest.raises(SimulatedFault, match="race") as caught:
            copied(copy, False)
        text = str(caught.value)
        assert "copy of 400 bytes at" in text
        line = copy.__code__.co_firstlineno
        assert f"copy of 400 bytes at {__file__}:{line} " in text
        restart(race=True, seed=seed)
        assert f"{__file__}:{copied(copy, True)} reads" in text


def late_stream(ordered: str) -> tuple[int, int]:
    """Work on a stream that is made after what it needs; the lines of the two."""
    w = ss.ones(7, device="cuda") * 2
    ss.cuda.synchronize()
    a = ss.ones(100, device="cuda") * 3
    side = ss.cuda.Stream()
    if ordered == "wait_stream":
        side.wait_stream(ss.cuda.current_stream())
    elif ordered == "event":
        side.wait_event(ss.cuda.current_stream().record_event())
    elif ordered == "host":
        ss.cuda.synchronize()
    with ss.cuda.stream(side):
        z = a * 2
    ss.cuda.synchronize()
    assert (z[7].item(), w[0].item()) == (6.0, 2.0)
    first = late_stream.__code__.co_firstlineno
    return first + 4, first + 13


def test_a_block_that_needs_a_wait_hides_no_forgotten_one(restart: Any) -> None:
    for seed in range(6):
        restart(race=True, seed=seed)
        with pytest.raises(SimulatedFault, match="race") as caught:
            late_stream("")
        for ordered in ("wait_stream", "event", "host"):
            restart(race=True, seed=seed)
            for line in late_stream(ordered):
                assert f"{__file__}:{line}" in str(caught.value)


def test_a_block_that_others_had_is_no_race(restart: Any) -> None:
    for seed in range(6):
        restart(race=True, seed=seed)
        x = ss.ones(COUNT, device="cuda")
        ss.cuda.synchronize()
        for _ in range(3):
            side = ss.cuda.Stream()
            _ = x * 2
            with ss.cuda.stream(side):
                # In blocks that the default stream's work has just had.
                y = x * 3
                z = y + x
            del _, y, z
        ss.cuda.synchronize()


def test_a_wait_leaves_the_windows_of_other_threads_alone(restart: Any) -> None:
    restart()
    mine, theirs = ss.cuda.Stream(), ss.cuda.Stream()
    x = ss.ones(64, device="cuda")
    ss.cuda.synchronize()

    def waiting() -> list[int]:
        return [len(queue.window.launches) for queue in first_card().queues]

    def record(stream: Any) -> None:
        with ss.cuda.stream(stream):
            kept.append(x * 2)

    kept: list[Any] = []
    run_beside(lambda: record(theirs))
    record(mine)
    assert waiting() == [0, 1, 1]
    ss.cuda.default_stream().synchronize()
    assert waiting() == [0, 0, 1]
    ss.cuda.synchronize()
    assert waiting() == [0, 0, 0]


def test_who_waits_by_asking_has_its_other_streams_at_work(restart: Any) -> None:
    restart(race=False)
    side = ss.cuda.Stream()
    x = ss.ones(COUNT, device="cuda")
    ss.cuda.synchronize()

    def waiting() -> list[int]:
        return [len(queue.window.launches) - queue.window.drained
                for queue in first_card().queues]

    y = x + 1
    event = ss.cuda.default_stream().record_event()
    with ss.cuda.stream(side):
        z = x * 2
    assert waiting() == [0, 1], "or else this says nothing"
    event.query()
    assert waiting() == [0, 0]
    with ss.cuda.stream(side):
        z = z + 1
    assert waiting() == [0, 1]
    ss.cuda.default_stream().query()
    assert waiting() == [0, 0]
    ask_until(side.query)
    assert (y[0].item(), z[0].item()) == (2.0, 3.0)


def test_asking_now_and_then_costs_no_replay(restart: Any) -> None:
    restart(race=False)
    side = ss.cuda.Stream()
    x = ss.ones(64, device="cuda")
    ss.cuda.synchronize()
    event = side.record_event()
    before = ss.cuda.launch_stats()
    for _ in range(40):
        for _ in range(8):
            x = x * 0.5 + 1
        event.query()
    ss.cuda.synchronize()
    after = ss.cuda.launch_stats()
    assert after["replayed"] - before["replayed"] > 300
