"""Fits a small network to y = sin(x), in eager code, and checks that it did."""

from __future__ import annotations

import math

import slipstream as ss
from slipstream import nn, optim

STEPS = 400


def make_model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(),
                         nn.Linear(32, 1))


def train(model: nn.Module, inputs: ss.Tensor, targets: ss.Tensor) -> float:
    optimizer = optim.AdamW(model.parameters(), lr=0.01)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step:3}: loss {loss.item():.5f}")
    return loss.item()


def main() -> None:
    ss.manual_seed(0)
    inputs = (ss.arange(256).reshape(-1, 1) / 255 * 2 - 1) * math.pi
    # sin(x) = x - x^3/6 + ..., written with the ops at hand.
    targets = sum(((-1) ** k / math.factorial(2 * k + 1)) * inputs ** (2 * k + 1)
                  for k in range(8))
    loss = train(make_model(), inputs, targets)
    print(f"final loss {loss:.5f}")
    assert loss < 0.01, "the network did not learn"


if __name__ == "__main__":
    main()
