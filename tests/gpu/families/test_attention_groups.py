"""Attention by groups of warps (sm_90), forward and backward, against NumPy in double precision."""

from __future__ import annotations

from typing import Any

import pytest
from catalogue import host

import slipstream as ss
from gpu.families.attention_cases import HALVES, Case
from slipstream.core.catalog.table import ops
from slipstream.core.kernels.cuda import attention as tiles


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Groups of warps have however few rows there are; asks whether they were used."""
    def forget() -> None:
        for op in (ops.attention, ops.attention_slopes):
            op.plans.clear()

    def used() -> bool:
        (forward,), (backward,) = [list(op.plans.values()) for op in (ops.attention,
                                                                      ops.attention_slopes)]
        launches = forward.binding, *backward.kernel.launches
        return all("#define GROUPED 1" in launch.code.source for launch in launches)

    monkeypatch.setattr(tiles, "LEAST_GROUPED", 1)
    forget()
    yield used
    forget()


GROUP_SIZES = {
    "whole": (1, 1, 1, 128, 192, 64, 64), "ragged": (2, 2, 2, 70, 90, 64, 64),
    "groups": (1, 4, 2, 33, 130, 50, 64), "wide": (1, 2, 1, 140, 100, 128, 128),
    "odd": (1, 1, 1, 65, 97, 119, 128), "one query": (1, 1, 1, 1, 75, 64, 64),
}


@pytest.mark.parametrize("facts", [{}, {"is_causal": True}, {"scale": 8.0}],
                         ids=["plain", "causal", "far from zero"])
@pytest.mark.parametrize("dtype", HALVES, ids=lambda each: each.name)
@pytest.mark.parametrize("name", GROUP_SIZES)
def test_groups_of_warps(name: str, dtype: Any, facts: Any, groups: Any) -> None:
    Case(GROUP_SIZES[name], dtype, **facts).check()
    assert groups()


@pytest.mark.parametrize("keys", [88, 91])
def test_groups_of_warps_drop_the_same_forward_and_backward(keys: int, groups: Any) -> None:
    case = Case((1, 4, 2, 70, keys, 64, 64), ss.bfloat16, dropout_p=0.3)
    ss.manual_seed(11)
    drawn = ops.bernoulli_mask.call((ss.empty(1, 4, 70, keys, device="cuda"), 0.7), None)
    ss.manual_seed(11)
    case.check(kept=host(drawn) / 0.7)
    assert groups()


def test_groups_of_warps_are_of_one_architecture_alone(groups: Any, restart: Any) -> None:
    restart(model="A100")
    Case(GROUP_SIZES["whole"], ss.bfloat16).check()
    assert not groups()
