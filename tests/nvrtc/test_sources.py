"""Every kernel source of the catalogue is CUDA C++ to NVIDIA's compiler, and keeps to registers."""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Callable
from typing import NamedTuple

import pytest

import nvrtc.batches as nvrtc_batches
from gpu.simulation import forget
from nvrtc.asking import ARCHITECTURES, MAIN, sources
from nvrtc.batches import Figures, Outcome, Work, batches, compile_all
from slipstream.core.kernels.cuda.prelude import PRELUDE
from slipstream.core.native.drivers import drivers
from slipstream.core.native.recording import Source

compilers = pytest.importorskip("slipstream.core.native.real.compiler")
# Bytes that kernels printed from formulas may spill: predicates and a word of an address, but no
# value.
MOST_SPILLED = 8
# Beyond what is usual ptxas may trade this much for another resident block, though not from need.
MOST_TRADED = 48
# Usual sources that a run compiles at least, on the slowest machine.
LEAST = 500
RESIDENT = re.compile(r"__launch_bounds__\(\d+, [2-9]\)")
BOUNDS = re.compile(r"__launch_bounds__\((\d+)\)")


class Run(NamedTuple):
    """The sources of the catalogue, and the outcomes of those that there was time for."""

    sources: list[Source]
    outcomes: list[Outcome]

    @property
    def usual(self) -> list[Source]:
        """Those that come first: what is usual, for the main architecture."""
        return list(itertools.takewhile(lambda each: each.arch == ARCHITECTURES[MAIN],
                                        self.sources))

    def left(self, arch: str) -> list[Source]:
        """What there was no time for."""
        done = {outcome.source for outcome in self.outcomes}
        return [each for each in self.sources if each.arch == arch and each not in done]


@pytest.fixture(scope="module")
def run(request: pytest.FixtureRequest, tell: Callable[[str], None]) -> Run:
    """Every source, compiled as far as time allows."""
    forget()
    tell("asking the catalogue for its sources")
    found = sources(request.config.getoption("--every-source", False))
    forget()
    drivers.use(None)
    work = Work(tell, request.config.getoption("--nvrtc-seconds", math.inf))
    first = len(Run(found, []).usual)
    made = Run(found, compile_all(compilers.Compiler(), found, work, first))
    tell(", ".join(f"{sum(each.source.arch == arch for each in made.outcomes):,} compiled and "
                   f"{len(made.left(arch)):,} left out for {arch}" for arch in ARCHITECTURES)
         + f", in {time.monotonic() - work.start:.0f} s")
    return made


@pytest.fixture
def outcomes(run: Run) -> list[Outcome]:
    """What came of those that were compiled."""
    return run.outcomes


def test_every_source_compiles(outcomes: list[Outcome]) -> None:
    failed = [f"{each.source.name} for {each.source.arch}:\n{each.error}" for each in outcomes
              if each.figures is None]
    assert not failed, f"{len(failed)} sources do not compile\n" + "\n".join(failed[:5])


def test_every_source_is_asked_for_some_architecture(run: Run) -> None:
    counts = {arch: sum(each.arch == arch for each in run.sources) for arch in ARCHITECTURES}
    assert min(counts.values()) > 400, counts
    assert counts[ARCHITECTURES[MAIN]] > 2500, counts
    assert len(set(run.sources)) == len(run.sources)


def test_usual_sources_are_compiled(run: Run) -> None:
    """A run that has no time for `LEAST` of them has found out nothing."""
    assert len(run.usual) > 1500
    done = {outcome.source for outcome in run.outcomes}.intersection(run.usual)
    assert len(done) > LEAST
    if len(done) < len(run.usual):
        pytest.skip(f"no time for {len(run.usual) - len(done):,} of {len(run.usual):,} usual ones")


def test_nothing_is_left_out(run: Run) -> None:
    left = {arch: len(run.left(arch)) for arch in ARCHITECTURES if run.left(arch)}
    if left:
        pytest.skip(f"no time for {sum(left.values()):,} of {len(run.sources):,} sources: {left}")


def spilled(outcomes: list[Outcome], resident: bool, most: int) -> list[Outcome]:
    """Printed kernels that spill more than ``most`` bytes; ``resident``: of which kind."""
    return [each for each in outcomes
            if each.figures is not None and not each.source.name.startswith("slip_")
            and bool(RESIDENT.search(each.source.text[len(PRELUDE):])) == resident
            and each.figures.stores > most]


