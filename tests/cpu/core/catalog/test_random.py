"""Random ops: seeds and states, ranges, layouts, gradients, errors."""

from __future__ import annotations

import numpy as np
import pytest

import slipstream as ss


def test_the_same_seed_gives_the_same_values_on_every_device() -> None:
    drawn = []
    for device in ("cpu", "delay"):
        ss.manual_seed(7)
        drawn.append([ss.rand(5, device=device).cpu().numpy(),
                      ss.randn(2, 3, device=device, dtype=ss.float64).cpu().numpy(),
                      ss.randperm(9, device=device).cpu().numpy()])
    for a, b in zip(*drawn, strict=True):
        np.testing.assert_array_equal(a, b)


def test_values_do_not_depend_on_strides() -> None:
    ss.manual_seed(1)
    flat = ss.empty(4, 3).uniform_()
    ss.manual_seed(1)
    turned = ss.empty(3, 4).t().uniform_()
    np.testing.assert_array_equal(flat.numpy(), turned.numpy())


def test_plans_are_cached_and_making_one_draws_nothing() -> None:
    ss.manual_seed(3)
    first = ss.rand(8).numpy().copy()
    second = ss.rand(8).numpy().copy()
    assert (first != second).any()
    ss.manual_seed(3)
    np.testing.assert_array_equal(ss.rand(8).numpy(), first)
    np.testing.assert_array_equal(ss.rand(8).numpy(), second)


def test_states_come_as_tensors_and_bring_a_stream_back() -> None:
    ss.manual_seed(5)
    ss.rand(3)
    state = ss.get_rng_state()
    a = ss.randn(4).numpy().copy()
    ss.set_rng_state(state)
    np.testing.assert_array_equal(ss.randn(4).numpy(), a)
    assert state.dtype is ss.uint8
    with pytest.raises(TypeError, match="uint8"):
        ss.set_rng_state(ss.zeros(16))
    with pytest.raises(RuntimeError, match="state"):
        ss.set_rng_state(ss.zeros(3, dtype=ss.uint8))


def test_fork_rng_leaves_the_generator_as_it_was() -> None:
    ss.manual_seed(2)
    with ss.fork_rng():
        inside = ss.rand(3).numpy().copy()
    np.testing.assert_array_equal(ss.rand(3).numpy(), inside)


def test_a_generator_of_ones_own() -> None:
    generator = ss.Generator().manual_seed(11)
    before = ss.get_rng_state().numpy().copy()
    a = ss.rand(4, generator=generator).numpy().copy()
    np.testing.assert_array_equal(ss.get_rng_state().numpy(), before)
    generator.manual_seed(11)
    np.testing.assert_array_equal(ss.rand(4, generator=generator).numpy(), a)
    assert generator.initial_seed() == 11
    twin = generator.clone_state()
    assert (ss.rand(2, generator=twin) == ss.rand(2, generator=generator)).all()
    with pytest.raises(RuntimeError, match="Expected a 'delay' device type for generator"):
        ss.rand(2, generator=generator, device="delay")
    with pytest.raises(TypeError, match="generator"):
        ss.rand(2, generator=3)


def test_ranges_and_moments() -> None:
    ss.manual_seed(0)
    uniform = ss.empty(10000).uniform_(-2, 3).numpy()
    assert uniform.min() >= -2
    assert uniform.max() < 3
    normal = ss.empty(10000).normal_(5, 2).numpy()
    assert abs(normal.mean() - 5) < 0.1
    assert abs(normal.std() - 2) < 0.1
    assert abs(ss.empty(10000).exponential_(4.0).numpy().mean() - 0.25) < 0.02
    assert abs(ss.empty(10000).bernoulli_(0.3).numpy().mean() - 0.3) < 0.02
    integers = ss.randint(-3, 4, (10000,)).numpy()
    assert set(integers.tolist()) == set(range(-3, 4))
    assert sorted(ss.randperm(50).tolist()) == list(range(50))


