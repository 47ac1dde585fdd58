"""The demo's data: 1,797 images of written digits that scikit-learn brings in its package."""

from __future__ import annotations

import gzip
import importlib.metadata
from pathlib import Path
from typing import NamedTuple

import numpy as np

import slipstream as ss
from slipstream.core.vocab.optional import install_command

PLACE = "sklearn/datasets/data/digits.csv.gz"
SIDE = 8
BRIGHTEST = 16.0
CLASSES = 10
HELD_OUT = 0.2


class Digits(NamedTuple):
    """Images (N, 1, 8, 8) of float32 in [0, 1] and labels (N,) of int64."""

    images: ss.Tensor
    labels: ss.Tensor

    def to(self, device: str) -> Digits:
        """The same on ``device``."""
        return Digits(self.images.to(device), self.labels.to(device))


def digits_file() -> Path:
    """Where the digits lie; scikit-learn need not be imported for it.

    Raises FileNotFoundError, saying what to install, where they are not there.
    """
    try:
        path = Path(str(importlib.metadata.distribution("scikit-learn").locate_file(PLACE)))
    except importlib.metadata.PackageNotFoundError:
        path = Path(PLACE)
    if not path.is_file():
        raise FileNotFoundError("the digits come with scikit-learn, which is not installed here: "
                                f"{install_command('demo')}")
    return path


def load_digits() -> tuple[Digits, Digits]:
    """Training and held-out digits, always split alike."""
    with gzip.open(digits_file(), "rt") as lines:
        table = np.loadtxt(lines, delimiter=",", dtype=np.float32)
    images = (table[:, :-1] / BRIGHTEST).reshape(-1, 1, SIDE, SIDE)
    labels = table[:, -1].astype(np.int64)
    order = np.random.default_rng(0).permutation(len(labels))
    cut = round(len(order) * (1 - HELD_OUT))
    parts = [Digits(ss.from_numpy(images[part]), ss.from_numpy(labels[part]))
             for part in (order[:cut], order[cut:])]
    return parts[0], parts[1]
