"""The meta device: shapes, dtypes and strides without data."""

from __future__ import annotations

import numpy as np
import pytest

import slipstream as ss
from slipstream.core.catalog.table import table
from slipstream.core.vocab.records import TensorBase


def on(device: str, value, floats: bool = True):
    """Arrays of a sample as tensors on a device; of integers where the op takes no floats."""
    if isinstance(value, (np.ndarray, np.generic)):
        whole = value.astype(np.int64) if not floats and value.dtype.kind == "f" else value
        return ss.tensor(whole, device=device)
    if isinstance(value, (list, tuple)):
        return type(value)(on(device, each, floats) for each in value)
    return value


def specs_of(value) -> list:
    if isinstance(value, TensorBase):
        return [(tuple(value.shape), value.dtype, value.stride())]
    if isinstance(value, (list, tuple)):
        return [each for one in value for each in specs_of(one)]
    return []


# These wait: their result depends on data, so that meta has no answer.
SAMPLED = sorted(name for name, op in table.items()
                 if op.entry.samples is not None and op.entry.waits == "never")


@pytest.mark.parametrize("name", SAMPLED)
def test_meta_agrees_with_the_cpu(name):
    op = table[name]
    floats = "float" in op.entry.dtypes
    for args, kwargs in op.entry.samples()[:6]:
        expected = specs_of(op.call(on("cpu", tuple(args), floats), on_all("cpu", kwargs)))
        found = op.call(on("meta", tuple(args), floats), on_all("meta", kwargs))
        assert specs_of(found) == expected


def on_all(device: str, kwargs: dict) -> dict:
    return {key: on(device, value) for key, value in kwargs.items()}


def test_nothing_is_allocated():
    huge = ss.empty(10**6, 10**6, device="meta")
    result = (huge + 1).sum(0)
    assert result.shape == (10**6,)
    assert result.device.type == "meta"
    assert (huge @ huge.t()).shape == (10**6, 10**6)


@pytest.mark.parametrize("look", [
    lambda t: t.item(), lambda t: t.tolist(), bool, float, lambda t: t.numpy(),
    lambda t: t.cpu(),
])
def test_data_cannot_be_looked_at(look):
    with pytest.raises((RuntimeError, TypeError, NotImplementedError)):
        look(ss.zeros((), device="meta"))


def test_printing_shows_no_data():
    text = repr(ss.zeros(2, 3, device="meta"))
    assert "meta" in text
    assert "size=(2, 3)" in text


def test_to_meta_keeps_the_geometry():
    source = ss.zeros(4, 3).t()
    moved = source.to("meta")
    assert (moved.shape, moved.stride()) == (source.shape, source.stride())


def test_gradients_have_shapes():
    x = ss.zeros(2, 3, device="meta", requires_grad=True)
    (x * 2).exp().sum().backward()
    assert x.grad.shape == (2, 3)
    assert x.grad.device.type == "meta"


def test_errors_come_as_on_the_cpu():
    with pytest.raises(RuntimeError, match=r"float32\[2\]@meta"):
        ss.zeros(2, device="meta") + ss.zeros(3, device="meta")
    with pytest.raises(RuntimeError, match="same device"):
        ss.zeros(2, device="meta") + ss.zeros(2)


def test_in_place_and_out_forms():
    x = ss.zeros(2, 3, device="meta")
    assert x.add_(1) is x
    out = ss.empty(2, 3, device="meta")
    assert ss.mul(x, 2, out=out) is out
    x[0] = 1.0
    assert x[:, 1].shape == (2,)
