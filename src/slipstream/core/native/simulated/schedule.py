"""Streams, events, and the order in which their work runs: any legal one, chosen by a seed.

Nothing runs when it is submitted.  A wait of the host runs what it waits for, and as much of other
streams as the seed says.  Time is virtual, in microseconds: each piece of work begins when its
stream, what it waits for and the host's call allow, whatever the order in which it really runs.
"""

from __future__ import annotations

import random
from array import array
from collections import deque
from typing import Any

from slipstream.core.native.simulated.order import Host, join, tick
from slipstream.core.native.simulated.working import Action, Desk, Ticket, first_moment
from slipstream.core.vocab.settings import SimulatedCard

# A real stream takes about this many launches before the host has to wait.  Here it is so many
# operations of all streams, a graph's nodes among them: one wait runs no more, which Ctrl-C is
# held for.
DEEPEST = 1024
# How often another stream becomes the one that runs first.
TURN = 0.15
# Nodes of a graph start closer to each other than single launches.
NODE_GAP = 1.0


class Work:
    """A piece of work in a stream's queue.  ``weight``: how many operations it is."""

    weight = 1

    def __init__(self, stream: Stream, submitted: float) -> None:
        self.stream = stream
        self.submitted = submitted
        self.needs: tuple[Work, ...] = ()
        self.done = False
        self.end = 0.0
        self.stretch = 1.0

    def begins(self) -> float:
        """When it can begin; what it needs is done."""
        return max(self.stream.time, self.submitted, *(need.end for need in self.needs), 0.0)

    def ends(self) -> float:
        """When its next step ends."""
        return self.begins()

    def step(self, desk: Desk) -> bool:
        """Do it, or a part of it; whether it is done."""
        self.end = self.ends()
        return True

    def oldest(self) -> int | None:
        """The oldest moment that it knows."""
        return None


class ActionWork(Work):
    """A kernel, copy, fill or call."""

    def __init__(self, stream: Stream, submitted: float, action: Action, ticket: Ticket) -> None:
        super().__init__(stream, submitted)
        self.action = action
        self.ticket = ticket

    def ends(self) -> float:
        """When it ends."""
        return self.begins() + self.action.time() * self.stretch

    def step(self, desk: Desk) -> bool:
        """Do it."""
        begin, self.end = self.begins(), self.ends()
        desk.do(self.action, self.ticket)
        desk.tell(self.action, self.ticket.site, self.stream, begin, self.end, False)
        return True

    def oldest(self) -> int | None:
        """The moment of its ticket."""
        return first_moment(self.ticket.moment)


class Marker(Work):
    """What an event stands for: everything before it in its stream."""

    def __init__(self, stream: Stream, submitted: float) -> None:
        super().__init__(stream, submitted)
        self.clock = array("I", stream.clock)


class GraphWork(Work):
    """A launch of a graph: its nodes in any order that their edges allow."""

    def __init__(self, stream: Stream, submitted: float, shape: Any, actions: list[Action],
                 tickets: Any) -> None:
        super().__init__(stream, submitted)
        self.shape = shape
        self.actions = actions
        self.tickets = tickets
        self.missing = list(shape.missing)
        self.ready = list(shape.roots)
        self.ends_of = [0.0] * len(actions)
        self.left = len(actions)
        self.weight = max(len(actions), 1)
        self.chosen = -1

    def choose(self) -> int:
        """The node that runs next."""
        if self.chosen < 0:
            draw = self.stream.draw
            place = draw.randrange(len(self.ready)) if len(self.ready) > 1 else 0
            self.chosen = self.ready.pop(place)
        return self.chosen

    def ends(self) -> float:
        """When the next node ends."""
        start = self.begins()
        if not self.left:
            return start
        node = self.choose()
        start = max([start, *(self.ends_of[each] for each in self.shape.before[node])])
        return start + max(self.actions[node].time() - NODE_GAP, 0.0) * self.stretch

    def step(self, desk: Desk) -> bool:
        """Do one node."""
        end = self.ends()
        self.end = max(self.end, end)
        if not self.left:
            return True
        node, self.chosen = self.chosen, -1
        self.ends_of[node] = end
        ticket = self.tickets(node)
        desk.do(self.actions[node], ticket)
        begin = end - max(self.actions[node].time() - NODE_GAP, 0.0) * self.stretch
        desk.tell(self.actions[node], ticket.site, self.stream, begin, end, True)
        for later in self.shape.after[node]:
            self.missing[later] -= 1
            if not self.missing[later]:
                self.ready.append(later)
        self.left -= 1
        return not self.left

    def oldest(self) -> int | None:
        """The oldest moment among its nodes'."""
        return int(self.tickets.oldest)


