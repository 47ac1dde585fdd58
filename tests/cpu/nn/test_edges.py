"""What functions of nn give, or refuse, at the edges of their arguments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import slipstream as ss
from slipstream import nn
from slipstream.nn import functional as F


# -- resampling ----------------------------------------------------------------------------------
def test_images_of_bytes_are_averaged_as_numbers() -> None:
    row = ss.tensor([[[[0, 100, 200]]]], dtype=ss.uint8)
    assert F.interpolate(row, (1, 6), mode="bilinear").flatten().tolist() == [
        0, 25, 75, 125, 175, 200]
    # At a quarter of a pixel the cubic's weights are these, halfway they leave 0..255.
    peak = ss.tensor([[[[0, 255, 255, 0]]]], dtype=ss.uint8)
    found = F.interpolate(peak, (1, 8), mode="bicubic").flatten()
    plain = F.interpolate(peak.double(), (1, 8), mode="bicubic").flatten().numpy()
    assert plain.max() > 255
    assert plain.min() < 0
    assert found.dtype is ss.uint8
    assert found.tolist() == np.clip(np.floor(plain + 0.5), 0, 255).tolist()


def test_bytes_are_rounded_between_columns_and_rows() -> None:
    image = ss.tensor([[[[0, 1], [0, 0]]]], dtype=ss.uint8)
    # Columns: [0, 1 (0.5), 1], [0, 0, 0]; then rows, halfway between.
    found = F.interpolate(image, (3, 3), mode="bilinear", align_corners=True)
    assert found[0, 0].tolist() == [[0, 1, 1], [0, 1, 1], [0, 0, 0]]


def test_other_integers_are_not_averaged() -> None:
    with pytest.raises(NotImplementedError, match="bilinear"):
        F.interpolate(ss.ones(1, 1, 2, 2, dtype=ss.int32), (4, 4), mode="bilinear")
    with pytest.raises(NotImplementedError, match="linear"):
        F.interpolate(ss.ones(1, 1, 2, dtype=ss.uint8), 4, mode="linear")
    found = F.interpolate(ss.tensor([[[1, 2]]], dtype=ss.uint8), 4)
    assert found.flatten().tolist() == [1, 1, 2, 2]
    assert found.dtype is ss.uint8


@pytest.mark.parametrize(("mode", "offset"), [("nearest", 0.0), ("nearest-exact", 0.5)])
def test_nearest_finds_places_in_float32(mode: str, offset: float) -> None:
    differ = 0
    for size, count in [(2, 82), (2, 94), (2, 41), (2, 47), (3, 7), (5, 12), (7, 4)]:
        x = ss.arange(float(size)).reshape(1, 1, size)
        points = np.arange(count, dtype=np.float32) + np.float32(offset)
        wanted = np.floor(points * (np.float32(size) / np.float32(count)))
        wanted = np.minimum(wanted, size - 1)
        np.testing.assert_array_equal(F.interpolate(x, count, mode=mode)[0, 0], wanted)
        differ += (np.floor((np.arange(count) + offset) * (size / count)) != wanted).any()
    assert differ
    # A scale that is given is turned over before it is rounded.
    x = ss.arange(10.0).reshape(1, 1, 10)
    points = np.arange(13, dtype=np.float32) + np.float32(offset)
    wanted = np.floor(points * np.float32(1 / 1.3))
    np.testing.assert_array_equal(F.interpolate(x, scale_factor=1.3, mode=mode)[0, 0], wanted)


# -- pooling -------------------------------------------------------------------------------------
@pytest.mark.parametrize(("rank", "function"), [(1, F.lp_pool1d), (2, F.lp_pool2d),
                                                (3, F.lp_pool3d)])
def test_power_pools_keep_the_sign_of_sums(rank: int, function: Any) -> None:
    values = np.arange(2.0 ** rank).reshape((1, 1) + (2,) * rank) - 5
    assert function(ss.tensor(values), 1, 2).item() == values.sum()
    assert function(ss.tensor(values), 2, 2).item() == pytest.approx(
        math.sqrt((values ** 2).sum()))
    # A root of a negative sum is no number, as PyTorch has it.
    assert math.isnan(function(ss.tensor(-np.ones_like(values)), 3, 2).item())
    module = getattr(nn, f"LPPool{rank}d")(1, 2)
    assert module(ss.tensor(values)).item() == values.sum()


# -- attention -----------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [ss.uint8, ss.int64])
def test_integer_masks_are_refused(dtype: Any) -> None:
    attention = nn.MultiheadAttention(4, 2)
    x = ss.randn(3, 1, 4)
    with pytest.raises(AssertionError, match="types of attn_mask are supported"):
        attention(x, x, x, attn_mask=ss.ones(3, 3, dtype=dtype).triu(1))
    with pytest.raises(AssertionError, match="types of key_padding_mask are supported"):
        attention(x, x, x, key_padding_mask=ss.ones(1, 3, dtype=dtype))
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 1)
    with pytest.raises(AssertionError, match="types of attn_mask are supported"):
        encoder(x, ss.ones(3, 3, dtype=dtype).triu(1))
    with pytest.raises(AssertionError, match="types of key_padding_mask are supported"):
        encoder(x, src_key_padding_mask=ss.ones(1, 3, dtype=dtype))


def attended(x: ss.Tensor, **options: Any) -> Any:
    """Attention of two heads of width 2 without projections."""
    eye = ss.eye(4, dtype=ss.float64)
    zeros = ss.zeros(12, dtype=ss.float64)
    return F.multi_head_attention_forward(
        x, x, x, 4, 2, ss.cat([eye, eye, eye]), zeros, options.pop("bias_k", None),
        options.pop("bias_v", None), False, 0.0, eye, None, training=False, **options)


@pytest.mark.parametrize("need_weights", [True, False])
def test_static_keys_and_values_stand_for_the_projected_ones(need_weights: bool) -> None:
    rng = np.random.RandomState(0)
    x, keys, values = rng.randn(3, 2, 4), rng.randn(4, 5, 2), rng.randn(4, 5, 2)
    found, _ = attended(ss.tensor(x), need_weights=need_weights, static_k=ss.tensor(keys),
                        static_v=ss.tensor(values))
    queries = x.reshape(3, 4, 2).transpose(1, 0, 2)
    scores = np.exp(queries @ keys.transpose(0, 2, 1) / math.sqrt(2))
    wanted = scores / scores.sum(-1, keepdims=True) @ values
    np.testing.assert_allclose(found, wanted.transpose(1, 0, 2).reshape(3, 2, 4), rtol=1e-10)


def test_static_keys_of_another_size_are_refused() -> None:
    x = ss.randn(3, 2, 4, dtype=ss.float64)
    good = ss.randn(4, 5, 2, dtype=ss.float64)
    with pytest.raises(AssertionError, match=r"static_k.size\(0\) of 4, but got 3"):
        attended(x, static_k=good[:3], static_v=good)
    with pytest.raises(AssertionError, match=r"static_v.size\(2\) of 2, but got 1"):
        attended(x, static_k=good, static_v=good[:, :, :1])
    more = ss.ones(1, 1, 4, dtype=ss.float64)
    with pytest.raises(AssertionError, match="bias cannot be added to static key"):
        attended(x, static_k=good, bias_k=more, bias_v=more)
    with pytest.raises(AssertionError, match="together"):
        attended(x, bias_k=more)


# -- losses --------------------------------------------------------------------------------------
def test_weights_of_losses() -> None:
    """huber_loss divides by the count, the two others by the weights' sum."""
    a, b = ss.tensor([0.0, 1.0, 4.0]), ss.tensor([0.5, 1.0, 1.0])
    weight = ss.tensor([2.0, 3.0, 1.0])
    huber = [2 * 0.125, 0.0, 2.5]
    assert F.huber_loss(a, b, "none", weight=weight).tolist() == huber
    assert F.huber_loss(a, b, "sum", weight=weight).item() == 2.75
    assert F.huber_loss(a, b, weight=weight).item() == pytest.approx(2.75 / 3)
    assert F.mse_loss(a, b, weight=weight).item() == pytest.approx((2 * 0.25 + 9) / 6)
    assert F.l1_loss(a, b, weight=weight).item() == pytest.approx((2 * 0.5 + 3) / 6)
    for loss in (F.huber_loss, F.mse_loss, F.l1_loss):
        with pytest.raises(ValueError, match="must have the same size"):
            loss(a, b, weight=ss.ones(1))


