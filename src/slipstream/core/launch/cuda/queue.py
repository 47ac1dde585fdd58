"""The queue of a stream: launches are gathered in a window and sent at its end.

A window ends where its content says so (a hash of neighbouring kernels), at a cap, and at points
that the framework knows: a wait, a copy, an edge to another stream, the end of backward and of an
optimizer's step.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import cython

from slipstream.core.launch.cuda.chains import Chains
from slipstream.core.launch.cuda.counts import Counts
from slipstream.core.launch.cuda.launches import Launch, Part
from slipstream.core.launch.cuda.memo import Graph, Memo, Window, mended, mixed, sites_of
from slipstream.core.launch.cuda.sends import Begun, Sends, Work, work_of
from slipstream.core.launch.cuda.watchdog import watchdog
from slipstream.core.launch.cuda.words import Words
from slipstream.core.native.beats import Beat
from slipstream.core.native.driver import Driver, DriverError
from slipstream.core.native.hot import HotCalls
from slipstream.core.vocab.modes import ModeState, ModeTable, modes
from slipstream.core.vocab.records import Spec, Storage, TensorBase
from slipstream.core.vocab.ring import Ring

__all__ = ["Beat", "Begun", "Chains", "Graph", "HotCalls", "Memo", "ModeState", "ModeTable",
           "Part", "Queue", "Ring", "Sends", "Spec", "Storage", "Window", "Words", "Work"]

# A window has at least and at most so many launches where its content decides.
LEAST = 8
MOST = 64
# One in so many pairs of neighbours ends a window.
RARITY = 31
# A graph's launch has a cost of its own, whatever it holds: where what lies between two known
# points came back so many times in a row, windows span such stretches until they are so long.
STEADY = 16
LONG = 32
# A window may hold so many more where a chain goes on.
BEYOND = 8
# Fewer launches than this cost less one by one than as a graph.
SHORT = 3


class Queue:
    """The launches of one stream that are not sent yet.

    ``stream``: the driver's handle; ``number`` counts the device's streams, ``sequence`` what was
    recorded; ``deferred``: False for a handle that others have, whose launches are sent at once;
    ``workspace``: for library calls; ``capture``: what launches become nodes of while a user
    captures; ``scratches``: memory of the op that is recorded, where streams are several;
    ``lasting``: tensors that this stream's work filled, another dict once a send has failed;
    ``chains``: joins neighbours; ``due``: the window ends with this chain; ``lately``, ``later``:
    the first outputs of the last launch, where it has a part; ``author``: the id of its thread's
    state, where streams are several.
    """

    owner: Any
    driver: Driver
    counts: Counts
    memo: Memo
    hot: HotCalls
    simulated: bool
    stream: int
    number: int
    window: Window
    sequence: int
    deferred: bool
    sending: bool
    recording: bool
    asleep: bool
    beat: Beat
    shared: bool
    mark: int
    ticks: int
    stretch: int
    before: int
    repeats: int
    since: int
    length: int
    spare: Window | None
    recent: Any
    taken: Any
    lock: Any
    workspace: Any
    capture: Any
    scratches: list[int]
    timer: Any
    lasting: dict[Any, Any]
    chains: Chains
    due: bool
    lately: int
    later: int
    author: int

    def __init__(self, owner: Any, stream: int, number: int) -> None:
        self.owner = owner
        self.driver = owner.driver
        self.counts = owner.counts
        self.hot = owner.hot
        self.memo = Memo(owner.hot, owner.driver, owner.counts)
        # The simulated driver checks work against the blocks that lived when it was recorded.
        self.simulated = owner.driver.name == "simulated"
        self.stream = stream
        self.number = number
        self.window = Window()
        self.spare = None
        # Where the sites of windows are kept, and the word that a kernel's report sets.
        self.recent = owner.slot.recent
        self.taken = owner.slot.taken
        self.sequence = 0
        self.deferred = True
        self.sending = False
        self.recording = self.due = False
        self.chains = owner.chains
        self.lately = self.later = self.author = 0
        self.asleep = True
        self.beat = Beat()
        self.shared = False
        self.mark = 0
        self.ticks = 0
        # The hashes of the kernels since the last known point and before it; repeats; their counts.
        self.stretch = self.before = self.repeats = self.since = self.length = 0
        # Memory that library calls may use, made when it is first wanted; what measures windows.
        self.workspace = self.capture = self.timer = None
        self.scratches = []
        self.lasting = {}
        # One thread at a time sends: the driver is called without the interpreter's lock.
        self.lock = threading.RLock()

    def record_operands(self, launch: Launch, operands: tuple[Any, ...],
                        numbers: tuple[Any, ...]) -> None:
        """Record a launch on tensors, and what it reads and writes."""
        tensor: TensorBase
        storage: Storage
        if self.due:
            end_chain(self, launch, operands)
        if self.shared or self.capture is not None:
            note_operands(self, operands)
        if not cython.compiled:
            self.begin()
        words: Words = self.window.words
        exported: cython.bint = False
        start: cython.Py_ssize_t = words.length
        for operand in operands:
            tensor = operand
            storage = tensor.storage
            words.append(storage.address + tensor.offset * tensor.spec.itemsize)
            if storage.exported:
                exported = True
        part: Part = launch.part
        if part is not None and not part.heads:
            look_back(self, launch, operands, start)
        if words is not self.window.words:
            # The collector ran what sent the window: once more, into the new one.
            self.record_operands(launch, operands, numbers)
            return
        self.finish(launch, numbers)
        if part is not None:
            self.lately = words.get(start)
            self.later = words.get(start + 1) if part.outputs > 1 else 0
        if exported:
            self.send("exported storage")

    def record_addresses(self, launch: Launch, addresses: tuple[int, ...],
                         numbers: tuple[Any, ...]) -> None:
        """Record a launch on bare addresses."""
        if self.due:
            self.send("")
        if not cython.compiled:
            self.begin()
        words: Words = self.window.words
        for address in addresses:
            words.append(address)
        self.finish(launch, numbers)

    def begin(self) -> None:
        """Uncompiled, the watchdog or an interrupt may come between any two steps of a record."""
        if self.recording:
            mend(self)
        self.recording = True

    def note_waiting(self) -> None:
        """Tell the watch how many launches have not gone out."""
        self.beat.note_waiting(len(self.window.launches) - self.window.drained)

    def note_uses(self, operands: tuple[Any, ...], sequence: int) -> None:
        """Tell the allocator which blocks a launch uses, where there are several streams."""
        memory = self.owner.memory
        for tensor in operands:
            storage = tensor.storage
            if storage.owner != self.owner.owner:
                # Memory of ours that came back through another library is that of its lender.
                storage = getattr(storage.keep, "lent", None)
            if storage is not None:
                memory.used(storage.address, self.number, sequence)
        while self.scratches:
            memory.used(self.scratches.pop(), self.number, sequence)

    def finish(self, launch: Launch, numbers: tuple[Any, ...]) -> None:
        """Add the launch whose addresses are written, and send where a window ends."""
        window: Window = self.window
        words: Words = window.words
        state: ModeState
        if numbers:
            last: cython.Py_ssize_t = len(window.launches) - 1
            words.append_numbers(launch.numbers, numbers, window.ends.get(last) if last >= 0 else 0)
        state = modes.current()
        self.author = id(state) if self.shared else 0
        window.note(launch, state.code, state.instruction)
        if self.simulated:
            window.moments.append(self.driver.moment)
        if modes.ring is not None:
            note_trace(window, state)
        mark: cython.ulonglong = launch.mark
        key: cython.ulonglong = window.key
        prime: cython.ulonglong = 1099511628211
        if cython.compiled:
            key = key * prime + mark  # In C it wraps by itself.
            self.stretch = self.stretch * prime + mark
        else:
            key = mixed(key, mark)
            self.stretch = mixed(self.stretch, mark)
        window.key = key
        self.since += 1
        self.sequence += 1
        if not cython.compiled:
            self.recording = False
        self.beat.record()
        if not cython.compiled and self.asleep:
            self.asleep = False
            watchdog.wake.set()
        count: cython.Py_ssize_t = len(window.launches)
        if count >= MOST or not self.deferred or self.capture is not None:
            end_window(self, launch, count)
        elif self.due and not launch.leads:
            self.send("")
        elif count >= LEAST and mark != self.mark and self.since > self.length:
            # The mark's low bits are a checksum's: mixed with the neighbour's they are even.
            rarity: cython.ulonglong = RARITY
            pair: cython.ulonglong = (mark ^ (self.mark * 40503)) >> 5
            if pair & rarity == 0:
                end_window(self, launch, count)
        self.mark = mark

    def boundary(self) -> None:
        """End the window at a point that the framework knows, if that is worth while."""
        count: cython.Py_ssize_t = len(self.window.launches)
        if self.stretch == self.before:
            self.repeats += 1
        else:
            self.repeats = 0
            self.before = self.stretch
        # A short stretch that comes back and back is not cut: windows are whole ones of it.
        self.length = self.since if self.repeats >= STEADY and self.since < LONG else 0
        self.stretch = self.since = 0
        if self.due or count >= LONG or (count >= LEAST and self.repeats < STEADY):
            self.send("")

    def send(self, reason: str) -> None:
        """End the window: launch its graph, or its launches one by one."""
        window: Window = self.window
        if not window.launches and not self.sending:
            return
        if not self.simulated:
            self.send_window(reason)
        else:
            # Its calls are Python, between which Ctrl-C would lose what was recorded before.
            self.driver.hold_interrupts()
            try:
                self.send_window(reason)
            finally:
                self.driver.let_interrupts()
        if self.taken.value:
            self.owner.check()

    def send_window(self, reason: str) -> None:
        """Send, if there still is something to send."""
        with self.lock:
            if not cython.compiled and self.recording:
                # Of this thread: another one holds the lock until its record is whole.
                mend(self)
            # Another thread's send is over.  In one of ours the collector may run what sends.
            window = self.window
            if self.sending or not window.launches:
                return
            fresh: Window = fresh_window(self)
            recorded: list = window.launches
            self.sending = True
            window.seal()  # Nothing comes between: what others record now they record elsewhere.
            self.window = fresh
            try:
                hand_over(self, window, reason)
            except BaseException:
                after_failure(self)
                raise
            finally:
                self.sending = False
                self.note_waiting()
                self.recent.append((recorded, window.sites))
                self.spare = window

    def dispatch(self, window: Window, reason: str) -> None:
        """Hand a window to the driver."""
        self.owner.enter()
        if self.capture is not None:
            self.capture.take(self, window)
            return
        self.counts.windows += 1
        joins = self.owner.memo and self.deferred and not window.drained
        stopped: BaseException | None = self.owner.chains.join(window) if joins else None
        graph, reason = graph_of(self, window, reason)
        if graph is None:
            launch_rest(self, window, reason or "first sight")
        else:
            launch_whole(self, window, graph)
        if stopped is not None:
            raise stopped

    # -- what has waited too long --

    def drain(self) -> None:
        """Let what is recorded go out one by one; the window keeps its place."""
        with self.lock:
            if self.sending or len(self.window.launches) == self.window.drained:
                return
            drain_now(self)
        self.owner.check()

    def tick(self) -> bool:
        """The watchdog's look: whether anything was recorded since the last."""
        moved: cython.bint = self.sequence != self.ticks
        self.ticks = self.sequence
        if not moved and len(self.window.launches) != self.window.drained:
            self.watch_drain()
        return moved

    def watch_drain(self) -> None:
        """Drain from another thread, where nobody is at it."""
        drain_from_outside(self)


