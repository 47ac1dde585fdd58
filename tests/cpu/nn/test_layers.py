"""Layers: values against NumPy in double precision, gradients, shapes, errors."""

from __future__ import annotations

import math

import numpy as np
import pytest

import slipstream as ss
from slipstream import nn
from slipstream.nn import functional as F


def array(tensor: ss.Tensor) -> np.ndarray:
    return tensor.detach().numpy()


def normal(*shape: int, seed: int = 0) -> ss.Tensor:
    return ss.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def close(actual: ss.Tensor, expected: np.ndarray) -> None:
    np.testing.assert_allclose(array(actual), expected, rtol=1e-10, atol=1e-12)


def convolution(image, weight, bias, padding=0, stride=1, groups=1, dilation=1):
    """The definition of conv2d, one product of windows for each output pixel."""
    image = np.pad(image, [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    count, depth, height, width = weight.shape
    rows = (image.shape[2] - dilation * (height - 1) - 1) // stride + 1
    columns = (image.shape[3] - dilation * (width - 1) - 1) // stride + 1
    result = np.zeros((len(image), count, rows, columns))
    for o, y, x in np.ndindex(count, rows, columns):
        first = (o * groups // count) * depth
        window = image[:, first:first + depth,
                       y * stride:y * stride + dilation * height:dilation,
                       x * stride:x * stride + dilation * width:dilation]
        result[:, o, y, x] = (window[:, :, :height, :width] * weight[o]).sum((1, 2, 3))
    return result if bias is None else result + bias[:, None, None]


def test_linear():
    layer = nn.Linear(5, 3, dtype=ss.float64)
    x = normal(2, 4, 5).requires_grad_()
    y = layer(x)
    close(y, array(x) @ array(layer.weight).T + array(layer.bias))
    y.sum().backward()
    close(layer.bias.grad, np.full(3, 8.0))
    close(layer.weight.grad, np.broadcast_to(array(x).sum((0, 1)), (3, 5)))
    close(x.grad, np.broadcast_to(array(layer.weight).sum(0), (2, 4, 5)))
    assert nn.Linear(2, 2, bias=False).bias is None
    with pytest.raises(RuntimeError):
        layer(normal(2, 4))


@pytest.mark.parametrize("options", [
    {}, {"padding": 1}, {"stride": 2}, {"padding": 2, "stride": 3, "bias": False},
    {"groups": 2}, {"dilation": 2}, {"padding": 1, "groups": 4, "dilation": 2},
])
def test_conv2d(options):
    layer = nn.Conv2d(4, 8, (3, 2), dtype=ss.float64, **options)
    x = normal(2, 4, 9, 8)
    bias = None if layer.bias is None else array(layer.bias)
    rest = {name: value for name, value in options.items() if name != "bias"}
    close(layer(x), convolution(array(x), array(layer.weight), bias, **rest))


@pytest.mark.parametrize(("mode", "numpy_mode"), [
    ("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap"),
])
def test_conv2d_padding_modes(mode, numpy_mode):
    layer = nn.Conv2d(2, 3, 3, padding=2, padding_mode=mode, dtype=ss.float64)
    x = normal(2, 2, 5, 6)
    padded = np.pad(array(x), [(0, 0), (0, 0), (2, 2), (2, 2)], mode=numpy_mode)
    close(layer(x), convolution(padded, array(layer.weight), array(layer.bias)))


def test_conv2d_string_padding():
    x = normal(1, 2, 6, 7)
    assert nn.Conv2d(2, 3, 3, padding="valid", dtype=ss.float64)(x).shape == (1, 3, 4, 5)
    for mode in ("zeros", "circular"):
        layer = nn.Conv2d(2, 3, 4, padding="same", padding_mode=mode, dtype=ss.float64)
        assert layer(x).shape == (1, 3, 6, 7)
    with pytest.raises(ValueError, match="strided"):
        nn.Conv2d(2, 3, 3, padding="same", stride=2)
    with pytest.raises(ValueError, match="padding"):
        nn.Conv2d(2, 3, 3, padding="wide")
    with pytest.raises(ValueError, match="padding_mode"):
        nn.Conv2d(2, 3, 3, padding_mode="wide")
    for wrong in ({"groups": 2}, {"groups": 0}):
        with pytest.raises(ValueError, match="groups"):
            nn.Conv2d(3, 4, 3, **wrong)


def test_padding_wider_than_the_image_is_refused():
    layer = nn.Conv2d(1, 1, 3, padding=4, padding_mode="reflect")
    with pytest.raises(RuntimeError, match="too wide"):
        layer(ss.ones(1, 1, 4, 4))


def test_layer_norm():
    layer = nn.LayerNorm((4, 5), eps=1e-3, dtype=ss.float64)
    with ss.no_grad():
        layer.weight.copy_(normal(4, 5, seed=1))
        layer.bias.copy_(normal(4, 5, seed=2))
    x = normal(3, 4, 5)
    mean = array(x).mean((1, 2), keepdims=True)
    variance = array(x).var((1, 2), keepdims=True)
    expected = (array(x) - mean) / np.sqrt(variance + 1e-3)
    close(layer(x), expected * array(layer.weight) + array(layer.bias))
    assert nn.LayerNorm(5, bias=False).bias is None
    assert nn.LayerNorm(5, elementwise_affine=False).weight is None
    with pytest.raises(RuntimeError):
        layer(normal(3, 5, 4))


def test_dropout():
    ss.manual_seed(0)
    layer = nn.Dropout(0.25)
    x = ss.full((100, 100), 3.0, requires_grad=True)
    y = layer(x)
    kept = array(y) != 0
    assert set(np.unique(array(y))) == {np.float32(0.0), np.float32(4.0)}
    assert abs(kept.mean() - 0.75) < 0.02
    y.sum().backward()
    np.testing.assert_allclose(array(x.grad), kept / 0.75, rtol=1e-6)
    assert layer.eval()(x) is x
    assert F.dropout(x, 1.0).sum().item() == 0
    with pytest.raises(ValueError, match="between 0 and 1"):
        nn.Dropout(1.5)
    x = ss.ones(50)
    nn.Dropout(0.5, inplace=True)(x)
    assert set(x.tolist()) == {0.0, 2.0}


def test_embedding():
    layer = nn.Embedding(6, 3, padding_idx=-2, dtype=ss.float64)
    assert layer.padding_idx == 4
    assert layer.weight[4].tolist() == [0.0, 0.0, 0.0]
    indices = ss.tensor([[0, 4], [0, 5]])
    close(layer(indices), array(layer.weight)[[[0, 4], [0, 5]]])
    layer(indices).sum().backward()
    assert array(layer.weight.grad)[:, 0].tolist() == [2, 0, 0, 0, 0, 1]
    for wrong in ([6], [-1]):
        with pytest.raises((IndexError, RuntimeError)):
            layer(ss.tensor(wrong))
    with pytest.raises(AssertionError):
        nn.Embedding(3, 2, padding_idx=3)


def test_embedding_max_norm_scales_the_rows_used():
    table = np.array([[3.0, 4.0], [0.3, 0.4], [30.0, 40.0]])
    layer = nn.Embedding.from_pretrained(ss.from_numpy(table.copy()), max_norm=1.0)
    assert not layer.weight.requires_grad
    got = layer(ss.tensor([0, 1, 0]))
    np.testing.assert_allclose(array(got), [[0.6, 0.8], [0.3, 0.4], [0.6, 0.8]], rtol=1e-6)
    assert layer.weight[2].tolist() == [30.0, 40.0]


def test_embedding_bag_from_pretrained():
    table = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 9.0]])
    layer = nn.EmbeddingBag.from_pretrained(ss.from_numpy(table.copy()))
    assert not layer.weight.requires_grad
    close(layer(ss.tensor([[0, 2], [1, 1]])), np.array([[3.0, 5.5], [3.0, 4.0]]))
    layer = nn.EmbeddingBag.from_pretrained(
        ss.from_numpy(table.copy()), False, 1.0, 1.0, True, "sum", False, True, -1)
    assert layer.weight.requires_grad
    assert (layer.max_norm, layer.norm_type, layer.scale_grad_by_freq) == (1.0, 1.0, True)
    assert (layer.mode, layer.sparse, layer.padding_idx) == ("sum", False, 2)
    # The rows are scaled to sums of 1, and the padding is left out.
    found = layer(ss.tensor([0, 2, 1]), ss.tensor([0, 2, 3]))
    np.testing.assert_allclose(array(found), [[1 / 3, 2 / 3], [3 / 7, 4 / 7]], rtol=1e-6)
    with pytest.raises(AssertionError, match="2-dimensional"):
        nn.EmbeddingBag.from_pretrained(ss.ones(3))


