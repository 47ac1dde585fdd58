"""A small GPT, the benchmarks' own: it learns, as on the host, and its steps are replayed."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from catalogue import host

import slipstream as ss
from slipstream.core.launch.door import backend_of
from slipstream.core.vocab.devices import Device

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT))
gpt = importlib.import_module("benchmarks.gpu.gpt")
curves = importlib.import_module("benchmarks.gpu.curves")
WORKER = ROOT / "benchmarks" / "gpu" / "first_worker.py"
# Of a step of two layers; what `Chains.mode` is where nothing is joined.
LAUNCHES, NEVER = 90, 0
COUNTED = ("captured", "allocations", "compilations", "copies")
TEXT = gpt.Size(256, 32, 16, 2, 1, 2, 8)


def test_it_learns() -> None:
    step = gpt.eager(ss, gpt.TINY, "cuda")
    first = step().item()
    for _ in range(60):
        last = step()
    assert last.item() < 0.8 * first


def test_its_gradients_are_those_of_the_host() -> None:
    found = []
    for device in ("cpu", "cuda"):
        model = gpt.make(ss, gpt.TINY, device)
        curves.put(ss, model, curves.weights(model))
        tokens = ss.tensor(np.random.RandomState(0).randint(0, 32, (2, 8))).to(device)
        loss = model(tokens, tokens)
        loss.backward()
        found.append({"loss": host(loss.detach()),
                      **{name: host(each.grad) for name, each in model.named_parameters()}})
    ours = found.pop()
    for name, wanted in found[0].items():
        scale = float(np.abs(wanted).max())
        # Keys' biases have none: what is left is rounding.
        np.testing.assert_allclose(ours[name], wanted, rtol=0, atol=2e-6 + 2e-5 * scale,
                                   err_msg=name)


def stats() -> dict[str, int]:
    """What the runtime and the driver have counted."""
    found = {**ss.cuda.launch_stats(), **ss.cuda.driver_stats()}
    return {name: value for name, value in found.items() if isinstance(value, int)}


def test_its_steps_are_replayed(restart: Any) -> None:
    restart(zero_cost=True, race=False, poison=False)
    step = gpt.eager(ss, gpt.TINY, "cuda")
    for _ in range(100):
        step()
    # No wait in between: it would cut windows where a loop of steps does not.
    before = stats()
    for _ in range(60):
        step()
    after = stats()
    found = {name: after[name] - before.get(name, 0) for name in after}
    assert {name: found.get(name, 0) for name in COUNTED} == dict.fromkeys(COUNTED, 0)
    assert found["replayed"] >= 0.99 * found["launches"]


def test_how_many_launches_a_step_is(monkeypatch: Any) -> None:
    card: Any = backend_of(Device("cuda", 0))
    # Which neighbours are joined depends on what came often enough before.
    monkeypatch.setattr(card.chains, "mode", NEVER)
    step = gpt.eager(ss, gpt.TINY, "cuda")
    step()
    ss.cuda.synchronize()
    before = stats()["launches"]
    step()
    ss.cuda.synchronize()
    assert stats()["launches"] - before == LAUNCHES


def ops_of(function: Any) -> Counter[str]:
    """How often each op was called, those inside other calls too."""
    def walk(calls: list[Any]) -> None:
        for call in calls:
            found[call.op] += 1
            walk(call.inner)

    found: Counter[str] = Counter()
    walk(ss.explain(function).calls)
    return found


def test_each_weight_is_cast_once_a_step() -> None:
    model = gpt.make(ss, gpt.TINY)
    tokens = gpt.batch_of(ss, gpt.TINY)

    def forward() -> Any:
        with ss.autocast("cuda", dtype=ss.bfloat16):
            return model(tokens), model(tokens)

    forward()
    found = ops_of(forward)
    products = 4 * gpt.TINY.layers
    assert found["linear"] == 2 * (products + 1)
    # What two norms of a layer and the last one give, twice.  Weight and bias of every product and
    # the weight of the last are a list, which is no call.
    assert found["to_dtype"] == 2 * (2 * gpt.TINY.layers + 1)
    # Heads are split and joined without a copy.
    assert not found["contiguous"] + found["clone"] + found["copy"]


@pytest.mark.parametrize("low", [False, True])
def test_curves_are_those_of_the_host(low: bool) -> None:
    found = []
    for device in ("cuda", "cpu"):
        model = gpt.make(ss, TEXT, device)
        curves.put(ss, model, curves.weights(model))
        found.append(curves.trained(ss, model, curves.batches(TEXT, 6), low))
    ours, wanted = found
    np.testing.assert_allclose(ours, wanted, rtol=2e-3 if low else 1e-6)
    assert ours[-1] < ours[0]
    assert curves.apart(ours, wanted, 6) == abs(ours[5] - wanted[5]) / wanted[5]


def test_batches_are_the_same_at_every_call() -> None:
    first, second = [list(curves.batches(TEXT, 3)) for _ in range(2)]
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one[0][:, 1:], one[1][:, :-1])
    assert bytes(curves.documentation()[:4000].astype(np.uint8)).decode(errors="ignore").strip()


def first_step(folder: Path) -> dict[str, Any]:
    """What a new process says of its first step."""
    environment = {**os.environ, "SLIPSTREAM_DRIVER": "sim", "SLIPSTREAM_CACHE": str(folder),
                   "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path])}
    done = subprocess.run([sys.executable, str(WORKER), "slipstream", "--tiny"], env=environment,
                          capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(os.environ.get("SLIPSTREAM_DRIVER") == "real", reason="the simulated driver's")
def test_a_full_cache_compiles_nothing(tmp_path: Path) -> None:
    empty, full = first_step(tmp_path), first_step(tmp_path)
    assert empty["compilations"] > 0
    assert full["compilations"] == 0
    assert full["losses"][1] < full["losses"][0]
