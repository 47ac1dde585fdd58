"""Packed sequences, and recurrent layers on them against a run of each sequence by itself."""

from __future__ import annotations

import numpy as np
import pytest

import slipstream as ss
from slipstream import nn
from slipstream.nn.utils.rnn import (
    PackedSequence,
    invert_permutation,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    pad_sequence,
    unpack_sequence,
    unpad_sequence,
)

LENGTHS = [2, 5, 4, 5]


def sequences(width=3):
    random = np.random.default_rng(0)
    return [ss.from_numpy(random.standard_normal((length, width))) for length in LENGTHS]


def test_packing():
    parts = [ss.tensor([[1, 1], [2, 2]]), ss.tensor([[3, 3], [4, 4], [5, 5]]), ss.tensor([[6, 6]])]
    packed = pack_sequence(parts, enforce_sorted=False)
    assert packed.data[:, 0].tolist() == [3, 1, 6, 4, 2, 5]
    assert packed.batch_sizes.tolist() == [3, 2, 1]
    assert packed.sorted_indices.tolist() == [1, 0, 2]
    assert packed.unsorted_indices.tolist() == [1, 0, 2]
    padded, lengths = pad_packed_sequence(packed, batch_first=True, padding_value=-1)
    assert padded[..., 0].tolist() == [[1, 2, -1], [3, 4, 5], [6, -1, -1]]
    assert lengths.tolist() == [2, 3, 1]
    assert [part.tolist() for part in unpack_sequence(packed)] == [part.tolist() for part in parts]


@pytest.mark.parametrize("batch_first", [False, True])
def test_padding(batch_first):
    parts = [ss.ones(3, 2), 2 * ss.ones(1, 2)]
    left = pad_sequence(parts, batch_first, 7.0, "left")
    rows = left if batch_first else left.transpose(0, 1)
    assert rows[..., 0].tolist() == [[1, 1, 1], [7, 7, 2]]
    right = pad_sequence(parts, batch_first)
    back = unpad_sequence(right, ss.tensor([3, 1]), batch_first)
    assert [part.tolist() for part in back] == [part.tolist() for part in parts]


def test_total_length():
    packed = pack_sequence([ss.ones(2, 1), ss.ones(1, 1)])
    padded, _ = pad_packed_sequence(packed, total_length=4, padding_value=5.0)
    assert padded[:, 1, 0].tolist() == [1, 5, 5, 5]
    with pytest.raises(ValueError, match="total_length=1"):
        pad_packed_sequence(packed, total_length=1)


def test_gradients_pass_both_ways():
    x = ss.ones(3, 2, 1, dtype=ss.float64, requires_grad=True)

    def there_and_back(x):
        packed = pack_padded_sequence(x, [1, 3], enforce_sorted=False)
        return pad_packed_sequence(PackedSequence(packed.data ** 2, *packed[1:]))[0]

    assert ss.autograd.gradcheck(there_and_back, (x,))
    there_and_back(x).sum().backward()
    assert x.grad[:, 0, 0].tolist() == [2, 0, 0]


@pytest.mark.parametrize(("lengths", "error", "message"), [
    ([3, 0], RuntimeError, "greater than 0"), ([1, 3], RuntimeError, "decreasing order"),
    ([3], RuntimeError, "equal to batch_size"), ([4, 3], RuntimeError, "more than the input's 3"),
    ([[3, 2]], RuntimeError, "equal to batch_size"),
])
def test_lengths_that_do_not_fit(lengths, error, message):
    with pytest.raises(error, match=message):
        pack_padded_sequence(ss.ones(3, 2, 1), lengths)


def test_what_else_is_refused():
    with pytest.raises(RuntimeError, match="empty list"):
        pad_sequence([])
    with pytest.raises(RuntimeError, match="other dims"):
        pad_sequence([ss.ones(2, 1), ss.ones(2, 3)])
    with pytest.raises(ValueError, match="either right or left"):
        pad_sequence([ss.ones(2)], padding_side="up")
    with pytest.raises(TypeError, match="batch_sizes"):
        PackedSequence(ss.ones(2))
    with pytest.raises(ValueError, match="always be on CPU"):
        PackedSequence(ss.ones(2), ss.ones(2, device="meta"))
    with pytest.raises(RuntimeError, match="2 dimensions"):
        nn.RNN(1, 1)(pack_sequence([ss.ones(2)]))
    with pytest.raises(RuntimeError, match="Expected 3, got 1"):
        nn.RNN(3, 1)(pack_sequence([ss.ones(2, 1)]))


def test_other_dtypes_and_orders():
    packed = pack_sequence([ss.ones(1, 1), ss.ones(2, 1)], enforce_sorted=False).double()
    assert (packed.data.dtype, packed.sorted_indices.dtype) == (ss.float64, ss.int64)
    assert not packed.is_cuda
    assert invert_permutation(ss.tensor([2, 0, 1])).tolist() == [1, 2, 0]
    assert invert_permutation(None) is None


@pytest.mark.parametrize("make", [
    lambda **options: nn.RNN(3, 4, **options), lambda **options: nn.GRU(3, 4, **options),
    lambda **options: nn.LSTM(3, 4, **options),
    lambda **options: nn.LSTM(3, 4, proj_size=2, **options),
])
@pytest.mark.parametrize(("layers", "both"), [(1, False), (2, False), (1, True), (2, True)])
@pytest.mark.parametrize("started", [False, True])
def test_layers_on_packed_sequences(make, layers, both, started):
    ss.manual_seed(0)
    layer = make(num_layers=layers, bidirectional=both).double()
    count = layers * (2 if both else 1)
    state = None
    if started:
        state = [ss.randn(count, 4, width, dtype=ss.float64)
                 for width in (layer.proj_size or 4, 4)[:layer.states]]
    given = state if state is None or layer.states == 2 else state[0]
    output, ends = layer(pack_sequence(sequences(), enforce_sorted=False), given)
    ends = ends if isinstance(ends, tuple) else (ends,)
    for place, (own, part) in enumerate(zip(unpack_sequence(output), sequences(), strict=True)):
        first = None if state is None else [each[:, place] for each in state]
        first = first if first is None or layer.states == 2 else first[0]
        alone, last = layer(part, first)
        np.testing.assert_allclose(own.detach(), alone.detach(), atol=1e-12)
        for whole, end in zip(ends, last if isinstance(last, tuple) else (last,), strict=True):
            np.testing.assert_allclose(whole[:, place].detach(), end.detach(), atol=1e-12)


def test_gradients_of_packed_runs():
    ss.manual_seed(0)
    layer = nn.GRU(3, 4, bidirectional=True).double()
    output, last = layer(pack_sequence(sequences(), enforce_sorted=False))
    (output.data.square().sum() + last.sum()).backward()
    packed = [each.grad.clone() for each in layer.parameters()]
    layer.zero_grad()
    for part in sequences():
        output, last = layer(part)
        (output.square().sum() + last.sum()).backward()
    for ours, each in zip(packed, layer.parameters(), strict=True):
        np.testing.assert_allclose(ours, each.grad, atol=1e-12)


def test_lengths_stay_on_the_host_whatever_the_default_device():
    padded = ss.arange(8.0).reshape(4, 2, 1)
    with ss.device("meta"):
        packed = pack_padded_sequence(padded, [4, 2])
        again, lengths = pad_packed_sequence(packed)
    assert lengths.tolist() == [4, 2]
    assert packed.batch_sizes.tolist() == [2, 2, 1, 1]
    assert again.flatten().tolist() == [0, 1, 2, 3, 4, 0, 6, 0]