def test_activations():
    x = normal(3, 4)
    values = array(x)
    close(nn.ReLU()(x), np.maximum(values, 0))
    close(nn.Tanh()(x), np.tanh(values))
    erf = np.vectorize(math.erf)
    close(nn.GELU()(x), values * 0.5 * (1 + erf(values / math.sqrt(2))))
    inner = math.sqrt(2 / math.pi) * (values + 0.044715 * values ** 3)
    close(nn.GELU("tanh")(x), 0.5 * values * (1 + np.tanh(inner)))
    share = np.exp(values) / np.exp(values).sum(1, keepdims=True)
    close(nn.Softmax(1)(x), share)
    close(nn.LogSoftmax(-1)(x), np.log(share))
    with pytest.warns(UserWarning, match="name it"):
        close(nn.Softmax()(x), share)
    y = x.clone()
    assert nn.ReLU(inplace=True)(y) is y
    close(y, np.maximum(values, 0))


def test_pooling_and_shapes():
    x = normal(2, 3, 6, 4)
    expected = array(x).reshape(2, 3, 3, 2, 2, 2).max((3, 5))
    close(nn.MaxPool2d(2)(x), expected)
    values, places = nn.MaxPool2d(2, return_indices=True)(x)
    close(values, np.take_along_axis(array(x).reshape(2, 3, -1),
                                     array(places).reshape(2, 3, -1), 2).reshape(expected.shape))
    assert nn.Flatten()(x).shape == (2, 72)
    assert nn.Flatten(0, 1)(x).shape == (6, 6, 4)
    assert nn.Flatten(0)(ss.tensor(1.0)).shape == (1,)
    assert nn.Unflatten(1, (3, -1))(normal(2, 6)).shape == (2, 3, 2)
    with pytest.raises(IndexError):
        nn.Flatten(4)(x)
    with pytest.raises(RuntimeError):
        nn.Flatten(2, 1)(x)
    with pytest.raises(RuntimeError):
        nn.Unflatten(1, (2, 2))(normal(2, 6))


