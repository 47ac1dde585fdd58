"""Rules that layers have for their arguments, states and checkpoints."""

from __future__ import annotations

import copy
import math
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import slipstream as ss
from slipstream import nn
from slipstream.nn import functional as F
from slipstream.nn.utils import parametrizations, parametrize, weight_norm


# -- checkpoints ---------------------------------------------------------------------------------
def test_states_of_the_older_weight_norm_are_loaded() -> None:
    older = nn.Sequential(nn.Linear(2, 2), weight_norm(nn.Linear(3, 2)))
    older[1].weight_g.data.mul_(2)
    newer = nn.Sequential(nn.Linear(2, 2), parametrizations.weight_norm(nn.Linear(3, 2)))
    for each in (newer, copy.deepcopy(newer)):
        found = each.load_state_dict(older.state_dict())
        assert not found.missing_keys
        assert not found.unexpected_keys
        held = each[1].parametrizations.weight
        assert held.original0.tolist() == older[1].weight_g.tolist()
        assert held.original1.tolist() == older[1].weight_v.tolist()
    x = ss.randn(4, 3)
    assert ss.allclose(newer[1](x), older[1](x))
    parametrize.remove_parametrizations(newer[1], "weight")
    assert newer.load_state_dict(older.state_dict(), strict=False).missing_keys == ["1.weight"]


def test_a_layer_whose_weight_norm_was_taken_away_can_be_pickled() -> None:
    layer = parametrizations.weight_norm(nn.Linear(3, 2))
    parametrize.remove_parametrizations(layer, "weight")
    again = pickle.loads(pickle.dumps(layer))
    assert again.weight.tolist() == layer.weight.tolist()


