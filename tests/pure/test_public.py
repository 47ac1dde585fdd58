"""What users see of the package: names that exist, each with a docstring."""

from __future__ import annotations

import inspect

import pytest

import slipstream as ss

NAMES = sorted(getattr(ss, "__all__", ()))
METHODS = sorted(name for name in dir(getattr(ss, "Tensor", object)) if not name.startswith("_"))


def is_documented(value: object) -> bool:
    """Tell whether a function or class says what it does; other values need not."""
    speaks = inspect.isroutine(value) or inspect.isclass(value) or callable(value)
    return not speaks or bool((inspect.getdoc(value) or "").strip())


@pytest.mark.parametrize("name", NAMES)
def test_exported_names_exist_and_are_documented(name: str) -> None:
    assert is_documented(getattr(ss, name))


def test_methods_are_documented() -> None:
    silent = [name for name in METHODS if not is_documented(getattr(ss.Tensor, name))]
    assert silent == []


def test_there_is_something_to_check() -> None:
    assert {"Tensor", "tensor", "add"} <= set(NAMES)
