"""What the catalogue asks to be compiled, on a driver that launches nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any
from zlib import crc32

from catalogue import SAMPLED, layouts_of, main_dtype

from gpu.launch.everyop import gradients, other_dtypes, outputs
from slipstream.cli.kernels import exercise_optimizers
from slipstream.core.api.cuda.packing import DTYPES, REFUSALS, recorded, run_samples
from slipstream.core.catalog.table import table
from slipstream.core.native.recording import Source
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.dtypes import DType

ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100")
MAIN = ARCHITECTURES.index("sm_90")
USUAL = (dtypes.float32, dtypes.bfloat16)


def sources(every: bool) -> list[Source]:
    """What samples and optimizers ask for in float32 and bfloat16, for every architecture.

    And what they ask for in all other dtypes and layouts: for each architecture if ``every``, else
    for one of them each, in turn.
    """
    with recorded(ARCHITECTURES) as driver, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for place in range(len(ARCHITECTURES)):
            ask(f"cuda:{place}", USUAL)
        usual = dict(driver.sources)
        ask(f"cuda:{MAIN}", DTYPES)
        walk(f"cuda:{MAIN}")
        others = [each for each in driver.sources if each not in usual]
    return [*usual, *[each._replace(arch=arch) for each in others
                      for arch in (homes(each) if every else (turn(each),))]]


def homes(source: Source) -> tuple[str, ...]:
    """The architectures that have a source's instructions: older cards are given other kernels."""
    return ARCHITECTURES[1:] if "cp.async" in source.text else ARCHITECTURES


def turn(source: Source) -> str:
    """The architecture whose turn a source is, the same in every run."""
    found = homes(source)
    return found[crc32(source.text.encode()) % len(found)]


def ask(device: str, kinds: tuple[DType, ...]) -> None:
    """What packs hold, in some dtypes."""
    for name in sorted(table):
        run_samples(table[name], device, kinds)
    for dtype in kinds:
        exercise_optimizers(device, dtype)


def walk(device: str) -> None:
    """Every sample of every op in every dtype and layout."""
    for name in SAMPLED:
        for sample in table[name].entry.samples():
            whole(table[name], sample, device)
            laid_out(table[name], sample, device)


def whole(op: Any, sample: Any, device: str) -> None:
    """A sample in contiguous tensors."""
    for dtype in (main_dtype(op), *other_dtypes(op, sample)):
        attempt(outputs, op, sample, dtype, "contiguous", device)
    if "float" in op.entry.dtypes:
        attempt(gradients, op, sample, "contiguous", device)


def laid_out(op: Any, sample: Any, device: str) -> None:
    """A sample in every other layout."""
    for layout in layouts_of(op)[1:]:
        attempt(outputs, op, sample, main_dtype(op), layout, device)
        if "float" in op.entry.dtypes and layout in ("offset", "stepped"):
            attempt(gradients, op, sample, layout, device)


def attempt(call: Callable[..., Any], *arguments: Any) -> None:
    """Call; kernels do not run here, and some samples refuse the zeros that they would write."""
    try:
        call(*arguments)
    except (*REFUSALS, ArithmeticError):
        return
