"""What the tests that walk the catalogue ask to be compiled, on a driver that launches nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from catalogue import SAMPLED, layouts_of, main_dtype

from gpu.launch.everyop import gradients, other_dtypes, outputs
from slipstream.cli.kernels import exercise_optimizers
from slipstream.core.api.cuda.packing import DTYPES, REFUSALS, recorded
from slipstream.core.catalog.table import table
from slipstream.core.native.recording import Source

ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100")


def sources() -> tuple[list[Source], list[Source]]:
    """(of samples as they stand, forward and backward, every dtype; of all other layouts)."""
    with recorded(ARCHITECTURES) as driver, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for place in range(len(ARCHITECTURES)):
            walk(f"cuda:{place}", whole)
            for dtype in DTYPES:
                exercise_optimizers(f"cuda:{place}", dtype)
        plain = list(driver.sources)
        for place in range(len(ARCHITECTURES)):
            walk(f"cuda:{place}", laid_out)
        return plain, list(driver.sources)[len(plain):]


def walk(device: str, ask: Callable[..., None]) -> None:
    """Every sample of every op."""
    for name in SAMPLED:
        for sample in table[name].entry.samples():
            ask(table[name], sample, device)


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
