"""Small things that users set and ask."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

import slipstream as ss


def test_limits_of_dtypes() -> None:
    for dtype in (ss.float16, ss.float32, ss.float64):
        facts, wanted = ss.finfo(dtype), np.finfo(dtype.numpy)
        assert (facts.bits, facts.eps, facts.max, facts.min, facts.tiny) == (
            wanted.bits, wanted.eps, wanted.max, wanted.min, wanted.tiny)
    assert ss.finfo(ss.bfloat16).eps == 2.0 ** -7
    assert ss.finfo(ss.complex64) == ss.finfo(ss.float32) == ss.finfo()
    assert (ss.iinfo(ss.int8).min, ss.iinfo(ss.int8).max) == (-128, 127)
    for call in (lambda: ss.finfo(ss.int8), lambda: ss.iinfo(ss.float32), lambda: ss.iinfo(3)):
        with pytest.raises(TypeError):
            call()


def test_threads() -> None:
    before = ss.get_num_threads()
    try:
        ss.set_num_threads(1)
        assert ss.get_num_threads() == 1
        one = ss.rand(300, 300) @ ss.ones(300, 300)
        assert one.shape == (300, 300)
    finally:
        ss.set_num_threads(before)
    with pytest.raises(RuntimeError):
        ss.set_num_threads(0)
    with pytest.raises(TypeError):
        ss.set_num_threads(1.5)  # type: ignore[arg-type]


def test_determinism_is_remembered() -> None:
    ss.use_deterministic_algorithms(True, warn_only=True)
    assert ss.are_deterministic_algorithms_enabled()
    assert ss.is_deterministic_algorithms_warn_only_enabled()
    ss.use_deterministic_algorithms(False)
    assert not ss.are_deterministic_algorithms_enabled()


def test_nearness() -> None:
    x = ss.tensor([1.0, math.inf, math.nan])
    assert ss.isclose(x, x).tolist() == [True, True, False]
    assert ss.isclose(x, x, equal_nan=True).tolist() == [True, True, True]
    assert ss.isclose(ss.tensor(1.0), ss.tensor(1.1), atol=0.2).item()
    assert ss.isclose(ss.tensor([1, 2]), ss.tensor([1, 3])).tolist() == [True, False]
    assert ss.equal(ss.ones(2), ss.ones(2))
    assert not ss.equal(ss.ones(2), ss.ones(2, 1))
    with pytest.raises(RuntimeError):
        ss.isclose(ss.ones(1), ss.ones(1, dtype=ss.float64))


def test_assert_close_says_what_differs() -> None:
    close = ss.testing.assert_close
    close(ss.ones(2), ss.ones(2) + 1e-7)
    close({"a": [1.0, None]}, {"a": [1.0, None]})
    for actual, expected, text in (
        (ss.ones(2), ss.zeros(2), "Mismatched elements: 2 / 2"),
        (ss.ones(2), ss.ones(3), "shape"),
        (ss.ones(2), ss.ones(2, dtype=ss.float64), "dtype"),
        ([1, 2], [1], "length"), ({"a": 1}, {"b": 1}, "keys"), (1.0, 2.0, "not close"),
        ([ss.ones(1)], [ss.zeros(1)], r"item \[0\]"),
    ):
        with pytest.raises(AssertionError, match=text):
            close(actual, expected)
    with pytest.raises(ValueError, match="rtol and atol"):
        close(ss.ones(1), ss.ones(1), rtol=1.0)
    with pytest.raises(AssertionError, match="mine"):
        close(1, 2, msg="mine")


def test_generators_go_on_from_their_states() -> None:
    generator = ss.Generator()
    generator.manual_seed(3)
    ss.rand(5, generator=generator)
    state = generator.get_state()
    first = ss.rand(4, generator=generator)
    generator.set_state(state)
    assert ss.equal(first, ss.rand(4, generator=generator))
    again = pickle.loads(pickle.dumps(generator))
    assert ss.equal(ss.rand(2, generator=again), ss.rand(2, generator=generator))
    ss.manual_seed(7)
    with ss.random.fork_rng():
        inside = ss.rand(3)
    assert ss.equal(inside, ss.rand(3))
    assert ss.initial_seed() == 7
