"""Programs of the catalogue's formulas and gradients keep to the grammar and print as Python."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pytest
from catalogue import SAMPLED, case_of, dtypes_of, results_of

import slipstream as ss
from slipstream.core.catalog.table import table
from slipstream.core.dispatch import formulas
from slipstream.core.fuse.grammar import check
from slipstream.core.fuse.printing import describe
from slipstream.core.fuse.trace import trace

FORMULAS = [name for name in SAMPLED if table[name].entry.formula is not None]


def run(name: str) -> None:
    """The first sample of an op in every dtype, and its gradients."""
    op = table[name]
    sample = next(iter(op.entry.samples()))
    for dtype in dtypes_of(op):
        case = case_of(op, sample, dtype, "contiguous", "cpu")
        leaves = [each.detach().requires_grad_() if isinstance(each, ss.Tensor)
                  and each.dtype.is_floating_point else each for each in case.args]
        for result in results_of(op.call(tuple(leaves), case.kwargs)):
            if result.requires_grad and result.dtype.is_floating_point:
                result.backward(ss.ones_like(result), retain_graph=True)


@pytest.mark.parametrize("name", FORMULAS)
def test_programs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    programs: list[Any] = []

    def recorded(*given: Any) -> Any:
        traced = trace(*given)
        programs.append(traced.program)
        return traced

    monkeypatch.setattr(formulas, "trace", recorded)
    op = table[name]
    for each in (op.recipes, op.programs, op.rules):
        each.clear()
    with np.errstate(all="ignore"):
        run(name)
    assert programs
    for program in programs:
        check(program)
        ast.parse(describe(program))
