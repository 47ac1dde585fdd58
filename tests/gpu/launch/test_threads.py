"""Threads that use the same stream, or streams of their own, at the same time, on either core."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest

import slipstream as ss
from gpu.launch.joins import joined_at_once
from slipstream.core.launch.cuda import queue
from slipstream.core.launch.cuda.chains import Group
from slipstream.core.launch.cuda.words import Words

THREADS, STEPS = 3, 40
COMPILED = not queue.__file__.endswith(".py")
SWITCHES = "compiled, no thread comes between the steps of a record"


@pytest.fixture
def switching() -> Iterator[None]:
    """Threads take turns as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(act: Callable[[int], None], count: int = THREADS) -> None:
    """Call a function with numbers, each in a thread of its own; raise what one raised."""
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            act(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def trained(start: float) -> list[float]:
    """A little work with a gradient, a product, views and an update."""
    x = ss.full((36,), start, device="cuda")
    w = ss.full((36,), 0.5, device="cuda", requires_grad=True)
    for step in range(STEPS):
        y = x * w + step % 3
        square = y.view(6, 6) @ y.view(6, 6).t()
        loss = square[:2 + step % 4].softmax(-1).sum() + (y * y).mean()
        loss.backward()
        with ss.no_grad():
            w -= 1e-3 * w.grad
            w.grad = None
    return [*w.detach().tolist(), *y.detach().tolist()]


@pytest.mark.parametrize("several", [False, True], ids=["one stream", "streams of their own"])
@pytest.mark.usefixtures("switching")
def test_threads_compute_what_each_would_alone(restart: Any, several: bool) -> None:
    restart(race=False)
    wanted = [trained(number + 1.0) for number in range(THREADS)]
    ss.cuda.synchronize()
    found: dict[int, list[float]] = {}

    def act(number: int) -> None:
        with ss.cuda.stream(ss.cuda.Stream()) if several else nullcontext():
            found[number] = trained(number + 1.0)

    together(act)
    assert [found[number] for number in range(THREADS)] == wanted


@pytest.mark.skipif(COMPILED, reason=SWITCHES)
@pytest.mark.parametrize("work", ["elements", "product"])
def test_no_thread_comes_into_anothers_record(
        restart: Any, work: str, monkeypatch: pytest.MonkeyPatch) -> None:
    restart(race=False)
    x, y = ss.ones(16, 16, device="cuda"), ss.full((16, 16), 2.0, device="cuda")
    call = {"elements": lambda a: a + 1, "product": lambda a: a @ a}[work]
    wanted = [call(x).tolist(), call(y).tolist()]
    ss.cuda.synchronize()
    found: list[Any] = []
    other = threading.Thread(target=lambda: found.append(call(y)))
    append = Words.append

    def interrupted(words: Words, value: int) -> None:
        append(words, value)
        if not other.ident and threading.current_thread() is not other:
            other.start()
            # It is done by then, in the middle of this record, unless it has to wait for its end.
            other.join(0.3)

    monkeypatch.setattr(Words, "append", interrupted)
    first = call(x)
    other.join()
    assert [each.tolist() for each in (first, *found)] == wanted


@pytest.mark.skipif(COMPILED, reason=SWITCHES)
def test_two_threads_that_make_a_spec_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from_table = ss.ones(1).spec
    specs = sys.modules["slipstream.core.shapes.specs"]
    measure, others = specs.measure, []

    def interrupted(*arguments: Any) -> Any:
        monkeypatch.setattr(specs, "measure", measure)
        others.append(make())
        return measure(*arguments)

    def make() -> Any:
        return specs.specs.contiguous(from_table.device, from_table.dtype, (7, 1, 9, 11))

    monkeypatch.setattr(specs, "measure", interrupted)
    made = make()
    assert others[0] is made
    assert make() is made


class Between:
    """Runs a function in another thread in the middle of a step of this one, once.

    It is done by then, unless it has to wait for the step's end.
    """

    def __init__(self, act: Callable[[], Any]) -> None:
        self.found: list[Any] = []
        self.thread = threading.Thread(target=lambda: self.found.append(act()))

    def come(self) -> None:
        """Here it runs."""
        if not self.thread.ident and threading.current_thread() is not self.thread:
            self.thread.start()
            self.thread.join(0.3)


@pytest.mark.skipif(COMPILED, reason=SWITCHES)
def test_a_send_does_not_cut_another_threads_record(
        restart: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    restart(race=False)
    x, y = ss.ones(16, device="cuda"), ss.full((16,), 2.0, device="cuda")
    wanted = [(x + 1).tolist(), (x * y).tolist()]
    mine = ss.cuda.current_stream().queue
    between = Between(lambda: mine.send("another thread's"))
    append = Words.append

    def interrupted(words: Words, value: int) -> None:
        append(words, value)
        between.come()

    before = x + 1
    monkeypatch.setattr(Words, "append", interrupted)
    after = x * y
    between.thread.join()
    assert [before.tolist(), after.tolist()] == wanted


@pytest.mark.skipif(COMPILED, reason=SWITCHES)
def test_threads_join_the_launches_of_their_own_streams(
        request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(squared: bool) -> list[float]:
        with ss.cuda.stream(ss.cuda.Stream()):
            x = ss.arange(40.0).to("cuda")
            y = x + 1
            for _ in range(3):
                y = y * x - y if squared else y * 0.5
            return y.tolist()

    wanted = [work(True), work(False)]
    with joined_at_once(request):
        between = Between(lambda: work(False))
        add = Group.add

        def interrupted(group: Group, *arguments: Any) -> bool:
            added = add(group, *arguments)
            if group.count > 4:
                between.come()
            return added

        monkeypatch.setattr(Group, "add", interrupted)
        first = work(True)
        between.thread.join()
    assert [first, *between.found] == wanted


def chained(number: int) -> list[float]:
    """Blocks that are let go of and taken again, on a stream of its own."""
    with ss.cuda.stream(ss.cuda.Stream()):
        x = ss.full((64,), 1.0 + number, device="cuda")
        for _ in range(STEPS):
            y = x * 0.5 + number
            y = y.tanh() - x
            x = y.clamp(-2, 2) + 1
        return x.tolist()


@pytest.mark.usefixtures("switching")
def test_blocks_of_streams_that_threads_use_at_once_are_kept_apart(restart: Any) -> None:
    restart(race=True)
    wanted = [chained(number) for number in range(THREADS)]
    found: dict[int, list[float]] = {}

    def act(number: int) -> None:
        found[number] = chained(number)

    for _ in range(4):
        together(act)
        assert [found[number] for number in range(THREADS)] == wanted


def test_scopes_of_streams_and_devices_are_each_threads_own(restart: Any) -> None:
    restart()
    outer = ss.cuda.Stream()
    both = threading.Barrier(2, timeout=60)

    def act(number: int) -> None:
        scopes: tuple[Any, ...] = (ss.cuda.Stream(), ss.device("meta"))
        around: Any = ss.device("cuda" if number else "cpu")
        for inner in scopes:
            with ss.cuda.stream(outer if number else None), around:
                before = ss.cuda.current_stream(), ss.get_default_device()
                # The one that enters last leaves last.
                if not number:
                    both.wait()
                with inner:
                    for _ in range(2):
                        both.wait()
                if number:
                    both.wait()
                assert (ss.cuda.current_stream(), ss.get_default_device()) == before

    together(act, 2)
