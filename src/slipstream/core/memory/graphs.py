"""Autograd graphs that results keep alive: what of memory goes once nobody holds the results.

Nothing counts this while a program runs.  The collector knows every tensor and every node, so that
a look, which goes over all of its objects, finds the results that nothing was computed from: each
of them alone keeps the graph behind it.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Any, NamedTuple

from slipstream.core.memory.statistics import format_bytes
from slipstream.core.vocab.modes import decode_site
from slipstream.core.vocab.records import GradRecord, Node, TensorBase
from slipstream.core.vocab.sites import expression_of

# From so many results of a line on, or sums in a row, a loop keeps graphs; below, a step does.
SEVERAL = 4
# A look goes over so many nodes at most: what it finds is then the least there is.
MOST_NODES = 200_000
# Graphs that hold this part of what is in use are worth the first word.
MUCH = 0.5

Site = tuple[CodeType | None, int]


class Kept(NamedTuple):
    """What the graphs behind the results of a line hold.

    ``number``: results held, or sums in a row where ``summed``; ``holder``: the kind of container
    that holds one, or ""; ``addresses``: the blocks.
    """

    site: Site
    number: int
    summed: bool
    holder: str
    addresses: frozenset[int]

    def text(self, nbytes: int, whole: int) -> str:
        """What happens, for how many bytes of how many, and what to do."""
        file, line = decode_site(*self.site)
        made = f"`{expression_of(*self.site)}` at {file}:{line}"
        much = f"{format_bytes(nbytes)} of {format_bytes(whole)}"
        if self.summed:
            return (f"the running sum {made} keeps the autograd graphs of {self.number} steps "
                    f"alive ({much}): where it is only read, add x.item() or x.detach() of each "
                    "result x, or run the loop under no_grad(); where it is differentiated, call "
                    "backward() in each step")
        where = f" in a {self.holder}" if self.holder else ""
        return (f"{self.number} results of {made} are held{where}, and each keeps its autograd "
                f"graph alive ({much}): where they are only read, keep x.detach(), or x.item() of "
                "a number, or run the loop under no_grad(); where they are differentiated, call "
                "backward() in each step")


class Look(NamedTuple):
    """What a look found: graphs that are kept, the blocks of leaves that want gradients, and those
    that nodes save for backward; ``used``: the lines whose results went into others."""

    kept: list[Kept]
    used: frozenset[Site]
    leaves: frozenset[int]
    saved: frozenset[int]


class _Found:
    """The tensors and nodes that the collector knows."""

    def __init__(self) -> None:
        self.tensors: list[Any] = []
        # Nodes that another one leads to: their results went into something.
        self.inner: set[int] = set()
        self.used: set[Site] = set()
        # How many nodes hold a tensor.
        self.saved: Counter[int] = Counter()
        self.blocks: set[int] = set()
        for each in gc.get_objects():
            if isinstance(each, TensorBase):
                self.tensors.append(each)
            elif isinstance(each, Node):
                self.take(each)

    def take(self, node: Any) -> None:
        """Note where a node leads and what it saves."""
        for edge in getattr(node, "edges", None) or ():
            if edge is not None:
                self.inner.add(id(edge))
                self.used.add((edge.code, edge.instruction))
        for tensor in saved_by(node):
            self.saved[id(tensor)] += 1
            self.blocks.add(address_of(tensor))

    def results(self) -> dict[Site, dict[int, Any]]:
        """Tensors with a history that nothing was computed from, by the line that made them."""
        found: dict[Site, dict[int, Any]] = {}
        for tensor in self.tensors:
            record = getattr(tensor, "record", None)
            node = None if record is None else record.node
            if node is not None and id(node) not in self.inner:
                found.setdefault((node.code, node.instruction), {})[id(node)] = tensor
        return found

    def others(self) -> tuple[frozenset[int], frozenset[int]]:
        """The blocks of leaves that want gradients, and those that the program itself holds."""
        leaves, held = set(), set()
        # A tensor is in our list, has a name here, and is handed over to be counted.
        for probe in [object()]:
            ours = sys.getrefcount(probe)
        for tensor in self.tensors:
            address = address_of(tensor)
            record = getattr(tensor, "record", None)
            if record is not None and record.node is not None:
                continue
            if record is not None and record.requires_grad:
                leaves.add(address)
            elif sys.getrefcount(tensor) - ours > self.saved[id(tensor)]:
                held.add(address)
        return frozenset(leaves), frozenset(held)


def address_of(tensor: Any) -> int:
    """Where a tensor's block begins; 0 where it is not made yet."""
    storage = getattr(tensor, "storage", None)
    return 0 if storage is None else int(storage.address)


def saved_by(node: Any) -> Iterator[Any]:
    """The tensors that a node keeps for backward."""
    entries = [*(getattr(node, "saved", None) or ()), getattr(node, "extra", None)]
    for entry in entries:
        for each in entry if isinstance(entry, (list, tuple)) else (entry,):
            tensor = getattr(each, "tensor", None)
            if isinstance(tensor, TensorBase):
                yield tensor


def look() -> Look:
    """Find the graphs that results keep alive now, those of most results first."""
    found = _Found()
    leaves, held = found.others()
    budget = MOST_NODES
    kept = []
    for site, results in sorted(found.results().items(), key=lambda pair: -len(pair[1])):
        addresses, sums, seen = walked((each.record.node for each in results.values()), budget)
        budget -= seen
        if not addresses - leaves - held:
            # Backward went over it: what is left of the graph holds no memory of a device.
            continue
        addresses |= {address_of(each) for each in results.values()}
        most = max(sums, key=lambda each: sums[each], default=None)
        summed = most is not None and sums[most] >= max(SEVERAL, len(results))
        if summed or len(results) >= SEVERAL:
            count = sums[most] if summed and most else len(results)
            holder = "" if summed else holder_of(next(iter(results.values())))
            kept.append(Kept(most if summed and most else site, count, summed, holder,
                             frozenset(addresses - leaves - held)))
    return Look(kept, frozenset(found.used), leaves, frozenset(found.blocks - leaves - held))


def walked(nodes: Iterable[Any], most: int) -> tuple[set[int], Counter[Site], int]:
    """Blocks that the graphs from ``nodes`` on hold, sums of numbers in them by line, nodes seen.
    """
    waiting = deque(nodes)
    seen: set[int] = set()
    addresses: set[int] = set()
    sums: Counter[Site] = Counter()
    while waiting and len(seen) < most:
        node = waiting.popleft()
        if node is None or id(node) in seen or isinstance(node, GradRecord):
            continue
        seen.add(id(node))
        addresses.update(address_of(tensor) for tensor in saved_by(node))
        if node.name().startswith("Add") and node.outputs and node.outputs[0].numel == 1:
            sums[node.code, node.instruction] += 1
        waiting.extend(node.edges or ())
    return addresses, sums, len(seen)


def holder_of(tensor: Any) -> str:
    """The kind of container that holds a tensor; "" where none does."""
    for each in gc.get_referrers(tensor):
        if isinstance(each, (list, deque, set)) or type(each) is tuple:
            return type(each).__name__
    return ""


def largest(kept: list[Kept], sizes: dict[int, int], whole: int) -> tuple[Kept, int] | None:
    """The graphs that hold most of blocks by address, with the bytes, where it is much."""
    sums = [(sum(sizes.get(each, 0) for each in graph.addresses), graph) for graph in kept]
    nbytes, graph = max(sums, key=lambda pair: pair[0], default=(0, None))
    return (graph, nbytes) if graph is not None and nbytes >= MUCH * whole else None
