"""The graph memo: windows of launches that were seen before, kept as executable graphs.

A window is known by its sequence of kernels.  First sight: its launches went out one by one.
Second: it becomes a graph.  Then: the graph is launched again, after the nodes whose grid, block
or argument words differ from last time were patched.  Arguments that come a second time get a
graph of their own.
"""

from __future__ import annotations

from typing import Any

import cython

from slipstream.core.launch.cuda.counts import Counts
from slipstream.core.launch.cuda.launches import Launch
from slipstream.core.launch.cuda.words import MASK, Words
from slipstream.core.native.driver import Driver, DriverError
from slipstream.core.native.hot import HotCalls
from slipstream.core.vocab.records import Release

__all__ = ["Graph", "Launch", "Memo", "Window", "Words"]

# Limits of a memo: graphs, and the bytes that they are reckoned to hold.
MOST_GRAPHS = 512
MOST_BYTES = 256 << 20
# What the driver keeps of one kernel node, about.
NODE_BYTES = 4096
# Graphs of one sequence of kernels, as the layers of a model have it: each with arguments that
# came again.
VARIANTS = 32
# Arguments of a sequence that are remembered, so that a second sight is known as one.
SIGHTS = 2 * VARIANTS
# Windows for which a graph that is launched as it is keeps its arguments.
LASTING = 1024

# The places of instructions in most functions: each is one number, made once.
PLACES = tuple(range(0, 4096, 2))


class Window:
    """Launches in the order in which they were recorded.

    ``ends`` holds, for each launch, where its argument words end; ``key`` is the hash of the
    sequence of kernels; ``drained`` counts the launches that went out before the window's end;
    ``traces`` has the op and line of each launch, the last ones where a profile began among them;
    None until one is on.  ``releases``: the storages between neighbours that may become one
    launch; ``kept``: the launches whose sites count where several have become one, None: all;
    ``last``: the one that was recorded last, where it has become a part of another, and ``start``,
    where its words begin.
    """

    launches: list[Launch]
    words: Words
    ends: Words
    sites: list[Any]
    kept: list[int] | None
    moments: list[int]
    traces: Words | None
    key: int
    drained: int
    last: Launch | None
    start: int
    releases: list[Release]

    def __init__(self) -> None:
        self.words = Words()
        self.ends = Words()
        self.traces = None
        self.clear()

    def clear(self) -> None:
        """Empty it; others may hold the lists that it had."""
        self.launches = []
        self.words.clear()
        self.ends.clear()
        self.sites = []
        self.kept = None
        self.moments = []
        if self.traces is not None:
            self.traces.clear()
        self.key = 0
        self.drained = 0
        self.last = None
        self.start = 0
        self.releases = []

    def seal(self) -> None:
        """What is recorded next belongs to another window: releases tell no more."""
        release: Release
        for release in self.releases:
            release.launches = None

    def note(self, launch: Launch, code: Any, instruction: cython.int) -> None:
        """Add a launch whose words are there, and the user's line that it comes from."""
        self.launches.append(launch)
        self.ends.append(self.words.length)
        self.sites.append(code)
        if 0 <= instruction < 4096 and not instruction & 1:
            self.sites.append(PLACES[instruction >> 1])
        else:
            self.sites.append(instruction)


def sites_of(window: Window) -> list[Any]:
    """The site of each launch, in two places; of several that have become one, the main one's."""
    if window.kept is None:
        return window.sites
    return [window.sites[2 * place + half] for place in window.kept for half in (0, 1)]


class Graph:
    """An executable graph, the arguments its nodes have now, and what it may not outlive.

    ``hits`` counts its launches as it was, ``patches`` those before which nodes were changed.
    """

    launches: list[Launch]
    words: Words
    executable: int
    nbytes: int
    nodes: list[int]
    children: list[Any]
    hits: int
    patches: int
    used: int

    def __init__(self, window: Window) -> None:
        self.launches = list(window.launches)
        self.words = window.words.copy()
        self.executable = 0
        self.nodes = []
        self.children = []
        self.hits = 0
        self.patches = 0
        self.used = 0
        self.nbytes = NODE_BYTES * len(window.launches)


