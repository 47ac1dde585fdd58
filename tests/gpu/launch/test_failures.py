"""What goes wrong is said clearly, nothing is lost by it, and the next op works."""

from __future__ import annotations

import functools
import gc
import inspect
import math
import os
import signal
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

import slipstream as ss
from slipstream.core.launch.cuda.modules import modules
from slipstream.core.launch.cuda.tickets import TICKETS
from slipstream.core.launch.door import backends
from slipstream.core.native.driver import CompileError, DriverError
from slipstream.core.native.drivers import drivers
from slipstream.core.vocab.errors import OutOfMemoryError
from slipstream.core.vocab.settings import settings

MIB = 1 << 20
# A call that gives something back cannot fail well: what it names stays.
GIVING_BACK = ("destroy_event",)


def line(back: int = 0) -> str:
    """The caller's line, or one some lines before it."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return f"{__file__}:{frame.f_back.f_lineno - back}"


def work() -> list[float]:
    """A program that makes every kind of call: blocks, copies, windows, graphs, events."""
    x, large = ss.arange(1000.0, device="cuda"), ss.ones(600_000, device="cuda")
    side, event = ss.cuda.Stream(), ss.cuda.Event()
    for number in range(5):
        y = x * 2.0
        for _ in range(5):
            y = y + 1.0
        z = y[1:] * (3.0 + number)
        for _ in range(3):
            z = z - 1.0
        ss.cuda.synchronize()
    event.record()
    side.wait_event(event)
    with ss.cuda.stream(side):
        total = (large * 2.0).sum()
    ss.cuda.current_stream().wait_stream(side)
    event.synchronize()
    event.query()
    side.query()
    side.synchronize()
    host = ss.arange(10.0).to("cuda")
    large.zero_()
    return [*(z[:10] + host).tolist(), total.item()]


# The driver's pieces of device memory are multiples of so many bytes.
LEAST_PIECE = 512


def held(driver: Any) -> tuple[Counter[str], Counter[str], int]:
    """Objects, host memory by kind, and device memory, of a driver whose tensors are gone."""
    gc.collect()
    ss.cuda.synchronize()
    ss.cuda.empty_cache()
    objects = Counter(type(each).__name__ for each in driver.objects.values())
    hosts = Counter(each.kind for each in driver.allocations.values())
    return objects, hosts, sum(each.used for each in driver.contexts.values())


def accounted() -> tuple[Counter[str], Counter[str], int]:
    """The same, as the runtime knows of it."""
    cards: list[Any] = [each for device, each in backends.items() if device.type == "cuda"]
    pieces = sum(len(card.staging.pieces) for card in cards)
    graphs = sum(queue.memo.count for card in cards for queue in card.queues)
    objects = Counter({
        "Context": len(cards), "Stream": sum(len(card.queues) for card in cards),
        "Event": pieces, "Graph": graphs, "Executable": graphs,
        "Module": len(modules.functions), "Function": len(modules.functions)})
    tickets = sum(len(card.counters.addresses) for card in cards)
    # Each card has a flag for bad indices, a piece of the least size.
    hosts = +Counter({"host": pieces, "host mapped": len(cards), "device": tickets + len(cards)})
    return +objects, hosts, 4 * TICKETS * tickets + LEAST_PIECE * len(cards)


def calls_of_work(restart: Any) -> Counter[str]:
    """How often the program makes each call."""
    driver = restart()
    work()
    return Counter(driver.calls)


def failing_places(count: int) -> list[int]:
    """Which of the calls of a kind fail: the first, the last, and one between."""
    return sorted({1, (count + 1) // 2, count})


def test_every_driver_call_failed_once(restart: Any) -> None:
    restart()
    wanted = work()
    for name, count in sorted(calls_of_work(restart).items()):
        for place in failing_places(count):
            driver = restart(fail={name: place})
            try:
                assert work() == wanted, f"{name} {place}: nothing was raised"
            except (DriverError, CompileError, OutOfMemoryError) as error:
                assert name in str(error) or isinstance(error, OutOfMemoryError)
            assert work() == wanted, f"after {name} {place} failed"
            if name not in GIVING_BACK:
                assert held(driver) == accounted(), f"after {name} {place} failed"


def test_a_users_graph_after_a_window_that_could_not_be_launched(restart: Any) -> None:
    driver = restart()
    x = ss.ones(64, device="cuda")
    graph = ss.cuda.CUDAGraph()
    with ss.cuda.graph(graph):
        y = x * 2.0 - 3.0

    def window() -> Any:
        z = x
        for _ in range(12):
            z = (z + 1.0) * 1.0
        return z

    for _ in range(3):
        assert window().sum().item() == 64 * 13
    driver.fail_next("launch_graph")
    with pytest.raises(DriverError, match="made to fail"):
        window().sum().item()
    graph.replay()
    assert y.sum().item() == -64
    assert window().sum().item() == 64 * 13


def test_a_compilation_that_fails_is_tried_again(restart: Any, tmp_path: Any,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    restart()
    monkeypatch.setattr(settings, "cache", str(tmp_path))
    driver = restart(fail={"compile": 1})
    x = ss.ones(4)
    with pytest.raises(CompileError):
        x.to("cuda") + 1.0
    assert (x.to("cuda") + 1.0).tolist() == [2.0] * 4
    assert held(driver) == accounted()


# -- memory --

def step(batch: int) -> Any:
    """What needs 512 KiB for each element of its batch."""
    return ss.ones(batch, 128 * 1024, device="cuda") * 2.0


def test_memory_runs_out_by_line_and_a_half_batch_goes_on(restart: Any) -> None:
    restart(memory=64 * MIB)
    large = ss.zeros(20 * MIB, dtype=ss.uint8, device="cuda")
    first = line(1)
    middle = [ss.zeros(4 * MIB, dtype=ss.uint8, device="cuda") for _ in range(3)]
    second = line(1)
    small = ss.zeros(3 * MIB, dtype=ss.uint8, device="cuda")
    third = line(1)
    batch = 32
    try:
        done = step(batch)
    except OutOfMemoryError as error:
        ranked = [text.strip() for text in str(error).splitlines() if "block" in text]
        batch //= 2
        done = step(batch)
    mine = [text for text in ranked if any(text.endswith(each) for each in (first, second, third))]
    assert mine == [f"20.00 MiB in 1 block: {first}", f"12.00 MiB in 3 blocks: {second}",
                    f"3.00 MiB in 1 block: {third}"]
    assert batch == 16
    assert done.sum().item() == batch * 128 * 1024 * 2.0
    assert large.numel() + sum(each.numel() for each in middle) + small.numel() == 35 * MIB


# -- indices --

def test_a_bad_index_names_the_line(restart: Any) -> None:
    restart()
    x, index = ss.arange(5.0, device="cuda"), ss.tensor([1, 9]).to("cuda")
    y = x[index]
    where = line(1)
    with pytest.raises(IndexError) as caught:
        ss.cuda.synchronize()
    assert "index 9 is out of bounds for dimension with size 5" in str(caught.value)
    assert "position 1" in str(caught.value)
    assert where in str(caught.value)
    assert y.tolist() == [1.0, 0.0]


def test_a_bad_index_names_the_right_one_of_two_lines(restart: Any) -> None:
    restart()
    x, wide = ss.arange(5.0, device="cuda"), ss.arange(50.0, device="cuda")
    index = ss.tensor([1, 9]).to("cuda")
    wide[index]
    x[index]
    where = line(1)
    wide[index]
    with pytest.raises(IndexError) as caught:
        ss.cuda.synchronize()
    assert where in str(caught.value)
    assert str(caught.value).count(__file__) == 1


def test_a_thousand_bad_indices_in_one_process(restart: Any) -> None:
    restart()
    x, good = ss.arange(5.0, device="cuda"), ss.tensor([1, 2]).to("cuda")
    bad = [ss.tensor([number + 5, 0]).to("cuda") for number in range(10)]
    for number in range(1000):
        x[bad[number % 10]]
        with pytest.raises(IndexError, match=f"index {number % 10 + 5} is out of bounds"):
            ss.cuda.synchronize()
    assert x[good].tolist() == [1.0, 2.0]


# -- an idle host, interrupts, forks, blocking --

def test_the_last_launch_of_an_idle_program_goes_out(restart: Any) -> None:
    driver = restart()
    x = ss.ones(4, device="cuda")
    ss.cuda.synchronize()
    before = driver.counts["kernel_launches"]
    x + 1.0
    driver.advance(0.0002)
    assert driver.counts["kernel_launches"] == before
    # The limit, and one look of the watchdog more.
    driver.advance(0.002)
    assert driver.counts["kernel_launches"] == before + 1
    assert ss.cuda.launch_stats()["single"]["drained"]


def test_a_launch_that_fails_while_the_host_is_idle_is_told_to_the_program(restart: Any) -> None:
    driver = restart()
    x = ss.ones(4, device="cuda")
    ss.cuda.synchronize()
    for place in (1, 2, 3):
        y = ((x + 1.0) * 3.0).exp()
        before = driver.counts["kernel_launches"]
        driver.fail_next("launch", place)
        driver.advance(0.003)
        # What had failed in the watchdog's call goes out in its next one, and nothing twice.
        assert driver.counts["kernel_launches"] == before + 3
        assert y.tolist() == pytest.approx([math.exp(6.0)] * 4)
        z = x + 1.0
        driver.fail_next("launch", 1)
        driver.advance(0.0015)
        driver.fail_next("launch", 1)
        with pytest.raises(RuntimeError):
            z.tolist()
        assert (x * 2.0).tolist() == [2.0] * 4


def test_a_program_that_goes_on_is_not_drained(restart: Any) -> None:
    driver = restart()
    x = ss.ones(4, device="cuda")
    ss.cuda.synchronize()
    before = driver.counts["kernel_launches"]
    for _ in range(5):
        x = x + 1.0
        driver.advance(0.0009)
    assert driver.counts["kernel_launches"] == before


@pytest.mark.skipif(settings.core != "uncompiled", reason="compiled, nothing comes between")
def test_an_interrupt_between_record_and_commit(restart: Any) -> None:
    restart()
    x = ss.arange(4.0, device="cuda")
    left = ss.cuda.default_stream().queue
    code = {type(left).record_operands.__code__, type(left).finish.__code__,
            type(left.window.words).append.__code__}
    (x * 2.0 + 1.0).tolist()
    for place in range(1, 90):
        base = x * 2.0
        seen = interrupted(lambda: base + 1.0, code, place)  # noqa: B023
        after = base - 1.0
        assert after.tolist() == [-1.0, 1.0, 3.0, 5.0], f"after line {place}"
        if not seen:
            break
    assert 20 < place < 89


def interrupted(call: Any, codes: set[Any], place: int) -> bool:
    """Call with an interrupt at a line of some functions; whether it came."""
    lines = [0]

    def local(frame: Any, event: str, argument: Any) -> Any:
        lines[0] += event == "line"
        if lines[0] == place:
            lines[0] += 1
            raise KeyboardInterrupt
        return local

    sys.settrace(lambda frame, event, argument: local if frame.f_code in codes else None)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


FORKING = """
import os, sys
import slipstream as ss
ss.cuda.is_available(), ss.cuda.device_count()
if os.fork() == 0:
    print("before", ss.ones(2, device="cuda").sum().item(), flush=True)
    os._exit(0)
