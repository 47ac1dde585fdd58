"""What `slipstream doctor` says of CUDA: what is there, and one line for what is amiss."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

import slipstream as ss
from slipstream.cli import doctor
from slipstream.core.api.cuda import installation, keeping
from slipstream.core.native.driver import DriverError
from slipstream.core.native.drivers import drivers
from slipstream.core.vocab import optional
from slipstream.core.vocab.settings import settings


def test_the_simulated_cards_are_told(restart: Any) -> None:
    restart(model="A100", devices=3, memory=2 << 30)
    found = doctor.report()["gpu"]
    assert (found["driver"], len(found["cards"]), found["faults"]) == ("simulated", 3, [])
    card = found["cards"][0]
    assert "A100" in card["name"]
    assert (card["capability"], card["memory_gib"]) == ([8, 0], 2.0)
    assert not ss.cuda.is_initialized()
    text = doctor.as_text(doctor.report())
    for words in ("driver ", "simulated, CUDA ", "card 2", "A100", "2.0 GiB", "capability 8.0",
                  "kept, "):
        assert words in text
    assert "missing: lib" not in text


def test_what_times_kernels_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation.opened, "known", None)
    monkeypatch.setattr(settings, "cupti", "/nowhere/libcupti.so")
    text = installation.profiling()
    assert text.startswith("none, profiles time kernels by events: CUPTI is not found at /nowhere")
    found = installation.installation() | {"cupti": text}
    assert ("CUPTI", text) in doctor.gpu_rows(found)
    library = SimpleNamespace(version=130001, path="/there/libcupti.so.13")
    monkeypatch.setattr(installation.opened, "library", lambda: library)
    assert installation.profiling() == "13.0, /there/libcupti.so.13"


def test_kept_kernels_are_counted(restart: Any, tmp_path: Any,
                                  monkeypatch: pytest.MonkeyPatch) -> None:
    restart()
    monkeypatch.setattr(installation, "folder", lambda: tmp_path)
    monkeypatch.setattr(installation, "kept_files", lambda: [(0.0, 3 << 20, tmp_path)] * 2)
    assert installation.cache() == {"folder": str(tmp_path), "kernels": 2, "mib": 6.0}


@pytest.mark.parametrize("name", ["scaled", "E3ES1_2E", "slip_global_x1"])
def test_kept_kernels_have_their_names(name: str, restart: Any, tmp_path: Any,
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    restart()
    monkeypatch.setattr(settings, "cache", str(tmp_path))
    kernel = ss.cuda.kernel(f"__global__ void {name}(float *x) {{ x[threadIdx.x] *= 2; }}")
    kernel(ss.ones(4, device="cuda"), grid=1, block=4)
    assert name in [each.name for each in keeping.kept_kernels()]


def test_what_is_too_old_is_said_with_the_mend() -> None:
    old = {"name": "Tesla V100", "capability": [7, 0]}
    new = {"name": "NVIDIA H100", "capability": [9, 0]}
    assert installation.too_old(13000, [new]) == []
    driver, card = installation.too_old(12040, [new, old])
    assert "CUDA 12.4" in driver
    assert "install NVIDIA's driver, 580" in driver
    assert card.startswith("card 1, Tesla V100, is too old")
    assert "7.5" in card


@pytest.mark.parametrize(("failure", "mend"), [
    (ImportError("No module named 'cuda'"), "pip install -e '.[cuda]'"),
    (OSError("libcuda.so.1: cannot open"), "install NVIDIA's driver, 580 or newer"),
    (DriverError("cuInit", "NO_DEVICE"), "CUDA_VISIBLE_DEVICES"),
    (DriverError("cuInit", "UNKNOWN", "strange"), "strange")])
def test_what_is_missing_is_said_with_the_mend(failure: Exception, mend: str,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> Any:
        raise failure

    before = drivers.found
    monkeypatch.setattr(optional, "load", load)
    monkeypatch.setattr("slipstream.core.vocab.settings.settings.driver", "real")
    try:
        drivers.use(None)
        assert not drivers.available()
        assert mend in drivers.missing + drivers.mend
        with pytest.raises(RuntimeError, match="CUDA is not available"):
            drivers.current()
        found = installation.installation()
        assert found["driver"] is None
        assert found["cards"] == []
        (fault,) = found["faults"]
        assert mend in fault
        assert "\n" not in fault
    finally:
        drivers.use(before)


def test_the_report_is_plain_data(capsys: pytest.CaptureFixture[str]) -> None:
    text = json.dumps(doctor.report())
    assert json.loads(text)["gpu"]["cache"]["folder"]
    assert capsys.readouterr().out == ""


def test_the_version_is_the_drivers():
    number = ss.cuda.driver.driver_version()
    assert ss.version.cuda == f"{number // 1000}.{number % 1000 // 10}"
