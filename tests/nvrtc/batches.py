"""Kernel sources of the catalogue, compiled by NVRTC several to a program.

An empty program costs NVRTC half of what a kernel does, so that sources which define no macros are
put into namespaces of one program.  What does not compile together is compiled alone.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from math import inf
from typing import Any, NamedTuple

from slipstream.core.kernels.cuda.prelude import PRELUDE
from slipstream.core.native.driver import CompileError
from slipstream.core.native.recording import Source

SIZE = 24
# Seconds between two lines that tell how far a run is.
BETWEEN = 10
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


class Work:
    """How far a run is: it tells now and then, and begins nothing after ``seconds``.

    ``tell`` takes a line; ``running`` has what is being compiled, by its number.
    """

    def __init__(self, tell: Callable[[str], Any] | None = None, seconds: float = inf) -> None:
        self.tell = tell
        self.seconds = seconds
        self.start = self.told = time.monotonic()
        self.lock = threading.Lock()
        self.numbers = count()
        self.running: dict[int, list[Source]] = {}
        self.total = 0
        self.done = 0

    def compiled(self, compiler: Any, batch: list[Source]) -> list[Outcome]:
        """The outcomes of a batch; none where there is no time left for it."""
        number = next(self.numbers)
        with self.lock:
            if time.monotonic() - self.start > self.seconds:
                return []
            self.running[number] = batch
            self.report()
        try:
            return compiled(compiler, batch)
        finally:
            with self.lock:
                del self.running[number]
                self.done += len(batch)

    def report(self) -> None:
        """Tell how far it is, where that was not told for some seconds."""
        now = time.monotonic()
        if self.tell is None or now - self.told < BETWEEN:
            return
        self.told = now
        names = ", ".join(f"{batch[0].name} for {batch[0].arch}"
                          + (f" and {len(batch) - 1} more" if len(batch) > 1 else "")
                          for batch in self.running.values())
        self.tell(f"{self.done:,} of {self.total:,} sources in {now - self.start:.0f} s; "
                  f"now {names}")


def compile_all(compiler: Any, sources: Sequence[Source], work: Work | None = None,
                first: int = 0) -> list[Outcome]:
    """Compile every source, so many of them first; NVRTC runs in as many threads as cores."""
    work = work or Work()
    all_batches = [*batches(sources[:first]), *batches(sources[first:])]
    work.total = sum(len(batch) for batch in all_batches)
    with ThreadPoolExecutor(cores()) as workers:
        return [outcome for batch in workers.map(lambda each: work.compiled(compiler, each),
                                                 all_batches) for outcome in batch]


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
