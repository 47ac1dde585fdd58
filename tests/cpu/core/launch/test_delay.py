"""The delay device: work runs only at waits, in an order that the edges alone decide."""

from __future__ import annotations

import gc
import random

import numpy as np
import pytest

import slipstream as ss
from slipstream import library
from slipstream.core.launch.devices import DELAY
from slipstream.core.launch.door import backend_of
from slipstream.core.vocab.modes import modes


@pytest.fixture
def backend():
    """The delay backend with nothing queued, before and after; its order as it was."""
    found = backend_of(DELAY)
    found.wait()
    order = found.order
    yield found
    modes.current().stream = None
    for stream in found.streams:
        stream.queue.clear()
    found.failure = None
    found.order = order


def queued(backend) -> int:
    return sum(len(stream.queue) for stream in backend.streams)


def bytes_of(tensor) -> list[float]:
    """What the memory holds now, without a wait."""
    return ss.core.kernels.cpu.arrays.tensor_array(tensor).tolist()


def test_nothing_runs_before_a_wait(backend):
    a = ss.tensor([1.0, 2.0], device="delay")
    a.add_(1)
    assert queued(backend) == 1
    assert bytes_of(a) == [1.0, 2.0]
    assert a.tolist() == [2.0, 3.0]
    assert queued(backend) == 0


WAITS = {
    "item": lambda t: t[0].item() == 4.0,
    "tolist": lambda t: t.tolist() == [4.0, 6.0],
    "bool": lambda t: bool(t[0]),
    "float": lambda t: float(t[0]) == 4.0,
    "int": lambda t: int(t[0]) == 4,
    "print": lambda t: "4., 6." in repr(t),
    "cpu": lambda t: t.cpu().numpy().tolist() == [4.0, 6.0],
    "force": lambda t: t.numpy(force=True).tolist() == [4.0, 6.0],
    "data_ptr": lambda t: t.data_ptr() != 0,
    "mask": lambda t: t[t > 5].tolist() == [6.0],
}


@pytest.mark.parametrize("name", WAITS)
def test_what_looks_at_data_waits(backend, name):
    t = ss.tensor([1.0, 2.0], device="delay") * 2
    t += 2
    assert queued(backend) == 2
    assert WAITS[name](t)
    assert queued(backend) == 0


def test_numpy_without_force_refuses(backend):
    with pytest.raises(TypeError, match="delay"):
        ss.ones(2, device="delay").numpy()


def test_storages_live_until_the_work_ran(backend):
    a = ss.tensor([1.0, 2.0, 3.0], device="delay")
    b = a + 1
    c = b * 2
    del a, b
    gc.collect()
    # New tensors would take the blocks of those that are gone.
    others = [ss.tensor([9.0, 9.0, 9.0], device="delay") for _ in range(8)]
    assert c.tolist() == [4.0, 6.0, 8.0]
    assert others[0].tolist() == [9.0, 9.0, 9.0]


def test_writes_and_views_keep_their_order(backend):
    a = ss.zeros(2, 3, device="delay")
    row = a[1]
    before = a + 0
    row.add_(5)
    a.t()[0].mul_(3)
    after = a * 1
    a.zero_()
    assert before.tolist() == [[0.0] * 3] * 2
    assert after.tolist() == [[0.0, 0.0, 0.0], [15.0, 5.0, 5.0]]
    assert a.tolist() == [[0.0] * 3] * 2


def test_a_kernels_error_surfaces_at_the_wait(backend):
    def broken(self):
        raise ArithmeticError("no such number")

    a = ss.ones(2, device="delay")
    with library.impl("exp", "delay", broken, arrays=True):
        lost = a.exp()
        kept = a + 1
        with pytest.raises(ArithmeticError, match="no such number"):
            kept.tolist()
    # Told once; what was queued behind it ran, and the device lives on.
    assert kept.tolist() == [2.0, 2.0]
    assert lost.shape == (2,)
    assert a.exp().tolist() == pytest.approx([np.e] * 2)


def test_gradients(backend):
    x = ss.tensor([1.0, 2.0], device="delay", requires_grad=True)
    w = ss.tensor([3.0, 4.0], device="delay", requires_grad=True)
    (x * w).exp().sum().backward()
    assert x.grad.device.type == "delay"
    assert queued(backend) > 0
    np.testing.assert_allclose(x.grad.tolist(), [3 * np.exp(3.0), 4 * np.exp(8.0)], rtol=1e-5)


def test_copies_between_devices(backend):
    a = ss.arange(4.0) * 2
    there = (a.to("delay") + 1).to("delay")
    assert there.cpu().tolist() == [1.0, 3.0, 5.0, 7.0]
    target = ss.zeros(4)
    target.copy_(there)
    assert target.tolist() == [1.0, 3.0, 5.0, 7.0]
    target[:2] = there[2:]
    assert target.tolist() == [5.0, 7.0, 5.0, 7.0]
    there.copy_(a)
    a.zero_()
    assert there.tolist() == [0.0, 2.0, 4.0, 6.0]


def two_streams(backend) -> list[float]:
    first, second = backend.streams
    state = modes.current()
    state.stream = first
    a = ss.ones(3, device="delay") * 2
    state.stream = second
    second.wait_stream(first)
    b = a + 1
    a.mul_(10)
    state.stream = first
    first.wait_stream(second)
    a.add_(b)
    state.stream = None
    return a.tolist()


@pytest.mark.parametrize("seed", range(12))
def test_edges_make_every_order_equal(backend, seed):
    backend.order = random.Random(seed)
    assert two_streams(backend) == [23.0] * 3


def test_without_an_edge_the_order_depends_on_the_seed(backend):
    first, second = backend.streams
    state = modes.current()
    found = set()
    for seed in range(12):
        backend.order = random.Random(seed)
        a = ss.tensor(1.0, device="delay")
        state.stream = first
        a.mul_(10)
        state.stream = second
        a.add_(1)
        state.stream = None
        found.add(a.item())
    assert found == {11.0, 20.0}


@pytest.mark.parametrize("seed", range(3))
def test_one_stream_is_always_in_order(backend, seed):
    backend.order = random.Random(seed)
    rng = random.Random(seed)
    value, expected = ss.zeros(2, device="delay"), 0.0
    for _ in range(40):
        number = rng.randrange(1, 4)
        if rng.random() < 0.5:
            value, expected = value + number, expected + number
        else:
            value.mul_(-1)
            expected = -expected
    assert value.tolist() == [expected] * 2
