"""Rows of the training curves, and the curves in characters."""

from __future__ import annotations

from typing import Any

import numpy as np

import slipstream as ss
from gpu import curves as sides
from gpu import gpt, peers
from gpu.curves import BAR, CHECKED, SEEDS, STEPS, TAIL, Curve
from gpu.timing import Row
from slipstream.cli.digits import load_digits

Losses = list[float]


def curves(steps: int = STEPS) -> list[Row]:
    """Steps of the 256-wide GPT on text in both precisions, and epochs of the digits model."""
    text = {low: on_text(ss, steps, low) for low in (False, True)}
    images = pictures()
    ours = sides.digits(ss, *images) if images else []
    torch = peers.torch()
    # Neither side shortens its products here.
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    rows = full(text[False], on_text(torch, steps))
    rows += low(text[True], [on_text(torch, steps, True, seed) for seed in range(SEEDS)])
    return rows + ([compared("digits model, float32", ours, sides.digits(torch, *images))]
                   if images else [])


def on_text(lib: Any, steps: int, low: bool = False, seed: int = 0) -> Losses:
    """The 256-wide GPT's losses; ``seed`` is that of its weights."""
    model = gpt.make(lib, gpt.SMALL)
    sides.put(lib, model, sides.weights(model, seed))
    return sides.trained(lib, model, sides.batches(gpt.SMALL, steps), low)


def pictures() -> tuple[Any, Any] | None:
    """Images and labels of the digits, or None where they are not installed."""
    try:
        found, _ = load_digits()
    except (FileNotFoundError, ImportError) as missing:
        print(f"the digits are not measured: {str(missing).splitlines()[0]}")
        return None
    return found.images.numpy().astype(np.float32), found.labels.numpy()


def compared(what: str, ours: Losses, peer: Losses) -> Row:
    """Both losses at the step that counts, and how far they are apart."""
    place = min(CHECKED, len(ours)) - 1
    print(Curve(f"{what}, ours", ours).line())
    print(Curve(f"{what}, PyTorch", peer).line())
    return Row(f"{what}: losses at step {place + 1}, relative difference", ours[place],
               peer[place], sides.apart(ours, peer), BAR, "")


def full(ours: Losses, peer: Losses) -> list[Row]:
    """The text in float32."""
    end = Curve("", ours).final, Curve("", peer).final
    return [compared("GPT on text, float32", ours, peer),
            Row(f"GPT on text, float32: mean of the last {TAIL} losses, relative difference",
                *end, abs(end[0] / end[1] - 1), None, "")]


def low(ours: Losses, seeds: list[Losses]) -> list[Row]:
    """The text in bfloat16; our weights are those of the first seed."""
    own = Curve("GPT on text, bf16, ours", ours)
    theirs = [Curve(f"GPT on text, bf16, PyTorch, seed {place}", losses)
              for place, losses in enumerate(seeds)]
    for each in (own, *theirs):
        print(each.line())
    return [within(own.final, [each.final for each in theirs])]


def within(ours: float, seeds: list[float]) -> Row:
    """How far ours is from the first seed, in units of the seeds' spread: at most one."""
    spread = max(seeds) - min(seeds)
    shown = ", ".join(f"{each:.4f}" for each in seeds)
    return Row(f"GPT on text, bf16: mean of the last {TAIL} losses, distance from PyTorch's over "
               f"the spread of its seeds ({shown})", ours, seeds[0], abs(ours - seeds[0]) / spread,
               1.0, "")
