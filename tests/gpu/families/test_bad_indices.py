"""A bad index is reported at the next wait; its lane yields 0 or writes nothing."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from catalogue import host

import slipstream as ss
from gpu.families.sides import numbers, tensor
from slipstream.core.launch.door import backend_of
from slipstream.core.launch.waiting import wait
from slipstream.core.vocab.devices import Device

BAD = np.array([1, 7, 0])


def reported(call: Callable[[], Any]) -> Any:
    """What a call gives, once its error was raised."""
    out = call()
    with pytest.raises(IndexError, match="out of bounds"):
        wait(Device("cuda"), "test")
    return host(out)


def test_reads_yield_zero() -> None:
    x, index = tensor(numbers(1, (3, 2)), "cuda"), tensor(BAD, "cuda")
    for call in (lambda: x[index], lambda: x.index_select(0, index),
                 lambda: ss.embedding(x, index)):
        found = reported(call)
        np.testing.assert_array_equal(found, numbers(1, (3, 2))[[1, 0, 0]] * [[1], [0], [1]])
    along = tensor(np.array([[0, 5]]), "cuda")
    np.testing.assert_array_equal(reported(lambda: x.gather(0, along)),
                                  numbers(1, (3, 2))[:1] * [1, 0])


@pytest.mark.parametrize("count", [1, 40, 2000])
def test_writes_are_skipped(count: int) -> None:
    # Alone, looking through the line, ranked, in a table.
    index = np.concatenate([np.tile([0, 2], count), [-1, 3], np.tile([2, 0], count)])
    source = numbers(2, (len(index), 2))
    good = (index >= 0) & (index < 3)
    written, added = np.zeros((3, 2), np.float32), np.zeros((3, 2), np.float32)
    written[index[good]] = source[good]
    np.add.at(added, index[good], source[good])
    where, values = tensor(index, "cuda"), tensor(source, "cuda")
    zeros = ss.zeros(3, 2, device="cuda")
    np.testing.assert_array_equal(reported(lambda: zeros.index_copy(0, where, values)), written)
    np.testing.assert_array_equal(reported(lambda: zeros.index_add(0, where, values)), added)


def test_a_target_that_is_no_class() -> None:
    scores = tensor(numbers(3, (4, 3)), "cuda")
    target = tensor(np.array([0, 3, 1, 2]), "cuda")
    found = reported(lambda: ss.nn.functional.nll_loss(scores, target, reduction="none"))
    assert found[1] == 0
    found = reported(lambda: ss.nn.functional.cross_entropy(scores, target))
    assert np.isfinite(found)


def test_weights_that_are_no_distribution() -> None:
    cases = [
        ([[0.5, 0.5], [-1.0, 0.5]], False, r"either `inf`, `nan` or element < 0, at position 1"),
        ([[0.5, np.nan], [1.0, 0.5]], True, r"either `inf`, `nan` or element < 0, at position 0"),
        ([[0.5, 0.5], [0.0, 0.0]], True, r"sum of probabilities <= 0\), at position 1"),
        ([[0.5, 0.5], [0.0, 0.0]], False, r"not enough non-negative category.*, at position 1"),
    ]
    for weights, again, text in cases:
        host_text = "either `inf`|invalid multinomial"
        for device, where in (("cpu", host_text), ("cuda", text + r"\n.*test_bad_indices\.py")):
            given = tensor(np.array(weights), device)
            with pytest.raises(RuntimeError, match=where):
                ss.multinomial(given, 1, again).tolist()
    with pytest.raises(RuntimeError, match=r"p_in <= 1 to be true.*position 1"):
        ss.bernoulli(tensor(np.array([0.5, 1.5]), "cuda")).tolist()


def test_a_report_names_no_line_of_an_earlier_one() -> None:
    x, index = tensor(numbers(4, 3), "cuda"), tensor(BAD, "cuda")
    for take in (lambda: x[index], lambda: x[index],
                 lambda: x[index]):
        with pytest.raises(IndexError) as failure:
            take().tolist()
        line = take.__code__.co_firstlineno
        assert str(failure.value).endswith(f"called at {__file__}:{line}")


class Between:
    """The order of a backend's streams; ``act`` is called after ``waits`` waits for a stream."""

    def __init__(self, order: Any, waits: int, act: Callable[[], None]) -> None:
        self.order = order
        self.waits = waits
        self.act = act

    def host_waited(self, place: Any) -> None:
        self.order.host_waited(place)
        self.waits -= 1
        if self.waits == 0:
            self.act()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.order, name)


