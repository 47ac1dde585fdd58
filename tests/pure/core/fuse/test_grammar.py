"""The grammar of programs finds each kind of mistake."""

from __future__ import annotations

from typing import Any

import pytest

from slipstream.core.fuse.grammar import Ungrammatical, check
from slipstream.core.fuse.trace import TensorArgument, trace
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.programs import FULL, ROW, Constant, Input, Output, Program, Step

F32 = dtypes.float32


def soft(x: Any) -> Any:
    """A program with rows."""
    raised = (x - x.amax(-1, keepdim=True)).exp()
    return raised / raised.sum(-1, keepdim=True)


def program() -> Program:
    """The program of a softmax: steps 1 amax, 2 sub, 3 exp, 4 sum, 5 div of input 0."""
    made = trace(soft, {"x": TensorArgument(F32, "f32", 2)}, [F32]).program
    check(made)
    return made


def replaced(place: int, **fields: Any) -> Program:
    made = program()
    steps = list(made.steps)
    steps[place] = steps[place]._replace(**fields)
    return made._replace(steps=tuple(steps))


def with_step(*step: Any) -> Program:
    """The program with one more step, which makes a second output."""
    made = program()
    last = made.first_step() + len(made.steps)
    return made._replace(steps=(*made.steps, Step(*step)),
                         outputs=(*made.outputs, Output(last, F32)))


MISTAKES = {
    "is no primitive": lambda: replaced(2, primitive="softmax"),
    "has 1 operands, not 2": lambda: replaced(1, sources=(0,)),
    "needs a value that comes later": lambda: replaced(1, sources=(0, 4)),
    "does not compute in b1": lambda: replaced(2, cls="b1"),
    "not ['f64', 'f64']": lambda: replaced(1, cls="f64", result="f64"),
    "gives f64, not f32": lambda: replaced(4, result="f64"),
    "is of level row, not full": lambda: replaced(2, level=ROW),
    "is of level full, not row": lambda: replaced(3, level=FULL),
    "stores f32 as int64": lambda: program()._replace(outputs=(Output(5, dtypes.int64),)),
    "is no value": lambda: program()._replace(outputs=(Output(9, F32),)),
    "there is no output": lambda: program()._replace(outputs=()),
    "value 5 is never used": lambda: program()._replace(outputs=(Output(4, F32),)),
    "computes what step 3 does": lambda: with_step("exp", "f32", (2,), "f32", FULL),
    "casts a value to its own class": lambda: with_step("cast", "f32", (3,), "f32", FULL),
    "input 0 is of no class": lambda: program()._replace(inputs=(Input(F32, "f16"),)),
    "input 0 has no level": lambda: program()._replace(inputs=(Input(F32, "f32", "scalar"),)),
    "computes with constants only": lambda: Program(
        (), (), (Constant(2.0, "f32"),), (Step("exp", "f32", (0,), "f32", FULL),),
        (Output(1, F32),)),
    "is no number of Python": lambda: Program(
        (), (), (Constant("2", "f32"),), (), (Output(0, F32),)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("text", MISTAKES)
def test_mistakes(text: str) -> None:
    with pytest.raises(Ungrammatical) as found:
        check(MISTAKES[text]())
    assert text in str(found.value)
