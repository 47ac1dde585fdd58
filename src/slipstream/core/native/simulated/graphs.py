"""Graphs of work, and executable graphs made of them."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any

from slipstream.core.native.driver import DriverError
from slipstream.core.native.simulated.order import tick
from slipstream.core.native.simulated.schedule import Stream
from slipstream.core.native.simulated.working import (
    Action,
    EmptyAction,
    KernelAction,
    Ticket,
    first_moment,
)


@dataclass(slots=True)
class Node:
    """A node: an action, or a child graph; ``after`` are the handles of nodes before it."""

    handle: int
    after: tuple[int, ...]
    action: Action | None = None
    child: Graph | None = None

    def kind(self) -> str:
        """What it is."""
        return "child" if self.action is None else self.action.kind


class Graph:
    """A graph: its nodes by handle, in the order in which they were added."""

    def __init__(self) -> None:
        self.handle = 0
        self.nodes: dict[int, Node] = {}

    def copy(self) -> Graph:
        """A graph of its own with the same nodes."""
        made = Graph()
        made.nodes = {
            handle: Node(handle, node.after, node.action, node.child and node.child.copy())
            for handle, node in self.nodes.items()}
        return made

    def check_after(self, after: tuple[int, ...], call: str) -> None:
        """Raise DriverError where a node is to follow one that is not here."""
        for handle in after:
            if handle not in self.nodes:
                raise DriverError(call, "INVALID_VALUE", f"{handle:#x} is no node of the graph")

    def ancestors(self, handles: set[int]) -> set[int]:
        """These nodes and all before them."""
        found: set[int] = set()
        left = list(handles)
        while left:
            handle = left.pop()
            if handle not in found:
                found.add(handle)
                left.extend(self.nodes[handle].after)
        return found

    def chain(self) -> list[Node] | None:
        """The nodes, where each follows just the one added before it; None otherwise."""
        before: tuple[int, ...] = ()
        for node in self.nodes.values():
            if node.after != before:
                return None
            before = (node.handle,)
        return list(self.nodes.values())


def difference(old: Graph, new: Graph) -> str:
    """Why a graph cannot take another's place in an executable one; empty where it can."""
    if len(old.nodes) != len(new.nodes):
        return f"{len(new.nodes)} nodes instead of {len(old.nodes)}"
    places = [{handle: place for place, handle in enumerate(graph.nodes)} for graph in (old, new)]
    pairs = zip(old.nodes.values(), new.nodes.values(), strict=True)
    for place, (mine, theirs) in enumerate(pairs):
        edges = [{where[handle] for handle in node.after}
                 for where, node in zip(places, (mine, theirs), strict=True)]
        if mine.kind() != theirs.kind() or edges[0] != edges[1]:
            return f"node {place} is another: {theirs.kind()} instead of {mine.kind()}"
        inner = mine.child and theirs.child and difference(mine.child, theirs.child)
        text = inner or changed(mine.action, theirs.action)
        if text:
            return f"node {place}: {text}"
    return ""


def changed(old: Any, new: Any) -> str:
    """Why an action cannot take another's place; empty where it can."""
    if isinstance(old, KernelAction) and old.function is not new.function:
        return f"kernel {new.function.name} instead of {old.function.name}"
    return ""


@dataclass
class Shape:
    """The flat order of an executable graph: for each place those before and after it.

    ``owner``: which top node each place belongs to.  Places that must run one after the other form
    chains; ``known`` says how much of each chain a place is ordered after, itself included.
    """

    before: list[tuple[int, ...]] = field(default_factory=list)
    after: list[list[int]] = field(default_factory=list)
    owner: list[int] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    chain_of: list[int] = field(default_factory=list)
    known: list[list[int]] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)

    def finish(self) -> None:
        """Work out what follows from ``before``."""
        self.after = [[] for _ in self.before]
        for place, before in enumerate(self.before):
            for each in before:
                self.after[each].append(place)
        self.missing = [len(before) for before in self.before]
        self.roots = [place for place, before in enumerate(self.before) if not before]
        self._find_chains()

    def _find_chains(self) -> None:
        ends: dict[int, int] = {}
        for place, before in enumerate(self.before):
            chain = next((self.chain_of[each] for each in before
                          if ends[self.chain_of[each]] == each), len(self.lengths))
            if chain == len(self.lengths):
                self.lengths.append(0)
            self.lengths[chain] += 1
            ends[chain] = place
            known = [0] * len(self.lengths)
            for each in before:
                for number, count in enumerate(self.known[each]):
                    known[number] = max(known[number], count)
            known[chain] = self.lengths[chain]
            self.chain_of.append(chain)
            self.known.append(known)


