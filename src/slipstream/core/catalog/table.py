"""The table of ops: every entry becomes an op here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slipstream.core.dispatch.entry import (
    COMPOSITE,
    COMPOUND,
    POINTWISE,
    REDUCTION,
    VIEW,
    Entry,
)
from slipstream.core.dispatch.formulas import formula_builder
from slipstream.core.dispatch.kernels import kernel_builder
from slipstream.core.dispatch.op import Op
from slipstream.core.dispatch.registry import Candidate
from slipstream.core.dispatch.sized import SizedOp
from slipstream.core.dispatch.viewing import view_builder


class Ops:
    """The ops by name, as attributes: ``ops.add``."""

    if TYPE_CHECKING:
        # Without it at run time, an attribute is found in one look-up.
        def __getattr__(self, name: str) -> Op: ...


table: dict[str, Op] = {}
ops = Ops()

_BUILDERS: dict[str, Any] = {
    POINTWISE: formula_builder, REDUCTION: formula_builder, COMPOSITE: formula_builder,
    VIEW: view_builder, COMPOUND: None,
}


def define(entry: Entry, **kernels: Any) -> Op:
    """Make the op of an entry; ``kernels`` are its candidates by device type, best first.

    A candidate is a `Candidate`, or the name of one as ``registry.candidates_of`` describes.
    """
    kind = Op if entry.memory is None else SizedOp
    op = kind(entry, _BUILDERS.get(entry.kind, kernel_builder))
    if op.name in table:
        raise ValueError(f"op {op.name} is defined twice")
    for device, candidates in kernels.items():
        several = not isinstance(candidates, (str, Candidate))
        op.kernels[device] = candidates if several else (candidates,)
    table[op.name] = op
    # As an attribute of its own it is found without a call.
    setattr(ops, op.name, op)
    return op