def test_losses():
    x, y = normal(5, 4), normal(5, 4, seed=1)
    close(nn.MSELoss()(x, y), np.mean((array(x) - array(y)) ** 2))
    close(nn.MSELoss(reduction="sum")(x, y), np.sum((array(x) - array(y)) ** 2))
    labels, weight = np.array([0, 3, 1, -100, 2]), np.array([1.0, 2.0, 0.5, 3.0])
    logs = array(x) - np.log(np.exp(array(x)).sum(1, keepdims=True))
    kept = labels >= 0
    losses = -logs[kept, labels[kept]] * weight[labels[kept]]
    mean = losses.sum() / weight[labels[kept]].sum()
    criterion = nn.CrossEntropyLoss(ss.from_numpy(weight))
    close(criterion(x, ss.from_numpy(labels)), mean)
    close(nn.NLLLoss(ss.from_numpy(weight))(ss.from_numpy(logs), ss.from_numpy(labels)), mean)
    assert list(criterion.state_dict()) == ["weight"]
    assert nn.CrossEntropyLoss(size_average=False).reduction == "sum"
    assert nn.CrossEntropyLoss(reduce=False).reduction == "none"


def test_label_smoothing():
    x, labels = normal(4, 3), np.array([0, 1, 2, 1])
    logs = array(x) - np.log(np.exp(array(x)).sum(1, keepdims=True))
    expected = -(0.8 * logs[range(4), labels] + 0.2 * logs.mean(1)).mean()
    close(nn.CrossEntropyLoss(label_smoothing=0.2)(x, ss.from_numpy(labels)), expected)


@pytest.mark.parametrize(("layer", "wrong"), [
    (nn.LSTM(2, 3), ss.zeros(1, 4, 3)), (nn.GRU(2, 3), (ss.zeros(1, 4, 3),) * 2),
    (nn.LSTMCell(2, 3), ss.zeros(4, 3)), (nn.GRUCell(2, 3), (ss.zeros(4, 3),) * 2)])
def test_a_state_of_the_wrong_number_of_parts(layer, wrong):
    data = ss.zeros(4, 2) if isinstance(layer, nn.LSTMCell | nn.GRUCell) else ss.zeros(5, 4, 2)
    with pytest.raises(TypeError, match=f"{type(layer).__name__}: the state has to be"):
        layer(data, wrong)


@pytest.mark.parametrize("layer", [
    nn.BatchNorm2d(4, bias=False), nn.InstanceNorm2d(4, affine=True, bias=False),
    nn.GroupNorm(2, 4, bias=False)])
def test_norms_without_bias(layer):
    assert layer.bias is None
    assert [name for name, _ in layer.named_parameters()] == ["weight"]
    assert "affine=True, bias=False" in repr(layer)
    data = ss.arange(32.0).reshape(2, 4, 2, 2).sin()
    with_bias = {"BatchNorm2d": nn.BatchNorm2d(4), "InstanceNorm2d": nn.InstanceNorm2d(4),
                 "GroupNorm": nn.GroupNorm(2, 4)}[type(layer).__name__]
    output = layer(data)
    ss.testing.assert_close(output, with_bias(data), check_stride=False)
    output.square().sum().backward()
    assert layer.weight.grad is not None