def test_state_dict_by_position() -> None:
    layer = nn.Linear(2, 1)
    held: dict[str, Any] = {}
    with pytest.warns(FutureWarning, match="by position"):
        assert layer.state_dict(held, "here.") is held  # type: ignore[call-arg]
    assert list(held) == ["here.weight", "here.bias"]
    with pytest.warns(FutureWarning, match="by position"):
        found = layer.state_dict(None, "", True)
    assert found["weight"] is layer.weight
    with pytest.raises(TypeError, match="at most 3"):
        layer.state_dict(None, "", False, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer.state_dict(destination={}, prefix="here.")


def test_states_from_before_batches_were_counted() -> None:
    layer = nn.BatchNorm1d(2)
    state = layer.state_dict()
    del state["num_batches_tracked"]
    with pytest.raises(RuntimeError, match="num_batches_tracked"):
        nn.BatchNorm1d(2).load_state_dict(state)
    state._metadata[""]["version"] = 1
    other = nn.BatchNorm1d(2)
    other(ss.randn(3, 2))
    other.load_state_dict(state)
    assert int(other.num_batches_tracked) == 1
    empty = nn.BatchNorm1d(2, device="meta")
    empty.load_state_dict(state, assign=True)
    assert empty.num_batches_tracked.device.type == "cpu"
    assert int(empty.num_batches_tracked) == 0


def test_batches_are_counted_while_they_are_tracked() -> None:
    layer = nn.BatchNorm1d(2, momentum=None)
    layer.track_running_stats = False
    before = layer.running_mean.tolist()
    layer(ss.randn(4, 2))
    assert int(layer.num_batches_tracked) == 0
    assert layer.running_mean.tolist() == before
    layer.track_running_stats = True
    batches = ss.randn(3, 4, 2)
    for batch in batches:
        layer(batch)
    assert int(layer.num_batches_tracked) == 3
    np.testing.assert_allclose(layer.running_mean, batches.numpy().mean((0, 1)), atol=1e-6)
    layer.num_batches_tracked = None
    layer(batches[0])
    assert layer.num_batches_tracked is None


# -- shapes --------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", [nn.LayerNorm, nn.RMSNorm])
def test_sizes_of_norms_may_be_numpy_integers(kind: Any) -> None:
    for given in (np.int64(5), np.int32(5), [np.int64(5)], ss.Size([5])):
        layer = kind(given)
        assert layer.normalized_shape == (5,)
        assert repr(layer) == repr(kind(5))
        assert layer(ss.ones(2, 5)).shape == (2, 5)
    assert kind(np.array([2, 3])).normalized_shape == (2, 3)


def test_the_variance_of_gaussian_loss_may_be_one_in_any_dim() -> None:
    rng = np.random.RandomState(0)
    x, y = rng.randn(2, 3, 4), rng.randn(2, 3, 4)
    for shape in ((2, 3, 4), (2, 3), (2, 3, 1), (2, 1, 4), (1, 3, 4)):
        spread = rng.rand(*shape) + 0.5
        whole = spread[..., None] if shape == (2, 3) else spread
        wanted = 0.5 * (np.log(whole) + (x - y) ** 2 / whole)
        found = F.gaussian_nll_loss(ss.tensor(x), ss.tensor(y), ss.tensor(spread))
        assert found.item() == pytest.approx(wanted.mean())
    for shape in ((2, 1, 1), (4,), (3, 4), (1, 2, 3, 4), (2, 2, 4)):
        with pytest.raises(ValueError, match="var is of incorrect size"):
            F.gaussian_nll_loss(ss.tensor(x), ss.tensor(y), ss.ones(*shape))


# -- recurrent layers ----------------------------------------------------------------------------
CELLS = [nn.RNNCell, nn.GRUCell, nn.LSTMCell]


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize(("input", "state", "match"), [
    ((4, 2), (1, 3), "Input batch size 4 doesn't match hx.* batch size 1"),
    ((1, 2), (4, 3), "Input batch size 1 doesn't match hx.* batch size 4"),
    ((4, 2), (4, 1), "hx.* has inconsistent hidden_size: got 1, expected 3"),
    ((4, 2), (3,), "hx.* should also be 2-D but got 1-D"),
    ((2,), (1, 3), "hx.* should also be 1-D but got 2-D"),
    ((2,), (1,), "hx.* has inconsistent hidden_size: got 1"),
    ((4, 1), (4, 3), "input has inconsistent input_size: got 1, expected 2")])
def test_cells_do_not_broadcast(kind: Any, input: Any, state: Any, match: str) -> None:
    cell = kind(2, 3)
    given: Any = ss.zeros(state)
    with pytest.raises(RuntimeError, match=match):
        cell(ss.zeros(input), (given, given) if kind is nn.LSTMCell else given)


@pytest.mark.parametrize("kind", CELLS)
def test_cells_take_states_of_one_or_two_dims(kind: Any) -> None:
    cell, given = kind(2, 3), ss.zeros(1, 4, 3)
    with pytest.raises(ValueError, match="to be 1D or 2D, got 3D instead"):
        cell(ss.zeros(4, 2), (given, given) if kind is nn.LSTMCell else given)


def test_either_part_of_a_state_is_looked_at() -> None:
    cell = nn.LSTMCell(2, 3)
    with pytest.raises(RuntimeError, match=r"hx\[1\] batch size 1"):
        cell(ss.zeros(4, 2), (ss.zeros(4, 3), ss.zeros(1, 3)))
    layer = nn.LSTM(2, 3)
    with pytest.raises(RuntimeError, match=r"Expected hidden\[1\] size \(1, 4, 3\)"):
        layer(ss.zeros(5, 4, 2), (ss.zeros(1, 4, 3), ss.zeros(1, 1, 3)))
    with pytest.raises(RuntimeError, match="batched 3-D input, hx should also be 3-D but got 2-D"):
        layer(ss.zeros(5, 4, 2), (ss.zeros(1, 3), ss.zeros(1, 3)))
    with pytest.raises(RuntimeError, match="unbatched 2-D input, hx should also be 2-D"):
        nn.GRU(2, 3)(ss.zeros(5, 2), ss.zeros(1, 1, 3))


def test_a_state_on_another_device_is_named() -> None:
    x, state = ss.zeros(5, 4, 2), ss.zeros(1, 4, 3)
    for kind, given, name in ((nn.LSTM, (state, state.to("meta")), r"hx\[1\]"),
                              (nn.GRU, state.to("meta"), "hx")):
        with pytest.raises(RuntimeError, match=f"input tensor at cpu and {name} at meta"):
            kind(2, 3)(x, given)
    packed = nn.utils.rnn.pack_padded_sequence(x, [2, 5, 1, 3], enforce_sorted=False)
    with pytest.raises(RuntimeError, match="input tensor at cpu and hx at meta"):
        nn.RNN(2, 3)(packed, state.to("meta"))
    with pytest.raises(RuntimeError, match=r"input tensor at cpu and hx\[0\] at meta"):
        nn.LSTMCell(2, 3)(x[0], (state[0].to("meta"), state[0]))


# -- bags of embeddings --------------------------------------------------------------------------
def test_bags_begin_at_the_start() -> None:
    weight, index = ss.eye(4), ss.tensor([0, 1, 2])
    with pytest.raises(RuntimeError, match=r"offsets\[0\] has to be 0.* got 1"):
        F.embedding_bag(index, weight, ss.tensor([1, 2]))
    with pytest.raises(RuntimeError, match=r"offsets\[-1\] can not be greater than .* 3 but got"):
        F.embedding_bag(index, weight, ss.tensor([0, 4]))
    with pytest.raises(RuntimeError, match="at least 1"):
        F.embedding_bag(index, weight, ss.zeros(0, dtype=ss.int64), include_last_offset=True)
    for offsets in (None, ss.tensor(0), ss.tensor([[0, 1]])):
        with pytest.raises(ValueError, match="offsets has to be a 1D Tensor"):
            F.embedding_bag(index, weight, offsets)
    with pytest.raises(ValueError, match="input has to be 1D or 2D"):
        F.embedding_bag(index.reshape(1, 1, 3), weight)
    with pytest.raises(ValueError, match="weight has to be a 2D Tensor"):
        F.embedding_bag(index, weight[0], ss.tensor([0]))
    with pytest.raises(ValueError, match="per_sample_weights"):
        F.embedding_bag(index, weight, ss.tensor([0]), mode="sum",
                        per_sample_weights=ss.ones(2))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_the_last_offset_may_end_the_last_bag(mode: str) -> None:
    weight = ss.tensor([[1.0], [2.0], [4.0], [math.nan]])
    bag = nn.EmbeddingBag.from_pretrained(weight, mode=mode, include_last_offset=True)
    wanted = {"sum": [3.0, 4.0], "mean": [1.5, 4.0], "max": [2.0, 4.0]}[mode]
    assert bag(ss.tensor([0, 1, 2]), ss.tensor([0, 2, 3])).flatten().tolist() == wanted
    bag.weight[3] = 8.0
    assert bag(ss.tensor([0, 1, 2, 3]), ss.tensor([0, 2, 3])).flatten().tolist() == wanted
