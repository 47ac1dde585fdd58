"""Training curves: both sides from the same weights and the same batches."""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

STEPS, CHECKED, EPOCHS = 300, 50, 5
RATE = 3e-4
BAR = 1e-4
BARS = "▁▂▃▄▅▆▇█"
# Of the end of a curve, so many steps are averaged.
TAIL = 20
SEEDS = 2


class Curve(NamedTuple):
    """A model's losses, a number a step."""

    name: str
    losses: list[float]

    @property
    def final(self) -> float:
        """The mean of the last losses."""
        return float(np.mean(self.losses[-TAIL:]))

    def line(self, width: int = 60) -> str:
        """The curve in characters."""
        parts = np.array_split(np.asarray(self.losses), min(width, len(self.losses)))
        means = np.array([part.mean() for part in parts])
        scaled = (means - means.min()) / max(float(np.ptp(means)), 1e-12) * (len(BARS) - 1)
        drawn = "".join(BARS[round(float(each))] for each in scaled)
        return f"{self.name:32} {self.losses[0]:.4f} {drawn} {self.final:.4f}"


@cache
def documentation(least: int = 1_000_000) -> np.ndarray:
    """Docstrings of the standard library's modules in the order of their names, as bytes."""
    texts: list[str] = []
    total = 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        for node in ast.walk(tree):
            kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
            text = ast.get_docstring(node) if isinstance(node, kinds) else None
            if text:
                texts.append(text)
                total += len(text)
        if total > least:
            break
    return np.frombuffer("\n\n".join(texts).encode(), np.uint8).astype(np.int64)


def batches(size: Any, steps: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Inputs and what follows each of their bytes, of a model's size, the same at every call."""
    text, random = documentation() % size.vocabulary, np.random.default_rng(0)
    for _ in range(steps):
        starts = random.integers(0, len(text) - size.tokens - 1, size.batch)
        both = np.stack([text[start:start + size.tokens + 1] for start in starts])
        yield both[:, :-1].copy(), both[:, 1:].copy()


def weights(model: Any, seed: int = 0) -> dict[str, np.ndarray]:
    """Initial values by name: normal with deviation 0.02, ones and zeros for norms and biases."""
    random, made = np.random.default_rng(seed), {}
    for name, each in model.named_parameters():
        shape = tuple(each.shape)
        if len(shape) > 1:
            made[name] = random.normal(0, 0.02, shape).astype(np.float32)
        else:
            made[name] = np.full(shape, float("norm" in name and "weight" in name), np.float32)
    return made


def put(lib: Any, model: Any, values: dict[str, np.ndarray]) -> Any:
    """Give a model these values, and return it."""
    with lib.no_grad():
        for name, each in model.named_parameters():
            each.copy_(lib.from_numpy(values[name]).to(each.device))
    return model


def trained(lib: Any, model: Any, pairs: Iterable[Any], low: bool = False) -> list[float]:
    """Losses of a GPT on pairs of inputs and targets; ``low`` is autocast to bfloat16."""
    device = next(model.parameters()).device
    optimizer = lib.optim.AdamW(model.parameters(), lr=RATE, fused=True)
    losses = []
    for pair in pairs:
        tokens, targets = (lib.from_numpy(each).to(device) for each in pair)
        with lib.autocast(device.type, dtype=lib.bfloat16, enabled=low):
            loss = model(tokens, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [float(each.item()) for each in losses]


def digits_model(lib: Any) -> Any:
    """The digits model of the examples."""
    nn = lib.nn
    return nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10))


def digits(lib: Any, images: np.ndarray, labels: np.ndarray, epochs: int = EPOCHS,
           device: str = "cuda") -> list[float]:
    """Losses of the digits model in float32, a number a batch of 128."""
    model = digits_model(lib).to(device)
    put(lib, model, {name: value * 5 for name, value in weights(model).items()})
    optimizer = lib.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    random, losses = np.random.default_rng(0), []
    loss_of = lib.nn.CrossEntropyLoss()
    for _ in range(epochs):
        order = random.permutation(len(labels))
        for start in range(0, len(order), 128):
            picked = order[start:start + 128]
            loss = loss_of(model(lib.from_numpy(images[picked]).to(device)),
                           lib.from_numpy(labels[picked]).to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return [float(each.item()) for each in losses]


def apart(ours: list[float], peer: list[float], step: int = CHECKED) -> float:
    """The relative difference of two curves at a step, counted from one."""
    place = min(step, len(ours), len(peer)) - 1
    return abs(ours[place] - peer[place]) / abs(peer[place])