class Memo:
    """The graphs of one stream."""

    hot: HotCalls
    driver: Driver
    counts: Counts
    graphs: dict[int, list[Graph]]
    seen: dict[int, list[int]]
    sights: dict[int, dict[int, bool]]
    nbytes: int
    count: int

    def __init__(self, hot: HotCalls, driver: Driver, counts: Counts) -> None:
        self.hot = hot
        self.driver = driver
        self.counts = counts
        self.graphs = {}
        self.seen = {}
        self.sights = {}
        self.nbytes = 0
        self.count = 0

    def find(self, window: Window) -> Graph | None:
        """The graph to launch for a window, patched; None where it goes out one by one."""
        graph: Graph
        known: list | None = self.graphs.get(window.key)
        if known is None:
            return self._first_or_second(window)
        for each in known:
            graph = each
            if same_arguments(graph, window):
                graph.hits += 1
                return graph
        best: Graph = known[0]
        if (not same_kernels(best.launches, window.launches)
                or best.words.length != window.words.length):
            # Another sequence with the same hash, or a library's with other words: left alone.
            return None
        return self._nearest(known, window)

    def note(self, window: Window) -> None:
        """Count a window as seen though it went out one by one."""
        if len(self.seen) >= 8 * MOST_GRAPHS:
            self.seen.clear()
        self.seen[window.key] = [launch.function for launch in window.launches]

    def _first_or_second(self, window: Window) -> Graph | None:
        if self.seen.get(window.key) != [launch.function for launch in window.launches]:
            self.note(window)
            return None
        graph = self._capture(window)
        self.graphs[window.key] = [graph]
        self._came_before(window)
        return graph

    def _nearest(self, known: list[Graph], window: Window) -> Graph:
        """A graph with the window's arguments: one of its own where they came before, or the
        nearest that may change, patched.

        The layers of a model, or the lengths of its batches, send one sequence of kernels with
        arguments that come back: patching would go on for ever.  A counter, or a cache that
        grows, has new ones each time: a graph for each would never be launched again.
        """
        graph: Graph
        best: Graph | None = None
        fewest: cython.Py_ssize_t = len(window.launches) + 1
        different: cython.Py_ssize_t
        again: cython.bint = self._came_before(window)
        room: cython.bint = len(known) < VARIANTS
        if again and room:
            return self._another(window)
        for graph in known:
            if room and self._is_kept(graph):
                continue
            different = self._differences(graph, window)
            if different < fewest:
                best, fewest = graph, different
        if best is None:
            return self._another(window)
        best.patches += 1
        self._patch(best, window)
        return best

    def _came_before(self, window: Window) -> cython.bint:
        """Whether a sequence's arguments are remembered; they are from now on."""
        sights: dict | None = self.sights.get(window.key)
        if sights is None:
            sights = {}
            self.sights[window.key] = sights
        digest = window.words.digest()
        if digest in sights:
            return True
        if len(sights) >= SIGHTS:
            # The oldest makes room.
            del sights[next(iter(sights))]
        sights[digest] = True
        return False

    def _is_kept(self, graph: Graph) -> cython.bint:
        """Whether a graph is launched as it is more often than not, and was a while ago at most."""
        return (graph.hits > graph.patches
                and self.counts.windows - graph.used < LASTING)

    def _another(self, window: Window) -> Graph:
        graph = self._capture(window)
        # Its neighbours may be gone: a new graph makes room for itself.
        self.graphs.setdefault(window.key, []).append(graph)
        return graph

    def _differences(self, graph: Graph, window: Window) -> int:
        """How many nodes of a graph have other arguments than the window's."""
        start: cython.Py_ssize_t = 0
        found: cython.Py_ssize_t = 0
        place: cython.Py_ssize_t
        count: cython.Py_ssize_t
        words: Words = window.words
        held: Words = graph.words
        end: cython.Py_ssize_t
        for place in range(len(window.launches)):
            end = window.ends.get(place)
            count = end - start
            if window.launches[place] is not graph.launches[place] or not words.same(
                    start, held, start, count):
                found += 1
            start = end
        return found

    def _patch(self, graph: Graph, window: Window) -> int:
        """Give the nodes the window's arguments; how many were changed."""
        start: cython.Py_ssize_t = 0
        changed: cython.Py_ssize_t = 0
        place: cython.Py_ssize_t
        count: cython.Py_ssize_t
        launch: Launch
        before: Launch
        words: Words = window.words
        held: Words = graph.words
        end: cython.Py_ssize_t
        for place in range(len(window.launches)):
            launch = window.launches[place]
            before = graph.launches[place]
            end = window.ends.get(place)
            count = end - start
            if launch is not before or not words.same(start, held, start, count):
                self._patch_node(graph, place, launch, launch.parameters(words, start, count))
                held.put(start, words, start, count)
                graph.launches[place] = launch
                changed += 1
            start = end
        self.counts.patched += changed
        return changed

    def _patch_node(self, graph: Graph, place: int, launch: Launch, block: bytes) -> None:
        self.hot.set_kernel_node(graph.executable, graph.nodes[place], launch.function,
                                 launch.shape, block)

    def _capture(self, window: Window) -> Graph:
        """Make a graph of a window: a chain of nodes."""
        self._make_room(len(window.launches) * NODE_BYTES)
        graph = Graph(window)
        whole = self.driver.create_graph()
        graph.children.append(whole)
        try:
            self._fill(graph, window, whole)
            graph.executable = self.driver.instantiate(whole)
        except DriverError:
            self.driver.destroy_graph(whole)
            raise
        self.counts.captured += 1
        graph.used = self.counts.windows
        self.count += 1
        self.nbytes += graph.nbytes
        return graph

    def _fill(self, graph: Graph, window: Window, whole: int) -> None:
        start: cython.Py_ssize_t = 0
        place: cython.Py_ssize_t
        count: cython.Py_ssize_t
        launch: Launch
        after: cython.size_t = 0
        for place in range(len(window.launches)):
            launch = window.launches[place]
            count = window.ends.get(place) - start
            after = self._add(whole, after, launch,
                              launch.parameters(window.words, start, count))
            graph.nodes.append(after)
            start += count

    def _add(self, whole: int, after: int, launch: Launch, block: bytes) -> int:
        return self.hot.add_kernel_node(whole, after, launch.function, launch.shape, block)

    def _make_room(self, nbytes: int) -> None:
        while self.graphs and (self.count >= MOST_GRAPHS or self.nbytes + nbytes > MOST_BYTES):
            oldest = min(self.graphs, key=self._last_use)
            self.forget(oldest)

    def _last_use(self, key: int) -> int:
        return max([graph.used for graph in self.graphs[key]])

    def forget(self, key: int) -> None:
        """Forget the graphs of a sequence of kernels: the driver would not change one, say."""
        self.sights.pop(key, None)
        for graph in self.graphs.pop(key, ()):
            self.drop(graph)

    def drop(self, graph: Graph) -> None:
        """Give back what a graph holds."""
        self.driver.destroy_executable(graph.executable)
        for whole in graph.children:
            self.driver.destroy_graph(whole)
        self.count -= 1
        self.nbytes -= graph.nbytes

    def clear(self) -> None:
        """Forget everything."""
        for known in self.graphs.values():
            for graph in known:
                self.drop(graph)
        self.graphs.clear()
        self.sights.clear()
        self.seen.clear()