os.wait()
x = ss.ones(4, device="cuda")
y = x + 1.0
if os.fork() == 0:
    print("count", ss.cuda.device_count(), flush=True)
    for call in (lambda: x + 1.0, lambda: ss.zeros(3, device="cuda:1"), lambda: x.tolist()):
        try:
            call()
        except RuntimeError as error:
            print("child:", error, flush=True)
    os._exit(0)
os.wait()
print("parent", y.tolist())
"""


def run(program: str, tmp_path: Any, **environment: str) -> str:
    """What a program prints."""
    path = tmp_path / "program.py"
    path.write_text(program)
    known = {**os.environ, "SLIPSTREAM_DRIVER": "sim", "SLIPSTREAM_CACHE": settings.cache,
             "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    done = subprocess.run([sys.executable, str(path)], env=known, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_after_a_context_is_refused(restart: Any, tmp_path: Any) -> None:
    printed = run(FORKING, tmp_path).splitlines()
    assert printed[:2] == ["before 2.0", "count 2"]
    children = [each for each in printed if each.startswith("child:")]
    assert len(children) == 3
    for each in children:
        assert "forked process" in each
        # The line that made the context.
        assert f"{tmp_path / 'program.py'}:9" in each
        assert "spawn" in each
    assert printed[-1] == "parent [2.0, 2.0, 2.0, 2.0]"


BLOCKING = """
import slipstream as ss
x, index = ss.arange(5.0, device="cuda"), ss.tensor([1, 9]).to("cuda")
for repeat in range(3):
    try:
        x[index]
    except IndexError as error:
        print("at the op", str(error).partition(chr(10))[0])
    for _ in range(20):
        x = x * 1.0