@pytest.mark.parametrize(("inputs", "wanted", "match"), [
    ([5, 3], [2, 2], "input_lengths to have value at most 4, but got value 5"),
    ([-1, 3], [2, 2], "input_lengths to have value at least 0, but got value -1"),
    ([4, 4], [2, -1], "target_lengths to have value at least 0, but got value -1"),
    ([4, 4], [2, 3], "size at least 3 at dimension 1"),
    ([4], [2, 2], "input_lengths must be of size batch_size"),
    ([4, 4], [2], "target_lengths must be of size batch_size")])
def test_lengths_without_room_are_refused(inputs: Any, wanted: Any, match: str) -> None:
    scores = ss.randn(4, 2, 3).log_softmax(2)
    targets = ss.tensor([[1, 2], [2, 1]])
    for form in (tuple, ss.tensor):
        with pytest.raises(RuntimeError, match=match):
            F.ctc_loss(scores, targets, form(inputs), form(wanted))


def test_targets_in_a_row_have_the_size_of_their_lengths() -> None:
    scores = ss.randn(4, 2, 3).log_softmax(2)
    with pytest.raises(RuntimeError, match="size 3 at dimension 0"):
        F.ctc_loss(scores, ss.tensor([1, 2]), (4, 4), (2, 1))
    with pytest.raises(RuntimeError, match="size 2 at dimension 0"):
        F.ctc_loss(scores, ss.tensor([[1, 2]]), (4, 4), (2, 1))
    with pytest.raises(RuntimeError, match="must be integral"):
        F.ctc_loss(scores, ss.tensor([1, 2]), ss.tensor([4.0, 4.0]), (1, 1))


