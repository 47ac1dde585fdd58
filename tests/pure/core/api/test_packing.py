"""Packs of the catalogue's common kernels: found by recording, compiled by any compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gpu.simulation import forget
from slipstream.cli.kernels import exercise_optimizers
from slipstream.core.api.cuda import packing
from slipstream.core.catalog.table import table
from slipstream.core.launch.cuda.modules import modules
from slipstream.core.launch.cuda.packs import Pack
from slipstream.core.native.driver import CompileError, DriverError
from slipstream.core.native.drivers import drivers
from slipstream.core.native.recording import RecordingDriver, capability_of
from slipstream.core.vocab.settings import settings

FEW = ["add", "softmax", "layer_norm", "cumsum"]


class Compiler:
    """Compiles to the name; ``bad``: names that it refuses."""

    name = "recording"

    def __init__(self, bad=()):
        self.asked = []
        self.bad = bad

    def compiler_version(self):
        return "none"

    def compile(self, source, name, options, arch):
        self.asked.append((name, arch))
        if name in self.bad:
            raise CompileError(name, "no")
        return name.encode()


class Counting(RecordingDriver):
    """As the recording one, but its images are looked up like any driver's."""

    keeps = True


@pytest.fixture(autouse=True)
def ground(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "cache", str(tmp_path / "cache"))
    monkeypatch.setattr(settings, "packs", "")
    forget()
    yield
    forget()
    drivers.use(None)


def test_with_a_pack_the_first_run_compiles_nothing(tmp_path, monkeypatch):
    """The whole catalogue and all optimizers: whatever a run asks for is in the pack."""
    monkeypatch.setattr(packing, "SCALES", (1,))
    built = packing.build(["sm_90"], tmp_path / "all.pack", compiler=Compiler(),
                          exercise=exercise_optimizers)
    assert built.kernels == built.compiled > 2000
    forget()
    monkeypatch.setattr(settings, "packs", str(tmp_path))
    monkeypatch.setattr(settings, "memo", False)
    driver = Counting(("sm_90",))
    drivers.use(driver)
    before = modules.packed
    for name in sorted(table):
        packing.run_samples(table[name], "cuda:0")
    for dtype in packing.DTYPES:
        exercise_optimizers("cuda:0", dtype)
    assert driver.counts["kernel_launches"] > 5000
    assert driver.counts["compilations"] == 0
    assert modules.packed - before == built.kernels


SOURCES = """
import hashlib
from slipstream.core.api.cuda.packing import common_sources, table
state = hashlib.sha256()
for source in common_sources(("sm_80",), sorted(table)[::8]):
    state.update(repr(source).encode())
print(state.hexdigest())
"""


def test_the_same_kernels_in_every_process():
    found = {subprocess.run([sys.executable, "-c", SOURCES], capture_output=True, text=True,
                            check=True).stdout for _ in range(2)}
    assert len(found) == 1


def test_gradients_dtypes_and_architectures_are_among_them():
    sources = packing.common_sources(("sm_75", "sm_90"), ["softmax"])
    assert {each.arch for each in sources} == {"sm_75", "sm_90"}
    names = {each.name for each in sources}
    # Results of 16 bits take primitives that are as near as those are.
    for steps in ("exp_sum_div_f32", "exp16_sum_reciprocal_mul_bf16",
                  "exp16_sum_reciprocal_mul_f16"):
        short = steps.rpartition("_")[2]
        assert f"amax_sub_{steps}" in names
        assert f"mul_sum_mul_sub_{short}" in names or f"mul_sum_sub_mul_{short}" in names
    texts = [{each.text for each in sources if each.arch == arch} for arch in ("sm_75", "sm_90")]
    assert len(texts[0]) > 6
    assert texts[0] & texts[1]


def test_what_is_known_is_not_compiled_again(tmp_path):
    path = tmp_path / "a.pack"
    first, second, third = Compiler(), Compiler(), Compiler()
    built = packing.build(["sm_90"], path, compiler=first, names=FEW)
    assert built.compiled == built.kernels == len(first.asked)
    forget()
    again = packing.build(["sm_90"], path, compiler=second, names=FEW)
    assert (again.kernels, again.compiled, second.asked) == (built.kernels, 0, [])
    forget()
    more = packing.build(["sm_80"], path, compiler=third, names=FEW)
    assert {arch for _, arch in third.asked} == {"sm_80"}
    assert more.kernels == built.kernels + more.compiled
    assert {each.arch for each in Pack(path).kernels()} == {"sm_80", "sm_90"}


def test_a_damaged_kernel_of_the_pack_is_compiled_again(tmp_path):
    path = tmp_path / "a.pack"
    built = packing.build(["sm_90"], path, compiler=Compiler(), names=FEW)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    forget()
    again = packing.build(["sm_90"], path, compiler=Compiler(), names=FEW)
    assert (again.kernels, again.compiled) == (built.kernels, 1)
    assert len(list(Pack(path).kernels())) == built.kernels


def test_what_does_not_compile_is_left_out(tmp_path):
    seen = []
    built = packing.build(["sm_90"], tmp_path / "a.pack", 2,
                          lambda done, total, name: seen.append((done, total)),
                          compiler=Compiler(["add_f32"]), names=FEW)
    assert built.failed
    assert {each.name for each in built.failed} == {"add_f32"}
    assert built.kernels == built.compiled == seen[-1][1] - len(built.failed)
    assert [done for done, _ in seen] == list(range(seen[-1][1] + 1))


def test_a_process_with_a_device_does_not_record():
    drivers.use(Counting(("sm_90",)))
    packing.run_samples(table["neg"], "cuda:0")
    with pytest.raises(RuntimeError, match="in a process of their own"):
        packing.common_sources(("sm_90",), ["add"])


def test_after_recording_no_device_computes():
    packing.common_sources(("sm_90",), ["neg"])
    with pytest.raises(DriverError, match="has recorded kernels for a pack"):
        packing.tensor([1.0], device="cuda")


@pytest.mark.parametrize("name", ["90", "sm_", "sm_7", "sm_70", "sm_x", "compute_90", ""])
def test_what_is_no_architecture(name):
    with pytest.raises(ValueError, match="no architecture"):
        capability_of(name)


def test_capabilities():
    assert [capability_of(each) for each in ("sm_75", "sm_90", "sm_100", "sm_121")] == [
        (7, 5), (9, 0), (10, 0), (12, 1)]