print(x.tolist(), ss.cuda.launch_stats()["replayed"])
"""


def test_launch_blocking(restart: Any, tmp_path: Any) -> None:
    printed = run(BLOCKING, tmp_path, SLIPSTREAM_LAUNCH_BLOCKING="1").splitlines()
    assert printed[-1] == "[0.0, 1.0, 2.0, 3.0, 4.0] 0"
    assert [each[:17] for each in printed[:-1]] == ["at the op index 9"] * 3


def test_without_blocking_the_next_wait_raises(restart: Any) -> None:
    restart(seed=5)
    x, index = ss.arange(5.0, device="cuda"), ss.tensor([1, 9]).to("cuda")
    y = x[index] + 1.0
    with pytest.raises(IndexError):
        y.tolist()
    assert y.tolist() == [2.0, 1.0]


@pytest.mark.parametrize("name", ["handed_out", "taken_back"])
@pytest.mark.parametrize("early", [False, True])
def test_an_interrupt_while_the_driver_is_told_of_a_block(
        name: str, early: bool, restart: Any, monkeypatch: pytest.MonkeyPatch,
        request: pytest.FixtureRequest) -> None:
    restart(devices=1)
    x = ss.ones(64, device="cuda")
    ss.cuda.synchronize()
    before = ss.cuda.memory_allocated()
    driver = drivers.current()
    told = getattr(driver, name)

    def interrupted(*block: Any) -> None:
        monkeypatch.setattr(driver, name, told)
        if early:
            signal.raise_signal(signal.SIGINT)
        told(*block)
        if not early:
            raise KeyboardInterrupt

    y = x * 2
    del y
    monkeypatch.setattr(driver, name, interrupted)
    request.addfinalizer(functools.partial(
        signal.signal, signal.SIGINT,
        # A shell starts what runs in the background with Ctrl-C ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)))
    with pytest.raises(KeyboardInterrupt):
        x * 3
    gc.collect()
    assert ss.cuda.memory_allocated() == before
    assert (x * 3).sum().item() == 192.0
    assert ss.cuda.memory_allocated() == before
