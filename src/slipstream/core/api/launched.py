"""What is known of a plan's kernel: geometry, registers, source, and where its launch went."""

from __future__ import annotations

import contextlib
from typing import Any

from slipstream.core.fuse.printing import describe
from slipstream.core.native.driver import DriverError
from slipstream.core.vocab.operands import bytes_of, specs_of

# Ops that are products of matrices, and which operand's last dim is summed over.
PRODUCTS = {"matmul": 0, "linear": 0, "mm": 0, "bmm": 0, "mv": 0, "dot": 0, "addmm": 1,
            "baddbmm": 1, "addmv": 1}


def launch_facts(plan: Any) -> dict[str, Any]:
    """Name, device, and on a card: grid, block, shared bytes, registers, stream and window.

    ``bytes`` are those of the operands; ``window``: how many launches wait beside this one to be
    sent, and how the last ones went out.
    """
    name = plan.kernel.name if plan.kernel is not None else "nothing"
    device = plan.backend.name if plan.backend is not None else ""
    facts: dict[str, Any] = {"kernel": name, "device": device, "bytes": bytes_of(plan)}
    launch = plan.binding
    if hasattr(launch, "grid") and hasattr(launch, "function"):
        facts.update(name=launch.name, grid=launch.grid, block=launch.block, shared=launch.shared)
        with contextlib.suppress(DriverError):
            attributes = plan.backend.driver.function_attributes(launch.function)
            facts["registers"] = attributes.get("registers", 0)
    if hasattr(plan.backend, "queues"):
        queue = plan.backend.queue()
        facts.update(stream=queue.number, window=window_text(queue))
    return facts


def window_text(queue: Any) -> str:
    """Where the last launch of a queue is now."""
    if queue.capture is not None:
        return "captured by the user"
    waiting = len(queue.window.launches) - queue.window.drained
    return f"recorded, {waiting} waiting in the window" if waiting else "sent"


def launch_text(facts: dict[str, Any]) -> str:
    """The facts in a line."""
    parts = [str(facts.get("name", facts["kernel"]))]
    if "grid" in facts:
        parts.append(f"grid {facts['grid']}, block {facts['block']}, {facts['shared']} bytes of "
                     f"shared memory, {facts.get('registers', '?')} registers")
    parts.append(f"{facts['bytes']:,} bytes")
    if "stream" in facts:
        parts.append(f"stream {facts['stream']}, {facts['window']}")
    return "; ".join(parts)


def operations_of(plan: Any) -> int:
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


def source_of(plan: Any) -> str:
    """A plan's source: CUDA C++ on a card, the program as Python elsewhere; empty for neither."""
    code = getattr(plan.binding, "code", None)
    source = getattr(code, "source", "")
    return str(source) if source else program_of(plan)


def program_of(plan: Any) -> str:
    """What a plan's formula became, after rewriting, as Python; empty where there is none."""
    traced = getattr(plan.recipe, "traced", None)
    if traced is None or not hasattr(plan.kernel, "program"):
        return ""
    return describe(traced.program, (*traced.operands, *traced.number_names))
