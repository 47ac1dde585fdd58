"""Training loops whose launches repeat themselves: each maker returns a step, called by number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import slipstream as ss
from slipstream import nn, optim
from slipstream.cli import demo
from slipstream.nn import functional as F

Step = Callable[[int], Any]
LENGTHS = (16, 24, 32, 48, 64, 96, 128, 160)


def perceptron(layers: int, width: int) -> nn.Sequential:
    """Linear layers with a relu after each."""
    parts = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*parts).to("cuda")


def trained(model: nn.Module, optimizer: optim.Optimizer, x: Any, y: Any) -> Any:
    """One step on a batch; returns its loss."""
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


def mlp() -> Step:
    """Eight layers of 256, batches of 64, Adam."""
    model = perceptron(8, 256)
    optimizer = optim.Adam(model.parameters())
    x, y = (ss.randn(64, 256, device="cuda") for _ in range(2))
    return lambda number: trained(model, optimizer, x, y)


def digits() -> Step:
    """The net of the demo: another batch each step, dropout, AdamW, a falling learning rate."""
    model = demo.make_model().to("cuda")
    optimizer = optim.AdamW(model.parameters())
    images = ss.randn(512, 1, 8, 8, device="cuda")
    labels = ss.randint(0, 10, (512,), device="cuda")
    order = np.random.default_rng(0)
    epoch: list[Any] = [None]

    def step(number: int) -> Any:
        if number % 8 == 0:
            epoch[0] = ss.from_numpy(order.permutation(512)).to("cuda")
        first = number % 8 * demo.BATCH
        picked = epoch[0][first:first + demo.BATCH]
        demo.set_learning_rate(optimizer, 1 - number / 1000)
        return demo.step(model, optimizer, images[picked], labels[picked])

    return step


def schedule() -> Step:
    """The MLP with another learning rate each step."""
    model = perceptron(8, 256)
    optimizer = optim.Adam(model.parameters())
    x, y = (ss.randn(64, 256, device="cuda") for _ in range(2))

    def step(number: int) -> Any:
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * (1 - number / 1000)
        return trained(model, optimizer, x, y)

    return step


def lengths() -> Step:
    """Batches of eight lengths in a seeded random order."""
    model = perceptron(4, 64)
    optimizer = optim.Adam(model.parameters())
    batches = [ss.randn(length, 64, device="cuda") for length in LENGTHS]
    order = np.random.default_rng(1).integers(0, len(LENGTHS), 1000)

    def step(number: int) -> Any:
        batch = batches[order[number]]
        return trained(model, optimizer, batch, batch)

    return step


def accumulation() -> Step:
    """Gradients of four batches added up before each update."""
    model = perceptron(4, 64)
    optimizer = optim.Adam(model.parameters())
    x = ss.randn(32, 64, device="cuda")

    def step(number: int) -> Any:
        for _ in range(4):
            loss = F.mse_loss(model(x), x) / 4
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def kept_losses() -> Step:
    """The MLP; every loss stays alive in a list."""
    step_once = mlp()
    kept: list[Any] = []

    def step(number: int) -> Any:
        kept.append(step_once(number))
        return kept[-1]

    return step


def lowered() -> Step:
    """The MLP under autocast in bfloat16; cross entropy in float32."""
    model = perceptron(4, 64)
    optimizer = optim.AdamW(model.parameters())
    x, y = ss.randn(32, 64, device="cuda"), ss.randint(0, 64, (32,), device="cuda")

    def step(number: int) -> Any:
        optimizer.zero_grad()
        with ss.autocast("cuda", dtype=ss.bfloat16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def scaled(make: Callable[[Any], optim.Optimizer] = optim.AdamW) -> Step:
    """The MLP under autocast in float16, its loss scaled: now and then a step is left out."""
    model = perceptron(4, 64)
    optimizer = make(model.parameters())
    scaler = ss.amp.GradScaler("cuda", growth_interval=5)
    x = ss.randn(32, 64, device="cuda")

    def step(number: int) -> Any:
        optimizer.zero_grad()
        with ss.autocast("cuda", dtype=ss.float16):
            loss = F.mse_loss(model(x), x)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss

    return step


def scaled_sgd() -> Step:
    """The same with SGD and momentum."""
    return scaled(lambda params: optim.SGD(params, lr=0.01, momentum=0.9))


LOOPS = {"mlp": mlp, "digits": digits, "schedule": schedule, "lengths": lengths,
         "accumulation": accumulation, "kept losses": kept_losses,
         "autocast": lowered, "scaled": scaled, "scaled sgd": scaled_sgd}
