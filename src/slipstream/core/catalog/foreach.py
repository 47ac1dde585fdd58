"""Ops on lists: ``_foreach_add(tensors, others)`` and its kin, made from the pointwise entries.

Each does what the op does to every tensor of the list.  Where tensors lie alike, all of a device
and dtype are one launch; others, and what is recorded for gradients, go one by one.
"""

from __future__ import annotations

from typing import Any

from slipstream.core.catalog.table import define, ops, table
from slipstream.core.dispatch.entry import COMPOUND, Entry
from slipstream.core.dispatch.foreach import each

UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor log log1p log2 neg reciprocal round "
    "rsqrt sigmoid sign sin sinh sqrt tan tanh trunc").split()
# Name: (op, parameters beside the list, arguments of the op that come from them, in order).
OTHERS = {
    "add": ("add", "any other, *, Number alpha=1", ("other", "alpha")),
    "sub": ("sub", "any other, *, Number alpha=1", ("other", "alpha")),
    "mul": ("mul", "any other", ("other",)),
    "div": ("div", "any other", ("other",)),
    "pow": ("pow", "any exponent", ("exponent",)),
    "maximum": ("clamp", "any other", ("min",)),
    "minimum": ("clamp", "any other", ("max",)),
    "clamp_min": ("clamp", "any other", ("min",)),
    "clamp_max": ("clamp", "any other", ("max",)),
    "lerp": ("lerp", "Tensor[] end, any weight", ("end", "weight")),
    "addcmul": ("addcmul", "Tensor[] tensor1, Tensor[] tensor2, any value=1",
                ("tensor1", "tensor2", "value")),
    "addcdiv": ("addcdiv", "Tensor[] tensor1, Tensor[] tensor2, any value=1",
                ("tensor1", "tensor2", "value")),
}
UNSAMPLED = {"samples": "tests/cpu/core/test_foreach.py compares them with the op of each tensor"}
IN_PLACE_ONLY = {
    "copy": ("copy", "Tensor[] source, bool non_blocking=False", ("source", "non_blocking")),
    "zero": ("fill", "", ()),
}


def _brought(targets: Any, sources: Any) -> Any:
    """The sources, those on other devices than their targets' brought there."""
    if len(targets) != len(sources):
        return sources
    return [source if source.spec.device is target.spec.device
            else ops.to_device.call((source, target.spec.device), None)
            for target, source in zip(targets, sources, strict=True)]


def _function(name: str, arguments: tuple[str, ...], in_place: bool) -> Any:
    op_name = (OTHERS | IN_PLACE_ONLY).get(name, (name,))[0]
    title = f"_foreach_{name}{'_' * in_place}"

    def function(self: Any, *given: Any) -> Any:
        named = dict(zip(arguments, given, strict=True))
        if name == "zero":
            named = {"value": 0}
        elif name == "copy":
            named["source"] = _brought(self, named["source"])
        return each(table[op_name], title, self, named, in_place)

    return function


def _define(name: str, facts: tuple[str, str, tuple[str, ...]], in_place: bool) -> None:
    op, parameters, arguments = facts
    title = f"_foreach_{name}{'_' * in_place}"
    text = ", ".join(part for part in ("Tensor[] self", parameters) if part)
    what = "in place" if in_place else "as a list of new tensors"
    define(Entry(f"{title}({text})", COMPOUND, function=_function(name, arguments, in_place),
                 path=title, method=False, exceptions=UNSAMPLED, autocast="asleep",
                 doc=f"`{op}` of every tensor of a list, {what}."))


for _name in UNARY:
    for _in_place in (False, True):
        _define(_name, (_name, "", ()), _in_place)
for _name, _facts in OTHERS.items():
    for _in_place in (False, True):
        _define(_name, _facts, _in_place)
for _name, _facts in IN_PLACE_ONLY.items():
    _define(_name, _facts, True)


def _norm(self: Any, ord: Any = 2, dtype: Any = None) -> list[Any]:
    return [ops.vector_norm.call((tensor, ord), {"dtype": dtype}) for tensor in self]


define(Entry("_foreach_norm(Tensor[] self, any ord=2, dtype? dtype=None)", COMPOUND,
             function=_norm, path="_foreach_norm", method=False, autocast="asleep",
             exceptions=UNSAMPLED,
             doc="The vector norm of every tensor of a list."))
