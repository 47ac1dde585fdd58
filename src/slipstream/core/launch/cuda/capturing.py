"""Captures: while a user captures a graph, launches become its nodes instead of being sent.

The driver's own capture is not used.  Each launch, pinned copy and library call of a stream that
captures is added behind the stream's last node, events carry places in the graph from one stream
to another, and memory comes from a pool that the graph holds.  So the host may go on with
everything else, and what must not be captured is refused at the line that asks for it.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from slipstream.core.launch.cuda.captured import CapturedGraph, Draw, Step
from slipstream.core.launch.cuda.launches import Launch
from slipstream.core.launch.cuda.tickets import TICKETS
from slipstream.core.launch.cuda.words import Words
from slipstream.core.launch.door import door
from slipstream.core.launch.waiting import asking, host_waits
from slipstream.core.memory.pools import Pool, routes_of
from slipstream.core.native.driver import TO_HOST
from slipstream.core.vocab.errors import CaptureError, explain
from slipstream.core.vocab.generators import StandIn, known_tokens, open_tokens
from slipstream.core.vocab.modes import modes
from slipstream.core.vocab.records import Storage

# Classes of the numbers with which every launch that draws begins.
STREAM = ("seed", "base")


class CapturedPlace:
    """What an event stands for that was recorded in a capture: the nodes before it.

    Index 0 is the number of the stream, as in the places of other events.
    """

    def __init__(self, capture: Capture, number: int, nodes: tuple[int, ...]) -> None:
        self.capture = capture
        self.number = number
        self.nodes = nodes

    def __getitem__(self, place: int) -> int:
        return (self.number,)[place]


class Registered(NamedTuple):
    """A generator whose draws are the graph's: inside, ``stand_in``, of seed ``token``, draws."""

    generator: Any
    stand_in: StandIn
    token: int


