"""What is known of a plan's kernel: geometry, registers, source, and where its launch went."""

from __future__ import annotations

import contextlib
from typing import Any

from slipstream.core.api.fusions import launches_of
from slipstream.core.api.pacing import COPY_OP
from slipstream.core.fuse.printing import describe
from slipstream.core.native.driver import DriverError
from slipstream.core.vocab.modes import decode_site
from slipstream.core.vocab.operands import bytes_of, operations_of
from slipstream.core.vocab.ring import exported_at
from slipstream.core.vocab.sites import source_line


def launch_facts(plan: Any, shared: list[tuple[int, int]] | None = None) -> dict[str, Any]:
    """Name, device, and on a card: launches, operations, stream and window, what is shared.

    ``bytes`` are those of the operands; ``launches``: of each the name, grid, block, shared bytes,
    registers; ``operations``: of arithmetic, 0 where they are not known; ``window``: how many
    launches wait beside this one to be sent, and how the last ones went out; ``shared``: operands
    whose memory other code has, from their places and addresses.
    """
    name = plan.kernel.name if plan.kernel is not None else "nothing"
    device = plan.backend.name if plan.backend is not None else ""
    facts: dict[str, Any] = {"kernel": name, "device": device, "bytes": bytes_of(plan)}
    if plan.backend is not None and not plan.backend.on_host:
        facts["operations"] = operations_of(plan)
        facts["launches"] = [geometry_of(plan, launch) for launch in launches_of(plan)
                             if hasattr(launch, "grid") and hasattr(launch, "function")]
    if hasattr(plan.backend, "queues"):
        queue = plan.backend.queue()
        facts.update(stream=queue.number, window=window_text(queue))
        # A copy ends its window in any case.
        copies = plan.op.name == COPY_OP
        facts["shared"] = [shared_facts(plan, *each) for each in shared or () if not copies]
    return facts


def shared_facts(plan: Any, place: int, address: int) -> dict[str, Any]:
    """An operand's name, and the line that handed out its memory; no file where nobody knows."""
    names = [plan.op.names[each] for each in plan.operands]
    place -= len(plan.out_specs or (plan.out_spec,))
    name = f"`{names[place]}`" if 0 <= place < len(names) else "what it writes"
    file, line = decode_site(*(exported_at((address,)) or (None, 0)))
    return {"operand": name, "file": file, "line": line}


def shared_text(found: dict[str, Any]) -> str:
    """Why a launch that touches such an operand goes at once."""
    where = f"{found['file']}:{found['line']}" if found["file"] else ""
    text = source_line(found["file"], found["line"])
    by = f"handed out at {where}" + (f" (`{text}`)" if text else "") if where else "held elsewhere"
    return (f"sent at once, for {found['operand']} is exported storage, {by}: it ends its window, "
            "and what is alone in one is launched alone; hand out a copy (clone()), once")


def geometry_of(plan: Any, launch: Any) -> dict[str, Any]:
    """A launch's name and geometry."""
    facts = {"name": launch.name, "grid": launch.grid, "block": launch.block,
             "shared": launch.shared}
    with contextlib.suppress(DriverError):
        attributes = plan.backend.driver.function_attributes(launch.function)
        facts["registers"] = attributes.get("registers", 0)
    return facts


def window_text(queue: Any) -> str:
    """Where the last launch of a queue is now."""
    if queue.capture is not None:
        return "captured by the user"
    waiting = len(queue.window.launches) - queue.window.drained
    return f"recorded, {waiting} waiting in the window" if waiting else "sent"


def launch_text(facts: dict[str, Any]) -> str:
    """The facts in a line."""
    parts = [f"{each['name']}: grid {each['grid']}, block {each['block']}, {each['shared']} bytes "
             f"of shared memory, {each.get('registers', '?')} registers"
             for each in facts.get("launches", ())] or [str(facts["kernel"])]
    parts.append(f"{facts['bytes']:,} bytes")
    if facts.get("operations"):
        parts.append(f"{facts['operations']:,} operations")
    if "stream" in facts:
        shared = facts.get("shared")
        how = shared_text(shared[0]) if shared else facts["window"]
        parts.append(f"stream {facts['stream']}, {how}")
    return "; ".join(parts)


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
