"""Rows of the training curves, and the curves in characters."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import slipstream as ss
from gpu import curves, gpt
from gpu.curves import Curve
from gpu.timing import Row
from slipstream.cli.digits import load_digits


def curves_part() -> list[Row]:
    """300 steps of the 256-wide GPT on text, and the digits model."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    tf32 = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        return [*full(), *low(), *digits()]
    finally:
        torch.set_float32_matmul_precision(before)
        torch.backends.cudnn.allow_tf32 = tf32


def compared(what: str, ours: list[float], peer: list[float]) -> Row:
    """Both losses at the step that counts, and how far they are apart."""
    place = min(curves.CHECKED, len(ours)) - 1
    print(Curve(f"{what}, ours", ours).line())
    print(Curve(f"{what}, PyTorch", peer).line())
    return Row(f"{what}: losses at step {curves.CHECKED}, relative difference", ours[place],
               peer[place], curves.apart(ours, peer), curves.BAR, "")


def full() -> list[Row]:
    """float32, without shorter products on either side."""
    ours = curves.trained(ss, gpt.SMALL, curves.STEPS)
    peer = curves.trained(torch, gpt.SMALL, curves.STEPS)
    end = Curve("", ours).final, Curve("", peer).final
    return [compared("GPT on text, float32", ours, peer),
            Row(f"GPT on text, float32: loss of the last {curves.TAIL} of {curves.STEPS} steps",
                *end, abs(end[0] / end[1] - 1), None, "")]


def low() -> list[Row]:
    """bfloat16: our last losses lie within those of PyTorch's seeds, widened by their distance.

    Ours has the weights of the first seed.
    """
    ours = Curve("GPT on text, bf16, ours", curves.trained(ss, gpt.SMALL, curves.STEPS, low=True))
    seeds = [Curve(f"GPT on text, bf16, PyTorch, seed {seed}",
                   curves.trained(torch, gpt.SMALL, curves.STEPS, low=True, seed=seed))
             for seed in range(curves.SEEDS)]
    for each in (ours, *seeds):
        print(each.line())
    return [within(ours.final, [each.final for each in seeds])]


def within(ours: float, seeds: list[float]) -> Row:
    """How far ours is from the first seed, in units of the seeds' spread: at most one."""
    spread = max(seeds) - min(seeds)
    shown = ", ".join(f"{each:.4f}" for each in seeds)
    return Row(f"GPT on text, bf16: last losses, distance from PyTorch's over the spread of its "
               f"seeds ({shown})", ours, seeds[0], abs(ours - seeds[0]) / spread, 1.0, "")


def digits() -> list[Row]:
    """Five epochs of the digits model."""
    try:
        training, _ = load_digits()
    except (FileNotFoundError, ImportError) as missing:
        print(f"the digits are not measured: {str(missing).splitlines()[0]}")
        return []
    images: Any = training.images.numpy().astype(np.float32)
    labels: Any = training.labels.numpy()
    return [compared("digits model, float32", curves.digits(ss, images, labels),
                     curves.digits(torch, images, labels))]
