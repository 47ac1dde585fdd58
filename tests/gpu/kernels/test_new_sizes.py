"""A size that was never met: its plan is bound from what is known, and is the plan made anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import slipstream as ss
from slipstream.core.catalog.table import table
from slipstream.core.dispatch import formulas, kernels
from slipstream.core.dispatch.op import Op, drop_plans
from slipstream.core.kernels.cuda.programs import Staged
from slipstream.core.launch.cuda.launches import Launch
from slipstream.core.vocab.records import Plan

KNOWN, FRESH = (5, 24), (37, 24)


def cuda(*shape: int, **more: Any) -> ss.Tensor:
    return ss.rand(*shape, device="cuda", **more)


def rows(size: tuple[int, int], **more: Any) -> ss.Tensor:
    return cuda(*size, **more)


Case = Callable[[tuple[int, int]], tuple[Any, ...]]
CASES: list[tuple[str, str, Case]] = [
    ("mean", "all", lambda size: (rows(size), None, False)),
    ("sum", "columns", lambda size: (rows(size), (0,), True)),
    ("sum", "rows", lambda size: (rows(size), (1,), False)),
    ("sum", "turned", lambda size: (rows(size).T, (1,), False)),
    ("softmax", "", lambda size: (rows(size), -1)),
    ("mul", "broadcast", lambda size: (rows(size), cuda(size[1]))),
    ("mul", "expanded", lambda size: (rows(size), cuda(1).expand(size))),
    ("mul", "turned", lambda size: (rows(size).T, rows(size).T)),
    ("mul", "crossed", lambda size: (rows(size).T, rows(size[::-1]))),
    ("full_memory", "", lambda size: (size, 0, ss.float32, ss.device("cuda"))),
    ("matmul", "matrices", lambda size: (rows(size), cuda(24, 7))),
    ("matmul", "deep", lambda size: (rows(size).T, cuda(size[0], 7))),
    ("matmul", "batches", lambda size: (cuda(3, *size), cuda(3, 24, size[0]))),
    ("matmul", "shared", lambda size: (cuda(3, *size), cuda(24, 7))),
    ("linear", "bias", lambda size: (rows(size), cuda(7, 24), cuda(7))),
    ("linear", "deep", lambda size: (cuda(2, *size), cuda(7, 24), None)),
]
NAMES = [f"{name} {what}".strip() for name, what, _ in CASES]


def plan_of(op: Op, values: tuple[Any, ...]) -> Plan:
    """The plan that the op has for a call."""
    op.call(values, None)
    found: Plan = list(op.plans.values())[-1]
    return found


def binding(plan: Plan) -> Any:
    """All that a plan launches."""
    bound = plan.binding
    if isinstance(bound, Staged):
        return [(described(stage.launch), stage.places, stage.counts) for stage in bound.stages]
    launches = getattr(plan.kernel, "launches", None)
    if launches is not None:
        return [described(launch) for launch in launches]
    return described(bound)


def described(launch: Launch) -> tuple[Any, ...]:
    return launch.name, launch.function, launch.shape, launch.tail, launch.numbers


def refuse(*_: Any) -> None:
    raise AssertionError("the call was described")


@pytest.mark.parametrize(("name", "what", "case"), CASES, ids=NAMES)
def test_a_new_size_is_bound_as_if_it_were_the_first(
        name: str, what: str, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    op = table[name]
    drop_plans(op)
    plan_of(op, case(KNOWN))
    values = case(FRESH)
    with monkeypatch.context() as short:
        for module in (formulas, kernels):
            short.setattr(module, "Call", refuse)
        quick = plan_of(op, values)
    drop_plans(op)
    long = plan_of(op, values)
    assert quick is not long
    assert quick.out_specs == long.out_specs
    assert quick.out_spec is quick.out_specs[0]
    assert (quick.operands, quick.numbers, quick.outputs) == (
        long.operands, long.numbers, long.outputs)
    assert quick.backend is long.backend
    assert quick.kernel.name == long.kernel.name
    assert binding(quick) == binding(long)


@pytest.mark.parametrize("grads", [(True, False), (False, True), (True, True)])
def test_gradients_of_new_sizes(grads: tuple[bool, bool]) -> None:
    """Which operands want a gradient decides the rule, whatever the size."""
    results = []
    for rows_count in (5, 37):
        x = ss.arange(rows_count * 4, device="cuda").reshape(rows_count, 4) / 8
        w = ss.arange(12, device="cuda").reshape(3, 4) / 16
        x.requires_grad_(grads[0])
        w.requires_grad_(grads[1])
        ss.nn.functional.linear(x, w).square().mean().backward()
        results.append((x, w))
    for x, w in results:
        y = x.detach().cpu() @ w.detach().cpu().T
        g = 2 * y / y.numel()
        if grads[0]:
            assert ss.allclose(x.grad.cpu(), g @ w.detach().cpu())
        if grads[1]:
            assert ss.allclose(w.grad.cpu(), g.T @ x.detach().cpu())


@pytest.mark.parametrize("right", [(23, 7), (24,)])
def test_sizes_that_do_not_fit_are_refused_after_others_were_bound(
        right: tuple[int, ...]) -> None:
    ss.matmul(cuda(5, 24), cuda(24, 7))
    if len(right) == 1:
        assert ss.matmul(cuda(6, 24), cuda(*right)).shape == (6,)
        return
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        ss.matmul(cuda(6, 24), cuda(*right))


def test_a_bias_that_does_not_fit_is_refused_after_others_were_bound() -> None:
    linear = ss.nn.functional.linear
    linear(cuda(5, 24), cuda(7, 24), cuda(7))
    assert linear(cuda(6, 24), cuda(7, 24), cuda(1)).shape == (6, 7)
    with pytest.raises(RuntimeError, match="bias of shape"):
        linear(cuda(6, 24), cuda(7, 24), cuda(6))


def test_broadcasts_and_nothing_are_made_the_long_way() -> None:
    ss.matmul(cuda(3, 5, 24), cuda(3, 24, 7))
    assert ss.matmul(cuda(3, 5, 24), cuda(1, 24, 7)).shape == (3, 5, 7)
    assert ss.matmul(cuda(3, 0, 24), cuda(3, 24, 7)).shape == (3, 0, 7)
    assert not ss.matmul(cuda(2, 5, 0), cuda(2, 0, 7)).cpu().numpy().any()
    assert cuda(0, 8).sum(0).cpu().tolist() == [0.0] * 8


def test_results_of_operands_in_row_major_order_lie_so() -> None:
    for shape, strides in (((4, 6), (12, 1)), ((4, 6), (0, 1)), ((4, 6), (6, 0)),
                           ((2, 3, 4), (24, 0, 2))):
        x = ss.as_strided(cuda(100), shape, strides)
        made = x + x
        on_host = ss.as_strided(ss.rand(100), shape, strides)
        assert made.stride() == (on_host + on_host).stride()


def test_a_gradient_is_noted_once_it_passes_again() -> None:
    """A size that is met once leaves no note; the same size after that is found by it."""
    x = cuda(6, 24).requires_grad_()
    notes, results = [], []
    for _ in range(3):
        made = x.softmax(-1)
        plan = made.grad_fn.plan
        made.sum().backward()
        notes.append(plan.passing)
        results.append(x.grad.cpu().numpy().tobytes())
        x.grad = None
    assert notes[0].plan is None
    assert notes[1].plan is not None
    assert notes[1] is notes[2]
    assert len(set(results)) == 1
