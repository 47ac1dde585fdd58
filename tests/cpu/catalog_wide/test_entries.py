"""What every entry must say, and that formulas are formulas."""

from __future__ import annotations

from typing import Any

import pytest
from catalogue import NAMES, SAMPLED, cases

import slipstream as ss
from slipstream.core.catalog.table import table
from slipstream.core.dispatch.entry import COMPOUND, FORMULA_KINDS
from slipstream.core.dispatch.op import Op
from slipstream.core.dispatch.signature import NUMBER, OFFSET, TENSOR_OR_NUMBER
from slipstream.core.fuse.trace import NumberArgument, TensorArgument, trace
from slipstream.core.kernels.cpu.programs import ProgramKernel
from slipstream.core.vocab.programs import Program

FORMULAS = [name for name in NAMES if table[name].entry.kind in FORMULA_KINDS]
# What static parameters without a default are given for tracing.
STATICS = {"dtype": ss.float32, "int": 1, "int[]": (2, 3), "int...": (2, 3), "float": 0.5,
           "bool": True, "str": "none", "any": None}


def is_internal(op: Op) -> bool:
    """Whether only other ops call it: they are its tests."""
    return not op.entry.path and not op.entry.method


def is_in_place(op: Op) -> bool:
    """Whether it is the in-place form, an op of its own, of an op that has samples."""
    plain = table.get(op.name[:-1])
    return op.name.endswith("_") and plain is not None and bool(plain.entry.samples)


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_has_a_text_and_samples_or_a_reason(name: str) -> None:
    op = table[name]
    assert op.entry.doc, f"{name}: give its Entry doc=, a sentence that says what it computes"
    if op.entry.samples:
        assert op.entry.reference or "reference" in op.entry.exceptions, (
            f"{name}: give its Entry reference=, the same in NumPy, or the reason why there is "
            "none, exceptions={'reference': ...}")
    else:
        assert (is_internal(op) or is_in_place(op) or not op.entry.deterministic
                or op.entry.exceptions.get("samples")), (
            f"{name}: give its Entry samples= (catalog/samples.py has lists, such as "
            "samples.unary) and dtypes=, the kinds of dtypes it takes, such as ('float',); or the "
            "reason why there are no samples, exceptions={'samples': ...}")


def argument_of(op: Op, parameter: Any) -> Any:
    """What tracing puts in the place of a parameter."""
    if parameter.name in ("condition", "mask"):
        return TensorArgument(ss.bool, "b1", 2)
    if parameter.kind in (NUMBER, TENSOR_OR_NUMBER) and "Tensor" not in parameter.type:
        return NumberArgument("f64") if parameter.required else parameter.default
    if "Tensor" in parameter.type and parameter.default is not None:
        integral = "float" not in op.entry.dtypes
        return TensorArgument(ss.int64 if integral else ss.float32,
                              "i64" if integral else "f32", 2)
    return STATICS[parameter.type] if parameter.required else parameter.default


@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_is_a_graph(name: str) -> None:
    op = table[name]
    assert op.entry.formula is not None
    assert not op.kernels, "a formula needs no kernel of its own"
    if op.entry.samples:
        for case in cases(op):
            check_recipes(op, case)
        return
    arguments = {each.name: argument_of(op, each) for each in op.signature.parameters}
    assert isinstance(trace(op.entry.formula, arguments).program, Program)


def check_recipes(op: Op, case: Any) -> None:
    """Every recipe of the op runs a traced program."""
    op.call(case.args, case.kwargs)
    # Other tests of the same process may have called the op on another device.
    recipes = [recipe for recipe in op.recipes.values() if recipe.backend.on_host]
    assert recipes
    for recipe in recipes:
        program = recipe.traced.program
        assert isinstance(recipe.kernel, ProgramKernel)
        assert program.steps or program.inputs or program.numbers or program.constants


@pytest.mark.parametrize("name", [name for name in SAMPLED if table[name].entry.kind != COMPOUND])
def test_a_wrong_operand_raises_type_error(name: str) -> None:
    op = table[name]
    case = next(cases(op))
    tensors = [place for place, value in enumerate(case.args) if isinstance(value, ss.Tensor)]
    for place in tensors:
        for wrong in ("text", object(), None, [1.0]):
            if wrong is None and op.signature.parameters[place].default is None:
                continue
            args = (*case.args[:place], wrong, *case.args[place + 1:])
            with pytest.raises(TypeError):
                op.call(args, case.kwargs)


@pytest.mark.parametrize("name", NAMES)
def test_wrong_arguments_raise_type_error(name: str) -> None:
    op = table[name]
    with pytest.raises(TypeError):
        op.call((), {"no_such_argument": 1})
    if op.required and op.variadic < 0:
        with pytest.raises(TypeError):
            op.call((), None)


@pytest.mark.parametrize("name", [name for name in SAMPLED if OFFSET not in table[name].kinds])
def test_a_plan_is_found_again(name: str) -> None:
    op = table[name]
    if op.entry.kind == COMPOUND:
        return
    for case in cases(op):
        op.call(case.args, case.kwargs)
        before = (len(op.plans), len(op.recipes))
        op.call(case.args, case.kwargs)
        assert (len(op.plans), len(op.recipes)) == before
