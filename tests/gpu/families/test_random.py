"""Random numbers: the device's are the CPU's, bit for bit, from the same seed and counter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import slipstream as ss
from gpu.families.sides import COMPLEX, FLOATS, INTEGERS, check, numbers, tensor
from slipstream.core.vocab import generators
from slipstream.utils.checkpoint import checkpoint

SEED = 81985529216486895


def drawn(call: Callable[[str, Any], Any]) -> None:
    """Compare ``call(device, generator)``, and where the generators stand afterwards."""
    offsets = []

    def run(device: str) -> Any:
        generator = ss.Generator(device=device)
        generator.manual_seed(SEED)
        generator.set_offset((1 << 33) - 3)
        found = call(device, generator)
        offsets.append(generator.get_offset())
        return found

    check(run)
    assert offsets[0] == offsets[1]


@pytest.mark.parametrize("dtype", [*FLOATS, *COMPLEX])
@pytest.mark.parametrize("shape", [(), (5,), (9, 31), (0, 2)])
def test_real_numbers(dtype: Any, shape: tuple[int, ...]) -> None:
    def call(device: str, generator: Any) -> Any:
        def empty() -> Any:
            return ss.empty(shape, dtype=dtype, device=device)

        found = [empty().uniform_(generator=generator),
                 empty().uniform_(-2.5, 3.25, generator=generator),
                 empty().normal_(generator=generator),
                 empty().normal_(-1.0, 0.3, generator=generator)]
        if dtype in FLOATS:
            found.append(empty().exponential_(1.5, generator=generator))
        return found

    drawn(call)


@pytest.mark.parametrize("dtype", [ss.bool, *INTEGERS, *FLOATS])
def test_integers_and_coins(dtype: Any) -> None:
    def call(device: str, generator: Any) -> Any:
        def empty() -> Any:
            return ss.empty(37, dtype=dtype, device=device)

        high = 2 if dtype is ss.bool else 100
        return [empty().random_(generator=generator), empty().random_(0, high, generator=generator),
                empty().bernoulli_(0.3, generator=generator),
                empty().bernoulli_(1.0, generator=generator)]

    drawn(call)


def test_ranges_of_integers() -> None:
    def call(device: str, generator: Any) -> Any:
        return [ss.randint(-5, 9, (11,), device=device, generator=generator),
                ss.randint(-(1 << 62), 1 << 62, (11,), device=device, generator=generator)]

    drawn(call)


def test_results_with_strides() -> None:
    def call(device: str, generator: Any) -> Any:
        found = [ss.zeros(6, 5, dtype=dtype, device=device).t()[:, ::2]
                 for dtype in (ss.float32, ss.float64, ss.complex64)]
        for each in found:
            each.normal_(generator=generator)
            each[1:].uniform_(generator=generator)
        return [each.contiguous() for each in found]

    drawn(call)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 100, 5000])
def test_permutations(count: int) -> None:
    drawn(lambda device, generator: ss.randperm(count, device=device, generator=generator))


@pytest.mark.parametrize("dtype", FLOATS)
def test_weights_and_chances(dtype: Any) -> None:
    rows = np.abs(numbers(1, (6, 9), dtype)) / dtype.numpy.type(4)

    def call(device: str, generator: Any) -> Any:
        weights = tensor(rows, device)
        turned = tensor(rows.T.copy(), device).t()
        return [ss.multinomial(weights, 4, generator=generator),
                ss.multinomial(turned, 40, True, generator=generator),
                ss.multinomial(weights[2], 9, generator=generator),
                ss.bernoulli(turned, generator=generator),
                ss.empty(3, 6, 9, device=device).bernoulli_(weights, generator=generator)]

    drawn(call)


def test_new_tensors_and_dropout() -> None:
    def call(device: str, generator: Any) -> Any:
        del generator
        ss.manual_seed(5)
        x = ss.ones(1000, device=device)
        return [ss.rand(13, device=device), ss.randn(13, device=device), ss.rand_like(x),
                ss.nn.functional.dropout(x, 0.3)]

    drawn(call)


@pytest.mark.parametrize("dtype", [ss.int32, ss.int64, ss.float16, ss.bfloat16, ss.float32,
                                   ss.float64])
def test_numbers_at_equal_distances(dtype: Any) -> None:
    steps = [(300,), (7, -20, -3)] + ([(0.5, 9.0, 0.125)] if dtype in FLOATS else [])
    check(lambda device: [ss.arange(*each, dtype=dtype, device=device) for each in steps])


@pytest.fixture
def never_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of a process in which no card has drawn and nothing was seeded."""
    monkeypatch.setattr(generators.defaults, "_seed", None)
    monkeypatch.setattr(generators.defaults, "_by_device", {
        device: each for device, each in generators.defaults._by_device.items()
        if device.type == "cpu"})


@pytest.mark.usefixtures("never_drawn")
@pytest.mark.parametrize("use_reentrant", [True, False])
def test_the_first_draw_of_all_is_repeated_by_a_checkpoint(use_reentrant):
    x = ss.ones(64, device="cuda", requires_grad=True)
    y = checkpoint(lambda a: ss.dropout(a, 0.5, True), x, use_reentrant=use_reentrant)
    y.sum().backward()
    assert x.grad.tolist() == y.tolist()
    assert 0 < (y == 0).sum().item() < 64


@pytest.mark.usefixtures("never_drawn")
def test_a_checkpoint_that_draws_first_on_a_card_draws_the_same_again() -> None:
    x = ss.ones(256, device="cuda", requires_grad=True)
    out = checkpoint(lambda each: ss.nn.functional.dropout(each, 0.5) * each, x,
                     use_reentrant=False)
    after = ss.cuda.get_rng_state()
    out.sum().backward()
    assert ss.equal(x.grad, 2 * out.detach())
    assert ss.equal(after, ss.cuda.get_rng_state())


@pytest.mark.usefixtures("never_drawn")
def test_a_seed_given_in_a_fork_is_forgotten_after_it() -> None:
    with ss.fork_rng():
        first = ss.rand(64, device="cuda")
        ss.manual_seed(5)
        seeded = ss.rand(64, device="cuda")
    assert ss.equal(ss.rand(64, device="cuda"), first)
    assert not ss.equal(first, seeded)


@pytest.mark.usefixtures("never_drawn")
def test_a_card_first_used_after_a_fork_does_not_take_the_seed_of_it() -> None:
    with ss.fork_rng():
        ss.manual_seed(5)
    found = ss.rand(64, device="cuda")
    ss.manual_seed(5)
    assert not ss.equal(ss.rand(64, device="cuda"), found)