class Capture:
    """A capture that goes on: the graph so far, and what it will hold.

    ``tails``: for each stream in it, by number, the nodes that its next node follows.
    """

    def __init__(self, backend: Any, pool: Pool, generators: list[Any]) -> None:
        self.backend = backend
        self.driver = backend.driver
        self.pool = pool
        self.made = CapturedGraph(backend, pool)
        self.origin = backend.queue()
        self.queues = [self.origin]
        self.tails: dict[int, tuple[int, ...]] = {self.origin.number: ()}
        self.spaces: dict[int, Storage] = {}
        self.counters: dict[int, Storage] = {}
        self.generators = generators
        self.registered: list[Registered] = []
        self.broken = ""
        self.begun = False
        self.entered: tuple[int, Pool | None] = (0, pool)

    # -- from beginning to end --

    def begin(self) -> None:
        """Let the current stream's launches come here; memory comes from the pool."""
        self.made.memory = self.pool.hold(self.backend.allocator)
        self.entered = routes_of(self.backend.allocator).enter(self.pool)
        try:
            self.take_over()
        except BaseException:
            self.leave()
            raise

    def take_over(self) -> None:
        """Let generators of the capture's own stand for the given ones, and begin it."""
        for generator in self.generators:
            # A seed of its own tells the words of each generator apart from all others.
            token = int.from_bytes(os.urandom(8), "little")
            # The generator itself is left alone: other threads, and other captures, draw too.
            found = StandIn(generator.device, token, self.is_here)
            self.registered.append(Registered(generator, found, token))
            open_tokens.add(token)
            generator.stand_in(self, found)
        self.origin.capture = self
        self.begun = True
        door.note_capture(1)

    def leave(self) -> None:
        """Let everything go where it went before; the generators continue as if nothing was."""
        for queue in self.queues:
            queue.capture = None
        if self.begun:
            self.begun = False
            door.note_capture(-1)
        # It may be another thread that ends it, or a collector.
        for generator, found, token in self.registered:
            generator.stand_in(self, None)
            self.made.generators.append((generator, found.get_offset()))
            self.made.tokens.append(token)
            known_tokens[token] = self.made
            open_tokens.discard(token)
        self.registered = []
        routes_of(self.backend.allocator).leave(self.entered)

    def is_here(self) -> bool:
        """Whether what the running thread launches on the card comes here."""
        captures: bool = self.backend.queue().capture is self
        return captures

    def end(self) -> CapturedGraph:
        """The graph, ready to be replayed.

        Raises RuntimeError where a launch failed, or a stream that joined was not joined again.
        """
        self.check_end()
        self.leave()
        if self.broken:
            self.made.drop()
            raise RuntimeError("cuda graph: a launch could not be captured, so that there is no "
                               f"graph: {self.broken}")
        loose = len(self.made.steps) - len(self.made.before(self.tails[self.origin.number]))
        if loose:
            self.made.drop()
            raise RuntimeError(
                f"cuda graph: {loose} captured launches of other streams are not waited for by "
                "the stream that the capture began on\n"
                "  mend: let it wait for them (wait_stream, wait_event) before capture_end")
        return self.made

    def check_end(self) -> None:
        """Raise RuntimeError where this is not how the capture can end."""
        if self.backend.queue() is not self.origin:
            raise RuntimeError("cuda graph: the capture ends on another stream than it began on")

    def abandon(self) -> None:
        """End without a graph."""
        self.leave()
        self.made.drop()

    # -- what becomes a node --

    def take(self, queue: Any, window: Any) -> None:
        """Add a stream's launches."""
        start = 0
        for place, launch in enumerate(window.launches):
            end = window.ends.get(place)
            site = (window.sites[2 * place], window.sites[2 * place + 1])
            try:
                self.add_launch(queue, launch, window.words.take(start, end - start), site)
            except RuntimeError as error:
                # Whoever goes on all the same would get a graph without it.
                self.broken = str(error)
                raise
            start = end

    def add_launch(self, queue: Any, launch: Launch, words: tuple[int, ...], site: Any) -> None:
        """Add a launch with its argument words."""
        draws = launch.numbers[:2] == STREAM
        at = len(words) - sum([1 + (each == "c128") for each in launch.numbers])
        found, origin = self.drawn_from(words[at]) if draws else (-1, None)
        block = launch.parameters(words_of(words), 0, len(words))
        node = self.driver.add_kernel_node(self.made.graph, self.tails[queue.number],
                                           launch.function, launch.shape, block)
        self.note(queue, node, launch.name, launch, site)
        if draws:
            self.made.draws.append(Draw(node, launch, words, at, found, origin))

    def drawn_from(self, seed: int) -> tuple[int, CapturedGraph | None]:
        """Which registered generator draws, and the graph that drew the same before, if another.

        RuntimeError for a generator that is not registered.
        """
        for place, each in enumerate(self.registered):
            if each.token == seed:
                return place, None
        origin: CapturedGraph | None = known_tokens.get(seed)
        if origin is not None:
            return origin.tokens.index(seed), origin
        raise RuntimeError(
            "cuda graph: a generator that the graph does not know draws inside the capture, or one "
            "whose state from outside was set there\n"
            "  mend: graph.register_generator_state(generator), and set states, before it")

    def copy(self, queue: Any, copied: tuple[int, int, int, str], storage: Storage) -> None:
        """Add a copy (target, source, bytes, kind); ``storage`` is the host's side."""
        try:
            node = self.driver.add_copy_node(self.made.graph, self.tails[queue.number], *copied)
        except RuntimeError as error:
            self.broken = str(error)
            raise
        queue.sequence += 1
        state = modes.current()
        self.note(queue, node, f"copy of {copied[2]} bytes", None, (state.code, state.instruction))
        if all(each is not storage for each in self.made.hosts):
            self.made.hosts.append(storage)
        if copied[3] == TO_HOST:
            self.made.filled.append(storage)

    def library(self, queue: Any, name: str, call: Any) -> None:
        """Add a library's call, which the driver captures, as a graph inside the graph."""
        try:
            node = self.add_library(queue, call)
        except RuntimeError as error:
            # As of a launch: the graph would lack it.
            self.broken = str(error)
            raise
        queue.sequence += 1
        state = modes.current()
        self.note(queue, node, name, None, (state.code, state.instruction))

    def add_library(self, queue: Any, call: Any) -> int:
        """The node of a library's call."""
        if not self.made.stream:
            self.made.stream = self.driver.create_stream()
        self.backend.enter()
        self.driver.begin_capture(self.made.stream)
        try:
            call(self.made.stream)
        finally:
            child = self.driver.end_capture(self.made.stream)
            self.made.children.append(child)
        return int(self.driver.add_child_node(self.made.graph, self.tails[queue.number], child))

    def note(self, queue: Any, node: int, name: str, launch: Launch | None, site: Any) -> None:
        """Note a node that was added behind a stream's last ones."""
        self.made.steps[node] = Step(name, self.tails[queue.number], launch, site,
                                     self.driver.moment)
        self.tails[queue.number] = (node,)

    # -- what the graph holds --

    def hold(self, operands: tuple[Any, ...]) -> None:
        """Keep what a captured launch uses and is no memory of the pool."""
        owner = self.backend.owner
        elsewhere = self.backend.allocator.elsewhere
        for tensor in operands:
            storage = tensor.storage
            if storage.owner == owner and storage.address in elsewhere:
                if elsewhere[storage.address][0] is self.made.memory:
                    continue
            self.made.held[id(storage)] = storage

    def workspace(self, queue: Any, nbytes: int) -> int:
        """Memory that captured library calls of a stream may use."""
        found = self.spaces.get(queue.number)
        if found is None:
            backend = self.backend
            address = backend.memory.allocate(nbytes)
            found = Storage(backend.device, address, nbytes, backend.owner)
            self.spaces[queue.number] = self.made.held[id(found)] = found
        return found.address

    def tickets(self, queue: Any) -> int:
        """The graph's own words of a stream that are zero between launches.

        Replays may run beside what else the stream does, so that they cannot share its own.
        """
        found = self.counters.get(queue.number)
        if found is None:
            found = self.constant(queue, np.zeros(TICKETS, np.uint32))
            self.counters[queue.number] = found
        return found.address

    def constant(self, queue: Any, data: np.ndarray) -> Storage:
        """Memory that holds bytes for every replay; it is written before this returns.

        It is no memory of the pool: what a graph frees there, another graph may write.
        """
        backend = self.backend
        routes = routes_of(backend.allocator)
        entered = routes.enter(None)
        try:
            address = backend.memory.allocate(data.nbytes)
        finally:
            routes.leave(entered)
        made = Storage(backend.device, address, data.nbytes, backend.owner)
        # Whoever used the memory before: the capture's stream was not made to wait for it.
        host_waits(backend.device, "graph capture", backend.finish_all)
        backend.staging.write(address, data, queue.stream)
        host_waits(backend.device, "graph capture", backend.driver.wait_stream, queue.stream)
        self.made.held[id(made)] = made
        return made

    # -- edges --

    def place(self, queue: Any) -> CapturedPlace:
        """What an event that is recorded on a stream now stands for."""
        return CapturedPlace(self, queue.number, self.tails[queue.number])

    def follow(self, queue: Any, nodes: tuple[int, ...]) -> None:
        """Let a stream, which joins the capture, come after nodes."""
        if queue.capture is None:
            queue.send("capture")
            queue.capture = self
            self.queues.append(queue)
        tails = self.tails.get(queue.number, ())
        self.tails[queue.number] = tuple(dict.fromkeys((*tails, *nodes)))

    # -- what is refused --

    def refuse(self, what: str) -> None:
        """Raise RuntimeError: the host cannot wait for what has not been launched."""
        rule = (f"cuda graph: the stream captures a graph, and {what}; captured work does not run "
                "before the graph is replayed")
        mend = "wait, and read elements, outside of the capture"
        if asking.call is None:
            raise CaptureError(f"{rule}\n  mend: {mend}")
        name, operand = asking.call
        raise CaptureError(explain(name, {} if operand is None else {"self": operand}, rule, mend))

    def refuse_pageable(self) -> None:
        """Raise RuntimeError: a copy that the host's memory has to take part in."""
        raise RuntimeError(
            "cuda graph: a copy from pageable memory of the host cannot be captured: a replay "
            "would read memory that may be gone\n"
            "  mend: make the tensor on the device before the capture (x.cuda()), copy from pinned "
            "memory, or write a tensor of one element as a number (x.item())")


