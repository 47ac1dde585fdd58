"""Autocast and the loss scaler on the device; `test_replay` has training loops with both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lowering import TARGETS, check, sampled

import slipstream as ss
from slipstream import nn, optim
from slipstream.core.catalog.table import table
from slipstream.nn import functional as F

CASES = [(policy, name) for policy in TARGETS for name in sampled(policy, "cuda")]


@pytest.mark.parametrize(("policy", "name"), CASES)
def test_listed_ops(policy: str, name: str) -> None:
    op = table[name]
    check(op, op.entry.samples()[0], "cuda", ss.float16, TARGETS[policy])


def test_bfloat16() -> None:
    x = ss.rand(4, 4, device="cuda")
    with ss.autocast("cuda", dtype=ss.bfloat16):
        y = x @ x
        assert y.dtype is ss.bfloat16
        assert y.softmax(0).dtype is y.sum(0).dtype is y.sum(0, 1).dtype is ss.float32
        assert y.sum(dtype=ss.bfloat16).dtype is y.relu().dtype is ss.bfloat16
        assert F.layer_norm(y, (4,)).dtype is ss.float32
        assert (y * x).dtype is (y ** 2).dtype is ss.float32


def test_device_types_are_apart() -> None:
    host, card = ss.ones(2, 2), ss.ones(2, 2, device="cuda")
    with ss.autocast("cuda"):
        assert (host @ host).dtype is ss.float32
        assert (card @ card).dtype is ss.float16
        assert F.binary_cross_entropy(host, host).dtype is ss.float32
        with ss.autocast("cpu"):
            assert (host @ host).dtype is ss.bfloat16
            # Made of a listed op on the CPU, and listed itself on CUDA.
            assert ss.einsum("ij,jk->ik", host, host).dtype is ss.bfloat16
            assert ss.einsum("ij,jk->ik", card, card).dtype is ss.float16
    with ss.autocast("cpu"):
        assert (card @ card).dtype is ss.float32


def test_what_is_refused() -> None:
    p = ss.full((3,), 0.5, device="cuda")
    with ss.autocast("cuda"):
        with pytest.raises(RuntimeError, match=r"(?s)unsafe to autocast.*_with_logits"):
            F.binary_cross_entropy(p, p)
        assert F.binary_cross_entropy_with_logits(p.half(), p).dtype is ss.float32
        with ss.autocast("cuda", enabled=False):
            F.binary_cross_entropy(p, p)


def test_modules() -> None:
    images = ss.rand(2, 3, 6, 6, device="cuda")
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
                        nn.Linear(64, 5)).to("cuda")
    rows = ss.rand(2, 1, 4, device="cuda")
    lstm = nn.LSTM(4, 3).to("cuda")
    heads = ss.rand(1, 2, 4, 8, device="cuda")
    with ss.cuda.amp.autocast():
        out = net(images)
        assert out.dtype is ss.float16
        loss = F.cross_entropy(out, ss.tensor([1, 2], device="cuda"))
        assert loss.dtype is ss.float32
        assert lstm(rows)[0].dtype is nn.GRUCell(4, 3).to("cuda")(rows[0]).dtype is ss.float16
        assert F.scaled_dot_product_attention(heads, heads, heads).dtype is ss.float16
        assert F.interpolate(images.half(), scale_factor=2).dtype is ss.float32
    loss.backward()
    assert all(each.grad.dtype is ss.float32 for each in net.parameters())


def test_a_captured_graph_casts_the_weights_of_its_replay() -> None:
    weight = nn.Parameter(ss.ones(2, 2, device="cuda"))
    x = ss.ones(1, 2, device="cuda")
    graph = ss.cuda.CUDAGraph()
    with ss.autocast("cuda"), ss.no_grad():
        F.linear(x, weight)
        with ss.cuda.graph(graph):
            out = F.linear(x, weight)
    with ss.no_grad():
        weight.fill_(3.0)
    graph.replay()
    assert out.tolist() == [[6.0, 6.0]]


# -- the scaler ------------------------------------------------------------------------------------
class Waiting:
    """An optimizer of which the scaler does not know that it could leave out a step itself."""

    def __init__(self, below: Any) -> None:
        self.below = below
        self.param_groups = below.param_groups

    def step(self) -> None:
        """Step."""
        self.below.step()


OPTIMIZERS = {
    "sgd": (optim.SGD, {"lr": 0.1}),
    "sgd with momentum": (optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}),
    "sgd with dampening": (optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
    "adam": (optim.Adam, {"lr": 0.1, "amsgrad": True}),
    "adamw": (optim.AdamW, {"lr": 0.1, "betas": (0.5, 0.9)}),
    "adamw one by one": (optim.AdamW, {"lr": 0.1, "foreach": False}),
    "adamw fused": (optim.AdamW, {"lr": 0.1, "fused": True, "weight_decay": 0.0}),
    "rmsprop": (optim.RMSprop, {"lr": 0.1}),
    "adagrad": (optim.Adagrad, {"lr": 0.1}),
}
SHAPES = ((3,), (2, 4), (), (700,))


def trained(name: str, waits: bool, dtype: Any = None) -> tuple[list[Any], Any, Any]:
    """Parameters, optimizer and scaler after steps of which the first and two more are bad."""
    rng = np.random.default_rng(0)
    cls, options = OPTIMIZERS[name]
    params = [nn.Parameter(ss.from_numpy(np.asarray(rng.standard_normal(shape))).to(
        dtype or ss.float32).to("cuda")) for shape in SHAPES]
    optimizer = cls(params, **options)
    scaler = ss.amp.GradScaler("cuda", init_scale=4.0, growth_interval=3)
    for number in range(9):
        scaler.scale(ss.ones((), device="cuda"))
        for param in params:
            grad = np.asarray(rng.standard_normal(param.shape))
            param.grad = ss.from_numpy(grad).to(param.dtype).to("cuda")
        if number in (0, 3, 4):
            params[number % 2].grad.view(-1)[1] = (np.inf, np.nan)[number % 2]
        scaler.step(Waiting(optimizer) if waits else optimizer)
        scaler.update()
    return params, optimizer, scaler


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_left_out_on_the_device_are_those_left_out_by_the_host(name: str) -> None:
    mine, optimizer, scaler = trained(name, waits=False)
    theirs, other, peer = trained(name, waits=True)
    assert scaler.state_dict() == peer.state_dict()
    # 4; halved by the first step and by two more; doubled by the third good one after them.
    assert scaler.get_scale() == 1.0
    for param, twin in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(param.detach().cpu().numpy(), twin.detach().cpu().numpy(),
                                   rtol=2e-6, atol=1e-7)
        for key, value in optimizer.state[param].items():
            np.testing.assert_allclose(value.cpu().numpy(), other.state[twin][key].cpu().numpy(),
                                       rtol=2e-6, atol=1e-7)
        if "step" in optimizer.state[param]:
            assert optimizer.state[param]["step"].item() == 6


@pytest.mark.parametrize("dtype", [ss.float64, ss.bfloat16], ids=lambda dtype: dtype.name)
def test_other_dtypes(dtype: Any) -> None:
    mine, _, _ = trained("adamw", False, dtype)
    theirs, _, _ = trained("adamw", True, dtype)
    for param, twin in zip(mine, theirs, strict=True):
        near = 2 ** -7 if dtype is ss.bfloat16 else 1e-6
        np.testing.assert_allclose(param.detach().double().cpu().numpy(),
                                   twin.detach().double().cpu().numpy(), rtol=near, atol=near / 10)


def test_the_state_goes_round() -> None:
    params, optimizer, _ = trained("adamw", waits=False)
    saved = optimizer.state_dict()
    again = optim.AdamW(params, lr=0.1)
    again.load_state_dict(saved)
    before = [param.detach().clone() for param in params]
    again.step()
    assert again.state[params[0]]["step"].item() == 7
    assert all(not ss.equal(param, each) for param, each in zip(params, before, strict=True))


def test_a_step_waits_for_nothing_and_takes_few_launches(restart: Any) -> None:
    restart(zero_cost=True, race=False, poison=False)
    params = [nn.Parameter(ss.ones(50, device="cuda")) for _ in range(40)]
    optimizer = optim.AdamW(params)
    scaler = ss.amp.GradScaler("cuda")

    def step() -> None:
        scaler.scale(ss.ones((), device="cuda"))
        optimizer.zero_grad()
        for param in params:
            param.grad = ss.ones(50, device="cuda")
        ss.cuda.synchronize()
        before = counts()
        scaler.step(optimizer)
        scaler.update()
        after = counts()
        found.append([mine - theirs for mine, theirs in zip(after, before, strict=True)])

    def counts() -> list[int]:
        driver = ss.cuda.driver_stats()
        return [ss.cuda.launch_stats()["launches"],
                *[driver.get(name, 0) for name in ("synchronizations", "copies", "queries")]]

    found: list[list[int]] = []
    for _ in range(4):
        step()
    # The scale's inverse, the flag's zero, the list of gradients; what is added to the counts, the
    # counts, what follows from them; the list of parameters; the scale.
    assert found[-1][0] <= 8
    assert found[-1][1:3] == [0, 0]


def test_several_optimizers_share_the_scale() -> None:
    pairs = [nn.Parameter(ss.ones(3, device="cuda")) for _ in range(2)]
    optimizers = [optim.SGD([param], lr=1.0) for param in pairs]
    scaler = ss.amp.GradScaler("cuda", init_scale=8.0)
    scaler.scale(ss.ones((), device="cuda"))
    pairs[0].grad, pairs[1].grad = ss.full_like(pairs[0], 8.0), ss.full_like(pairs[1], np.inf)
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
    assert pairs[0].tolist() == [0.0] * 3
    assert pairs[1].tolist() == [1.0] * 3
    assert scaler.get_scale() == 4.0
    scaler.update(2.0)
    assert scaler.get_scale() == 2.0
    scaler.update(ss.tensor([16.0], device="cuda"))
    assert scaler.get_scale() == 16.0
