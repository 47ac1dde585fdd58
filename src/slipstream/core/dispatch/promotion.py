# cython: annotation_typing=False
"""Result dtypes: PyTorch's promotion of tensors, scalar tensors and Python numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from slipstream.core.vocab import dtypes
from slipstream.core.vocab.dtypes import DType
from slipstream.core.vocab.records import TensorBase


class Defaults:
    """The default float dtype; `set_default_dtype` changes it."""

    dtype: DType = dtypes.float32


defaults = Defaults()


def dtype_of_number(value: Any) -> DType:
    """The dtype that a Python number stands for when nothing else decides."""
    if isinstance(value, (bool, np.bool_)):
        return dtypes.bool_
    if isinstance(value, (int, np.integer)):
        return dtypes.int64
    if isinstance(value, (complex, np.complexfloating)) and not isinstance(value, float):
        return defaults.dtype.to_complex()
    return defaults.dtype


def class_of_number(value: Any) -> str:
    """The compute class of a Python number given at run time."""
    if isinstance(value, (bool, np.bool_)):
        return "b1"
    if isinstance(value, (int, np.integer)):
        return "i64"
    return "f64" if isinstance(value, (float, np.floating)) else "c128"


def result_type(operands: Iterable[Any]) -> DType:
    """The common dtype: tensors with dims first, then scalar tensors, then numbers.

    A lower group counts only where its kind is higher than that of the groups above.
    """
    groups: list[DType | None] = [None, None, None]
    for operand in operands:
        place, dtype = _standing(operand)
        before = groups[place]
        groups[place] = dtype if before is None else dtypes.promote(before, dtype)
    result: DType | None = None
    for group in groups:
        if group is not None:
            result = group if result is None else _combined(result, group)
    if result is None:
        raise ValueError("result_type needs at least one operand")
    return result


def _standing(operand: Any) -> tuple[int, DType]:
    if isinstance(operand, TensorBase):
        spec = operand.spec
        return (1 if spec.ndim == 0 else 0), spec.dtype
    return 2, dtype_of_number(operand)


def _combined(high: DType, low: DType) -> DType:
    if low.category <= high.category:
        return high
    if low.is_complex and high.is_floating_point:
        return high.to_complex() if high.itemsize >= 4 else dtypes.complex64
    return low


def to_float(dtype: DType) -> DType:
    """Integers and bool become the default float dtype."""
    return dtype if dtype.category >= 2 else defaults.dtype


def operands_of(call: Any) -> list[Any]:
    """The tensors and given numbers of a call that take part in promotion."""
    taken = []
    for parameter, value in zip(call.op.signature.parameters, call.values, strict=True):
        number = parameter.type.startswith(("Number", "Tensor|"))
        if isinstance(value, TensorBase) or (number and value is not None
                                             and value is not parameter.default):
            taken.append(value)
    return taken


def arithmetic(call: Any) -> tuple[DType, DType]:
    """The common dtype of the operands, also that of the result."""
    common = result_type(operands_of(call))
    return common, common


def power(call: Any) -> tuple[DType, DType]:
    """As `arithmetic`, bools becoming int64, as when they meet an integer exponent."""
    common = result_type(operands_of(call))
    common = dtypes.int64 if common is dtypes.bool_ else common
    return common, common


def floating(call: Any) -> tuple[DType, DType]:
    """As `arithmetic`, integers becoming the default float dtype."""
    common = to_float(result_type(operands_of(call)))
    return common, common


def comparison(call: Any) -> tuple[DType, DType]:
    """Computed in the common dtype; the result is bool."""
    return result_type(operands_of(call)), dtypes.bool_


def pair(call: Any) -> tuple[DType, DType]:
    """The common dtype of ``self`` and ``other`` alone."""
    common = result_type((call["self"], call["other"]))
    return common, common


def division(call: Any) -> tuple[DType, DType]:
    """True division makes floats of integers; rounded division does not."""
    common = result_type((call["self"], call["other"]))
    if call["rounding_mode"] is None:
        common = to_float(common)
    return common, common


def summing(call: Any) -> tuple[DType, DType]:
    """Sums of integers and bools are int64, unless ``dtype`` says otherwise."""
    own = call.spec("self").dtype
    result = call["dtype"] or (dtypes.int64 if own.category < 2 else own)
    return result, result


def averaging(call: Any) -> tuple[DType, DType]:
    """Means are floats; an integer tensor needs a ``dtype``."""
    own = call.spec("self").dtype
    result = call["dtype"] or own
    if result.category < 2:
        raise call.error(
            RuntimeError,
            "mean(): could not infer output dtype. Input dtype must be either a floating point or "
            f"complex dtype. Got: {own.name}",
            "give dtype=, or convert the tensor with .float()")
    return result, result


def cast_argument(call: Any) -> tuple[DType, DType]:
    """Computed and returned in ``dtype`` where it is given, else in the operand's own."""
    dtype = call["dtype"] or call.spec("self").dtype
    return dtype, dtype


def indices(call: Any) -> tuple[DType, DType]:
    """Computed in the operand's dtype; the result is int64."""
    return call.spec("self").dtype, dtypes.int64


def truth(call: Any) -> tuple[DType, DType]:
    """Computed in the operand's dtype; the result is bool."""
    return call.spec("self").dtype, dtypes.bool_


def truth_of_all(call: Any) -> tuple[DType, DType]:
    """Computed in the operand's dtype; the result is bool, but uint8 of uint8."""
    own = call.spec("self").dtype
    return own, own if own is dtypes.uint8 else dtypes.bool_


def real_result(call: Any) -> tuple[DType, DType]:
    """Computed in the operand's dtype; complex operands give their real dtype."""
    own = call.spec("self").dtype
    return own, own.to_real()


def cast_to_self(call: Any) -> tuple[DType, DType]:
    """Computed and returned in the dtype of ``self``."""
    own = call.spec("self").dtype
    return own, own
