"""What a backward with ``inputs`` is asked for: gradients of some tensors, and no others."""

from __future__ import annotations

from typing import Any

from slipstream.core.engine.tape import accumulate, tape
from slipstream.core.vocab.records import Node


def note_wanted(wanted: dict[tuple[Node, int], Any], node: Node, grads: list[Any]) -> None:
    """Keep the gradients of a node's outputs that were asked for."""
    for place in range(len(grads)):
        if (node, place) in wanted:
            wanted[node, place] = grads[place]


def targets_of(walk: Any, inputs: list[Any]) -> list[Any]:
    """The edges of the tensors whose gradients a walk is asked for, which it is restricted to."""
    edges = []
    for tensor in inputs:
        edge = tape.edge_of(tensor)
        if edge is None:
            raise RuntimeError("One of the differentiated Tensors does not require grad: "
                               f"{tensor.spec!r}")
        edges.append(edge)
        walk.wanted[edge] = None
    restrict(walk, {edge[0] for edge in edges})
    return edges


def restrict(walk: Any, targets: set[Node]) -> None:
    """Only nodes from which a target can be reached need to run, and leaves among these."""
    reaching = set(targets)
    needed = set()
    # Edges lead to lower sequence numbers, accumulators apart, so one sorted pass decides.
    nodes = [visit.node for visit in walk.all]
    for node in sorted(nodes, key=lambda each: each.sequence):
        if any(edge is not None and edge in reaching for edge in node.edges):
            reaching.add(node)
            needed.add(node)
    needed.update(node for node in targets if node.rule is accumulate)
    walk.needed = needed
