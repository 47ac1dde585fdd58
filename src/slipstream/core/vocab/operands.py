"""What a plan reads and writes: the specs of its operands."""

from __future__ import annotations

from typing import Any

from slipstream.core.vocab.records import Plan, Spec


def specs_of(plan: Plan) -> tuple[list[Spec], list[Spec]]:
    """The specs of a plan's inputs, which its key holds in order, and of its outputs."""
    ins: list[Spec] = []
    parts: list[Any] = list(reversed(plan.key or ()))
    while parts:
        part = parts.pop()
        if isinstance(part, tuple):
            parts.extend(reversed(part))
        elif isinstance(part, Spec):
            ins.append(part)
    return ins, [spec for spec in (plan.out_specs or (plan.out_spec,)) if spec is not None]


def bytes_of(plan: Plan) -> int:
    """Bytes that a plan's operands hold: what its kernels read and write at least."""
    return sum(spec.nbytes for specs in specs_of(plan) for spec in specs)
