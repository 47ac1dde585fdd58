"""Normalisation over batches: the statistics that it keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slipstream as ss
from slipstream.nn import functional


def test_running_statistics_move_by_momentum() -> None:
    x = np.random.RandomState(0).randn(4, 3, 5)
    mean, var = ss.zeros(3, dtype=ss.float64), ss.ones(3, dtype=ss.float64)
    functional.batch_norm(ss.tensor(x), mean, var, training=True, momentum=0.25)
    np.testing.assert_allclose(mean.numpy(), 0.25 * x.mean((0, 2)))
    np.testing.assert_allclose(var.numpy(), 0.75 + 0.25 * x.var((0, 2), ddof=1))


def test_evaluation_uses_and_keeps_them() -> None:
    x = ss.rand(4, 3)
    mean, var = ss.rand(3), ss.rand(3) + 0.5
    before = mean.clone(), var.clone()
    out = functional.batch_norm(x, mean, var, training=False, eps=0.0)
    assert ss.allclose(out, (x - mean) / var.sqrt(), rtol=1e-4, atol=1e-6)
    assert ss.equal(mean, before[0])
    assert ss.equal(var, before[1])


def test_bad_input() -> None:
    x = ss.rand(4, 3)
    with pytest.raises(RuntimeError):
        functional.batch_norm(x, None, None)
    with pytest.raises(ValueError, match="more than 1 value"):
        functional.batch_norm(x[:1], None, None, training=True)
    with pytest.raises(RuntimeError):
        functional.batch_norm(x, ss.zeros(4), ss.ones(4))
    with pytest.raises(RuntimeError):
        functional.group_norm(x, 2)
    with pytest.raises(NotImplementedError):
        functional.batch_norm(ss.ones(2, 3, dtype=ss.int64), None, None, training=True)


def test_attention_hides_what_the_mask_says() -> None:
    q, k, v = ss.rand(2, 3, 4), ss.rand(2, 5, 4), ss.rand(2, 5, 4)
    mask = ss.zeros(3, 5, dtype=ss.bool)
    mask[0, 2] = True
    out = functional.scaled_dot_product_attention(q, k, v, mask)
    assert ss.allclose(out[:, 0], v[:, 2])
    assert out[:, 1:].abs().max().item() == 0
    causal = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert ss.allclose(causal[:, 0], v[:, 0])
    with pytest.raises(RuntimeError):
        functional.scaled_dot_product_attention(q, k, v, mask, is_causal=True)


def test_logits_of_any_size_give_finite_losses() -> None:
    x = ss.tensor([0.0, -150.0, 150.0, -1e30], requires_grad=True)
    y = ss.tensor([0.0, 1.0, 0.0, 0.0])
    loss = functional.binary_cross_entropy_with_logits(x, y, reduction="none")
    assert loss.tolist() == pytest.approx([np.log(2), 150, 150, 0])
    loss.sum().backward()
    assert x.grad.tolist() == pytest.approx([0.5, -1, 1, 0])


@pytest.mark.parametrize(("shapes", "words"), [
    (((2, 3, 4), (2, 3, 5), (2, 3, 4)), "the last size of query, 4, and of key, 5,"),
    (((2, 3, 4), (2, 6, 4), (2, 5, 4)), "the second last size of key, 6, and of value, 5,")])
def test_attention_names_the_sizes_that_do_not_agree(shapes: Any, words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        functional.scaled_dot_product_attention(*[ss.zeros(shape) for shape in shapes])
