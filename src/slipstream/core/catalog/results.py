"""The tuples with names that ops of several results return: one class for each op."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

# Where users find the classes, and where pickle looks for them.
MODULE = "slipstream.return_types"
RESULTS: dict[str, Any] = {}


def result(name: str, *fields: str) -> Any:
    """The class of an op's results; it prints as ``slipstream.return_types.topk(...)``."""
    made: Any = namedtuple(name, fields)  # type: ignore[misc]  # a class for each op
    made.__module__ = MODULE
    made.__doc__ = f"The results of {name}: {', '.join(fields)}."
    made.__repr__ = represent  # type: ignore[method-assign]
    RESULTS[name] = made
    return made


def represent(self: Any) -> str:
    """Name and fields, one a line."""
    inside = ",\n".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
    return f"{MODULE}.{type(self).__name__}(\n{inside})"


Sort = result("sort", "values", "indices")
Topk = result("topk", "values", "indices")
Kthvalue = result("kthvalue", "values", "indices")
Median = result("median", "values", "indices")
Max = result("max", "values", "indices")
Min = result("min", "values", "indices")
Cummax = result("cummax", "values", "indices")
Cummin = result("cummin", "values", "indices")
Aminmax = result("aminmax", "min", "max")