def test_ctc_of_nothing() -> None:
    """No labels: blanks throughout. No steps: certain without labels, else impossible."""
    scores = ss.randn(4, 3, 3, dtype=ss.float64).log_softmax(2)
    found = F.ctc_loss(scores, ss.tensor([[1], [1], [1]]), (4, 0, 0), (0, 0, 1),
                       reduction="none")
    assert found[0].item() == pytest.approx(-scores[:, 0, 0].sum().item())
    assert found[1:].tolist() == [0.0, math.inf]
    empty = ss.zeros(0, dtype=ss.int64)
    assert F.ctc_loss(scores, empty, (4, 4, 4), (0, 0, 0), reduction="sum").item() == (
        pytest.approx(-scores[:, :, 0].sum().item()))


def test_power_pools_of_infinite_powers_are_extremes() -> None:
    x = ss.tensor([[[3.0, -5.0, 2.0, 1.0]]])
    assert F.lp_pool1d(x, math.inf, 2).tolist() == [[[5.0, 2.0]]]
    assert F.lp_pool1d(x, -math.inf, 2).tolist() == [[[3.0, 1.0]]]
    assert F.lp_pool2d(x.reshape(1, 1, 2, 2), math.inf, 2).tolist() == [[[[5.0]]]]


def test_bags_without_rows_have_a_gradient() -> None:
    weight = ss.ones(3, 2, requires_grad=True)
    F.embedding_bag(ss.tensor([[0, 0]]), weight, mode="max", padding_idx=0).sum().backward()
    assert weight.grad.tolist() == [[0.0, 0.0]] * 3
