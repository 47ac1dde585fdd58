"""Kernel sources of the catalogue, compiled by NVRTC several to a program.

An empty program costs NVRTC half of what a kernel does, so that sources which define no macros are
put into namespaces of one program.  What does not compile together is compiled alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from slipstream.core.kernels.cuda.prelude import PRELUDE
from slipstream.core.native.driver import CompileError
from slipstream.core.native.recording import Source

SIZE = 24
FIGURES = re.compile(
    r"Compiling entry function '(?P<name>\w+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads.*?Used (?P<registers>\d+) registers", re.DOTALL)


class Figures(NamedTuple):
    """What ptxas says of a kernel; bytes, and registers of a thread."""

    stack: int
    stores: int
    loads: int
    registers: int


class Outcome(NamedTuple):
    """A source with its figures, or why it did not compile."""

    source: Source
    figures: Figures | None
    error: str = ""


def compile_all(compiler: Any, sources: Iterable[Source]) -> list[Outcome]:
    """Compile every source; NVRTC runs in as many threads as there are cores."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as workers:
        return [outcome for batch in workers.map(lambda each: compiled(compiler, each),
                                                 list(batches(sources))) for outcome in batch]


def batches(sources: Iterable[Source]) -> Iterator[list[Source]]:
    """Sources that can be one program: of one architecture, with names of their own."""
    open_ones: dict[str, list[list[Source]]] = {}
    for source in sources:
        if not can_be_joined(source):
            yield [source]
            continue
        known = open_ones.setdefault(source.arch, [])
        for batch in known:
            if all(each.name != source.name for each in batch):
                break
        else:
            batch = []
            known.append(batch)
        batch.append(source)
        if len(batch) == SIZE:
            known.remove(batch)
            yield batch
    for known in open_ones.values():
        yield from known


def can_be_joined(source: Source) -> bool:
    """Whether a source is the prelude and text that changes nothing outside a namespace."""
    return (source.text.startswith(PRELUDE) and not source.options
            and "#define" not in source.text[len(PRELUDE):])


def compiled(compiler: Any, batch: list[Source]) -> list[Outcome]:
    """Compile a batch; where it fails, each of its sources by itself."""
    text = batch[0].text
    if len(batch) > 1:
        text = PRELUDE + "".join(f"namespace n{place} {{\n{each.text[len(PRELUDE):]}\n}}\n"
                                 for place, each in enumerate(batch))
    options = (*batch[0].options, "--ptxas-options=-v")
    try:
        _, log = compiler.compile_with_log(text, batch[0].name, options, batch[0].arch)
    except CompileError as error:
        if len(batch) == 1:
            return [Outcome(batch[0], None, error.log)]
        return [outcome for each in batch for outcome in compiled(compiler, [each])]
    found = {match["name"]: Figures(*[int(match[name]) for name in Figures._fields])
             for match in FIGURES.finditer(log)}
    return [Outcome(each, found.get(each.name), "" if each.name in found else log)
            for each in batch]
