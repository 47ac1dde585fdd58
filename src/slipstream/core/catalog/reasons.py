"""Reasons why ops differ from PyTorch on purpose: `exceptions` of entries, for conformance."""

from __future__ import annotations

_ONCE = "computed in float32 and rounded once; PyTorch also rounds results in between"
_TIES = "equal elements come in the order of their places; PyTorch's order of them is open"

ROUNDED = {"float16": _ONCE, "bfloat16": _ONCE}
ROUNDED_HALF = {"float16": _ONCE}
NAN_EQUAL = {"complex64": "equal_nan=True is refused for complex operands"}
TIES = {"bfloat16": _TIES}
REAL_ONLY = {"complex64": "not there for complex operands"}
EXACT = {"complex64": "ours is the nearer to the result in double precision"}
SUMMED = {"complex64": "the parts of the products are added in another order"}
UNROUNDED = "the quotient is made whole before it is rounded to the narrow type, PyTorch's after"
WHOLE = {"float16": UNROUNDED, "bfloat16": UNROUNDED}
_OUT = "out= of another float dtype is converted to, as for other ops; PyTorch refuses it here"
CONVERTED = {"error": _OUT, "float16": _OUT, "bfloat16": _OUT, "complex64": _OUT}
