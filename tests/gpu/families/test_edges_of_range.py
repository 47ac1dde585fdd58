"""Numbers at the edges of dtypes and draws: the device answers, and refuses, as the CPU does."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import slipstream as ss
import slipstream.nn.functional as functional
from gpu.families.sides import check

NAN = math.nan


def refused(call: Callable[[str], Any], text: str) -> None:
    for device in ("cpu", "cuda"):
        with pytest.raises(RuntimeError, match=text):
            # What a kernel finds out is raised where the result is asked for.
            call(device).tolist()


@pytest.mark.parametrize(("value", "dtype"), [
    (300, ss.uint8), (math.inf, ss.int64), (NAN, ss.int32), (1e6, ss.float16)])
def test_a_number_beyond_the_dtype_fills_nothing(value: Any, dtype: Any) -> None:
    refused(lambda device: ss.full((2,), value, dtype=dtype, device=device), "without overflow")
    refused(lambda device: functional.pad(ss.zeros(2, dtype=dtype, device=device), (1, 0),
                                          value=value), "without overflow")
    refused(lambda device: ss.linspace(0, value, 4, dtype=dtype, device=device), "without overflow")


def test_searching() -> None:
    table, given = [1.0, 2.0, NAN, NAN], [NAN, 0.1, 1.5, 2.0, 5.0]
    for right in (False, True):
        check(lambda device, r=right: [
            ss.searchsorted(ss.tensor([0.1], device=device), 0.1, right=r),
            ss.searchsorted(ss.tensor([0.1], device=device),
                            ss.tensor(0.1, dtype=ss.float64, device=device), right=r),
            ss.searchsorted(ss.tensor(table, device=device), ss.tensor(given, device=device),
                            right=r)])


@pytest.mark.parametrize("weights", [[0, 5e-324], [0, 1e-310], [1e-310, 0], [0, 1e308, 5e-324, 0],
                                     [0.25, 1e-300, 3.0]])
def test_draws(weights: Any) -> None:
    some = sum(weight > 0 for weight in weights)

    def call(device: str) -> Any:
        given = ss.tensor(weights, dtype=ss.float64, device=device)
        generator = ss.Generator(device=device).manual_seed(7)
        return [given.multinomial(9, True, generator=generator),
                given.multinomial(some, generator=generator)]

    for drawn in check(call):
        assert all(weights[place] > 0 for place in drawn.tolist())


def test_draws_that_have_no_answer() -> None:
    refused(lambda device: ss.tensor([1e308, 1e308], dtype=ss.float64, device=device).multinomial(
        4, True), "not finite")
    refused(lambda device: ss.zeros(2, 0, device=device).multinomial(2, True), "no categories")


def test_parameters_of_draws() -> None:
    refused(lambda device: ss.zeros(2, device=device).uniform_(-3e38, 3e38), "to - from")
    refused(lambda device: ss.zeros(2, device=device).normal_(0, NAN), "std >= 0")
    refused(lambda device: ss.normal(ss.zeros(2, device=device), -1.0), "std >= 0")
