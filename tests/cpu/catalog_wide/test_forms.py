"""Every way to call an op gives the same: boxed, function, method, in-place and ``out=``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from catalogue import (
    NAMES,
    SAMPLED,
    Case,
    assert_near,
    cases,
    host,
    main_dtype,
    results_of,
    spec_of,
    wide,
)

import slipstream as ss
from slipstream.core.catalog.table import table
from slipstream.core.dispatch.entry import VIEW
from slipstream.core.launch.devices import host_allocator
from slipstream.core.memory.statistics import count_allocations
from slipstream.core.vocab.dtypes import can_cast

INPLACE = [name for name in SAMPLED if table[name].entry.inplace]
OUT = [name for name in SAMPLED if table[name].entry.out]
# Compound ops make a result and copy it; the plain formulas and kernels write where they are told.
WRITES_DIRECTLY = [name for name in NAMES if table[name].entry.function is None]
# Kernels that need memory besides that of their results.
NEEDS_MEMORY = {"scatter", "scatter_add", "index_copy"}


def same(first: Any, second: Any) -> None:
    """The two calls gave equal results, to the bit."""
    first, second = results_of(first), results_of(second)
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        assert spec_of(a) == spec_of(b)
        np.testing.assert_array_equal(host(a), host(b))


def function_of(name: str) -> Any:
    """The function that users find at the entry's path."""
    found: Any = ss
    for part in table[name].entry.path.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("name", SAMPLED)
def test_function_and_method_equal_the_boxed_call(name: str) -> None:
    op = table[name]
    for case in cases(op):
        plain = op.call(case.args, case.kwargs)
        same(op(*case.args, **case.kwargs), plain)
        if op.entry.path:
            same(function_of(name)(*case.args, **case.kwargs), plain)
        if op.entry.method and op.names[0] == "self":
            same(getattr(case.args[0], name)(*case.args[1:], **case.kwargs), plain)


@pytest.mark.parametrize("name", [name for name in SAMPLED if table[name].entry.path])
def test_aliases_are_the_same_op(name: str) -> None:
    op = table[name]
    home = op.entry.path.rpartition(".")[0]
    case = next(iter(cases(op)))
    plain = op.call(case.args, case.kwargs)
    for alias in op.entry.aliases:
        place: Any = ss
        for part in (alias if "." in alias or not home else f"{home}.{alias}").split("."):
            place = getattr(place, part)
        same(place(*case.args, **case.kwargs), plain)


def copied(case: Case) -> tuple[Any, ...]:
    """The arguments with a first operand of their own."""
    return (case.args[0].clone(), *case.args[1:])


def fits(result: Any, target: Any, converts: bool) -> bool:
    """Whether an op may write its result into its own operand."""
    return result.shape == target.shape and (converts or can_cast(result.dtype, target.dtype))


@pytest.mark.parametrize("name", [name for name in INPLACE if table[name].entry.kind != VIEW])
def test_in_place(name: str) -> None:
    op = table[name]
    for case in cases(op):
        if not isinstance(case.args[0], ss.Tensor):
            continue
        expected, args = op.call(case.args, case.kwargs), copied(case)
        if not fits(expected, args[0], op.entry.converts):
            with pytest.raises(RuntimeError):
                op.call_inplace(args, case.kwargs)
            same(args[0], case.args[0])
            continue
        version = args[0]._version
        assert op.call_inplace(args, case.kwargs) is args[0]
        assert args[0]._version == version + 1
        same(args[0], expected.to(args[0].dtype))
        same(getattr(copied(case)[0], f"{name}_")(*case.args[1:], **case.kwargs), args[0])


def targets(name: str, dtype: Any, layout: str) -> Iterator[tuple[Case, Any]]:
    """Calls whose in-place form has a meaning, in a layout, with the plain form's result."""
    op = table[name]
    for case in cases(op, dtype, layout=layout):
        if isinstance(case.args[0], ss.Tensor):
            expected = op.call(case.args, case.kwargs)
            if fits(expected, case.args[0], op.entry.converts):
                yield case, expected


