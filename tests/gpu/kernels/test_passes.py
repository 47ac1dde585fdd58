"""The list of passes down to CUDA C++: run one by one they end where a call ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slipstream as ss
from gpu.kernels.formulas import Formula, Run, cuda, numbers
from slipstream.core.fuse.grammar import check
from slipstream.core.fuse.passes import Work
from slipstream.core.fuse.trace import NumberArgument, TensorArgument
from slipstream.core.kernels.cuda.passes import PASSES, CardWork, describe_passes, run_passes
from slipstream.core.kernels.cuda.programs import Staged
from slipstream.core.vocab.devices import Device

F32, BF16 = ss.float32, ss.bfloat16
NAMES = ["decompose", "fold", "common subexpressions", "dead code", "group by bytes", "collapse",
         "schedule", "print"]


def soft(x: Any) -> Any:
    """Two reductions and maps, with something to fold, to share and to drop."""
    x.sin()
    raised = (x * 1 - x.amax(-1, keepdim=True)).exp()
    return raised / (x - x.amax(-1, keepdim=True)).exp().sum(-1, keepdim=True)


# Named here: to make them takes a driver, and tests are collected where there is none.
CALLS = ("flat", "broadcast", "tiles", "rows", "split", "columns", "place", "empty")


def runs() -> dict[str, Run]:
    """A call of every schedule."""
    tall = cuda(numbers([100, 33]))
    return {
        "flat": Run(Formula(lambda a, b: a * b + 1, [F32]), a=tall, b=tall),
        "broadcast": Run(Formula(lambda a, b, n: a * b * n, [F32]), a=tall, b=tall[0], n=2.5),
        "tiles": Run(Formula(lambda a: a.exp(), [F32]), a=cuda(numbers([64, 64])).transpose(0, 1)),
        "rows": Run(Formula(soft, [BF16]), x=cuda(numbers([6, 64], BF16))),
        "split": Run(Formula(soft, [F32]), x=cuda(numbers([1, 70000]))),
        "columns": Run(Formula(lambda x: x.mean(0), [F32]), x=tall),
        "place": Run(Formula(lambda x: (x.argmax(-1), x.sum(-1)), [ss.int64, F32]), x=tall),
        "empty": Run(Formula(lambda a: a + 1, [F32]), a=cuda(np.zeros((0, 3), np.float32))),
    }


def card_work(run: Run) -> CardWork:
    """The same call for the passes."""
    arguments = {name: TensorArgument(value.dtype, value.dtype.compute, value.ndim)
                 if isinstance(value, ss.Tensor) else NumberArgument("f64")
                 for name, value in run.operands.items()}
    strides = tuple([tuple(run._strides(each)) for each in (*run.results, *run.tensors)])
    return CardWork(Work(run.formula.function, arguments, run.formula.outputs), Device("cuda:0"),
                    tuple(run.domain), strides)


@pytest.mark.parametrize("name", CALLS)
def test_they_end_where_a_call_ends(name: str) -> None:
    run = runs()[name].launch()
    found = run_passes(card_work(run), PASSES)
    assert [step.name for step, _ in found] == NAMES
    for step, work in found[:4]:
        check(work.program, step.rules)
        assert work.text().startswith("def program(")
    bound = run.binding
    launches = [] if bound is None else (
        [each.launch for each in bound.stages] if isinstance(bound, Staged) else [bound])
    last = found[-1][1]
    assert [code.source for code in last.codes] == [each.code.source for each in launches]
    assert [shape for _, _, shape in last.ready] == [each.shape for each in launches]
    assert repr(last.program) == repr(run.traced.program)


def test_every_pass_can_be_read() -> None:
    texts = {step.name: work.text() for step, work in run_passes(card_work(runs()["split"]),
                                                                PASSES)}
    assert len(set(texts.values())) == len(NAMES)
    assert texts["group by bytes"].splitlines()[0] == "stage 0 reduces v1; computes x0"
    assert "Space(outer=(), inner=(70000,)" in texts["collapse"]
    # Three walks over a row, of which the two that reduce become one.
    assert texts["group by bytes"].count("\nstage") == 4
    assert texts["schedule"].count("grid") == 2
    assert texts["print"].count("__global__") == 2


def test_every_call_has_its_test() -> None:
    assert tuple(runs()) == CALLS


def test_the_list_prints() -> None:
    lines = describe_passes(PASSES).splitlines()
    assert [line.split(". ")[1].split(":")[0] for line in lines] == NAMES
