"""Models that both sides train, written once for a library given as ``lib``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Step = Callable[[], Any]


def mlp_step(lib: Any, optimizer: str = "Adam", **options: Any) -> Step:
    """One training step of 8 x (Linear 256, ReLU), batch 64, mean square error."""
    nn = lib.nn
    layers: list[Any] = []
    for _ in range(8):
        layers += [nn.Linear(256, 256), nn.ReLU()]
    model = nn.Sequential(*layers).to("cuda")
    chosen = getattr(lib.optim, optimizer)(model.parameters(), lr=1e-3, **options)
    x, y = lib.randn(64, 256).to("cuda"), lib.randn(64, 256).to("cuda")

    def step() -> Any:
        loss = ((model(x) - y) ** 2).mean()
        chosen.zero_grad()
        loss.backward()
        chosen.step()
        return loss

    step.optimizer = chosen  # type: ignore[attr-defined]
    return step


def digits_step(lib: Any) -> Step:
    """One training step of the digits net: two convolutions and a linear layer, batch 32."""
    nn = lib.nn
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 16, 10)).to("cuda")
    optimizer = lib.optim.AdamW(net.parameters(), lr=1e-3)
    images = lib.randn(32, 1, 8, 8).to("cuda")
    labels = lib.randint(0, 10, (32,)).to("cuda")
    loss_of = nn.CrossEntropyLoss()

    def step() -> Any:
        loss = loss_of(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def convolutions(lib: Any) -> Step:
    """The digits net's convolutions alone, forward and backward."""
    nn = lib.nn
    net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)).to("cuda")
    images = lib.randn(32, 1, 8, 8).to("cuda")

    def step() -> Any:
        net.zero_grad()
        net(images).sum().backward()

    return step


def unseen(lib: Any) -> Step:
    """A step at a length never seen before."""
    model = lib.nn.Sequential(lib.nn.Linear(64, 64), lib.nn.ReLU(), lib.nn.Linear(64, 8)).to("cuda")
    lengths = iter(range(100, 1_000_000))

    def step() -> None:
        model.zero_grad()
        model(lib.zeros(next(lengths), 64, device="cuda")).square().mean().backward()

    return step