def note_operands(queue: Queue, operands: tuple[Any, ...]) -> None:
    """Tell the allocator and the capture what the next launch uses, before any word of it is there.

    A collector or a signal's handler may come in between and record: then it is another number.
    """
    number: cython.Py_ssize_t = -1
    scratches: list = queue.scratches
    queue.scratches = []
    while number != queue.sequence:
        number = queue.sequence
        if queue.shared:
            queue.note_uses(operands, number + 1)
            for address in scratches:
                queue.owner.memory.used(address, queue.number, number + 1)
        if queue.capture is not None:
            queue.capture.hold(operands)


def drain_now(queue: Queue) -> None:
    """Drain; the lock is held."""
    queue.driver.hold_interrupts()
    queue.sending = True
    try:
        queue.owner.enter()
        launch_rest(queue, queue.window, "drained")
    except BaseException:
        after_failure(queue)
        raise
    finally:
        queue.sending = False
        queue.note_waiting()
        queue.driver.let_interrupts()


def fresh_window(queue: Queue) -> Window:
    """An empty window: the one that was sent before the last, used again.

    Before a send is under way: where there is no room for a call, nothing is left half done.
    """
    queue.mark = 0
    queue.due = False
    window: Window | None = queue.spare
    if window is None:
        return Window()
    queue.spare = None
    window.clear()
    return window


