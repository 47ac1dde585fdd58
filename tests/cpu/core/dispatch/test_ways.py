"""Calls that are told by the addresses of what they are given, and what nodes keep of a plan."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import slipstream as ss
from slipstream.core.catalog.table import ops
from slipstream.core.dispatch import plans
from slipstream.core.dispatch.op import Op, drop_plans

COMPILED = not inspect.isfunction(Op.call)


def ways(op: Op) -> list[object]:
    """What the op's table holds."""
    return [way for way in op.ways.table if way is not None]


def test_equal_arguments_at_other_addresses_are_the_same_call() -> None:
    x = ss.arange(6).reshape(2, 3)
    one = (int("0"), int("1"))
    for dims in (one, one, one, (int("0"), int("1"))):
        assert x.permute(dims).shape == (2, 3)
        assert x.permute(dims[::-1]).shape == (3, 2)


def test_values_that_equal_each_other_are_told_apart() -> None:
    x = ss.ones(2, 2)
    for _ in range(4):
        assert x.sum(0, True).shape == (1, 2)
        assert x.sum(0, False).shape == (2,)
        assert x.sum(1, keepdim=True).shape == (2, 1)
        assert x.sum(1, keepdim=False).shape == (2,)
        assert ss.nn.functional.leaky_relu(-x, 0.5)[0, 0].item() == -0.5
        assert ss.nn.functional.leaky_relu(-x, 0.25)[0, 0].item() == -0.25


def test_a_list_that_changes_is_read_anew() -> None:
    x, sizes = ss.arange(6), [2, 4]
    for _ in range(4):
        assert [len(part) for part in x.split(sizes)] == sizes
        sizes.reverse()
    leaf = ss.ones(4, 4, requires_grad=True)
    shape = [4]
    for width in (4, 4, 4):
        shape[0] = width
        ss.nn.functional.layer_norm(leaf, shape).square().sum().backward()
    kept = ss.nn.functional.layer_norm(leaf, shape)
    shape.append(4)
    other = ss.nn.functional.layer_norm(leaf, shape)
    for result in (other, kept):
        leaf.grad = None
        (result * ss.arange(16.0).reshape(4, 4)).sum().backward()
        assert leaf.grad.shape == (4, 4)


def test_who_wants_gradients_is_part_of_the_call() -> None:
    x, w = ss.ones(2, 3), ss.ones(4, 3)
    for wants in (False, True, False, True, True):
        w.requires_grad_(wants)
        for _ in range(3):
            assert ss.nn.functional.linear(x, w).requires_grad is wants
        with ss.no_grad():
            assert not ss.nn.functional.linear(x, w).requires_grad


@pytest.mark.skipif(not COMPILED, reason="the uncompiled core makes keys")
def test_known_calls_are_found_until_their_plans_go() -> None:
    x, op = ss.ones(5, 7), ops.softmax
    # One after the other: both may come to the same place, where the second takes it.
    for call in (lambda: ss.softmax(x, 1), lambda: ss.softmax(x, dim=1)):
        drop_plans(op)
        assert not ways(op)
        for _ in range(3):
            call()
        assert len(ways(op)) == 1
    ss.softmax(x, 1)
    assert 1 <= len(ways(op)) <= 2
    drop_plans(op)
    assert not ways(op)
    assert ss.softmax(x, 1).sum().item() == pytest.approx(5.0)


@pytest.mark.skipif(not COMPILED, reason="the uncompiled core makes keys")
def test_numbers_that_never_come_back_take_no_more_room() -> None:
    x, op = ss.ones(3), ops.leaky_relu
    for step in range(200):
        assert ss.nn.functional.leaky_relu(-x, step / 200)[0].item() == pytest.approx(-step / 200)
    assert len(ways(op)) <= len(op.ways.table)


def test_a_number_that_a_plan_holds_is_part_of_the_key() -> None:
    x = ss.full((2,), 4.0)
    for _ in range(3):
        assert (x ** 0.5).tolist() == [2.0, 2.0]
        assert (x ** 1.5).tolist() == [8.0, 8.0]
        assert (x ** 3).tolist() == [64.0, 64.0]


def test_nodes_of_a_plan_keep_each_their_own_numbers() -> None:
    x = ss.ones(3, requires_grad=True)
    for slope in (0.5, 0.25, 0.5, 0.125):
        x.grad = None
        ss.nn.functional.leaky_relu(-x, slope).sum().backward()
        assert x.grad.tolist() == [-slope] * 3
    y = ss.arange(6.0).reshape(2, 3).requires_grad_()
    for dim in (0, 1, 0, 1):
        y.grad = None
        (y.cumsum(dim) * ss.arange(6.0).reshape(2, 3)).sum().backward()
        expected = [[3.0, 5.0, 7.0], [3.0, 4.0, 5.0]] if dim == 0 else [[3.0, 3.0, 2.0],
                                                                        [12.0, 9.0, 5.0]]
        assert y.grad.tolist() == expected


class Interrupted:
    """A builder during whose work another thread drops the op's plans."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder
        self.made = 0

    def plan(self, op: Op, *facts: Any) -> Any:
        found = self.builder.plan(op, *facts)
        self.made += 1
        if self.made == 1:
            drop_plans(op)
        return found


@pytest.mark.parametrize("call", [
    lambda x: x.exp(), lambda x: x + x, lambda x: x + 1.0, lambda x: x.clone().add_(x),
    lambda x: x.clamp(0, 1), lambda x: x.sum(0), lambda x: ss.cat([x, x])])
def test_a_plan_that_was_begun_before_a_drop_serves_one_call(
        call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = ss.ones(7)
    watched = [ops.exp, ops.add, ops.clamp, ops.sum, ops.cat]
    for op in watched:
        drop_plans(op)
        monkeypatch.setattr(op, "builder", Interrupted(op.builder))
    expected = call(x).tolist()
    (op,) = [op for op in watched if op.builder.made]
    assert not op.plans
    assert not op.binary
    assert not ways(op)
    assert op.recent is None
    for _ in range(3):
        assert call(x).tolist() == expected
    assert op.builder.made == 2
    assert len(op.plans) == 1
    drop_plans(op)


def test_static_numbers_that_never_come_back_are_not_kept_for_ever(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MOST_RECIPES", 20)
    x = ss.full((2,), 4.0)
    drop_plans(ops.pow)
    ops.pow.programs.clear()
    for step in range(100):
        power = 1.0 + step / 1000
        assert (x ** power)[0].item() == pytest.approx(4.0 ** power, rel=1e-6)
        assert len(ops.pow.recipes) <= 20
        assert len(ops.pow.programs) <= 20
