"""A captured graph: its nodes, the memory it holds, and its replays."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from slipstream.core.launch.cuda.launches import Launch
from slipstream.core.launch.cuda.sends import Work
from slipstream.core.launch.cuda.words import Words
from slipstream.core.launch.door import door, outgrown
from slipstream.core.memory.pools import Pool
from slipstream.core.native.driver import DriverError
from slipstream.core.vocab.modes import modes
from slipstream.core.vocab.records import Storage

# Those whose replays may come.
living: WeakValueDictionary[int, CapturedGraph] = WeakValueDictionary()


class Step(NamedTuple):
    """A node: its name, the nodes before it, its launch where it is one, and its site."""

    name: str
    after: tuple[int, ...]
    launch: Launch | None
    site: tuple[Any, int]
    moment: int


class Draw(NamedTuple):
    """A launch that draws: words ``at`` and after are the seed and the first counter.

    ``generator``: which of the graph's it draws from; the captured counter counts from 0.  Where
    ``origin`` is another graph, it draws again what that one drew when it was replayed last.
    """

    node: int
    launch: Launch
    words: tuple[int, ...]
    at: int
    generator: int
    origin: CapturedGraph | None = None


class CapturedGraph:
    """A graph that a user's object owns.

    ``held``: storages that captured work uses outside of the pool; ``hosts``: pinned ones that its
    copies fill (``filled``) or read; ``generators``: each with how many counters a replay takes.
    """

    def __init__(self, backend: Any, pool: Pool) -> None:
        self.backend = backend
        self.pool = pool
        self.memory: Any = None
        self.driver = backend.driver
        self.steps: dict[int, Step] = {}
        self.draws: list[Draw] = []
        self.held: dict[int, Storage] = {}
        self.hosts: list[Storage] = []
        self.filled: list[Storage] = []
        self.children: list[int] = []
        self.generators: list[tuple[Any, int]] = []
        # The seeds that stand for them in captured words; seeds and counters at the last replay.
        self.tokens: list[int] = []
        self.streams: list[tuple[int, int]] = []
        self.launches: list[Launch | None] = []
        self.sites: list[Any] = []
        # The last replay on each stream, by their numbers.
        self.used: dict[int, int] = {}
        self.stream = 0
        self.executable = 0
        self.graph = self.driver.create_graph()
        living[id(self)] = self

    def before(self, nodes: tuple[int, ...]) -> set[int]:
        """These nodes and all before them."""
        found: set[int] = set()
        left = list(nodes)
        while left:
            node = left.pop()
            if node not in found:
                found.add(node)
                left.extend(self.steps[node].after)
        return found

    def instantiate(self) -> None:
        """Make the graph executable."""
        self.backend.enter()
        if self.executable:
            self.driver.destroy_executable(self.executable)
            self.executable = 0
        self.executable = self.driver.instantiate(self.graph)
        if self.driver.name == "simulated":
            # Freed blocks of the pool are the graph's: a replay is checked against its capture's.
            stamps = [(step.site, step.moment) for step in self.steps.values()]
            self.driver.stamp_executable(self.executable, stamps)
        self.backend.counts.captured += 1
        kernels = [step for step in self.steps.values() if step.launch is not None]
        self.launches = [step.launch for step in kernels]
        self.sites = [part for step in kernels for part in step.site]

    def replay(self) -> None:
        """Launch the graph on the current stream, with new random numbers."""
        backend = self.backend
        queue = backend.queue()
        if queue.capture is not None:
            queue.capture.refuse("another graph is replayed")
        queue.send("graph")
        backend.enter()
        self.draw()
        for storage in self.hosts:
            backend.pins().follow(queue, storage)
        ring = modes.ring
        work = None if ring is None else Work(self.launches, self.sites)
        begun = None if ring is None else ring.timer.begin(queue, work)
        backend.hot.launch_graph(self.executable, queue.stream)
        if ring is not None:
            ring.timer.sent(queue, work, begun)
        queue.sequence += 1
        self.used[queue.number] = queue.sequence
        self.count()
        if self.hosts:
            backend.pins().note(queue, self.hosts)
        for storage in self.filled:
            if storage.exported:
                door.settle_storage(storage)
        backend.check()
        if backend.blocking:
            backend.wait()

    def draw(self) -> None:
        """Let the nodes that draw go on where their generators are now."""
        self.streams = [generator.draw(count) for generator, count in self.generators]
        for each in self.draws:
            origin = each.origin or self
            if not origin.streams:
                raise RuntimeError("cuda graph: it draws again what another graph drew, which was "
                                   "not replayed yet\n  mend: replay that one first")
            seed, first = origin.streams[each.generator]
            values = list(each.words)
            values[each.at:each.at + 2] = seed, first + values[each.at + 1]
            words = Words()
            for value in values:
                words.append(value & ((1 << 64) - 1))
            self.backend.hot.set_kernel_node(
                self.executable, each.node, each.launch.function, each.launch.shape,
                each.launch.parameters(words, 0, len(values)))
        self.backend.counts.patched += len(self.draws)

    def count(self) -> None:
        """Count the launches of a replay, and keep their sites."""
        backend = self.backend
        backend.counts.launches += len(self.launches)
        backend.counts.replayed += len(self.launches)
        if backend.driver.name == "real":
            # The simulated driver counts them itself.
            backend.hot.graph_kernel_nodes += len(self.launches)
        backend.slot.keep(self.launches, self.sites)

    def note_uses(self) -> None:
        """Tell the allocator which streams replays ran on: what was held may be freed now."""
        backend = self.backend
        if len(backend.queues) < 2:
            return
        for each in self.held.values():
            storage: Storage | None = each
            if each.owner != backend.owner:
                # Memory of ours that came back through another library is that of its lender.
                storage = getattr(each.keep, "lent", None)
            if storage is not None:
                for number, sequence in self.used.items():
                    backend.allocator.used(storage.address, number, sequence)

    def drop(self) -> None:
        """Give everything back; a replay in flight still finishes."""
        self.note_uses()
        with contextlib.suppress(DriverError):
            if self.executable:
                self.driver.destroy_executable(self.executable)
            for graph in (self.graph, *self.children):
                if graph:
                    self.driver.destroy_graph(graph)
            if self.stream:
                self.driver.destroy_stream(self.stream)
        self.executable = self.graph = self.stream = 0
        self.children = []
        self.held.clear()
        self.hosts.clear()
        self.filled.clear()
        self.steps.clear()
        self.draws.clear()
        if self.memory is not None:
            self.memory.let_loose(self.used if len(self.backend.queues) > 1 else {})
            self.memory = None

    def text(self) -> str:
        """The graph in the language of Graphviz."""
        names = {node: f"node{place}" for place, node in enumerate(self.steps)}
        lines = ["digraph captured {"]
        for node, step in self.steps.items():
            lines.append(f'  {names[node]} [label="{step.name}"];')
            lines += [f"  {names[each]} -> {names[node]};" for each in step.after]
        return "\n".join([*lines, "}", ""])


def keep_block(storage: Storage, before: Storage) -> None:
    """Let graphs that use a storage hold the block that it had: their replays still use that."""
    # Other threads may make graphs: the references are taken at once.
    for reference in living.valuerefs():
        graph = reference()
        if graph is None:
            continue
        if graph.held.get(id(storage)) is storage:
            del graph.held[id(storage)]
            graph.held[id(before)] = before
        for hosts in (graph.hosts, graph.filled):
            hosts[:] = [before if each is storage else each for each in hosts]


outgrown.append(keep_block)