def words_of(values: tuple[int, ...]) -> Words:
    """Argument words with these values."""
    made = Words()
    for value in values:
        made.append(value)
    return made


def join(queue: Any, place: Any) -> None:
    """Let a stream come after an event's place, where the stream or the event is captured.

    Raises RuntimeError where the event stands for work outside of the stream's capture, and where
    the stream is another card's.
    """
    if not isinstance(place, CapturedPlace):
        raise RuntimeError(
            "cuda graph: the stream captures a graph and cannot wait for work outside of it\n"
            "  mend: wait before the capture, or before each replay")
    capture = place.capture
    refuse_ended(place)
    if queue.owner is not capture.backend:
        # Its launches would be nodes, and its number be taken for one, of the wrong card.
        raise RuntimeError(
            f"cuda graph: a stream of {queue.owner.device} waits for one of "
            f"{capture.backend.device}, which captures; a graph is captured on one device\n"
            "  mend: capture a graph on each device, and let their streams wait for each other "
            "between the replays")
    if queue.capture not in (None, capture):
        raise RuntimeError("cuda graph: a stream of one capture cannot wait for another capture")
    capture.follow(queue, place.nodes)


def refuse_ended(place: CapturedPlace) -> None:
    """Raise RuntimeError where the capture that an event was recorded in has ended."""
    if place.capture.origin.capture is not place.capture:
        raise RuntimeError(
            "cuda graph: the event was recorded in a capture that has ended: it stands for a place "
            "in the graph, and for no work that was launched\n"
            "  mend: record an event after replay(), and use that one")


def refuse_captured(place: Any, what: str) -> None:
    """Raise RuntimeError where an event was recorded in a capture."""
    if isinstance(place, CapturedPlace):
        refuse_ended(place)
        place.capture.refuse(what)


def begin_capture(backend: Any, pool: Pool, generators: list[Any]) -> Capture:
    """Begin a capture on the running thread's current stream.

    Raises RuntimeError where that captures already.
    """
    queue = backend.queue()
    if queue.capture is not None:
        raise RuntimeError("cuda graph: the current stream captures a graph already")
    queue.send("capture")
    backend.enter()
    capture = Capture(backend, pool, generators)
    try:
        capture.begin()
    except BaseException:
        capture.made.drop()
        raise
    return capture
