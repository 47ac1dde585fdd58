"""How many kernels the composites take, forward and backward, by the driver's own count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from catalogue import host, wide

import slipstream as ss
from slipstream import nn

functional = nn.functional
ROWS, CLASSES = 48, 320
COUNTED = ("kernel_launches", "graph_kernel_nodes")


def kernels(call: Callable[[], Any]) -> tuple[int, Any]:
    """How many kernels a call launches, and what it gives."""
    ss.cuda.synchronize()
    before = ss.cuda.driver_stats()
    result = call()
    ss.cuda.synchronize()
    after = ss.cuda.driver_stats()
    # Those that ran as nodes of a graph, too.
    return sum(after[name] - before[name] for name in COUNTED), result


def leaf(*shape: int, dtype: Any, seed: int = 0) -> Any:
    """Numbers that want their gradient."""
    values = np.random.RandomState(seed).uniform(-2.0, 2.0, shape)
    return ss.tensor(values).to(dtype).to("cuda").requires_grad_()


def operands(dtype: Any) -> dict[str, Any]:
    """What the calls take."""
    target = np.random.RandomState(4).randint(0, CLASSES, ROWS)
    return {"x": leaf(ROWS, CLASSES, dtype=dtype), "y": leaf(ROWS, CLASSES, dtype=dtype, seed=1),
            "w": leaf(CLASSES, dtype=dtype, seed=2), "b": leaf(CLASSES, dtype=dtype, seed=3),
            "target": ss.tensor(target).to("cuda")}


# A gradient by weights takes one kernel more; ops that are called one by one stay apart.
CALLS: dict[str, tuple[Callable[..., Any], int, int]] = {
    "softmax": (lambda x, **_: x.softmax(-1), 1, 1),
    "softmax of columns": (lambda x, **_: x.softmax(0), 1, 1),
    "log_softmax": (lambda x, **_: x.log_softmax(-1), 1, 1),
    "gelu": (lambda x, **_: functional.gelu(x), 1, 1),
    "gelu by tanh": (lambda x, **_: functional.gelu(x, approximate="tanh"), 1, 1),
    "silu": (lambda x, **_: functional.silu(x), 1, 1),
    "silu, mul": (lambda x, y, **_: functional.silu(x) * y, 2, 2),
    "layer_norm": (lambda x, w, b, **_: functional.layer_norm(x, (CLASSES,), w, b), 1, 2),
    "layer_norm alone": (lambda x, **_: functional.layer_norm(x, (CLASSES,)), 1, 1),
    "rms_norm": (lambda x, w, **_: functional.rms_norm(x, (CLASSES,), w), 1, 2),
    "rms_norm alone": (lambda x, **_: functional.rms_norm(x, (CLASSES,)), 1, 1),
    "sum of all": (lambda x, **_: x.sum(), 1, 1),
    "var": (lambda x, **_: x.var(-1), 1, None),
    "argmax": (lambda x, **_: x.detach().argmax(-1), 1, None),
    "cross_entropy": (lambda x, target, **_: functional.cross_entropy(x, target), 2, 1),
    "cross_entropy of a few": (lambda x, target, **_: functional.cross_entropy(
        x, target, ignore_index=7, reduction="sum"), 2, 1),
}


@pytest.mark.parametrize("dtype", [ss.float32, ss.bfloat16], ids=lambda each: each.name)
@pytest.mark.parametrize("name", CALLS)
def test_kernels(name: str, dtype: Any) -> None:
    call, forward, backward = CALLS[name]
    given = operands(dtype)
    call(**given)
    count, out = kernels(lambda: call(**given))
    assert count == forward
    if backward is None:
        return
    upstream = ss.ones_like(out)
    out.backward(upstream)
    out = call(**given)
    leaves = [each for each in given.values() if each.requires_grad]
    for each in leaves:
        each.grad = None
    count, _ = kernels(lambda: out.backward(upstream))
    assert count == backward


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_gradients_in_two_passes_are_those_of_the_host(name: str) -> None:
    for dtype, near in ((ss.float32, 2e-5), (ss.bfloat16, 4e-2)):
        found = []
        for device in ("cuda", "cpu"):
            given = {key: each.detach().to(device).requires_grad_()
                     for key, each in operands(dtype).items() if key != "target"}
            out = CALLS[name][0](**given)
            (out * out).sum().backward()
            grads = [given[key].grad for key in ("x", "w", "b")]
            found.append([each for each in grads if each is not None])
        for each, other in zip(*found, strict=True):
            assert each.dtype is other.dtype
            scale = float(np.abs(wide(host(other))).max())
            np.testing.assert_allclose(wide(host(each)), wide(host(other)), atol=near * scale)


def test_cross_entropy_of_rows_is_that_of_the_host() -> None:
    for rows, classes in ((48, 320), (300, 513), (1, 256), (700, 1000)):
        random = np.random.RandomState(rows)
        scores, target = random.uniform(-4, 4, (rows, classes)), random.randint(0, classes, rows)
        target[::5] = 3
        for dtype, near in ((ss.float32, 1e-5), (ss.bfloat16, 2e-2), (ss.float64, 1e-12)):
            for facts in ({}, {"reduction": "sum"}, {"reduction": "none"}, {"ignore_index": 3},
                          {"ignore_index": 3, "reduction": "none"}):
                found = []
                for device in ("cuda", "cpu"):
                    x = ss.tensor(scores).to(dtype).to(device).requires_grad_()
                    loss = functional.cross_entropy(x, ss.tensor(target).to(device), **facts)
                    loss.backward(ss.ones_like(loss) * 2)
                    found.append((loss, x.grad))
                for each, other in zip(*found, strict=True):
                    assert each.dtype is other.dtype
                    assert each.shape == other.shape
                    ours, theirs = wide(host(each.detach())), wide(host(other.detach()))
                    assert np.isnan(ours).tolist() == np.isnan(theirs).tolist()
                    scale = float(np.nan_to_num(np.abs(theirs)).max())
                    np.testing.assert_allclose(ours, theirs, atol=near * max(scale, 1e-3))


def test_cross_entropy_is_differentiated_twice() -> None:
    found = []
    for device in ("cuda", "cpu"):
        x = ss.tensor(np.linspace(-2.0, 2.0, 600).reshape(2, 300)).to(device).requires_grad_()
        loss = functional.cross_entropy(x, ss.tensor([5, 7]).to(device))
        slope, = ss.autograd.grad(loss, x, create_graph=True)
        (slope * slope).sum().backward()
        found.append(host(x.grad))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9, atol=1e-15)


def test_a_target_that_is_no_class() -> None:
    x = leaf(4, 300, dtype=ss.float32)
    with pytest.raises(IndexError, match="300"):
        functional.cross_entropy(x, ss.tensor([0, 1, 300, 2]).to("cuda")).item()
    assert np.isfinite(functional.cross_entropy(x, ss.tensor([0, 1, 3, 2]).to("cuda")).item())


def test_a_plain_sum_hands_its_gradient_on() -> None:
    x, y = leaf(6, 7, dtype=ss.float32), leaf(6, 7, dtype=ss.float32, seed=1)
    g = ss.ones_like(x)

    def slopes(out: Any, *leaves: Any) -> tuple[int, Any]:
        return kernels(lambda: ss.autograd.grad(out, leaves, g, retain_graph=True))

    assert slopes(x + y, x, y)[0] == 0
    doubled, half = ss.add(x, y, alpha=2), leaf(6, 7, dtype=ss.bfloat16)
    for out, other, factor in ((doubled, y, 2), (x + half, half, 1)):
        slopes(out, x, other)
        count, found = slopes(out, x, other)
        assert count == 1
        assert found[1].dtype is other.dtype
        np.testing.assert_array_equal(wide(host(found[1])), np.full((6, 7), float(factor)))
    (x + y).backward(g)
    g.zero_()
    x.grad.mul_(3)
    assert x.grad.sum().item() == 3 * 42
    assert y.grad.sum().item() == 42