class Executable:
    """An executable graph: a flat list of actions, and where each node's lie."""

    def __init__(self, graph: Graph, ordinal: int) -> None:
        self.handle = 0
        self.ordinal = ordinal
        self.graph = graph.copy()
        # (site, moment) of each top node, where launches do not bring their own.
        self.stamps: list[Any] | None = None
        self.actions: list[Action] = []
        self.shape = Shape()
        self.spans: dict[int, tuple[int, int]] = {}
        # The last launch, and the clock of what it is ordered after.
        self.launched: tuple[Any, array[int]] | None = None
        for owner, node in enumerate(self.graph.nodes.values()):
            start = len(self.actions)
            self._flatten(node, self._exits(self.graph, node.after), owner)
            self.spans[node.handle] = (start, len(self.actions))
        self.shape.finish()
        self.kernels = sum(action.kind == "kernel" for action in self.actions)

    def _exits(self, graph: Graph, handles: tuple[int, ...]) -> tuple[int, ...]:
        """The places after which a node that follows others may run."""
        return tuple(dict.fromkeys(self.spans[handle][1] - 1 for handle in handles))

    def _place(self, action: Action, before: tuple[int, ...], owner: int) -> None:
        self.actions.append(action)
        self.shape.before.append(before)
        self.shape.owner.append(owner)

    def _flatten(self, node: Node, before: tuple[int, ...], owner: int) -> None:
        if node.child is None:
            self._place(node.action or EmptyAction(), before, owner)
            return
        # A child begins and ends at places of its own: edges lead to these.
        self._place(EmptyAction(), before, owner)
        entry = len(self.actions) - 1
        for inner in node.child.nodes.values():
            start = len(self.actions)
            exits = self._exits(node.child, inner.after) or (entry,)
            self._flatten(inner, exits, owner)
            self.spans[inner.handle] = (start, len(self.actions))
        ends = self._exits(node.child, tuple(node.child.nodes)) or (entry,)
        self._place(EmptyAction(), ends, owner)

    def node(self, handle: int, kind: str, call: str) -> Node:
        """A node of the graph that it was made of; raises DriverError for another."""
        node = self.graph.nodes.get(handle)
        if node is None or node.kind() != kind:
            raise DriverError(call, "INVALID_VALUE", f"{handle:#x} is no {kind} node of the graph")
        return node

    def set_action(self, node: Node, action: Action) -> None:
        """Change what a node does."""
        node.action = action
        self.actions[self.spans[node.handle][0]] = action

    def set_child(self, node: Node, child: Graph) -> None:
        """Change what a child node does; the child has been compared."""
        node.child = child.copy()
        start, end = self.spans[node.handle]
        self.actions[start + 1 : end - 1] = list(flat(node.child))


def flat(graph: Graph) -> list[Action]:
    """The actions of a graph in the order in which an executable one lays them out."""
    found: list[Action] = []
    for node in graph.nodes.values():
        if node.child is None:
            found.append(node.action or EmptyAction())
        else:
            found += [EmptyAction(), *flat(node.child), EmptyAction()]
    return found


class Tickets:
    """The tickets of one launch of a graph, made when its nodes run.

    ``stamps``: (site, moment) of each top node.
    """

    def __init__(self, stream: Stream, shape: Shape, stamps: Any, schedule: Any) -> None:
        self.ordinal = stream.ordinal
        self.shape = shape
        self.stamps = stamps
        self.oldest = min(first_moment(moment) for _, moment in stamps) if stamps else 0
        self.race = schedule.options.race
        if self.race:
            schedule.arrive(stream)
            while len(stream.more_slots) < len(shape.lengths) - 1:
                stream.more_slots.append(schedule.host.new_slot())
            self.slots = [stream.slot, *stream.more_slots]
            self.base = array("I", stream.clock)
            for slot, length in zip(self.slots, shape.lengths, strict=False):
                tick(stream.clock, slot, length)
            self.base.extend([0] * (len(stream.clock) - len(self.base)))

    def __call__(self, place: int) -> Ticket:
        """The ticket of the node at a place."""
        site, moment = self.stamps[self.shape.owner[place]]
        ticket = Ticket(site, moment, self.ordinal)
        if self.race:
            clock = array("I", self.base)
            for slot, count in zip(self.slots, self.shape.known[place], strict=False):
                tick(clock, slot, count)
            ticket.slot = self.slots[self.shape.chain_of[place]]
            ticket.clock = clock
        return ticket