def lines(outcomes: list[Outcome]) -> str:
    """What a failure prints of kernels."""
    return "\n".join(f"{each.source.name} for {each.source.arch}: {each.figures}"
                     for each in outcomes)


def test_usual_kernels_spill_no_value(run: Run) -> None:
    usual = set(run.usual)
    found = [each for each in spilled(run.outcomes, False, MOST_SPILLED) if each.source in usual]
    assert not found, lines(found)


def test_no_kernel_spills_from_need(outcomes: list[Outcome]) -> None:
    """Left to itself ptxas may spill some words so that one more block is resident.

    Where a kernel is given all registers of a block, it spills none.
    """
    found = spilled(outcomes, False, MOST_SPILLED)
    far = [each for each in found if each.figures and each.figures.stores > MOST_TRADED]
    assert not far, lines(far)
    alone = [each.source._replace(text=BOUNDS.sub(r"__launch_bounds__(\1, 1)", each.source.text))
             for each in found]
    assert all(BOUNDS.search(each.source.text) for each in found), lines(found)
    needy = spilled(compile_all(compilers.Compiler(), alone), False, MOST_SPILLED)
    assert not needy, lines(needy)


def test_resident_kernels_spill_nothing(outcomes: list[Outcome]) -> None:
    found = spilled(outcomes, True, 0)
    assert not found, lines(found)


def source(name: str, body: str) -> Source:
    """A kernel over the prelude."""
    text = f'{PRELUDE}extern "C" __global__ void {name}(float* out) {{ {body} }}\n'
    return Source(text, name, (), "sm_90")


def test_what_does_not_compile_is_found_among_others() -> None:
    given = [source("first", "out[0] = 1;"), source("second", "out[0] = no_such_name;"),
             source("third", "out[1] = 2;")]
    assert [len(each) for each in batches(given)] == [3]
    first, second, third = compile_all(compilers.Compiler(), given)
    assert first.error == third.error == ""
    assert second.figures is None
    assert 'identifier "no_such_name" is undefined' in second.error


def test_an_empty_log_leaves_the_interpreters_bytes_alone() -> None:
    # NVRTC ends it by a zero; there is one bytes object of each length-one content.
    compilers.Compiler().compile(source("quiet", "out[0] = 1;").text, "quiet", (), "sm_90")
    assert bytes([32])[0] == 32


def test_spills_are_seen() -> None:
    # Values that no register file holds, each from an address of its own.
    body = ("float x[512]; for (int i = 0; i < 512; i++) x[i] = out[i * 64 + threadIdx.x]; "
            "__syncthreads(); for (int i = 0; i < 512; i++) out[i * 64] = x[i] * x[511 - i];")
    (found,) = compile_all(compilers.Compiler(), [source("large", f"\n#pragma unroll\n{body}")])
    assert isinstance(found.figures, Figures)
    assert found.figures.stores > MOST_SPILLED or found.figures.stack > 1000


def test_sources_with_macros_are_alone() -> None:
    given = [source("first", ""), Source("#define X 1\n" + source("second", "").text, "second",
                                         (), "sm_90"), source("first", "out[0] = 2;")]
    assert sorted(len(each) for each in batches(given)) == [1, 1, 1]


def test_after_its_time_a_run_begins_nothing_and_says_how_far_it_is(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc_batches, "BETWEEN", 0)
    given = [source(f"kernel{n}", "") for n in range(30)]
    lines: list[str] = []
    assert len(compile_all(Quick(), given, Work(lines.append))) == len(given)
    assert len(lines) == 2
    assert lines[0].startswith("0 of 30 sources in ")
    assert lines[0].endswith("now kernel0 for sm_90 and 23 more")
    assert compile_all(Quick(), given, Work(seconds=-1)) == []


class Quick:
    """Says of every kernel that it took one register."""

    def compile_with_log(self, source: str, name: str, options: tuple[str, ...],
                         arch: str) -> tuple[bytes, str]:
        kernels = re.findall(r"__global__ void (\w+)", source)
        return b"", "".join(
            f"Compiling entry function '{each}' for '{arch}'\n    0 bytes stack frame, 0 bytes "
            "spill stores, 0 bytes spill loads\nptxas info : Used 1 registers\n"
            for each in kernels)