@pytest.mark.parametrize("late", [False, True], ids=["waited for", "too late for the wait"])
@pytest.mark.parametrize("drained", [False, True], ids=["sent", "drained"])
def test_a_wait_forgets_only_what_it_waited_for(
        late: bool, drained: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes out while the host waits keeps its line: a whole window, or a part of one."""
    x, index = tensor(numbers(4, 3), "cuda"), tensor(BAD, "cuda")
    side = ss.cuda.Stream()
    ss.cuda.synchronize()
    backend: Any = backend_of(x.device)
    made = []

    def send() -> None:
        with ss.cuda.stream(side):
            made.append(x[index])
            queue = side.queue
        if drained:
            queue.drain()
        else:
            queue.send("wait")

    monkeypatch.setattr(backend, "order", Between(
        backend.order, len(backend.queues) if late else 1, send))
    told = []
    for _ in range(1 + late):
        # A card may be quick enough to tell it at the first wait.
        try:
            ss.cuda.synchronize()
        except IndexError as error:
            told.append(str(error))
    (text,) = told
    assert re.search(r"called at .*test_bad_indices\.py", text)
    assert len(made) == 1


def test_the_device_lives_on() -> None:
    x, index = tensor(numbers(4, 3), "cuda"), tensor(BAD, "cuda")
    for _ in range(20):
        reported(lambda: x[index])
        assert host(x + 1.0).tolist() == (numbers(4, 3) + 1.0).tolist()


def test_a_thousand_errors_in_one_process() -> None:
    x, index = tensor(numbers(4, 3), "cuda"), tensor(BAD, "cuda")
    for _ in range(1000):
        reported(lambda: x[index])
    assert host(x[tensor(np.array([2, -3]), "cuda")]).tolist() == numbers(4, 3)[[2, 0]].tolist()


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
@pytest.mark.parametrize("stream", [False, True], ids=["default stream", "another stream"])
def test_an_update_after_a_bad_index_writes_nothing(kind: str, stream: bool) -> None:
    """Parameters and states stay as they were; once the error was raised, updates go on."""
    table = tensor(numbers(1, (3, 2)), "cuda").requires_grad_()
    other = tensor(numbers(2, (700,)), "cuda").requires_grad_()
    optimizer = getattr(ss.optim, kind)([table, other], lr=0.1)
    good, bad = tensor(np.array([1, 2, 0]), "cuda"), tensor(BAD, "cuda")
    # Memory of the default stream's work that another stream uses.
    ss.cuda.synchronize()

    def step(index: Any) -> None:
        optimizer.zero_grad()
        (ss.embedding(table, index).sum() + other.square().sum()).backward()
        optimizer.step()

    def step_and_wait(index: Any) -> None:
        step(index)
        ss.cuda.synchronize()

    with ss.cuda.stream(ss.cuda.Stream()) if stream else contextlib.nullcontext():
        for _ in range(3):
            step(good)
        before = [host(parameter.detach()) for parameter in (table, other)]
        # At the wait, or on a card at a send before it, by which the report is there already.
        with pytest.raises(IndexError, match="out of bounds"):
            step_and_wait(bad)
        kept = [host(parameter.detach()) for parameter in (table, other)]
        for was, found in zip(before, kept, strict=True):
            np.testing.assert_array_equal(found, was)
        step(good)
        for was, parameter in zip(before, (table, other), strict=True):
            assert np.all(host(parameter.detach()) != was)
