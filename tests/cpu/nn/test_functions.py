"""Functions of nn that are made of ops, against definitions."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from slopes import check_slopes

import slipstream as ss
from slipstream.nn import functional as F
from slipstream.nn.modules import utils as sizes


def array(seed: int, *shape: int) -> np.ndarray:
    return np.random.RandomState(seed).uniform(-1, 1, shape)


def made(seed: int, *shape: int) -> Any:
    return ss.tensor(array(seed, *shape))


# -- convolutions --------------------------------------------------------------------------------
@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 0, 1), (2, 1, 1), (1, 2, 2)])
def test_conv3d_by_the_definition(stride: int, padding: int, dilation: int) -> None:
    x, w = array(1, 2, 2, 5, 6, 5), array(2, 3, 2, 2, 3, 2)
    found = F.conv3d(ss.tensor(x), ss.tensor(w), None, stride, padding, dilation)
    padded = np.pad(x, [(0, 0), (0, 0), *[(padding, padding)] * 3])
    counts = found.shape[2:]
    wanted = np.zeros(tuple(found.shape))
    for cell in np.ndindex(2, 3, 2):
        part = padded[(slice(None), slice(None), *[
            slice(at * dilation, at * dilation + stride * (count - 1) + 1, stride)
            for at, count in zip(cell, counts, strict=True)])]
        wanted += np.einsum("ncxyz,oc->noxyz", part, w[(slice(None), slice(None), *cell)])
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize(("stride", "padding", "extra", "dilation"),
                         [(1, 0, 0, 1), (2, 1, 1, 1), (1, 1, 2, 3), (3, 0, 2, 2)])
def test_a_transposed_convolution_is_the_adjoint(rank: int, stride: int, padding: int, extra: int,
                                                 dilation: int) -> None:
    forward = getattr(F, f"conv{rank}d")
    backward = getattr(F, f"conv_transpose{rank}d")
    y = made(3, 2, 4, *(4, 3, 5)[:rank])
    w = made(4, 4, 3, *(2, 3, 2)[:rank])
    back = backward(y, w, None, stride, padding, extra, 1, dilation)
    x = made(5, *back.shape)
    ahead = forward(x, w, None, stride, padding, dilation)
    part = ahead[tuple(slice(0, size) for size in y.shape)]
    assert (part * y).sum().item() == pytest.approx((x * back).sum().item())


def test_fold_is_the_adjoint_of_unfold() -> None:
    x = made(6, 2, 3, 5, 6)
    columns = F.unfold(x, (2, 3), 1, (1, 0), 2)
    y = made(7, *columns.shape)
    back = F.fold(y, (5, 6), (2, 3), 1, (1, 0), 2)
    assert (columns * y).sum().item() == pytest.approx((x * back).sum().item())


# -- pooling and padding -------------------------------------------------------------------------
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("counts_padding", [False, True])
def test_avg_pool2d_by_the_definition(ceil: bool, counts_padding: bool) -> None:
    x = array(8, 1, 2, 7, 6)
    found = F.avg_pool2d(ss.tensor(x), 3, 2, 1, ceil, counts_padding).numpy()
    for row, column in np.ndindex(*found.shape[2:]):
        rows, columns = [(2 * place - 1, min(2 * place + 2, size + 1))
                         for place, size in ((row, 7), (column, 6))]
        inside = x[:, :, max(rows[0], 0):min(rows[1], 7), max(columns[0], 0):min(columns[1], 6)]
        count = ((rows[1] - rows[0]) * (columns[1] - columns[0]) if counts_padding
                 else inside.shape[2] * inside.shape[3])
        np.testing.assert_allclose(found[:, :, row, column], inside.sum((2, 3)) / count)


def test_max_pool3d_and_its_places() -> None:
    x = made(9, 2, 3, 4, 5, 6)
    values, places = F.max_pool3d(x, 2, return_indices=True)
    flat = x.reshape(2, 3, -1).gather(2, places.reshape(2, 3, -1))
    assert ss.equal(flat.reshape(values.shape), values)
    assert values[0, 0, 0, 0, 0].item() == x[0, 0, :2, :2, :2].max().item()


def test_adaptive_pools_by_the_definition() -> None:
    x = made(10, 1, 2, 7)
    for count in (1, 3, 5, 9):
        average, largest = F.adaptive_avg_pool1d(x, count), F.adaptive_max_pool1d(x, count)
        for place in range(count):
            part = x[..., place * 7 // count:-((place + 1) * 7 // -count)]
            assert ss.allclose(average[..., place], part.mean(-1))
            assert ss.equal(largest[..., place], part.amax(-1))


@pytest.mark.parametrize(("mode", "numpy_mode"), [("constant", "constant"), ("reflect", "reflect"),
                                                  ("replicate", "edge"), ("circular", "wrap")])
def test_pad_against_numpy(mode: str, numpy_mode: str) -> None:
    x = array(11, 2, 3, 4, 5)
    found = F.pad(ss.tensor(x), (1, 2, 3, 0), mode)
    wanted = np.pad(x, [(0, 0), (0, 0), (3, 0), (1, 2)], numpy_mode)
    np.testing.assert_array_equal(found.numpy(), wanted)


def test_bad_padding() -> None:
    x = made(12, 1, 2, 3)
    for pad, mode in (((1,), "constant"), ((3, 0), "reflect"), ((4, 0), "circular"),
                      ((-4, 0), "constant")):
        with pytest.raises(RuntimeError):
            F.pad(x, pad, mode)
    with pytest.raises(NotImplementedError):
        F.pad(x, (1, 1), "mirror")


def test_interpolate_keeps_lines_straight() -> None:
    x = ss.arange(6.0).reshape(1, 1, 6)
    found = F.interpolate(x, 11, mode="linear", align_corners=True)
    assert ss.allclose(found, ss.linspace(0, 5, 11).reshape(1, 1, 11))
    plane = x.reshape(1, 1, 2, 3)
    assert ss.equal(F.interpolate(plane, scale_factor=2)[0, 0, ::2, ::2], plane[0, 0])
    same = F.interpolate(plane, (2, 3), mode="bicubic", align_corners=True)
    assert ss.allclose(same, plane, atol=1e-6)
    assert ss.equal(F.pixel_unshuffle(F.pixel_shuffle(made(13, 1, 8, 2, 3), 2), 2),
                    made(13, 1, 8, 2, 3))


# -- losses --------------------------------------------------------------------------------------
def collapsed(path: tuple[int, ...], blank: int) -> list[int]:
    """What a path of the alignment reads: repeats once, blanks not at all."""
    return [each for each, _ in itertools.groupby(path) if each != blank]


def test_ctc_sums_over_all_alignments() -> None:
    steps, classes = 4, 3
    scores = ss.tensor(array(14, steps, 1, classes)).log_softmax(2)
    chances = scores.exp().numpy()[:, 0]
    for target in ([1], [1, 2], [1, 1], []):
        total = sum(math.prod(chances[t, c] for t, c in enumerate(path))
                    for path in itertools.product(range(classes), repeat=steps)
                    if collapsed(path, 0) == target)
        labels = ss.tensor([target or [0]])
        found = F.ctc_loss(scores, labels, [steps], [len(target)], reduction="sum")
        assert found.item() == pytest.approx(-math.log(total))
    impossible = F.ctc_loss(scores[:1], ss.tensor([[1, 2]]), [1], [2], reduction="none")
    assert impossible.item() == math.inf
    assert F.ctc_loss(scores[:1], ss.tensor([[1, 2]]), [1], [2], zero_infinity=True).item() == 0


@pytest.mark.parametrize("dtype", [ss.float16, ss.int64])
def test_ctc_names_a_dtype_that_it_does_not_take(dtype: ss.dtype) -> None:
    scores = ss.zeros(4, 1, 3).to(dtype)
    with pytest.raises(RuntimeError, match=r"ctc_loss takes log_probs.*not.*\n.*float\(\)"):
        F.ctc_loss(scores, ss.tensor([[1, 2]]), [4], [2])


def test_slopes_of_losses() -> None:
    x, y = array(15, 3, 4), array(16, 3, 4)
    check_slopes(lambda a, b: F.smooth_l1_loss(a, b, beta=0.7), x, y)
    check_slopes(lambda a, b: F.huber_loss(a, b, delta=0.3), x, y)
    check_slopes(lambda a, b: F.kl_div(a, b.exp(), reduction="batchmean"), x, y)
    check_slopes(lambda a: F.binary_cross_entropy_with_logits(a, ss.tensor(np.abs(y))), x)
    check_slopes(lambda a, b: F.cosine_embedding_loss(a, b, ss.tensor([1, -1, 1])), x, y)
    check_slopes(lambda a: F.multi_margin_loss(a, ss.tensor([0, 3, 1])), x)
    check_slopes(lambda a, b: F.gaussian_nll_loss(a, ss.tensor(y), b.exp()), x, y)


# -- recurrent layers and attention --------------------------------------------------------------
def test_an_lstm_is_its_cell_again_and_again() -> None:
    layer = ss.nn.LSTM(3, 4).double()
    cell = ss.nn.LSTMCell(3, 4).double()
    cell.load_state_dict({name.removesuffix("_l0"): value
                          for name, value in layer.state_dict().items()})
    x = made(17, 5, 2, 3)
    outputs, (h, c) = layer(x)
    state = None
    for step, given in enumerate(x):
        state = cell(given, state)
        assert ss.allclose(outputs[step], state[0])
    assert ss.allclose(h[0], state[0])
    assert ss.allclose(c[0], state[1])


def test_both_directions_and_shapes() -> None:
    for kind in (ss.nn.RNN, ss.nn.GRU, ss.nn.LSTM):
        layer = kind(3, 4, num_layers=2, bidirectional=True, batch_first=True)
        outputs, state = layer(ss.rand(2, 5, 3))
        state = state if isinstance(state, tuple) else (state,)
        assert outputs.shape == (2, 5, 8)
        assert all(each.shape == (4, 2, 4) for each in state)
        single, _ = layer(ss.rand(5, 3))
        assert single.shape == (5, 8)
    with pytest.raises(RuntimeError):
        layer(ss.rand(2, 5, 7))
    with pytest.raises(ValueError, match="2D or 3D"):
        layer(ss.rand(3))


def test_attention_weights_and_outputs_agree() -> None:
    attention = ss.nn.MultiheadAttention(8, 2, batch_first=True).double()
    x = made(18, 2, 5, 8)
    hidden = ss.tensor([[False] * 5, [False, False, False, True, True]])
    with_weights, weights = attention(x, x, x, key_padding_mask=hidden)
    without, none = attention(x, x, x, key_padding_mask=hidden, need_weights=False)
    assert none is None
    assert ss.allclose(with_weights, without)
    assert ss.allclose(weights.sum(-1), ss.ones(2, 5, dtype=ss.float64))
    assert weights[1, :, 3:].abs().max().item() == 0


@pytest.mark.parametrize("kind", ["bool", "added"])
def test_a_query_without_any_key_gives_zeros(kind: str) -> None:
    q, k, v = [made(n, 1, 2, 3, 4).requires_grad_() for n in (19, 20, 21)]
    mask = ss.ones(3, 3, dtype=ss.bool)
    mask[1] = False
    if kind == "added":
        mask = ss.zeros(3, 3, dtype=ss.float64).masked_fill(~mask, -math.inf)
    out = F.scaled_dot_product_attention(q, k, v, mask)
    out.sum().backward()
    assert not out[:, :, 1].any()
    assert not q.grad[:, :, 1].any()
    assert all(each.grad.isfinite().all() for each in (q, k, v))
    seen = F.scaled_dot_product_attention(q, k, v)
    assert ss.allclose(out[:, :, 0], seen[:, :, 0])


def test_a_causal_encoder_does_not_look_ahead() -> None:
    layer = ss.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    stack = ss.nn.TransformerEncoder(layer, 2)
    mask = ss.nn.Transformer.generate_square_subsequent_mask(5)
    x = ss.rand(1, 5, 8)
    changed = x.clone()
    changed[0, 4] = 0
    assert ss.allclose(stack(x, mask)[0, :4], stack(changed, mask)[0, :4], atol=1e-6)


def test_batch_norm_layers_keep_their_counts() -> None:
    layer = ss.nn.BatchNorm1d(3, momentum=None)
    batches = [ss.rand(4, 3) for _ in range(3)]
    for batch in batches:
        layer(batch)
    assert layer.num_batches_tracked.item() == 3
    wanted = ss.stack([batch.mean(0) for batch in batches]).mean(0)
    assert ss.allclose(layer.running_mean, wanted, atol=1e-6)
    layer.eval()
    layer(batches[0])
    assert layer.num_batches_tracked.item() == 3
    old = {name: value for name, value in layer.state_dict().items() if "tracked" not in name}
    layer.load_state_dict(old)
    with pytest.raises(ValueError, match="expected 2D or 3D"):
        layer(ss.rand(3))


def test_bags_of_embeddings() -> None:
    weight = made(19, 6, 3)
    index, offsets = ss.tensor([1, 2, 4, 5, 5]), ss.tensor([0, 2, 2])
    parts = [weight[:0], weight[1:3], weight[:0], weight[[4, 5, 5]]][1:]
    for mode in ("sum", "mean", "max"):
        found = F.embedding_bag(index, weight, offsets, mode=mode)
        for row, part in zip(found, parts, strict=True):
            zero = ss.zeros(3, dtype=ss.float64)
            wanted = zero if not part.shape[0] else (
                part.amax(0) if mode == "max" else getattr(part, mode)(0))
            assert ss.allclose(row, wanted)


@pytest.mark.parametrize("batch_first", [True, False])
def test_attention_over_no_sequences_is_empty(batch_first) -> None:
    shape = (0, 3, 16) if batch_first else (3, 0, 16)
    x = ss.zeros(*shape, requires_grad=True)
    padding = ss.zeros(0, 3, dtype=ss.bool)
    attention = ss.nn.MultiheadAttention(16, 2, batch_first=batch_first)
    for mask in (None, padding):
        output, weights = attention(x, x, x, key_padding_mask=mask)
        assert output.shape == shape
        assert weights.shape == (0, 3, 3)
    layer = ss.nn.TransformerEncoderLayer(16, 2, 32, batch_first=batch_first)
    for training in (False, True):
        found = layer.train(training)(x, src_key_padding_mask=padding)
        assert found.shape == shape
    found.sum().backward()
    assert not layer.self_attn.in_proj_weight.grad.any()


@pytest.mark.parametrize(("name", "options"), [
    ("celu", (0.5,)), ("elu", (0.5,)), ("hardtanh", (-0.3, 0.4)), ("leaky_relu", (0.2,)),
    ("rrelu", (0.1, 0.3)), ("selu", ()), ("threshold", (0.1, 7.0))])
def test_activations_that_write_into_their_input(name, options):
    x = ss.tensor([-1.5, -0.2, 0.0, 0.3, 2.0])
    wanted = getattr(F, name)(x, *options).tolist()
    assert x.tolist() != wanted
    assert getattr(F, f"{name}_")(x, *options) is x
    assert x.tolist() == wanted
    leaf = ss.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        getattr(F, f"{name}_")(leaf, *options)
    grown = leaf * 2
    getattr(F, f"{name}_")(grown, *options).sum().backward()
    assert leaf.grad is not None


def test_sizes_as_tuples():
    assert sizes._single(3) == (3,)
    assert sizes._pair((1, 2)) == (1, 2)
    assert sizes._triple([1, 2, 3]) == (1, 2, 3)
    assert sizes._quadruple(0) == (0, 0, 0, 0)


def test_conv3d_refuses_a_bias_that_is_no_tensor() -> None:
    with pytest.raises(TypeError, match="'bias' must be Tensor, not int"):
        F.conv3d(ss.ones(1, 1, 3, 3, 3), ss.ones(1, 1, 2, 2, 2), bias=3)


@pytest.mark.parametrize("kind", [ss.nn.BatchNorm1d, ss.nn.InstanceNorm1d])
@pytest.mark.parametrize("dtype", [ss.float16, ss.bfloat16])
def test_statistics_of_narrow_inputs_are_as_wide_as_their_buffers(kind: Any, dtype: Any) -> None:
    x = (ss.randn(16, 3, 64) * 1000).to(dtype)
    layer, wide = kind(3, track_running_stats=True), kind(3, track_running_stats=True)
    layer(x)
    wide(x.float())
    assert ss.allclose(layer.running_var, wide.running_var, rtol=1e-5)
    assert ss.allclose(layer.running_mean, wide.running_mean, rtol=1e-5, atol=1e-3)


def test_weights_of_a_recurrent_layer_may_be_computed() -> None:
    class Halved(ss.nn.Module):
        def forward(self, value: ss.Tensor) -> ss.Tensor:
            return value / 2

    layer, x = ss.nn.LSTM(3, 4), ss.randn(5, 2, 3)
    wanted = layer(x)[0]
    ss.nn.utils.weight_norm(layer, "weight_hh_l0")
    assert ss.allclose(layer(x)[0], wanted, atol=1e-6)
    ss.nn.utils.parametrize.register_parametrization(layer, "bias_ih_l0", Halved())
    other = ss.nn.LSTM(3, 4)
    with ss.no_grad():
        for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
            getattr(other, name).copy_(getattr(layer, name))
    assert ss.allclose(layer(x)[0], other(x)[0], atol=1e-6)
    assert not ss.allclose(layer(x)[0], wanted, atol=1e-6)


def test_a_causal_hint_without_its_mask_is_refused() -> None:
    x, layer = ss.randn(3, 1, 8), ss.nn.TransformerEncoderLayer(8, 2)
    decoder = ss.nn.TransformerDecoderLayer(8, 2)
    for call in (lambda: layer(x, is_causal=True),
                 lambda: ss.nn.TransformerEncoder(layer, 1)(x, is_causal=True),
                 lambda: decoder(x, x, tgt_is_causal=True),
                 lambda: ss.nn.TransformerDecoder(decoder, 1)(x, x, memory_is_causal=True),
                 lambda: ss.nn.Transformer(8, 2, 1, 1, 8)(x, x, src_is_causal=True)):
        with pytest.raises(RuntimeError, match="Need attn_mask if specifying the is_causal hint"):
            call()


def test_whole_channels_of_a_volume_without_a_batch() -> None:
    means = F.dropout3d(ss.ones(40, 5, 2, 2)).flatten(1).mean(1)
    assert set(means.tolist()) == {0.0, 2.0}


def test_rows_limited_by_their_largest_element() -> None:
    weight = ss.tensor([[3.0, -4.0], [0.1, 0.2]])
    F.embedding(ss.tensor([0, 1]), weight, max_norm=1.0, norm_type=float("inf"))
    assert ss.allclose(weight, ss.tensor([[0.75, -1.0], [0.1, 0.2]]))


def test_heads_of_keys_that_do_not_divide_those_of_queries() -> None:
    keys = ss.ones(1, 2, 4, 8)
    with pytest.raises(RuntimeError, match="2 heads of keys and values do not divide the 1 of"):
        F.scaled_dot_product_attention(keys[:, :1], keys, keys, enable_gqa=True)


@pytest.mark.parametrize("rank", [4, 5])
def test_padding_keeps_the_format(rank: int) -> None:
    last = ss.channels_last if rank == 4 else ss.channels_last_3d
    x = ss.arange(float(2 * 3 * 4 ** (rank - 2))).view(2, 3, *[4] * (rank - 2))
    wanted = F.pad(x, (1, 2, 0, 1), value=7.0)
    found = F.pad(x.to(memory_format=last), (1, 2, 0, 1), value=7.0)
    assert wanted.is_contiguous()
    assert found.is_contiguous(memory_format=last)
    assert found.tolist() == wanted.tolist()
