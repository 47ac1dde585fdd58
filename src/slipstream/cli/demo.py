"""``slipstream demo``: trains a small convolutional classifier on real digits, in eager code."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np

import slipstream as ss
from slipstream import nn, optim
from slipstream.cli.digits import CLASSES, SIDE, Digits, load_digits
from slipstream.cli.shares import time_shares
from slipstream.core.vocab.optional import require
from slipstream.serialization import load_safetensors, save_safetensors

SUMMARY = "train a classifier on real digits and say where the time went"
BATCH = 64
CHANNELS = 24
LEARNING_RATE = 3e-3
DROPOUT = 0.25
EPOCHS = 15
REQUIRED_ACCURACY = 0.97  # at EPOCHS or more


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto",
                        help="where to run; auto takes a GPU if there is one")
    parser.add_argument("--seed", type=natural, default=0,
                        help="the same seed gives the same weights bit for bit")
    parser.add_argument("--epochs", type=positive, default=EPOCHS, help="passes over the digits")
    parser.add_argument("--out", type=Path, default=Path("runs/digits.safetensors"),
                        help="where to save the weights")


def natural(text: str) -> int:
    """An argument that is an integer and not negative."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return number


def positive(text: str) -> int:
    """An argument that is a positive integer."""
    number = natural(text)
    if not number:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return number


def run(arguments: argparse.Namespace) -> int:
    """Train, save, load again, and print what was found; 1 if anything fell short."""
    try:
        rich = require("rich.progress", "demo")
        device = chosen_device(arguments.device)
        training, held_out = (part.to(device) for part in load_digits())
        # Before the training, which a path that cannot be written would waste.
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.open("ab").close()
    except (ImportError, OSError, RuntimeError) as error:
        return failed(error)
    print(f"device {device}; {len(training.labels)} digits to learn from, "
          f"{len(held_out.labels)} held out")
    ss.manual_seed(arguments.seed)
    model = make_model().to(device)
    report = train(model, training, Plan(arguments.epochs, arguments.seed), rich)
    accuracy = accuracy_of(model, held_out)
    reloaded = accuracy_of(saved_and_loaded(model, arguments.out, device), held_out)
    report.print()
    print(f"weights in {arguments.out}; loaded into a new model: {100 * reloaded:.1f} % right")
    print(f"accuracy {100 * accuracy:.1f} %", flush=True)
    if reloaded != accuracy:
        return failed("the model with the loaded weights is not as accurate as the first")
    if accuracy < REQUIRED_ACCURACY and arguments.epochs >= EPOCHS:
        return failed(f"that is less than {100 * REQUIRED_ACCURACY:.0f} %")
    return 0


def failed(reason: object) -> int:
    """Say why the command failed; return its exit status."""
    print(f"slipstream demo: {reason}", file=sys.stderr)
    return 1


def cuda_available() -> bool:
    """Whether this build can use a GPU here."""
    cuda = getattr(ss, "cuda", None)
    return cuda is not None and cuda.is_available()


def chosen_device(name: str) -> str:
    """The device that ``--device`` means; raises RuntimeError if there is none such here."""
    if name == "cuda" and not cuda_available():
        raise RuntimeError("no CUDA device can be used here: `slipstream doctor` says what is "
                           "missing; SLIPSTREAM_DRIVER=sim runs it on a simulated card, slowly; "
                           "or run with --device cpu")
    return ("cuda" if cuda_available() else "cpu") if name == "auto" else name


def make_model() -> nn.Sequential:
    """Two convolutions with a pooling between, and a linear layer: (N, 1, 8, 8) to (N, 10)."""
    pixels = (SIDE // 2) ** 2
    return nn.Sequential(
        nn.Conv2d(1, CHANNELS, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(CHANNELS, 2 * CHANNELS, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(DROPOUT),
        nn.Linear(2 * CHANNELS * pixels, CLASSES),
    )


@dataclass
class Plan:
    """How long to train, and the seed of the order in which the digits come."""

    epochs: int
    seed: int


@dataclass
class Report:
    """What a training took."""

    images: int
    seconds: float
    shares: dict[str, float]

    def print(self) -> None:
        """Print speed and shares of time."""
        print(f"{self.images / self.seconds:,.0f} images a second, {self.seconds:.1f} s in all")
        if self.shares:
            parts = ", ".join(f"{name} {100 * share:.0f} %" for name, share in self.shares.items())
            print(f"time: {parts}")


def train(model: nn.Module, digits: Digits, plan: Plan, rich: ModuleType) -> Report:
    """Train ``model`` with AdamW, with a learning rate that falls to zero."""
    optimizer = optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    order = np.random.default_rng(plan.seed)
    count = len(digits.labels)
    steps = plan.epochs * -(-count // BATCH)
    started = time.perf_counter()
    with rich.Progress() as progress, time_shares() as shares:
        bar = progress.add_task("training", total=steps)
        for _ in range(plan.epochs):
            shuffled = ss.from_numpy(order.permutation(count)).to(digits.labels.device)
            for first in range(0, count, BATCH):
                picked = shuffled[first:first + BATCH]
                set_learning_rate(optimizer, 1 - progress.tasks[0].completed / steps)
                loss = step(model, optimizer, digits.images[picked], digits.labels[picked])
                progress.advance(bar)
        loss.item()  # the device is done when its last result is here
    return Report(plan.epochs * count, time.perf_counter() - started, shares)


def set_learning_rate(optimizer: optim.Optimizer, factor: float) -> None:
    """Make the learning rate ``factor`` times the first one."""
    for group in optimizer.param_groups:
        group["lr"] = LEARNING_RATE * factor


def step(model: nn.Module, optimizer: optim.Optimizer, images: ss.Tensor,
         labels: ss.Tensor) -> ss.Tensor:
    """One step of training on a batch; return its loss."""
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss


def accuracy_of(model: nn.Module, digits: Digits) -> float:
    """The share of digits that ``model`` names rightly."""
    model.eval()
    with ss.no_grad():
        right = (model(digits.images).argmax(1) == digits.labels).sum()
    return right.item() / len(digits.labels)


def saved_and_loaded(model: nn.Module, path: Path, device: str) -> nn.Module:
    """A new model with the weights of ``model``, by way of a safetensors file."""
    save_safetensors(model.state_dict(), path)
    other = make_model().to(device)
    other.load_state_dict(load_safetensors(path, device))
    return other
