"""Installs the ops' methods on Tensor and collects their functions, from the entries alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from slipstream.core.api.methods import (
    function_of,
    inplace_function_of,
    inplace_of,
    inplace_operator_of,
    method_of,
    operator_of,
    reflected_of,
)
from slipstream.core.api.tensor import Tensor
from slipstream.core.catalog import FAMILIES
from slipstream.core.catalog.results import RESULTS
from slipstream.core.catalog.table import table
from slipstream.core.dispatch.op import Op

# Functions by the module where users find them: "" is the package itself.
functions: dict[str, dict[str, Any]] = {"": {}}

# Classes of named results.
results = RESULTS
# Operators that are not compiled slots: dunder -> op.
UNARY = {"__abs__": "abs"}
OPERATORS = {"__pow__": "pow", "__and__": "bitwise_and", "__or__": "bitwise_or",
             "__xor__": "bitwise_xor", "__floordiv__": "floor_divide", "__mod__": "remainder"}
# Those whose operands come in the other order; NumPy's functions have the ops' names but one.
REFLECTED = {"__rfloordiv__": "floor_divide", "__rmod__": "remainder", "__rpow__": "pow",
             "__rand__": "bitwise_and", "__ror__": "bitwise_or", "__rxor__": "bitwise_xor"}
INPLACE = {"__iadd__": "add", "__isub__": "sub", "__imul__": "mul", "__itruediv__": "div",
           "__ipow__": "pow", "__iand__": "bitwise_and", "__ior__": "bitwise_or",
           "__ixor__": "bitwise_xor", "__ifloordiv__": "floor_divide", "__imod__": "remainder"}


def install() -> None:
    """Install everything; once, at import."""
    for op in list(table.values()):
        install_op(op)
    for dunder, name in UNARY.items():
        setattr(Tensor, dunder, method_of(table[name]))
    for dunder, name in OPERATORS.items():
        setattr(Tensor, dunder, operator_of(table[name]))
    for dunder, name in REFLECTED.items():
        ufunc = np.power if name == "pow" else getattr(np, name)
        setattr(Tensor, dunder, reflected_of(table[name], ufunc))
    for dunder, name in INPLACE.items():
        setattr(Tensor, dunder, inplace_operator_of(table[name]))


def install_op(op: Op) -> None:
    """Install the methods and functions of one op."""
    entry = op.entry
    for name in (op.name, *[name for name in entry.aliases if "." not in name]):
        if entry.method and op.names and op.names[0] in ("self", "input"):
            _put(name, method_of(op))
            if entry.inplace:
                _put(name + "_", inplace_of(op))
        elif entry.inplace and op.names[0] == "self":
            _put(name + "_", inplace_of(op))
    if entry.path is None or entry.path == "":
        return
    home = entry.path.rpartition(".")[0]
    for path in (entry.path, *entry.aliases):
        module, _, name = path.rpartition(".")
        place = functions.setdefault(module or home, {})
        place[name] = function_of(op)
        if entry.inplace:
            place[name + "_"] = inplace_function_of(op)
        if (module or home) == "nn.functional":
            functions[""].setdefault(name, place[name])


def _put(name: str, method: Any) -> None:
    if name not in vars(Tensor):
        setattr(Tensor, name, method)


def function_namespace(module: str) -> SimpleNamespace:
    """The functions of one module, by attribute."""
    return SimpleNamespace(**functions.get(module, {}))


def adjoint_convolution(grad: Any, weight: Any, size: Any, *window: Any) -> Any:
    """The adjoint of conv2d in its input, of shape ``size``; window: stride, padding, dilation,
    groups.  The transposed convolution."""
    return table["conv2d_input_grad"].call((grad, weight, size, *window), None)


def rounded_error(self: Any, target: Any, delta: float, smooth: bool, reduction: str) -> Any:
    """The loss of Huber, or with ``smooth`` that loss over delta, reduced."""
    return table["rounded_error"].call((self, target, delta, smooth, reduction), None)


__all__ = ["FAMILIES", "adjoint_convolution", "functions", "install", "install_op",
           "results", "rounded_error"]
