"""Keywords of calls: the last ones are known again, others are never taken for them."""

from __future__ import annotations

import numpy as np
import pytest

import slipstream as ss


def test_calls_that_give_keywords_in_turn() -> None:
    x = np.arange(12.0).reshape(3, 4)
    t = ss.tensor(x)
    for _ in range(4):
        assert ss.sum(t, dim=0).tolist() == x.sum(0).tolist()
        assert ss.sum(t, dim=1).tolist() == x.sum(1).tolist()
        assert ss.sum(t, dim=1, keepdim=True).shape == (3, 1)
        assert ss.sum(t, keepdim=True, dim=1).shape == (3, 1)
        assert ss.sum(input=t, dim=0).shape == (4,)
        assert ss.sum(t, 0, keepdim=True).shape == (1, 4)
        assert ss.sum(t).item() == x.sum()


def test_a_compound_op_takes_its_keywords_in_any_order() -> None:
    attend = ss.nn.functional.scaled_dot_product_attention
    q, k, v = (ss.randn(1, 2, 3, 4) for _ in range(3))
    causal, plain = attend(q, k, v, is_causal=True), attend(q, k, v)
    wide = attend(q, k, v, scale=0.25, is_causal=True)
    assert not ss.equal(causal, plain)
    for _ in range(4):
        assert ss.equal(attend(q, k, v, is_causal=True), causal)
        assert ss.equal(attend(q, k, v, is_causal=False), plain)
        assert ss.equal(attend(q, k, v, is_causal=True, scale=0.25), wide)
        assert ss.equal(attend(q, k, v, scale=0.25, is_causal=True), wide)
        assert ss.equal(attend(q, k, value=v, is_causal=True), causal)
        assert ss.equal(attend(key=k, value=v, query=q, is_causal=True), causal)


def test_keywords_made_at_run_time_are_the_same_words() -> None:
    t = ss.ones(2, 3)
    for _ in range(3):
        assert ss.sum(t, dim=1).shape == (2,)
        # Not the object that the name is elsewhere.
        assert ss.sum(t, **{b"dim".decode(): 1}).shape == (2,)


def test_what_does_not_fit_is_refused_after_calls_that_did() -> None:
    t = ss.ones(2, 3)
    for _ in range(3):
        assert ss.sum(t, dim=1).shape == (2,)
        with pytest.raises(TypeError, match="multiple values for argument 'dim'"):
            ss.sum(t, 0, dim=1)
        with pytest.raises(TypeError, match="unexpected keyword argument 'dims'"):
            ss.sum(t, dims=1)
