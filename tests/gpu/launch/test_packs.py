"""With a pack the first run of its ops compiles nothing, and gives the same results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import slipstream as ss
from gpu.simulation import forget
from slipstream import optim
from slipstream.core.api.cuda import packing
from slipstream.core.catalog.table import table
from slipstream.core.launch.cuda.modules import modules
from slipstream.core.native.simulated import SimulatedDriver
from slipstream.core.vocab.settings import settings

NAMES = ["mul", "softmax", "sum"]
ELEMENTS = np.random.default_rng(5).uniform(-1, 1, (3, 4)).astype(np.float32)


def train(device: str, dtype: Any) -> Any:
    """Two steps on rows of weights that broadcast, as the samples of `mul` have them."""
    weight = ss.tensor(ELEMENTS[0]).to(dtype).to(device).requires_grad_()
    x = ss.tensor(ELEMENTS).to(dtype).to(device)
    optimizer = optim.SGD([weight], lr=0.5, momentum=0.9)
    for _ in range(2):
        optimizer.zero_grad()
        (x * weight).softmax(-1).backward(x)
        optimizer.step()
    return weight.detach().cpu()


@pytest.fixture
def packed(restart: Any, tmp_path: Any, monkeypatch: Any) -> Iterator[Any]:
    """A pack in a folder of its own, and a card that has no other kernels."""
    cache = settings.cache
    monkeypatch.setattr(packing, "SCALES", (1,))
    forget()
    built = packing.build(["sm_90"], tmp_path / "packs" / "some.pack", names=NAMES,
                          compiler=SimulatedDriver(), exercise=train)
    assert not built.failed
    forget()
    settings.cache = str(tmp_path / "cache")
    monkeypatch.setattr(settings, "packs", str(tmp_path / "packs"))
    yield restart()
    settings.cache = cache


def test_the_first_run_compiles_nothing(packed: Any) -> None:
    before = modules.packed
    for name in NAMES:
        packing.run_samples(table[name], "cuda")
    for dtype in packing.DTYPES:
        near = {"rtol": 0.02} if dtype is not ss.float32 else {"rtol": 1e-5}
        found, wanted = [train(device, dtype).float().numpy() for device in ("cuda", "cpu")]
        np.testing.assert_allclose(found, wanted, **near)
    assert packed.statistics()["compilations"] == 0
    assert modules.packed - before > 20


def test_what_is_not_in_it_is_compiled(packed: Any) -> None:
    x = ss.tensor(ELEMENTS).to("cuda")
    np.testing.assert_allclose((x.cosh()).cpu().numpy(), np.cosh(ELEMENTS), rtol=1e-6)
    assert packed.statistics()["compilations"] == 1
