"""Ctrl-C while the driver works: the call is made first, as a real driver's would be."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import slipstream as ss
from slipstream.core.launch.door import backend_of
from slipstream.core.native.simulated import SimulatedDriver, calls
from slipstream.core.native.simulated.working import Desk
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.settings import settings


@pytest.fixture(autouse=True)
def interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_waits_for_the_end_of_the_outermost_call() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), calls.LOCK:  # noqa: PT012
        with calls.LOCK:
            signal.raise_signal(signal.SIGINT)
            done.append("inner")
        done.append("outer")
    assert done == ["inner", "outer"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with calls.LOCK:
        pass


def test_interrupts_that_the_program_does_not_handle_stay_as_they_are() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with calls.LOCK:
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_calls_of_another_thread_leave_the_handler_alone() -> None:
    found = []

    def work() -> None:
        with calls.LOCK:
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


@pytest.mark.skipif(settings.driver == "real", reason="for the simulated driver only")
def test_a_program_goes_on_after_an_interrupt_in_the_middle_of_the_schedule(
        monkeypatch: pytest.MonkeyPatch) -> None:
    done, left, met = Desk.do, [0], 0

    def interrupted(self: Any, *given: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            signal.raise_signal(signal.SIGINT)
        return done(self, *given)

    def counted() -> float:
        x = ss.zeros(64, device="cuda")
        for _ in range(100):
            x = x + 1
        return x.sum().item()

    counted()
    monkeypatch.setattr(Desk, "do", interrupted)
    for number in range(1, 40, 3):
        left[0] = number
        try:
            counted()
        except KeyboardInterrupt:
            met += 1
        assert counted() == 6400
    assert met > 3


@pytest.mark.skipif(settings.driver == "real", reason="for the simulated driver only")
@pytest.mark.parametrize("call", ["set_kernel_node", "add_kernel_node", "launch", "launch_graph"])
def test_an_interrupt_in_the_middle_of_a_send_loses_nothing(
        monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    made, left, met = getattr(SimulatedDriver, call), [0], 0

    def interrupted(self: Any, *given: Any, **named: Any) -> Any:
        left[0] -= 1
        result = made(self, *given, **named)
        if left[0] == 0:
            signal.raise_signal(signal.SIGINT)
        return result

    def counted(number: int, steps: int = 50) -> Any:
        # Other sizes of what lives meanwhile: other addresses, which nodes are patched to.
        between = [ss.zeros(64, device="cuda") for _ in range(number)]
        x = ss.zeros(64, device="cuda")
        for _ in range(steps):
            x = (x + 1) * 1.0
        del between
        return x

    def looked(number: int) -> float:
        return counted(number).sum().item()

    def interrupted_once(place: int, number: int) -> bool:
        before = counted(0, 3)
        left[0] = place
        try:
            looked(number)
        except KeyboardInterrupt:
            return True
        finally:
            left[0] = 0
            assert before.sum().item() == 3 * 64
        return False

    backend = backend_of(Device("cuda", 0))
    backend.set_memo(call != "launch")
    monkeypatch.setattr(SimulatedDriver, call, interrupted)
    for number in range(12):
        if call == "add_kernel_node":
            for queue in backend.queues:
                queue.memo.clear()
        assert looked(number) == 50 * 64
        # Seen once more, it is captured.
        for _ in range(2):
            met += interrupted_once(1 + number % 4, 20 + number)
        assert looked(number) == 50 * 64
    backend.set_memo(True)
    assert met > 3


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="there is no alarm")
def test_an_alarm_waits_for_the_end_of_a_call_and_takes_no_interrupt_away() -> None:
    def late(number: int, frame: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    try:
        done = []
        with pytest.raises(TimeoutError), calls.LOCK:  # noqa: PT012
            signal.raise_signal(signal.SIGALRM)
            done.append("call")
        assert done == ["call"]
        both = (TimeoutError, KeyboardInterrupt)
        with pytest.raises(both) as met, calls.LOCK:  # noqa: PT012
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGALRM)
        assert {type(met.value), type(met.value.__context__)} == set(both)
        assert signal.getsignal(signal.SIGALRM) is late
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        with calls.LOCK:
            pass
    finally:
        signal.signal(signal.SIGALRM, before)
