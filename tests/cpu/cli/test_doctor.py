"""`slipstream doctor` and `slipstream --version`."""

from __future__ import annotations

import json

import pytest

import slipstream as ss
from slipstream.cli import doctor, main


def lines_of(capsys):
    assert main(["doctor"]) == 0
    return capsys.readouterr().out.splitlines()


def test_the_version(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"slipstream {ss.__version__}\n"


def test_a_machine_without_a_card(capsys, monkeypatch):
    monkeypatch.setattr(doctor.settings, "driver", "auto")
    monkeypatch.setattr(doctor.ss.cuda, "is_available", lambda: False)
    monkeypatch.setattr(doctor, "version_of", lambda name: None)
    monkeypatch.setattr(doctor, "find_library", lambda name: None)
    lines = lines_of(capsys)
    assert [line.split(maxsplit=1)[1] for line in lines if line.startswith("driver ")] == [
        "real (usable: no)"]
    for name in ("cuda-bindings", "libcuda", "libnvrtc", "libcublasLt"):
        assert any(line.split() == [name, "not", "found"] for line in lines)
        (mend,) = [line for line in lines if line.startswith(f"missing: {name} ")]
        assert "install" in mend
    assert sum("pip install -e '.[cuda]'" in line for line in lines) == 3


@pytest.mark.parametrize("usable", [True, False])
def test_the_simulated_driver(capsys, monkeypatch, usable):
    monkeypatch.setattr(doctor.settings, "driver", "sim")
    monkeypatch.setattr(doctor.ss.cuda, "is_available", lambda: usable)
    text = "\n".join(lines_of(capsys))
    assert f"sim (usable: {'yes' if usable else 'no'})" in text
    assert "libcuda" not in text
    assert ("missing: the simulated driver's C++ compiler" in text) is not usable


def test_the_report_as_json(capsys):
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["driver"]) == {"kind", "usable"}
    assert found["core"]["modules_compiled"] <= found["core"]["modules"]
    sources = {path.with_suffix(".py") for path in doctor.PACKAGE.rglob("*.pxd")}
    assert found["core"]["modules"] == sum(path.exists() for path in sources)
