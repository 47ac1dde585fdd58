"""A runner for formulas: trace, evaluate with NumPy, and put the dims back in order."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from core.fuse.running import argument, bind

from slipstream.core.fuse.trace import trace
from slipstream.core.vocab.dtypes import DType


@pytest.fixture(scope="session")
def run() -> Callable[..., Any]:
    """run(formula, *arrays and numbers, outputs=dtypes, **static arguments) -> results."""
    def call(formula: Callable[..., Any], *values: Any, outputs: list[DType] | None = None,
             **static: Any) -> Any:
        named = dict(zip(inspect.signature(formula).parameters, values, strict=False))
        arguments = {name: argument(value) for name, value in named.items()} | static
        traced = trace(formula, arguments, outputs)
        results = bind(traced, named)
        return results[0] if traced.single else results
    return call