class Stream:
    """A queue of work.  ``ordinal``: the device; ``clock``: what its last work is ordered after."""

    def __init__(self, ordinal: int, priority: int, schedule: Schedule) -> None:
        self.handle = 0
        self.ordinal = ordinal
        self.priority = priority
        self.queue: deque[Work] = deque()
        self.last: Work | None = None
        self.time = 0.0
        self.slot = schedule.host.new_slot()
        self.more_slots: list[int] = []
        self.clock = array("I")
        self.seen = -1
        self.draw = schedule.draw
        self.capture: Any = None

    def is_ready(self) -> bool:
        """Whether its next work can run."""
        return bool(self.queue) and all(need.done for need in self.queue[0].needs)


class Event:
    """An event; ``marker`` is what it stands for, ``captured`` its place in a capture."""

    def __init__(self, timing: bool, ordinal: int) -> None:
        self.handle = 0
        self.timing = timing
        self.ordinal = ordinal
        self.marker: Marker | None = None
        self.captured: Any = None


class Schedule:
    """Runs the work of all streams; ``now`` is the host's time."""

    def __init__(self, draw: random.Random, options: SimulatedCard) -> None:
        self.draw = draw
        self.options = options
        self.times = random.Random(options.seed + 1)
        self.desk: Desk
        self.host = Host()
        self.now = 0.0
        self.busy: dict[int, Stream] = {}
        self.favourite: Stream | None = None
        self.pending = 0

    # -- submitting --

    def arrive(self, stream: Stream) -> None:
        """A stream's next work is ordered after all that the host knows."""
        if self.options.race and stream.seen != self.host.version:
            stream.seen = self.host.version
            join(stream.clock, self.host.clock)

    def ticket(self, stream: Stream, site: Any, moment: int) -> Ticket:
        """The ticket of a stream's next work."""
        ticket = Ticket(site, moment, stream.ordinal)
        if self.options.race:
            self.arrive(stream)
            tick(stream.clock, stream.slot)
            ticket.slot = stream.slot
            ticket.clock = array("I", stream.clock)
        return ticket

    def enqueue(self, work: Work) -> None:
        """Put work at the end of its stream's queue."""
        stream = work.stream
        work.stretch = 0.0 if self.options.zero_cost else self.times.uniform(0.75, 1.5)
        stream.queue.append(work)
        stream.last = work
        self.busy[id(stream)] = stream
        self.pending += work.weight
        # A large graph waits like other work: what is older makes room for it.
        while self.pending > max(DEEPEST, work.weight):
            self.now = max(self.now, self.step(self.pick()))

    # -- running --

    def pick(self) -> Stream:
        """The stream whose work runs next."""
        if len(self.busy) == 1:
            return next(iter(self.busy.values()))
        ready = [stream for stream in self.busy.values() if stream.is_ready()]
        if self.favourite is None or self.favourite not in ready or self.draw.random() < TURN:
            self.favourite = self.draw.choice(ready)
        return self.favourite

    def step(self, stream: Stream) -> float:
        """Run a stream's next work, or a part of it; when that ended."""
        work = stream.queue[0]
        if work.step(self.desk):
            work.done = True
            work.needs = ()
            stream.time = work.end
            stream.queue.popleft()
            self.pending -= work.weight
            if not stream.queue:
                del self.busy[id(stream)]
        return work.end

    def run_until(self, work: Work | None) -> None:
        """Run work until this one is done, and let the host wait for it."""
        while work is not None and not work.done:
            self.step(self.pick())
        if work is not None:
            self.now = max(self.now, work.end)

    def run_due(self) -> None:
        """Run the work that has ended by now."""
        due = True
        while due:
            due = False
            for stream in list(self.busy.values()):
                while stream.is_ready() and stream.queue[0].ends() <= self.now:
                    self.step(stream)
                    due = True

    def run_all(self) -> None:
        """Run everything."""
        while self.busy:
            self.now = max(self.now, self.step(self.pick()))

    def oldest_moment(self) -> int | None:
        """The oldest moment that any work still to run knows."""
        firsts = [work.oldest() for stream in self.busy.values() for work in stream.queue]
        return min((each for each in firsts if each is not None), default=None)