def look_back(queue: Queue, launch: Launch, operands: tuple[Any, ...],
              start: cython.Py_ssize_t) -> None:
    """Note where a launch, whose words are there, goes on with what the last one computed."""
    window: Window = queue.window
    words: Words = window.words
    word: cython.ulonglong = 0
    place: cython.Py_ssize_t
    for place in range(start + launch.part.outputs, words.length):
        word = words.get(place)
        if word == queue.lately or word == queue.later:
            break
        word = 0
    if not word:
        return
    if window.launches:
        queue.chains.link(window, launch, operands, True)
    elif queue.spare is not None:
        # A window ended between them: the next time it ends behind both.
        queue.chains.link(queue.spare, launch, operands, False)


def end_chain(queue: Queue, launch: Launch, operands: tuple[Any, ...]) -> None:
    """Send the window that ends with a chain, where a launch does not go on with it."""
    if launch.part is None or not queue.chains.link(queue.window, launch, operands, False):
        queue.send("")


def end_window(queue: Queue, launch: Launch, count: cython.Py_ssize_t) -> None:
    """Send the window, or let it end behind the chain that its last launch may begin."""
    if launch.leads and queue.deferred and queue.capture is None and count < MOST + BEYOND:
        queue.due = True
    else:
        queue.send("")


