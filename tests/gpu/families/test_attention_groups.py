"""Attention by groups of warps (sm_90), forward and backward, against NumPy in double precision."""

from __future__ import annotations

from typing import Any

import pytest
from catalogue import host

import slipstream as ss
from gpu.families.attention_cases import HALVES, Case
from slipstream.core.catalog.table import ops
from slipstream.core.dispatch.plans import drop_plans
from slipstream.core.kernels.cuda import attention as tiles


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Groups of warps, two of them a block, have however few rows; asks for the blocks' warps."""
    def forget() -> None:
        for op in (ops.attention, ops.attention_slopes):
            drop_plans(op)

    def used() -> list[int]:
        (forward,), (backward,) = [list(op.plans.values()) for op in (ops.attention,
                                                                      ops.attention_slopes)]
        launches = forward.binding, *(stage.launch for stage in backward.binding.stages)
        if not all("#define GROUPED 1" in launch.code.source for launch in launches):
            return []
        return [launch.shape[1][0] // 32 for launch in launches]

    monkeypatch.setattr(tiles, "LEAST_GROUPED", 1)
    monkeypatch.setattr(tiles, "FEW", 1 << 20)
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


# So many steps that tiles are there that replaced others, which had replaced the first.
LONG = {
    "keys": (1, 1, 1, 70, 800, 64, 64), "queries": (1, 1, 1, 330, 70, 64, 64),
    "wide keys": (1, 1, 1, 130, 530, 128, 128), "wide queries": (1, 2, 1, 330, 130, 128, 128),
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", LONG)
def test_groups_of_warps_go_many_steps(name: str, causal: bool, groups: Any) -> None:
    Case(LONG[name], ss.bfloat16, is_causal=causal).check()
    assert groups()


def test_groups_of_warps_have_blocks_of_their_own_where_there_are_few(
        groups: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Case(GROUP_SIZES["wide"], ss.bfloat16).check()
    assert set(groups()) == {8}
    monkeypatch.setattr(tiles, "FEW", 2)
    for op in (ops.attention, ops.attention_slopes):
        drop_plans(op)
    Case(GROUP_SIZES["wide"], ss.bfloat16).check()
    assert set(groups()) == {4}


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
