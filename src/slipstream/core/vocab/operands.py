"""What a plan reads and writes: the specs of its operands."""

from __future__ import annotations

from typing import Any

from slipstream.core.vocab.records import Plan, Spec

# Ops that are products of matrices, and which operand's last dim is summed over.
PRODUCTS = {"matmul": 0, "linear": 0, "mm": 0, "bmm": 0, "mv": 0, "dot": 0, "addmm": 1,
            "baddbmm": 1, "addmv": 1}


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


def operations_of(plan: Plan) -> int:
    """Arithmetic operations of a plan's kernel; 0 where they are not known.

    A product of m x k and k x n: 2 m n k; a convolution: twice the results times the taps of each;
    a formula: its steps, each over every element of the largest operand or result.
    """
    ins, outs = specs_of(plan)
    if not outs or plan.kernel is None:
        return 0
    name, results = plan.op.name, sum(spec.numel for spec in outs)
    if name in PRODUCTS:
        first = ins[PRODUCTS[name]]
        return 2 * results * (first.shape[-1] if first.shape else 1)
    if name.startswith("conv") and len(ins) > 1 and "transpose" not in name:
        weight = ins[1]
        return 2 * results * (weight.numel // max(weight.shape[0], 1))
    program = getattr(getattr(plan.recipe, "traced", None), "program", None)
    if program is None:
        return 0
    return len(program.steps) * max(spec.numel for spec in (*ins, *outs))