def test_dtypes_of_results() -> None:
    assert ss.rand(2).dtype is ss.float32
    assert ss.rand(2, dtype=ss.bfloat16).dtype is ss.bfloat16
    assert ss.randint(5, (2,)).dtype is ss.int64
    assert ss.randperm(5, dtype=ss.int32).dtype is ss.int32
    assert ss.randn_like(ss.zeros(2, dtype=ss.float64)).dtype is ss.float64
    assert ss.randint_like(ss.zeros(2), 3).dtype is ss.float32
    assert ss.bernoulli_mask(ss.zeros(3), 0.5).dtype is ss.bool if hasattr(
        ss, "bernoulli_mask") else True


def test_normal_of_tensors_and_numbers() -> None:
    means = ss.tensor([[0.0], [100.0]])
    drawn = ss.normal(means, ss.ones(3))
    assert drawn.shape == (2, 3)
    assert drawn[1].numpy().min() > 50
    assert ss.normal(2.0, 0.0, (2,)).tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError, match="std >= 0"):
        ss.normal(0.0, -1.0, (2,))


def test_bernoulli_with_probabilities() -> None:
    p = ss.tensor([0.0, 1.0, 0.0, 1.0])
    assert ss.bernoulli(p).tolist() == p.tolist()
    assert ss.empty(2, 4).bernoulli_(p).tolist() == [p.tolist()] * 2
    assert ss.bernoulli(p, 0.0).tolist() == [0.0] * 4
    with pytest.raises(RuntimeError, match="p"):
        ss.bernoulli(ss.tensor([1.5]))


def test_random_covers_what_the_dtype_holds() -> None:
    assert ss.empty(100, dtype=ss.uint8).random_().numpy().max() > 128
    assert set(ss.empty(100, dtype=ss.bool).random_().tolist()) == {False, True}
    assert set(ss.empty(100).random_(2, 5).tolist()) == {2.0, 3.0, 4.0}
    with pytest.raises(RuntimeError, match="'from' to be less than 'to'"):
        ss.empty(2).random_(3, 3)
    with pytest.raises(RuntimeError, match="out of bounds"):
        ss.empty(2, dtype=ss.int8).random_(0, 300)


def test_multinomial() -> None:
    weights = ss.tensor([[0.0, 1.0, 2.0], [5.0, 0.0, 0.0]])
    drawn = ss.multinomial(weights, 20, replacement=True).numpy()
    assert set(drawn[0].tolist()) == {1, 2}
    assert set(drawn[1].tolist()) == {0}
    assert sorted(ss.multinomial(ss.ones(4), 4).tolist()) == [0, 1, 2, 3]
    with pytest.raises(RuntimeError, match="without replacement"):
        ss.multinomial(ss.ones(2), 3)
    with pytest.raises(RuntimeError, match="element < 0"):
        ss.multinomial(ss.tensor([-1.0, 1.0]), 1)


@pytest.mark.parametrize("fill", ["uniform_", "normal_", "bernoulli_", "exponential_", "random_"])
def test_in_place_fills_lose_the_old_values(fill: str) -> None:
    x = ss.ones(3, requires_grad=True)
    y = x * 2
    version = y._version
    getattr(y, fill)()
    assert y._version == version + 1
    (y * float("inf")).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(RuntimeError, match="leaf Variable"):
        getattr(x, fill)()


def test_bad_arguments() -> None:
    with pytest.raises(RuntimeError, match="from"):
        ss.empty(2).uniform_(2, 1)
    with pytest.raises(NotImplementedError, match="int64"):
        ss.empty(2, dtype=ss.int64).uniform_()
    with pytest.raises(RuntimeError, match="lambda"):
        ss.empty(2).exponential_(0.0)
    with pytest.raises(RuntimeError, match="less than"):
        ss.randint(3, 3, (2,))
    with pytest.raises(RuntimeError, match="non-negative"):
        ss.randperm(-1)
    assert ss.rand(2, 3, device="meta").shape == (2, 3)