def same_arguments(graph: Graph, window: Window) -> cython.bint:
    """Whether nothing needs to be patched."""
    place: cython.Py_ssize_t
    count: cython.Py_ssize_t = window.words.length
    if graph.words.length != count or not window.words.same(0, graph.words, 0, count):
        return False
    for place in range(len(graph.launches)):
        if graph.launches[place] is not window.launches[place]:
            return False
    return True


def same_kernels(mine: list[Any], other: list[Any]) -> cython.bint:
    """Whether two sequences launch the same kernels, whatever their sizes and arguments."""
    first: Launch
    second: Launch
    place: cython.Py_ssize_t
    if len(mine) != len(other):
        return False
    for place in range(len(mine)):
        first = mine[place]
        second = other[place]
        if first is not second and first.function != second.function:
            return False
    return True


def mended(window: Window, simulated: bool) -> int:
    """Cut a window behind its last whole record; the mark of that launch."""
    count = min(len(window.launches), window.ends.length, len(window.sites) // 2)
    if simulated:
        count = min(count, len(window.moments))
    for steps, kept in ((window.launches, count), (window.sites, 2 * count),
                        (window.moments, count)):
        del steps[kept:]
    window.ends.cut(count)
    if window.traces is not None:
        window.traces.cut(min(window.traces.length, count))
    window.words.cut(window.ends.get(count - 1) if count else 0)
    window.releases = []
    mark = window.key = 0
    for launch in window.launches:
        mark = launch.mark
        window.key = mixed(window.key, mark)
    return mark


def mixed(key: int, mark: int) -> int:
    """The hash of a sequence of kernels and one more."""
    return (key * 1099511628211 + mark) & MASK
