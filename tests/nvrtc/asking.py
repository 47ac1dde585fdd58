"""What the catalogue asks to be compiled, on a driver that launches nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Container, Sequence
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
    """What samples and optimizers ask for in float32 and bfloat16, the main architecture's first.

    Then the same for one of the other architectures that ask for it each, in turn; then what they
    ask for in all other dtypes and layouts, for one architecture each.  All of them for each
    architecture if ``every``.
    """
    with recorded(ARCHITECTURES) as driver, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for place in range(len(ARCHITECTURES)):
            ask(f"cuda:{place}", USUAL)
        usual = dict(driver.sources)
        ask(f"cuda:{MAIN}", DTYPES)
        walk(f"cuda:{MAIN}")
        others = [each for each in driver.sources if each not in usual]
    main = [each for each in usual if each.arch == ARCHITECTURES[MAIN]]
    return [*main, *[each for each in usual if each.arch != ARCHITECTURES[MAIN]
                     and (every or is_its_turn(each, usual))],
            *[each._replace(arch=arch) for each in others
              for arch in (homes(each) if every else (turn(each, homes(each)),))]]


def homes(source: Source) -> tuple[str, ...]:
    """The architectures that have a source's instructions: older cards are given other kernels."""
    return ARCHITECTURES[1:] if "cp.async" in source.text else ARCHITECTURES


def turn(source: Source, found: Sequence[str]) -> str:
    """The architecture of these whose turn a source is, the same in every run."""
    return found[crc32(source.text.encode()) % len(found)]


def is_its_turn(source: Source, asked: Container[Source]) -> bool:
    """Whether a source is compiled for its architecture, beside the main one."""
    asking = [arch for arch in ARCHITECTURES if source._replace(arch=arch) in asked]
    return source.arch == turn(source, asking)


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
