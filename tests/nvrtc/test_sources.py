"""Every kernel source of the catalogue is CUDA C++ to NVIDIA's compiler, and keeps to registers."""

from __future__ import annotations

import re

import pytest

from gpu.simulation import forget
from nvrtc.asking import ARCHITECTURES, sources
from nvrtc.batches import Figures, Outcome, batches, compile_all
from slipstream.core.kernels.cuda.prelude import PRELUDE
from slipstream.core.native.drivers import drivers
from slipstream.core.native.recording import Source

compilers = pytest.importorskip("slipstream.core.native.real.compiler")
# Of kernels that are printed from formulas: predicates and a word of an address may be spilled,
# but no value; nothing at all where a schedule wants several blocks on a processor.
MOST_SPILLED = 8
RESIDENT = re.compile(r"__launch_bounds__\(\d+, [2-9]\)")


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> list[Outcome]:
    """Every source, compiled."""
    forget()
    found = sources(request.config.getoption("--every-source", False))
    forget()
    drivers.use(None)
    return compile_all(compilers.Compiler(), found)


def test_every_source_compiles(outcomes: list[Outcome]) -> None:
    failed = [f"{each.source.name} for {each.source.arch}:\n{each.error}" for each in outcomes
              if each.figures is None]
    assert not failed, f"{len(failed)} sources do not compile\n" + "\n".join(failed[:5])
    counts = {arch: sum(each.source.arch == arch for each in outcomes) for arch in ARCHITECTURES}
    assert min(counts.values()) > 1500
    print(f"\n{counts}")


def test_printed_kernels_spill_no_value(outcomes: list[Outcome]) -> None:
    found = [f"{each.source.name} for {each.source.arch}: {each.figures}" for each in outcomes
             if each.figures is not None and not each.source.name.startswith("slip_")
             and each.figures.stores > allowed(each.source)]
    assert not found, "\n".join(found)


def allowed(source: Source) -> int:
    """Bytes that a kernel may spill."""
    return 0 if RESIDENT.search(source.text[len(PRELUDE):]) else MOST_SPILLED


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