def hand_over(queue: Queue, window: Window, reason: str) -> None:
    """Hand a window to the driver, between two events where somebody measures."""
    if queue.timer is None:
        queue.dispatch(window, reason)
    else:
        queue.timer.timed(queue, window, reason)


def graph_of(queue: Queue, window: Window, reason: str) -> tuple[Graph | None, str]:
    """The graph to launch for a window; or None, and why its launches go out one by one."""
    if not queue.owner.memo:
        return None, "memo off"
    if not queue.deferred:
        return None, "handed-out stream"
    if window.drained:
        queue.memo.note(window)
        return None, "drained"
    if len(window.launches) < SHORT:
        return None, reason or "too short"
    try:
        return queue.memo.find(window), reason
    except DriverError:
        # No memory for a graph, say: the launches go out all the same.
        queue.memo.forget(window.key)
        return None, "not capturable"
    except BaseException:
        # Stopped in the middle: what a node was given need not be what the graph says of it.
        queue.memo.forget(window.key)
        raise


def after_failure(queue: Queue) -> None:
    """Forget what work was to fill that may not have run."""
    queue.lasting = {}
    if queue.simulated:
        queue.driver.stamp = queue.driver.stamps = None


def launch_whole(queue: Queue, window: Window, graph: Graph) -> None:
    """Launch the graph of a window."""
    count: cython.Py_ssize_t = len(window.launches)
    if queue.simulated:
        queue.driver.stamps = stamps_of(window)
    else:
        # The simulated driver counts them itself.
        queue.hot.graph_kernel_nodes += count
    timer: Sends | None = None if modes.ring is None else modes.ring.timer
    work: Any = None if timer is None else work_of(window, 0, count, "")
    begun: Any = None if timer is None else timer.begin(queue, work)
    queue.hot.launch_graph(graph.executable, queue.stream)
    if timer is not None:
        timer.sent(queue, work, begun)
    graph.used = queue.counts.windows
    queue.counts.launches += count
    queue.counts.replayed += count


