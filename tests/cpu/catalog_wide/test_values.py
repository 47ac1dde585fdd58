"""Every op on every device, dtype and layout against its NumPy reference in wide numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from catalogue import (
    SAMPLED,
    assert_near,
    case_of,
    converted,
    depends_on_dtype,
    dtypes_of,
    is_sampled_number,
    layouts_of,
    main_dtype,
    results_of,
    spec_of,
    wide,
)

import slipstream as ss
from slipstream.core.catalog.table import table
from slipstream.core.dispatch import promotion
from slipstream.core.dispatch.entry import POINTWISE


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
        for layout in layouts_of(op):
            found = check(name, sample, main_dtype(op), layout, "cpu")
            if knows_its_shape(name):
                check_meta(name, sample, main_dtype(op), layout, found)


@pytest.mark.parametrize("name", SAMPLED)
def test_delayed(name: str) -> None:
    op = table[name]
    for place, sample in enumerate(op.entry.samples()):
        layouts = layouts_of(op)
        for layout in {"contiguous", layouts[1 + place % (len(layouts) - 1)]}:
            check(name, sample, main_dtype(op), layout, "delay")


PROMOTING = [name for name in SAMPLED if "float" in table[name].entry.dtypes
             and table[name].entry.promotion in (promotion.pair, promotion.comparison,
                                                 promotion.arithmetic, promotion.division)]
TWO_DTYPES = [name for name in PROMOTING if table[name].entry.kind == POINTWISE
              and table[name].signature.text.count("Tensor") > 1]


@pytest.mark.parametrize("name", TWO_DTYPES)
@pytest.mark.parametrize("dtypes", [(ss.int32, ss.float32), (ss.float16, ss.float64)])
def test_operands_of_two_dtypes_meet_in_the_higher(name: str, dtypes: Any) -> None:
    op = table[name]
    for args, kwargs in op.entry.samples():
        numbers = [value for value in args if is_sampled_number(value) and value.ndim]
        if len(numbers) != 2 or not all(isinstance(value, np.ndarray) for value in args):
            continue
        kinds = iter(dtypes)
        arrays = [value if value.dtype != np.float64 else converted(name, value, next(kinds))
                  for value in args]
        found = op.call(tuple([ss.tensor(array) for array in arrays]), kwargs)
        assert found.dtype in (dtypes[1], ss.bool)
        assert_near(found, op.entry.reference(*[wide(array) for array in arrays], **kwargs))
