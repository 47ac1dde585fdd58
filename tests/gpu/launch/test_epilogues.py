"""Pointwise launches behind a product of few rows that become part of its kernel."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import slipstream as ss
from gpu.launch import joins
from gpu.launch.joins import ALWAYS, NEVER, PAYS, bits, chains, counted, joined_at_once, warmed
from slipstream.core.launch.cuda import chains as chains_module
from slipstream.core.launch.door import backend_of
from slipstream.core.vocab.devices import Device

functional = ss.nn.functional
HALVES = (ss.bfloat16, ss.float16)


@pytest.fixture(autouse=True)
def at_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """Chains are joined at first sight."""
    with joined_at_once(request):
        yield


def launched(call: Callable[[], Any]) -> tuple[int, Any]:
    """How many launches a call makes without gradients, and what it gives."""
    with ss.no_grad():
        return joins.launched(call)


def some(*shape: int, dtype: Any = ss.bfloat16) -> Any:
    """Random elements."""
    return (ss.rand(*shape, device="cuda") - 0.5).to(dtype)


def check_into_a_side(state: Any, square: Any) -> None:
    """A follower that writes where the product reads is none."""
    found = chains()
    found.mode = NEVER
    wanted = bits(launched(lambda: state.clone().copy_(state @ square * 2))[1])
    found.mode = ALWAYS
    for _ in range(3):
        held = state.clone()
        ss.mul(held @ square, 2, out=held)
        assert bits(held) == wanted


def dead_of_products() -> set[int]:
    """What was not written of the chains that a product began, a bit for each operand."""
    return {dead for parts, _, dead in chains().families if parts[0].heads}


# -- what is joined --

@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("size", [(1, 64, 40), (3, 264, 33), (8, 1024, 16), (16, 32, 4228)])
def test_what_follows_a_product(size: tuple[int, int, int], dtype: Any) -> None:
    rows, depth, columns = size
    x, w, bias = (some(rows, depth, dtype=dtype), some(columns, depth, dtype=dtype),
                  some(columns, dtype=dtype))
    beside, one = some(rows, columns, dtype=dtype), some(1, dtype=dtype)
    linear = functional.linear
    counted(lambda: (functional.gelu(linear(x, w, bias), approximate="tanh"),), 1)
    counted(lambda: (beside + linear(x, w),), 1)
    counted(lambda: (beside * one + functional.silu(linear(x, w, bias)) * 3,), 2)
    counted(lambda: ((linear(x, w, bias) * 2).float() + beside,), 1)
    counted(lambda: ((kept := linear(x, w, bias)), kept * beside), 1)


def test_a_layers_backward_is_a_launch_for_its_weights_and_one_for_the_rest() -> None:
    layers = [ss.nn.Linear(64, 64).cuda() for _ in range(3)]
    weights = [each for layer in layers for each in (layer.weight, layer.bias)]
    x = some(48, 64, dtype=ss.float32)
    upstream = some(48, 64, dtype=ss.float32)

    def call() -> Any:
        made = layers[0](x)
        for layer in layers[1:]:
            made = layer(ss.relu(made))
        return ss.autograd.grad(made, weights, upstream)

    found = chains()
    found.mode = NEVER
    apart, wanted = joins.launched(call)
    found.mode = ALWAYS
    # Each layer's weight and bias; twice the input's gradient, which relu's is made of at once.
    assert apart == 3 + 2 + 3 + 2 * 2
    for _ in range(4):
        made, results = joins.launched(call)
        assert made == 3 + 3 + 2
        assert [bits(each) for each in results] == [bits(each) for each in wanted]


# Whole tiles; edges; no fours of columns; warps that share the steps; large tiles.
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("size", [(64, 64, 64), (40, 64, 72), (33, 128, 24), (70, 1024, 40),
                                  (300, 64, 264)])
def test_what_follows_a_product_of_halves(size: tuple[int, int, int], dtype: Any) -> None:
    rows, depth, columns = size
    x, w, bias = (some(rows, depth, dtype=dtype), some(columns, depth, dtype=dtype),
                  some(columns, dtype=dtype))
    one, wide = some(1, dtype=dtype), some(rows, columns, dtype=ss.float32)
    beside = some(rows, columns, dtype=dtype)
    linear = functional.linear
    counted(lambda: (functional.gelu(linear(x, w, bias), approximate="tanh"),), 1)
    counted(lambda: ((kept := linear(x, w, bias)), functional.silu(kept)), 1)
    counted(lambda: ((wide + linear(x, w)) * wide,), 1)
    counted(lambda: (beside * one + functional.silu(linear(x, w, bias)) * 3,), 2)
    counted(lambda: (functional.layer_norm((x @ w.t()).float() + wide, (columns,)),), 2)
    # From an odd address, at which no four begin.
    odd = some(rows * columns + 1, dtype=dtype)[1:].view(rows, columns)
    counted(lambda: (linear(x, w, bias) * odd,), 1)
    counted(lambda: (linear(x.view(1, rows, depth), w, bias) + beside,), 1)


def test_results_of_halves_that_lie_apart() -> None:
    x, w, bias = some(64, 64), some(72, 64), some(72)
    wide = some(64, 144)[:, ::2]
    counted(lambda: (functional.linear(x, w, bias) + wide,), 2)
    square, state = some(64, 64), some(64, 64)
    check_into_a_side(state, square)


@pytest.mark.parametrize("size", [(64, 256, 64), (33, 100, 20), (5, 17, 96), (40, 500, 7),
                                  (150, 72, 150), (250, 64, 301)])
def test_what_follows_a_small_exact_product(size: tuple[int, int, int]) -> None:
    rows, depth, columns = size
    x, w, bias = (some(rows, depth, dtype=ss.float32), some(columns, depth, dtype=ss.float32),
                  some(columns, dtype=ss.float32))
    beside, one = some(rows, columns, dtype=ss.float32), some(1, dtype=ss.float32)
    linear = functional.linear
    counted(lambda: (functional.relu(linear(x, w, bias)),), 1)
    counted(lambda: (beside * one + ss.tanh(linear(x, w)) * 3,), 2)
    counted(lambda: (((kept := x @ w.t()) * 2).to(ss.bfloat16), kept), 1)
    # Sides whose steps lie apart, and of which only a part is read.
    turned = some(depth, rows, dtype=ss.float32).t()
    wide = some(2 * depth, columns + 3, dtype=ss.float32)[::2, 3:]
    counted(lambda: (functional.silu(turned @ wide) + beside,), 1)
    # A follower that writes where the product reads is none.
    square = some(columns, columns, dtype=ss.float32)
    state = some(rows, columns, dtype=ss.float32)
    check_into_a_side(state, square)


def test_layers_of_a_small_net() -> None:
    layers = [(some(64, 40, dtype=ss.float32), some(64, dtype=ss.float32)),
              (some(64, 64, dtype=ss.float32), some(64, dtype=ss.float32)),
              (some(10, 64, dtype=ss.float32), some(10, dtype=ss.float32))]
    x = some(32, 40, dtype=ss.float32)

    def forward() -> Any:
        first, second, last = layers
        h = functional.relu(functional.linear(x, *first))
        return functional.linear(ss.tanh(functional.linear(h, *second)), *last)

    chains().mode = NEVER
    assert launched(forward)[0] == 5
    counted(lambda: (forward(),), 3)


def test_blocks_of_a_model() -> None:
    width = 768
    weights = [(some(3 * width, width), some(3 * width)), (some(width, width), some(width)),
               (some(4 * width, width), some(4 * width)), (some(width, 4 * width), some(width))]
    one = some(width)

    def block(x: Any) -> Any:
        many, out, wide, narrow = weights
        parts = [part.view(1, 1, 12, 64).transpose(1, 2) for part in functional.linear(
            functional.layer_norm(x, (width,), one, one), *many).split(width, -1)]
        heard = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + functional.linear(heard.transpose(1, 2).reshape(1, 1, width), *out)
        hidden = functional.gelu(functional.linear(
            functional.layer_norm(x, (width,), one, one), *wide), approximate="tanh")
        return x + functional.linear(hidden, *narrow)

    x = some(1, 1, width)
    chains().mode = NEVER
    assert launched(lambda: block(block(x)))[0] == 20
    # Two norms, attention, and four products.
    counted(lambda: (block(block(x)),), 14)


def test_a_value_that_nobody_keeps_is_not_written() -> None:
    x, w, beside = some(1, 64), some(40, 64), some(1, 40)
    warmed(lambda: functional.linear(x, w) + beside)
    launched(lambda: functional.linear(x, w) + beside)
    assert dead_of_products() == {1}  # The product's result.
    kept, total = launched(lambda: ((p := functional.linear(x, w)), p + beside))[1]
    assert dead_of_products() == {0, 1}
    assert bits(kept + beside) == bits(total)


def test_it_pays_however_few_elements_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, beside = some(1, 64), some(40, 64), some(1, 40)
    chains().mode = PAYS
    monkeypatch.setattr(chains_module, "LEAST_SEEN", 3)

    def call() -> Any:
        return functional.silu(functional.linear(x, w) + beside)

    warmed(call)
    assert [launched(call)[0] for _ in range(6)] == [3, 3, 3, 1, 1, 1]
    # Without a product in front it does not.
    assert [launched(lambda: functional.silu(x) * x)[0] for _ in range(6)] == [2] * 6


# -- what is not --

def test_what_would_write_where_the_product_reads() -> None:
    x, w, beside = some(1, 64), some(64, 64), some(1, 64)

    def reused() -> Any:
        y = x * 2
        product = functional.linear(y, w)
        del y
        # Takes the block of the product's operand.
        return (product + beside,)

    def in_place() -> Any:
        y = x * 2
        y += functional.linear(y, w)
        return (y,)

    counted(reused, 3)
    counted(in_place, 3)


def test_another_launch_between() -> None:
    x, w, beside = some(1, 64), some(64, 64), some(1, 64)

    def call() -> Any:
        product = functional.linear(x, w)
        total = product.cumsum(1)
        return product + beside, total

    counted(call, 3)


def test_a_product_never_follows() -> None:
    x, wide, narrow = some(1, 64), some(1024, 64), some(64, 1024)
    linear = functional.linear
    counted(lambda: (linear(x * 2, wide),), 2)
    counted(lambda: (linear(linear(x, wide), narrow),), 2)
    counted(lambda: (linear(functional.silu(linear(x, wide)), narrow) * 2,), 2)


def test_drawn_numbers_and_other_layouts_stay_apart() -> None:
    x, w, beside = some(4, 64), some(64, 64), some(4, 64)

    def drawn() -> Any:
        ss.manual_seed(3)
        return (functional.dropout(functional.linear(x, w), 0.5) + beside,)

    def strided() -> Any:
        out = ss.zeros(4, 128, device="cuda", dtype=ss.bfloat16)[:, :64]
        ss.matmul(x, w.t(), out=out)
        return (out + beside, functional.linear(x, w).t() + beside.t().contiguous())

    counted(drawn, 2)
    before = chains().joined
    launched(strided)
    assert chains().joined == before


def test_streams() -> None:
    x, w, beside = some(1, 64), some(40, 64), some(1, 40)
    side = ss.cuda.Stream()

    def call() -> Any:
        product = functional.linear(x, w)
        side.wait_stream(ss.cuda.current_stream())
        with ss.cuda.stream(side):
            total = product + beside
        ss.cuda.current_stream().wait_stream(side)
        return (total,)

    counted(call, 2)


# -- windows that come again --

def test_what_was_made_of_a_window_is_remembered() -> None:
    x, w, beside = some(1, 64), some(40, 64), some(1, 40)

    def call(keep: bool) -> Any:
        product = functional.linear(x, w)
        total = product + beside
        if not keep:
            del product
            return (total, functional.silu(total))
        return (product, total, functional.silu(total))

    for keep in (True, False, True, False):
        counted(lambda keep=keep: call(keep), 1)
    before, held = chains().joined, chains().held
    for _ in range(20):
        launched(lambda: call(True))
        launched(lambda: call(False))
    assert (chains().joined, chains().held) == (before + 40, held)
    assert 1 < held < 10


def test_many_windows_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains_module, "MOST_OUTCOMES", 3)
    monkeypatch.setattr(chains_module, "MOST_ALIKE", 2)
    x, w = some(1, 64), some(40, 64)
    besides = [some(1, 40) for _ in range(5)]
    for beside in besides * 3:
        counted(lambda beside=beside: (functional.linear(x, w) + beside,), 1)
        assert chains().held <= 3


def test_a_steady_loop_is_replayed() -> None:
    x, wide, narrow = some(1, 64), some(1024, 64), some(64, 1024)

    def step() -> None:
        y = x
        for _ in range(4):
            y = y + functional.linear(functional.silu(functional.linear(y, wide)), narrow)

    def stats() -> dict[str, int]:
        before = ss.cuda.launch_stats()
        for _ in range(20):
            step()
            ss.cuda.synchronize()
        after = ss.cuda.launch_stats()
        return {key: after[key] - before[key] for key in ("launches", "replayed", "captured")}

    launched(stats)
    with ss.no_grad():
        assert stats() == {"launches": 160, "replayed": 160, "captured": 0}


def test_a_profile_names_the_kernel() -> None:
    x, w, beside = some(1, 64), some(40, 64), some(1, 40)
    for _ in range(2):
        launched(lambda: functional.linear(x, w) + beside)
    with ss.profiler.profile() as found:
        launched(lambda: functional.linear(x, w) + beside)
    (kernel,) = [each.name for each in found.events() if "_then_" in each.name]
    assert kernel.startswith("slip_product_then_add")


# -- random programs --

OPS: tuple[Callable[..., Any], ...] = (
    lambda x, y, w: functional.linear(x, w), lambda x, y, w: functional.linear(x, w) + y,
    lambda x, y, w: functional.silu(functional.linear(x, w, y[0])) * y,
    lambda x, y, w: x + y, lambda x, y, w: x.mul_(y).add_(functional.linear(y, w)),
    lambda x, y, w: y.copy_(functional.linear(x, w)),
    lambda x, y, w: ss.add(x, functional.linear(x, w), out=y),
    lambda x, y, w: functional.linear(x, w).float().to(x.dtype) - x[:, :1],
)


def program(seed: int) -> list[Any]:
    """A random program of products and pointwise ops over a few tensors of one shape."""
    draw = random.Random(seed)
    ss.manual_seed(seed)
    rows, width = draw.choice((1, 2, 9)), 24
    live = [some(rows, width) for _ in range(3)]
    w = some(width, width)
    for _ in range(25):
        x, y = draw.choice(live), draw.choice(live)
        live.append(draw.choice(OPS)(x, y, w))
        del x, y
        while len(live) > 3 + draw.randrange(3):
            del live[draw.randrange(len(live))]
    return live


@pytest.mark.parametrize("part", range(3))
def test_random_programs(part: int) -> None:
    backend: Any = backend_of(Device("cuda", 0))
    for seed in range(part, 30, 3):
        chains().mode = NEVER
        wanted = [bits(each) for each in launched(lambda seed=seed: program(seed))[1]]
        chains().mode = ALWAYS
        for memo in (True, False, True):
            backend.set_memo(memo)
            found = launched(lambda seed=seed: program(seed))[1]
            assert [bits(each) for each in found] == wanted, f"program {seed}"
    assert chains().joined > 0
