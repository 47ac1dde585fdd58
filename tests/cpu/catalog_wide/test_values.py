"""Every op on every device, dtype and layout against its NumPy reference in wide numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from catalogue import (
    LAYOUTS,
    SAMPLED,
    assert_near,
    case_of,
    depends_on_dtype,
    dtypes_of,
    main_dtype,
    results_of,
    spec_of,
)

from slipstream.core.catalog.table import table


# Views that refuse some strides; see the tests of view geometry.
NEEDS_CONTIGUOUS = {"view", "view_as"}


def layouts_of(name: str) -> tuple[str, ...]:
    """The layouts that the op takes."""
    return ("contiguous", "offset") if name in NEEDS_CONTIGUOUS else LAYOUTS


def check(name: str, sample: Any, dtype: Any, layout: str, device: str) -> list[Any]:
    """Run one case, compare it with the reference, and return the results."""
    op = table[name]
    case = case_of(op, sample, dtype, layout, device)
    found = results_of(op.call(case.args, case.kwargs))
    keywords = {key: value for key, value in case.kwargs.items() if key != "device"}
    with np.errstate(all="ignore"):
        expected = op.entry.reference(*case.arrays, **keywords)
    wanted = list(expected) if isinstance(expected, (tuple, list)) else [expected]
    assert len(found) == len(wanted)
    for result, array in zip(found, wanted, strict=True):
        assert str(result.device) == device
        assert_near(result, array)
    return found


def check_meta(name: str, sample: Any, dtype: Any, layout: str, found: list[Any]) -> None:
    """The meta device gives the same specs as the CPU, without elements."""
    op = table[name]
    case = case_of(op, sample, dtype, layout, "meta")
    shadows = results_of(op.call(case.args, case.kwargs))
    assert all(each.is_meta for each in shadows)
    assert [spec_of(each) for each in shadows] == [spec_of(each) for each in found]


def knows_its_shape(name: str) -> bool:
    """Whether the result's shape follows from the operands' shapes."""
    return table[name].entry.waits == "never"


@pytest.mark.parametrize("name", SAMPLED)
def test_dtypes(name: str) -> None:
    op = table[name]
    for sample in op.entry.samples():
        several = depends_on_dtype(sample)
        for dtype in dtypes_of(op) if several else [main_dtype(op)]:
            found = check(name, sample, dtype, "contiguous", "cpu")
            if knows_its_shape(name):
                check_meta(name, sample, dtype, "contiguous", found)


@pytest.mark.parametrize("name", SAMPLED)
def test_layouts(name: str) -> None:
    op = table[name]
    for sample in op.entry.samples():
        for layout in layouts_of(name):
            found = check(name, sample, main_dtype(op), layout, "cpu")
            if knows_its_shape(name):
                check_meta(name, sample, main_dtype(op), layout, found)


@pytest.mark.parametrize("name", SAMPLED)
def test_delayed(name: str) -> None:
    op = table[name]
    for place, sample in enumerate(op.entry.samples()):
        layouts = layouts_of(name)
        for layout in {"contiguous", layouts[1 + place % (len(layouts) - 1)]}:
            check(name, sample, main_dtype(op), layout, "delay")
