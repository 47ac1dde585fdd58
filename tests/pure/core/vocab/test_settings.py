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


@pytest.mark.parametrize(("ours", "theirs", "blocking"), [
    ("", "", False), ("1", "", True), ("", "1", True), ("0", "1", False), ("1", "0", True),
    (" 1 ", "0", True), ("", "0", False)])
def test_waiting_after_every_launch(ours: str, theirs: str, blocking: bool,
                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPSTREAM_LAUNCH_BLOCKING", ours)
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", theirs)
    assert settings._from_environment().blocking is blocking


@pytest.mark.parametrize("wrong", ["yes", "2", "true"])
def test_what_is_no_flag_is_refused(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPSTREAM_LAUNCH_BLOCKING", wrong)
    with pytest.raises(ValueError, match=f"LAUNCH_BLOCKING={wrong} .* has to be 0 or 1, 0 by"):
        settings._from_environment()
