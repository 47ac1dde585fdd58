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
from slipstream.core.dispatch.op import drop_plans
from slipstream.core.fuse.grammar import check
from slipstream.core.fuse.passes import Work, run_passes
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
    programs: list[tuple[Any, Any]] = []

    def recorded(*given: Any) -> Any:
        traced = trace(*given)
        programs.append((given, traced))
        return traced

    monkeypatch.setattr(formulas, "trace", recorded)
    op = table[name]
    drop_plans(op)
    for each in (op.programs, op.rules):
        each.clear()
    with np.errstate(all="ignore"):
        run(name)
    assert programs
    for given, traced in programs:
        check(traced.program)
        ast.parse(describe(traced.program))
        for step, work in run_passes(Work(*given)):
            check(work.program, step.rules)
        # What a walk over the formula gives, the passes give one after the other.
        assert repr(work.traced) == repr(traced)
