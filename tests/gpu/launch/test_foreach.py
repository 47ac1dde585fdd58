"""Ops on lists on the device: the same values, and one launch."""

from __future__ import annotations

import pytest

import slipstream as ss
from cpu.core.test_foreach import arguments_of, check, tensors
from gpu.launch.test_lists import launches


@pytest.mark.parametrize("name", ["add", "div", "lerp", "addcdiv", "sqrt", "neg", "clamp_min"])
def test_functions(name: str) -> None:
    unary = name in ("sqrt", "neg")
    for arguments in [()] if unary else arguments_of(name, "cuda"):
        check(name, arguments, "cuda")


def test_dtypes_are_mixed() -> None:
    dtypes = (None, ss.float64, ss.bfloat16, ss.float16)
    check("mul", (2.0,), "cuda", dtypes)


def test_it_is_one_launch() -> None:
    mine, other = tensors(1, "cuda") * 40, tensors(2, "cuda") * 40
    mine = [each.clone() for each in mine]
    for call in (lambda: ss._foreach_add_(mine, other, alpha=0.5), lambda: ss._foreach_exp(mine),
                 lambda: ss._foreach_zero_(mine), lambda: ss._foreach_copy_(mine, other)):
        call()
        assert launches(call) == 1