def launch_rest(queue: Queue, window: Window, reason: str) -> None:
    """Launch one by one what of a window has not gone out yet."""
    launch: Launch
    place: cython.Py_ssize_t = window.drained
    start: cython.Py_ssize_t = window.ends.get(place - 1) if place else 0
    rest = window.launches[place:]
    timer: Sends | None = None if modes.ring is None else modes.ring.timer
    work: Any = None if timer is None else work_of(window, place, len(rest), reason)
    begun: Any = None if timer is None else timer.begin(queue, work)
    site: Any = queue.driver.site if queue.simulated else None
    for each in rest:
        launch = each
        end: cython.Py_ssize_t = window.ends.get(place)
        if queue.simulated:
            queue.driver.site, queue.driver.stamp = stamps_of(window)[place]
        launch_one(queue, launch, window.words, start, end - start)
        start, place = end, place + 1
        window.drained = place
    queue.counts.launches += len(rest)
    queue.counts.alone(reason, rest)
    if timer is not None:
        timer.sent(queue, work, begun)
    if queue.simulated:
        # What comes next is of its own line, and checked against the blocks of its own moment.
        queue.driver.site, queue.driver.stamp = site, None


def launch_one(queue: Queue, launch: Launch, words: Words, start: cython.Py_ssize_t,
               count: cython.Py_ssize_t) -> None:
    """Hand a launch with its argument words to the driver."""
    if cython.compiled and launch.places is None and queue.hot.launch_words(
            launch.function, launch.shape, queue.stream, words.address(start), 8 * count,
            launch.tail):
        return
    queue.hot.launch(launch.function, launch.shape, queue.stream,
                     launch.parameters(words, start, count))


def drain_from_outside(queue: Queue) -> None:
    """Drain from the watchdog's thread; what a kernel reported waits for the user's."""
    if not queue.lock.acquire(blocking=False):
        return
    try:
        if not queue.sending and not queue.recording:
            drain_now(queue)
    except DriverError:
        # What did not go out is met again by the user's own send, and raises there.
        pass
    finally:
        queue.lock.release()


def mend(queue: Queue) -> None:
    """Leave the window as it was before a record that was interrupted."""
    queue.mark = mended(queue.window, queue.simulated)
    queue.sequence += 1  # It may have been counted: a number may be left out, not used twice.
    queue.repeats = 0
    queue.recording = False
    queue.note_waiting()


def note_trace(window: Window, state: ModeState) -> None:
    """Note the op and line of the last launch in one word: a profile is on."""
    ring: Ring | None = modes.ring
    if window.traces is None:
        window.traces = Words()
    if ring is not None:
        traces: Words = window.traces
        site: cython.longlong = ring.site_of(state.code, state.instruction)
        traces.append(ring.launching + (site << 32))


def stamps_of(window: Window) -> list[Any]:
    """For each launch its site and the moment at which it was recorded."""
    sites = sites_of(window)
    return [((sites[2 * place], sites[2 * place + 1]), moment)
            for place, moment in enumerate(window.moments)]


def note_move(queue: Any, target: int, source: int) -> None:
    """Number a copy from block to block, and tell the allocator where it matters."""
    queue.sequence += 1
    if len(queue.owner.queues) > 1:
        for address in (target, source):
            queue.owner.memory.used(address, queue.number, queue.sequence)


def one_at_a_time(record: Any) -> Any:
    """A method of a queue that no other thread comes into.

    For the uncompiled core, where threads may switch between any two steps of a record; compiled,
    the interpreter's lock is held from its first step to its last.
    """
    @functools.wraps(record)
    def alone(queue: Queue, *arguments: Any) -> None:
        with queue.lock:
            record(queue, *arguments)

    return alone


if not cython.compiled:
    for method in ("record_operands", "record_addresses", "boundary"):
        setattr(Queue, method, one_at_a_time(getattr(Queue, method)))
