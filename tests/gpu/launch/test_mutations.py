"""What computes on the device is the printed CUDA source and nothing else.

One character changed in a kernel's arithmetic changes a result; where kernels are not run, results
are the poison of fresh memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from catalogue import SAMPLED, host, main_dtype

import slipstream as ss
from gpu.launch.everyop import outputs
from slipstream.core.catalog.table import table
from slipstream.core.dispatch.entry import VIEW
from slipstream.core.launch.cuda.modules import modules
from slipstream.core.vocab.settings import settings

Call = Callable[[str], Any]


def ramp(device: str) -> Any:
    return (ss.arange(64.0) / 16.0 - 1.5).view(8, 8).to(device)


# name: call, kernel, what its source has once at least, and the same with one character changed.
MUTATIONS: dict[str, tuple[Call, str, str, str]] = {
    "sum of two": (lambda device: ramp(device) + ramp(device) * 0.5, "add_f32",
                   "(x0 + x1)", "(x0 - x1)"),
    "softmax": (lambda device: ss.softmax(ramp(device), -1), "amax_sub_exp_sum_div_f32",
                "(x0 - v1)", "(x0 * v1)"),
    "product": (lambda device: ramp(device) @ ramp(device), "slip_product",
                "sum[i][j] = FUSED(a[i], b[j]", "sum[i][j] = FUSED(a[i], a[j]"),
    "small product": (lambda device: ss.tile(ramp(device), (3, 3)) @ ss.tile(ramp(device), (3, 1)),
                      "slip_product", "sum[i][j] = FUSED(a[i][s], b[j]",
                      "sum[i][j] = FUSED(a[i][s], a[j]"),
    "pooling": (lambda device: ss.nn.functional.max_pool2d(ramp(device).view(1, 1, 8, 8), 2),
                "slip_pool", "value > best", "value < best"),
    "indexing": (lambda device: ramp(device)[ss.tensor([1, -3]).to(device)], "slip_read",
                 "given < 0 ? given + size", "given < 0 ? given - size"),
    "random": (lambda device: ss.rand(64, device=device,
                                      generator=ss.Generator(device).manual_seed(3)),
               "slip_uniform", "(word[e] >> 8)", "(word[e] >> 9)"),
}


def is_same(call: Call) -> bool:
    """Whether a call gives on the device what it gives on the CPU."""
    found, wanted = host(call("cuda")), host(call("cpu"))
    return bool(np.allclose(found, wanted, rtol=1e-5, atol=1e-6))


@pytest.fixture
def mutate(restart: Any, tmp_path: Any, monkeypatch: Any) -> Callable[..., Any]:
    """A function that changes a kernel's source from here on; it gives how often it did."""
    monkeypatch.setattr(settings, "cache", str(tmp_path))
    changed: list[str] = []

    def begin(kernel: str, before: str, after: str) -> list[str]:
        driver = restart()
        compile_plainly = driver.compile

        def compile_changed(source: str, name: str, *more: Any) -> bytes:
            if name == kernel and before in source:
                changed.append(name)
                source = source.replace(before, after)
            return compile_plainly(source, name, *more)

        driver.compile = compile_changed
        return changed

    return begin


@pytest.mark.parametrize("name", MUTATIONS)
def test_one_character_of_a_kernel_changes_its_result(mutate: Any, name: str) -> None:
    call, kernel, before, after = MUTATIONS[name]
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 1
    changed = mutate(kernel, before, after)
    try:
        same = is_same(call)
    except IndexError:
        same = False
    assert changed == [kernel]
    assert not same


@pytest.mark.parametrize("name", MUTATIONS)
def test_unchanged_it_is_right(restart: Any, name: str) -> None:
    restart()
    assert is_same(MUTATIONS[name][0])


# -- nothing but CUDA sources --

def launched_directly() -> list[str]:
    """Ops with kernels of their own, which the host does not wait for."""
    return [name for name in SAMPLED if not table[name].compound
            and table[name].entry.kind != VIEW and table[name].entry.waits == "never"]


def poisoned(result: Any) -> bool:
    """Whether nobody wrote a result."""
    return set(host(result).tobytes()) <= {0xFF}


def test_results_are_poison_where_kernels_do_not_run(restart: Any) -> None:
    driver = restart(zero_cost=True)
    written = []
    for name in launched_directly():
        op = table[name]
        for sample in op.entry.samples():
            results = outputs(op, sample, main_dtype(op), "contiguous", "cuda")
            written += [name for each in results if not poisoned(each)]
    assert len(launched_directly()) > 100
    assert set(written) <= set(), "somebody else than a kernel wrote these"
    assert driver.calls["matmul_stand_in"] == 0
    # That of the flag for bad indices, when the card was set up.
    assert driver.calls["fill"] == 1


def test_every_kernel_is_compiled_from_its_text(restart: Any, tmp_path: Any,
                                                monkeypatch: Any) -> None:
    monkeypatch.setattr(settings, "cache", str(tmp_path))
    driver = restart()
    compiled = []
    compile_plainly = driver.compile

    def compile_noted(source: str, name: str, *more: Any) -> bytes:
        compiled.append((source, name, *more))
        return compile_plainly(source, name, *more)

    driver.compile = compile_noted
    for call, _, _, _ in MUTATIONS.values():
        call("cuda")
    ss.cuda.synchronize()
    assert len(compiled) == driver.calls["load_module"] == len(modules.functions)
    for source, name, *_ in compiled:
        assert name in source
        assert "__global__" in source


@pytest.mark.parametrize(("model", "architecture"), [("T4", "sm_75"), ("H100", "sm_90")])
def test_kernels_are_compiled_for_the_card(restart: Any, tmp_path: Any, monkeypatch: Any,
                                           model: str, architecture: str) -> None:
    monkeypatch.setattr(settings, "cache", str(tmp_path))
    driver = restart(model=model)
    asked = []
    compile_plainly = driver.compile
    monkeypatch.setattr(driver, "compile", lambda source, name, options, arch: (
        asked.append(arch), compile_plainly(source, name, options, arch))[1])
    ss.ones(4, device="cuda") + 1.0
    assert set(asked) == {architecture}
    assert ss.cuda.get_arch_list() == [architecture]
