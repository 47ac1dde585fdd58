"""Pointwise launches that become one with their neighbours: how many there are, and their bits."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import slipstream as ss
from gpu.launch.joins import ALWAYS, NEVER, PAYS, bits, chains, joined_at_once, launched, warmed
from slipstream.core.kernels.cuda import joined
from slipstream.core.launch.cuda import chains as chains_module
from slipstream.core.launch.door import backend_of
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.settings import settings

functional = ss.nn.functional
FLOATS = (ss.float32, ss.bfloat16)


@pytest.fixture(autouse=True)
def at_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """Chains are joined at first sight."""
    with joined_at_once(request):
        yield


def apart(call: Callable[[], Any]) -> list[bytes]:
    """The bits that a call gives where nothing is joined."""
    found = chains()
    found.mode = NEVER
    ss.manual_seed(5)
    result = [bits(each) for each in call()]
    found.mode = ALWAYS
    return result


def both(call: Callable[[], Any]) -> None:
    """Joined and not, a call gives the same bits, once and again."""
    wanted = apart(call)
    for _ in range(3):
        ss.manual_seed(5)
        assert [bits(each) for each in call()] == wanted


def operands(dtype: Any, *shape: int, count: int = 2) -> list[Any]:
    """Leaves with random elements."""
    ss.manual_seed(3)
    return [(ss.rand(*shape or (33, 7), device="cuda") - 0.5).to(dtype).requires_grad_()
            for _ in range(count)]


# -- counts --

def gated(x: Any, y: Any) -> Any:
    """The gate of an MLP."""
    return functional.silu(x) * y


def residual(x: Any, y: Any) -> Any:
    """The end of a block."""
    return functional.dropout(x, 0.1) + y


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("call", [gated, residual])
def test_one_launch_each_way(call: Any, dtype: Any) -> None:
    x, y = operands(dtype)

    def inference() -> Any:
        with ss.no_grad():
            return call(x, y)

    def backward() -> Any:
        return ss.autograd.grad(out, (x, y), g)

    def whole() -> Any:
        found = call(x, y)
        return ss.autograd.grad(found, (x, y), ss.ones_like(found))

    warmed(inference, whole)
    assert launched(inference)[0] == 1
    count, out = launched(lambda: call(x, y))
    g = ss.ones_like(out)
    assert count == 1
    assert launched(backward)[0] == 1
    both(lambda: (inference(),))
    both(lambda: (o := call(x, y), *ss.autograd.grad(o, (x, y), g)))


def test_a_value_that_nobody_keeps_is_not_written() -> None:
    x, y = [each.detach() for each in operands(ss.float32)]
    warmed(lambda: gated(x, y))
    gated(x, y)
    ss.cuda.synchronize()
    (family,) = [key for key in chains().families if len(key[0]) == 2]
    assert family[2] == 1  # The first operand of the first part.
    t = functional.silu(x)
    kept = t * y
    ss.cuda.synchronize()
    assert {key[2] for key in chains().families} == {0, 1}
    assert bits(kept) == bits(gated(x, y))
    assert bits(t) == bits(functional.silu(x))


def test_long_chains_are_cut() -> None:
    (x,) = operands(ss.float32, count=1)

    def call() -> Any:
        with ss.no_grad():
            a = x
            for _ in range(20):
                a = a * 1.5
            return (a,)

    assert launched(call)[0] == 3
    both(call)


def test_other_sizes_need_no_other_kernel() -> None:
    for rows in (3, 5, 8):
        gated(*[each.detach() for each in operands(ss.float32, rows, 16)])
        ss.cuda.synchronize()
    assert len([key for key in chains().families if len(key[0]) == 2]) == 1


# -- what memory says --

def test_an_intermediate_that_is_held_or_reused() -> None:
    x, y = [each.detach() for each in operands(ss.bfloat16)]

    def call() -> Any:
        held = functional.silu(x)
        out = held * y
        lost = functional.relu(out) + y
        del out
        # Takes the block that was released.
        other = ss.exp(y)
        again = held + other
        return held, lost, other, again, x, y

    both(call)


def test_a_later_reader_before_the_release() -> None:
    x, y = [each.detach() for each in operands(ss.float32)]

    def call() -> Any:
        t = functional.silu(x)
        a = t * y
        b = ss.cumsum(x, 0)
        c = t + b
        del t
        return a, b, c

    both(call)


def test_views_that_lie_apart_from_what_they_read() -> None:
    (x,) = [each.detach() for each in operands(ss.float32, 64, count=1)]

    def shifted() -> Any:
        t = x * 2
        return t[1:] + t[:-1], t[::2] * t[1::2], t.view(8, 8).t() + t.view(8, 8)

    def written() -> Any:
        t = ss.zeros(65, device="cuda")
        s = x + 1
        t[1:] = s
        t[:-1].mul_(2)
        u = t[1:] + x
        t[:-1].copy_(u * 3)
        return t, s, u

    both(shifted)
    both(written)


def test_writes_in_place() -> None:
    x, y = [each.detach() for each in operands(ss.float32)]

    def call() -> Any:
        a = x.clone()
        a.mul_(y).add_(x)
        b = a * 2
        a.sub_(b)
        c = b + a
        b.add_(a)
        return a, b, c

    both(call)


def test_dtypes_are_rounded_between() -> None:
    (x,) = [each.detach() for each in operands(ss.float32, count=1)]

    def call() -> Any:
        a = (x * 300).to(ss.int8)
        b = a.to(ss.bfloat16) * 1.01
        c = b.to(ss.float16) / 3
        return c.to(ss.float64) + 1e-9, (c > 0.1) & (b < 2), (x * 1000).to(ss.bool)

    both(call)


def test_what_a_hook_keeps() -> None:
    x, y = operands(ss.float32)

    def call() -> Any:
        kept: list[Any] = []
        t = functional.silu(x)
        t.register_hook(lambda g: kept.append(g))
        grads = ss.autograd.grad((t * y).sum(), (x, y))
        return (*kept, *grads)

    both(call)


def test_memory_that_left() -> None:
    x, y = [each.detach() for each in operands(ss.float32)]

    def call() -> Any:
        t = functional.silu(x)
        other = ss.from_dlpack(t)
        out = other * y
        del other
        last = out + 1
        del out
        return t, last

    both(call)


def test_streams() -> None:
    x, y = [each.detach() for each in operands(ss.float32)]
    side = ss.cuda.Stream()

    def call() -> Any:
        t = functional.silu(x)
        side.wait_stream(ss.cuda.current_stream())
        with ss.cuda.stream(side):
            u = t * y
            v = u + t
        ss.cuda.current_stream().wait_stream(side)
        del t, u
        return gated(v, y), v

    both(call)


def test_a_captured_graph_keeps_its_launches() -> None:
    x, y = [each.detach() for each in operands(ss.float32)]
    wanted = bits(gated(x, y))
    graph = ss.cuda.CUDAGraph()
    with ss.cuda.graph(graph):
        out = gated(x, y)
    out.zero_()
    graph.replay()
    assert bits(out) == wanted


def test_drawn_numbers_stay_what_they_are() -> None:
    x, y = [each.detach() for each in operands(ss.float32, 1001)]

    def call() -> Any:
        first = residual(x, y)
        return first, residual(first, x), functional.dropout(y.to(ss.float64), 0.5) * 2, ss.rand(5)

    both(call)
    generator = ss.cuda.get_rng_state()
    residual(x, y)
    states = [ss.cuda.get_rng_state()]
    chains().mode = NEVER
    ss.cuda.set_rng_state(generator)
    residual(x, y)
    assert bits(states[0]) == bits(ss.cuda.get_rng_state())


# -- windows --

def test_a_steady_loop_is_replayed() -> None:
    x, y = operands(ss.float32)

    def step() -> None:
        out = residual(gated(x, y), y)
        ss.autograd.grad(out.sum(), (x, y))

    def counted() -> dict[str, int]:
        before = ss.cuda.launch_stats()
        for _ in range(40):
            step()
        ss.cuda.synchronize()
        after = ss.cuda.launch_stats()
        return {key: after[key] - before[key] for key in ("launches", "replayed", "captured")}

    for _ in range(3):
        counted()
    count = counted()
    assert count["captured"] == 0
    assert count["replayed"] == count["launches"]


def test_no_window_ends_inside_a_chain() -> None:
    x, y = [each.detach() for each in operands(ss.float32)]

    def steps() -> None:
        for _ in range(300):
            gated(x, y)
            gated(y, x)

    launched(steps)
    assert launched(steps)[0] == 600


def test_without_the_memo_nothing_is_joined() -> None:
    x, y = [each.detach() for each in operands(ss.float32)]
    wanted = bits(gated(x, y))
    backend: Any = backend_of(Device("cuda", 0))
    backend.set_memo(False)
    count, out = launched(lambda: gated(x, y))
    assert (count, bits(out)) == (2, wanted)
    backend.set_memo(True)
    assert launched(lambda: gated(x, y))[0] == 1


def test_a_kernel_is_made_where_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = [each.detach() for each in operands(ss.float32)]
    chains().mode = PAYS
    assert [launched(lambda: gated(x, y))[0] for _ in range(6)] == [2] * 6
    assert not chains().families
    # As if so few elements were enough.
    assert chains().fewest > x.numel()
    chains().fewest = 1
    assert [launched(lambda: gated(x, y))[0] for _ in range(6)] == [2] * 6
    monkeypatch.setattr(chains_module, "WORTH", 2 * x.nbytes + chains_module.LAUNCH_BYTES)
    assert launched(lambda: gated(x, y))[0] == 1
    # Another chain: the first ones of a few are launched apart.
    counts = [launched(lambda: ss.exp(x) + y)[0] for _ in range(6)]
    assert counts == [2, 2, 2, 1, 1, 1]


def test_a_kernel_that_fails_leaves_the_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = [each.detach() for each in operands(ss.float32)]
    wanted = apart(lambda: (gated(x, y),))

    def fail(*_: Any) -> Any:
        raise chains_module.CompileError("no kernel", "")

    monkeypatch.setattr(joined.FlatPart, "joined", fail)
    for _ in range(3):
        count, out = launched(lambda: gated(x, y))
        assert (count, [bits(out)]) == (2, wanted)


@pytest.mark.parametrize("failure", [KeyboardInterrupt, RecursionError, MemoryError])
def test_what_stops_the_making_of_a_kernel_loses_no_launch(
        monkeypatch: pytest.MonkeyPatch, failure: type[BaseException]) -> None:
    x, held = ss.full((64,), 5.0, device="cuda"), ss.zeros(64, device="cuda")
    warmed(lambda: (x + 1) * 2, lambda: ss.zeros(64, device="cuda").add_(7))

    def stopped(*_: Any) -> Any:
        raise failure("in the middle")

    monkeypatch.setattr(joined.Joint, "__init__", stopped)
    held.add_(7)
    found = (x + 1) * 2
    if failure is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt, match="in the middle"):
            ss.cuda.synchronize()
    ss.cuda.synchronize()
    monkeypatch.undo()
    assert held.tolist() == [7.0] * 64
    assert found.tolist() == [12.0] * 64
    both(lambda: ((x + 1) * 2,))


def test_a_reader_that_another_thread_records_while_its_window_is_sent(
        monkeypatch: pytest.MonkeyPatch) -> None:
    if settings.driver == "real":
        pytest.skip("a card's driver is not called through Python")
    x = ss.full((64,), 3.0, device="cuda")
    warmed(lambda: (x + 1) * 2, lambda: (x + 1) * 3)
    # Where `value` will lie is what it was with other numbers.
    x = ss.full((64,), 5.0, device="cuda")
    ss.cuda.synchronize()
    swapped, recorded = threading.Event(), threading.Event()
    backend: Any = backend_of(Device("cuda", 0))
    enter = backend.driver.use

    def slow(context: int) -> None:
        if threading.current_thread() is sender:
            swapped.set()
            recorded.wait(20)
        enter(context)

    monkeypatch.setattr(backend.driver, "use", slow)
    sender = threading.Thread(target=ss.cuda.synchronize)
    value = x + 1
    doubled = value * 2
    sender.start()
    assert swapped.wait(20)
    # The window with what writes `value` is on its way; who reads it here finds it written.
    tripled = value * 3
    del value
    recorded.set()
    sender.join()
    monkeypatch.undo()
    assert doubled.tolist() == [12.0] * 64
    assert tripled.tolist() == [18.0] * 64


def test_a_profile_tells_of_the_joined_kernel() -> None:
    x, y = [each.detach() for each in operands(ss.float32)]
    gated(x, y)
    ss.cuda.synchronize()
    with ss.profiler.profile() as found:
        for _ in range(4):
            gated(x, y)
        ss.cuda.synchronize()
    kernels = [each for each in found.events() if "_then_" in each.name]
    assert len(kernels) == 4


# -- random chains --

POINTWISE: tuple[Callable[..., Any], ...] = (
    lambda x, y: x + y, lambda x, y: x * y, lambda x, y: ss.maximum(x, y),
    lambda x, y: functional.silu(x), lambda x, y: ss.where(x > y, x, y * 0.5),
    lambda x, y: x.to(ss.float16).to(x.dtype), lambda x, y: functional.dropout(x, 0.3),
    lambda x, y: x - y[0, 0], lambda x, y: x[1:].reshape(-1)[:x.numel() // 2].sum() + y,
    lambda x, y: ss.flip(x, (0,)) * y, lambda x, y: x.view(-1).view(x.shape) + 1,
)
WRITES: tuple[Callable[..., Any], ...] = (
    lambda x, y: x.mul_(y), lambda x, y: x.add_(1), lambda x, y: x.copy_(y),
    lambda x, y: x[1:].sub_(y[:-1]), lambda x, y: ss.add(x, y, out=x),
    lambda x, y: x.view(-1)[3:].mul_(0.5),
)


def program(seed: int) -> Any:
    """A random program of pointwise ops over a few tensors of one shape."""
    draw = random.Random(seed)
    ss.manual_seed(seed)
    dtype = draw.choice(FLOATS)
    live = [(ss.rand(6, 5, device="cuda") - 0.5).to(dtype) for _ in range(3)]
    side = ss.cuda.Stream() if seed % 4 == 0 else None
    for _ in range(30):
        x, y = draw.choice(live), draw.choice(live)
        act = draw.random()
        if act < 0.6:
            live.append(draw.choice(POINTWISE)(x, y).to(dtype))
        elif act < 0.8:
            draw.choice(WRITES)(x, y)
        elif act < 0.85 and side is not None:
            side.wait_stream(ss.cuda.current_stream())
            with ss.cuda.stream(side):
                live.append(x * 2 + y)
            ss.cuda.current_stream().wait_stream(side)
        elif act < 0.9:
            live.append(ss.from_dlpack(x))
        del x, y
        while len(live) > 3 + draw.randrange(3):
            del live[draw.randrange(len(live))]
    return live


@pytest.mark.parametrize("part", range(4))
def test_random_chains(part: int) -> None:
    for seed in range(part, 60, 4):
        wanted = apart(lambda seed=seed: program(seed))
        for memo in (True, False, True):
            backend: Any = backend_of(Device("cuda", 0))
            backend.set_memo(memo)
            assert [bits(each) for each in program(seed)] == wanted, f"program {seed}"
    assert chains().joined > 0


def test_a_profile_tells_joined_launches_from_others_of_the_line() -> None:
    x = ss.rand(40, 50, device="cuda")

    def call(twice: bool) -> Any:
        # One line and op, alone or behind another, which it is joined with.
        return (x * 2 if twice else x).exp()

    for twice in (False, True, False, True):
        call(twice)
        ss.cuda.synchronize()
    with ss.profiler.profile() as profile:
        for twice in (False, True, False, True):
            call(twice)
            ss.cuda.synchronize()
    names = [event.name for event in profile.recorded().of("kernel")]
    assert names == ["exp_f32", "mul_then_exp_float"] * 2
