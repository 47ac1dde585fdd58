"""The settings that come from the environment."""

from __future__ import annotations

import pytest

from slipstream.core.vocab import settings


@pytest.mark.parametrize(("said", "driver"), [
    (None, "auto"), ("", "auto"), ("sim", "sim"), (" real ", "real")])
def test_the_driver(said: str | None, driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if said is None:
        monkeypatch.delenv("SLIPSTREAM_DRIVER", raising=False)
    else:
        monkeypatch.setenv("SLIPSTREAM_DRIVER", said)
    assert settings._from_environment().driver == driver


def test_a_driver_that_is_not_known_is_said_with_those_that_are(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPSTREAM_DRIVER", "simm")
    with pytest.raises(ValueError, match=r"=simm .* there are auto, real and sim$"):
        settings._from_environment()


def test_the_file_of_cupti(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPSTREAM_CUPTI", "/there/libcupti.so.13")
    assert settings._from_environment().cupti == "/there/libcupti.so.13"
