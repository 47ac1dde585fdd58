"""First and second derivatives of every op against finite differences, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from catalogue import SAMPLED, Case, cases, results_of

import slipstream as ss
from slipstream.core.catalog.table import table

# Samples larger than this tell nothing more and take long.
LARGEST = 24
SMALL = 12
# Casts whose result is too coarse for finite differences.
COARSE = {"half", "bfloat16", "float", "cfloat", "to_dtype"}


# Ops one of whose float operands has no gradient.
FIRST_ONLY = {"nll_loss", "cross_entropy"}


def leaves_of(name: str, case: Case) -> list[Any]:
    """The operands that can have gradients."""
    opened = [each for value in (case.args[:1] if name in FIRST_ONLY else case.args)
              for each in (value if isinstance(value, list) else [value])]
    return [each for each in opened if isinstance(each, ss.Tensor) and each.dtype.category >= 2]


def is_differentiable(name: str) -> bool:
    """Whether the op passes gradients on, asked by running it."""
    op = table[name]
    if "float" not in op.entry.dtypes or name == "detach":
        return False
    case = next(cases(op, ss.float64))
    for leaf in leaves_of(name, case):
        leaf.requires_grad_(True)
    return any(each.requires_grad for each in results_of(op.call(case.args, case.kwargs)))


DIFFERENTIABLE = [name for name in SAMPLED if is_differentiable(name)]
SMOOTH = [name for name in DIFFERENTIABLE if name not in COARSE]


def split(name: str, case: Case) -> tuple[Any, list[Any]]:
    """A function of the leaves alone, and the leaves."""
    leaves = [leaf.requires_grad_(True) for leaf in leaves_of(name, case)]

    def placed(values: Any, value: Any) -> Any:
        if isinstance(value, list):
            return [placed(values, each) for each in value]
        return values.get(id(value), value)

    def arguments(given: tuple[Any, ...]) -> tuple[Any, ...]:
        values = {id(leaf): each for leaf, each in zip(leaves, given, strict=True)}
        return tuple(placed(values, value) for value in case.args)

    return arguments, leaves


def is_smooth_at(name: str, case: Case) -> bool:
    """Which of two equal indices a scatter writes last is no matter of its gradient's formula."""
    if name != "scatter":
        return True
    ordered = np.sort(case.arrays[2], case.args[1])
    return not (np.diff(ordered, axis=case.args[1]) == 0).any()


def small_cases(name: str, dtype: Any, largest: int) -> list[Case]:
    """The samples of few elements; at least one."""
    found = [case for case in cases(table[name], dtype) if is_smooth_at(name, case)]
    sizes = [sum(leaf.numel() for leaf in leaves_of(name, case)) for case in found]
    return [case for case, size in zip(found, sizes, strict=True)
            if 0 < size <= max(largest, min(size for size in sizes if size))]


@pytest.mark.parametrize("name", SMOOTH)
def test_first_derivatives(name: str) -> None:
    op = table[name]
    for case in small_cases(name, ss.float64, LARGEST):
        arguments, leaves = split(name, case)
        ss.autograd.gradcheck(lambda *given, a=arguments, k=case.kwargs: op.call(a(given), k),
                              tuple(leaves))


@pytest.mark.parametrize("name", SMOOTH)
def test_second_derivatives(name: str) -> None:
    op = table[name]
    for case in small_cases(name, ss.float64, SMALL)[:3]:
        arguments, leaves = split(name, case)
        ss.autograd.gradgradcheck(
            lambda *given, a=arguments, k=case.kwargs: op.call(a(given), k), tuple(leaves))


@pytest.mark.parametrize("name", [name for name in SMOOTH
                                  if "complex" in table[name].entry.dtypes])
def test_complex_derivatives(name: str) -> None:
    op = table[name]
    for case in small_cases(name, ss.complex128, SMALL)[:3]:
        arguments, leaves = split(name, case)
        ss.autograd.gradcheck(lambda *given, a=arguments, k=case.kwargs: op.call(a(given), k),
                              tuple(leaves))


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_delayed_gradients_are_the_same(name: str) -> None:
    op = table[name]
    for now, later in zip(cases(op, ss.float64), cases(op, ss.float64, device="delay"),
                          strict=True):
        for here, there in zip(gradients(op, now), gradients(op, later), strict=True):
            assert (here is None) == (there is None)
            assert here is None or bool(ss.eq(here, there.cpu()).logical_or(here != here).all())


def gradients(op: Any, case: Case) -> list[Any]:
    """The gradients of the sum of all results."""
    leaves = [leaf.requires_grad_(True) for leaf in leaves_of(op.name, case)]
    for result in results_of(op.call(case.args, case.kwargs)):
        if result.requires_grad:
            result.backward(ss.ones_like(result), retain_graph=True)
    return [leaf.grad for leaf in leaves]