@pytest.mark.parametrize("name", [name for name in INPLACE if table[name].entry.kind != VIEW])
def test_in_place_in_every_layout(name: str) -> None:
    op = table[name]
    for layout in ("transposed", "stepped", "reversed", "offset"):
        for case, expected in targets(name, main_dtype(op), layout):
            target = case.args[0]
            version, strides = target._version, target.stride()
            op.call_inplace(case.args, case.kwargs)
            assert target._version == version + 1
            assert target.stride() == strides
            # Loops over other strides may round otherwise.
            assert_near(target, wide(host(expected.to(target.dtype))))


@pytest.mark.parametrize("name", [name for name in INPLACE if table[name].entry.gradient])
def test_in_place_gives_the_same_gradient(name: str) -> None:
    op = table[name]
    if "float" not in op.entry.dtypes:
        return
    for case, _ in targets(name, ss.float64, "contiguous"):
        slopes = []
        for call in (op.call, op.call_inplace):
            leaf = case.args[0].clone().requires_grad_(True)
            middle = leaf * 1
            version = middle._version
            result = call((middle, *case.args[1:]), case.kwargs)
            assert middle._version == version + (result is middle)
            result.backward(ss.ones_like(result))
            slopes.append(host(leaf.grad))
        np.testing.assert_array_equal(*slopes)


@pytest.mark.parametrize("name", [name for name in INPLACE if name in WRITES_DIRECTLY])
def test_in_place_allocates_nothing(name: str) -> None:
    op = table[name]
    for case in cases(op):
        args = copied(case)
        if name in NEEDS_MEMORY or not fits(op.call(args, case.kwargs), args[0],
                                            op.entry.converts):
            continue
        op.call_inplace(args, case.kwargs)
        with count_allocations(host_allocator) as count:
            op.call_inplace(args, case.kwargs)
        assert count.blocks == 0


@pytest.mark.parametrize("name", OUT)
def test_out(name: str) -> None:
    op = table[name]
    for case in cases(op):
        expected = op.call(case.args, case.kwargs)
        out = ss.empty_strided(expected.shape, expected.stride(), dtype=expected.dtype)
        version = out._version
        assert op.call_out(case.args, case.kwargs, out) is out
        assert out._version == version + 1
        same(out, expected)
        if name in WRITES_DIRECTLY and name not in NEEDS_MEMORY:
            with count_allocations(host_allocator) as count:
                op(*case.args, **case.kwargs, out=out)
            assert count.blocks == 0


@pytest.mark.parametrize("name", OUT)
def test_out_of_another_shape_is_resized(name: str) -> None:
    op = table[name]
    for case in cases(op):
        expected = op.call(case.args, case.kwargs)
        out = ss.empty(tuple(expected.shape) + (2,), dtype=expected.dtype)
        if out.numel():
            with pytest.warns(UserWarning, match="was resized"):
                op.call_out(case.args, case.kwargs, out)
        else:
            op.call_out(case.args, case.kwargs, out)
        same(out.contiguous(), expected.contiguous())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            out = ss.empty(0, dtype=expected.dtype)
            same(op.call_out(case.args, case.kwargs, out).contiguous(), expected.contiguous())


@pytest.mark.parametrize("name", OUT)
def test_out_of_a_lower_dtype_raises(name: str) -> None:
    op = table[name]
    for case in cases(op):
        expected = op.call(case.args, case.kwargs)
        lower = ss.int64 if expected.dtype.category > 1 else ss.bool
        if expected.dtype.category == 0:
            continue
        out = ss.zeros(expected.shape, dtype=lower)
        version = out._version
        with pytest.raises(RuntimeError):
            op.call_out(case.args, case.kwargs, out)
        assert out._version == version
        assert not host(out).any()


@pytest.mark.parametrize("name", OUT)
def test_out_and_gradients_do_not_go_together(name: str) -> None:
    op = table[name]
    case = next(iter(cases(op)))
    if main_dtype(op).category < 2 or not (op.entry.gradient or op.entry.function):
        return
    expected = op.call(case.args, case.kwargs)
    leaf = next((each for each in case.args if isinstance(each, ss.Tensor)
                 and each.is_floating_point()), None)
    if leaf is None or not expected.is_floating_point():
        return
    leaf.requires_grad_(True)
    with pytest.raises(RuntimeError, match="automatic"):
        op.call_out(case.args, case.kwargs, ss.empty_like(expected))
