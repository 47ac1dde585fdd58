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
# Bytes that kernels printed from formulas may spill: predicates and a word of an address, but no
# value.
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


def spilled(outcomes: list[Outcome], resident: bool, most: int) -> list[str]:
    """Printed kernels that spill more than ``most`` bytes; ``resident``: of which kind."""
    return [f"{each.source.name} for {each.source.arch}: {each.figures}" for each in outcomes
            if each.figures is not None and not each.source.name.startswith("slip_")
            and bool(RESIDENT.search(each.source.text[len(PRELUDE):])) == resident
            and each.figures.stores > most]


def test_printed_kernels_spill_no_value(outcomes: list[Outcome]) -> None:
    found = spilled(outcomes, False, MOST_SPILLED)
    assert not found, "\n".join(found)


def test_resident_kernels_spill_nothing(outcomes: list[Outcome]) -> None:
    found = spilled(outcomes, True, 0)
    assert not found, "\n".join(found)


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
