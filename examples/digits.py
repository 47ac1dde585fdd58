"""Trains a classifier of written digits: a module of one's own, a loop, a checkpoint."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import slipstream as ss
from slipstream import nn, optim
from slipstream.cli.digits import Digits, load_digits
from slipstream.nn import functional as F
from slipstream.serialization import load, save

EPOCHS = 8
BATCH = 128


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 3, padding=1)
        self.hidden = nn.Linear(16 * 4 * 4, 64)
        self.output = nn.Linear(64, 10)

    def forward(self, images: ss.Tensor) -> ss.Tensor:
        features = F.max_pool2d(F.relu(self.conv(images)), 2)
        return self.output(F.relu(self.hidden(features.reshape(len(images), -1))))


def train(model: nn.Module, digits: Digits) -> None:
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    order = np.random.default_rng(0)
    for epoch in range(EPOCHS):
        shuffled = ss.from_numpy(order.permutation(len(digits.labels)))
        total = 0.0
        for picked in (shuffled[i:i + BATCH] for i in range(0, len(shuffled), BATCH)):
            loss = F.cross_entropy(model(digits.images[picked]), digits.labels[picked])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item() * len(picked)
        print(f"epoch {epoch}: loss {total / len(shuffled):.4f}")


def accuracy(model: nn.Module, digits: Digits) -> float:
    with ss.no_grad():
        return (model(digits.images).argmax(1) == digits.labels).sum().item() / len(digits.labels)


def main() -> None:
    ss.manual_seed(0)
    training, held_out = load_digits()
    model = Classifier()
    train(model, training)
    found = accuracy(model, held_out)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.slip"
        save(model.state_dict(), path)
        again = Classifier()
        again.load_state_dict(load(path))
    assert accuracy(again, held_out) == found, "the checkpoint changed the model"
    print(f"accuracy {100 * found:.1f} %")
    assert found > 0.9, "the network did not learn"


if __name__ == "__main__":
    main()
