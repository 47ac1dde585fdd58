"""A CUDA device as a backend: its context, memory, streams, error slot and staging memory."""

from __future__ import annotations

import threading
from typing import Any

from slipstream.core.launch.cuda.chains import Chains
from slipstream.core.launch.cuda.counts import Counts
from slipstream.core.launch.cuda.edges import Edges
from slipstream.core.launch.cuda.errors import ErrorSlot
from slipstream.core.launch.cuda.forks import forks
from slipstream.core.launch.cuda.launches import Bound, Launch, LaunchKernel
from slipstream.core.launch.cuda.modules import modules
from slipstream.core.launch.cuda.ordering import Order
from slipstream.core.launch.cuda.pinning import Pinning
from slipstream.core.launch.cuda.queue import Queue, note_move
from slipstream.core.launch.cuda.staging import Staging
from slipstream.core.launch.cuda.streams import Streams
from slipstream.core.launch.cuda.tickets import Tickets
from slipstream.core.launch.cuda.watchdog import watchdog
from slipstream.core.launch.waiting import host_waits
from slipstream.core.memory.device import DeviceAllocator
from slipstream.core.native.driver import WITHIN, DriverError
from slipstream.core.native.drivers import drivers
from slipstream.core.native.hot import HotCalls
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.modes import ModeState, ModeTable
from slipstream.core.vocab.modes import modes as mode_table
from slipstream.core.vocab.records import Backend, Plan, Storage, TensorBase, owners
from slipstream.core.vocab.settings import settings

__all__ = ["CudaBackend", "LaunchKernel", "ModeState", "ModeTable", "Queue", "TensorBase", "make"]


# Bytes of workspace of a stream: what NVIDIA recommends for Hopper.
WORKSPACE = 32 << 20


class Named:
    """What stands for a library call in the counts."""

    def __init__(self, name: str) -> None:
        self.name = name


class CudaBackend(Backend):
    """Carries out what is submitted for one card.

    ``queues`` are those of all streams, the default one first.
    """

    queues: list[Queue]
    streams: Streams
    default: Queue
    hot: HotCalls
    memo: bool
    blocking: bool
    device: Device
    driver: Any
    ordinal: int
    context: int
    counts: Counts
    allocator: Any
    slot: ErrorSlot
    staging: Staging
    order: Order
    edges: Edges
    pinning: Pinning | None
    pinned: Any
    lock: Any
    counters: Tickets
    chains: Chains
    telling: bool

    def __init__(self, device: Device) -> None:
        self.device = device
        self.name = str(device)
        self.ordinal = device.index or 0
        self.driver = drivers.current()
        self.telling = self.driver.name == "simulated"
        if self.ordinal >= self.driver.device_count():
            raise RuntimeError(f"invalid device {device}: there are "
                               f"{self.driver.device_count()} CUDA devices")
        if forks.forked:
            forks.refuse()
        self.hot = HotCalls(self.driver)
        self.context = self.driver.context(self.ordinal)
        self.hot.use(self.context)
        self.has_data = True
        self.on_host = self.immediate = False
        self.memo = settings.memo
        self.blocking = settings.blocking
        self.counts = Counts()
        self.allocator = self.memory = DeviceAllocator(self.driver, self.ordinal)
        self.allocator.drain = self.drain
        self.allocator.current = self.current_number
        self.owner = len(owners)
        owners.append(self.memory)
        self.chains = Chains(self.owner, settings.join)
        self.slot = ErrorSlot(self.driver)
        self.staging = Staging(self.driver, self.device)
        self.pinning = self.pinned = None
        self.queues = []
        self.streams = Streams(self)
        self.counters = Tickets(self.driver)
        self.order = Order()
        self.edges = Edges(self)
        self.allocator.covered = self.edges.covered
        self.allocator.order = self.edges.order_streams
        self.lock = threading.RLock()
        try:
            self.default = self.new_queue(self.driver.create_stream(0))
            self.slot.use(self.default.stream)
        except DriverError:
            for queue in self.queues:
                self.driver.destroy_stream(queue.stream)
            self.slot.free()
            raise
        if self.driver.name == "real":
            watchdog.watch(self)
        else:
            self.driver.on_idle(self.look, self.unsent)
        forks.context_made()

    def new_queue(self, stream: int) -> Queue:
        """The queue of one more stream of this device."""
        with self.lock:
            made = Queue(self, stream, len(self.queues))
            self.queues.append(made)
            if len(self.queues) > 1:
                self.allocator.several()
                for queue in self.queues:
                    queue.shared = True
        return made

    def set_memo(self, memo: bool) -> None:
        """Whether windows become graphs."""
        self.memo = memo

    def queue(self) -> Queue:
        """The queue of the running thread's current stream on this device."""
        state: ModeState = mode_table.current()
        if state.stream is None:
            return self.default
        found: Queue = state.stream.queue_on(self)
        return found

    def current_number(self) -> int:
        """The number of the running thread's stream."""
        number: int = self.queue().number
        return number

    def submit(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Record the plan's launches."""
        queue: Queue
        if isinstance(plan.kernel, LaunchKernel) and isinstance(plan.binding, Launch):
            self.record_operands(plan.binding, operands, numbers)
        else:
            queue = self.queue()
            run_plan(self, plan, operands, numbers)
            if queue.shared:
                # After the last launch: until then the operands are alive.
                queue.note_uses(operands, queue.sequence)
            if queue.capture is not None:
                queue.capture.hold(operands)
            send_exported(queue, operands)
        if self.blocking and self.queue().capture is None:
            self.wait()

    def record_operands(self, launch: Launch, operands: tuple[Any, ...],
                        numbers: tuple[Any, ...]) -> None:
        """Record one launch on tensors."""
        self.queue().record_operands(launch, operands, numbers)

    def record(self, launch: Launch, addresses: tuple[int, ...],
               numbers: tuple[Any, ...]) -> None:
        """Record one launch on bare addresses."""
        self.queue().record_addresses(launch, addresses, numbers)

    # -- for kernels of several launches --

    def scratch(self, nbytes: int) -> Storage:
        """Memory for the launches of one op; drop it after the last one is recorded."""
        made = storage_of(self, self.memory.allocate(nbytes), nbytes)
        queue = self.queue()
        if queue.shared:
            queue.scratches.append(made.address)
        return made

    def workspace(self) -> int:
        """Memory that library calls of the current stream may use."""
        queue = self.queue()
        if queue.capture is not None:
            captured: int = queue.capture.workspace(queue, WORKSPACE)
            return captured
        if queue.workspace is None:
            queue.workspace = self.scratch(WORKSPACE)
        address: int = queue.workspace.address
        return address

    def tickets(self) -> int:
        """Words of the current stream that are zero between launches."""
        queue = self.queue()
        if queue.capture is not None:
            captured: int = queue.capture.tickets(queue)
            return captured
        return tickets_of(self, queue)

    def call_alone(self, name: str, call: Any, reason: str = "not capturable") -> None:
        """Make a library call that no window can hold: ``call(stream)``."""
        queue = self.queue()
        if queue.capture is not None:
            queue.capture.library(queue, name, call)
            return
        queue.send(reason)
        self.enter()
        self.counts.launches += 1
        self.counts.alone(reason, [Named(name)])
        call_timed(queue, name, call)
        # Counted when the driver has it: until then no wait of another thread is for it.
        queue.sequence += 1

    def error_slot(self) -> int:
        """Where kernels of this device write a bad index."""
        return self.slot.device_address

    def pins(self) -> Pinning:
        """The device's pinned memory; made when it is first wanted."""
        if self.pinning is None:
            self.pinning = Pinning(self)
            # Where the memory interface looks for it.
            self.pinned = self.pinning.allocator
        return self.pinning

    def read_back(self, address: int, nbytes: int) -> bytes:
        """Bytes of device memory, once the current stream has written them: one wait."""
        queue = self.queue()
        self.forbid_capture(queue, "its elements are read")
        place = self.edges.before_wait(queue)
        data = self.staging.read(address, nbytes, queue.stream)
        self.order.host_waited(place)
        self.check()
        return data

    def read_into(self, target: int, address: int, nbytes: int) -> None:
        """The same into memory of the host."""
        queue = self.queue()
        self.forbid_capture(queue, "its elements are read")
        place = self.edges.before_wait(queue)
        self.staging.read_into(target, address, nbytes, queue.stream)
        self.order.host_waited(place)
        self.check()

    def write(self, address: int, data: Any) -> None:
        """Copy bytes of the host to device memory in order; the host may go on at once."""
        queue = self.queue()
        if queue.capture is not None:
            queue.capture.refuse_pageable()
        queue.send("copy")
        self.enter()
        self.staging.write(address, data, queue.stream)
        queue.sequence += 1

    def move(self, target: int, source: int, nbytes: int) -> None:
        """Copy from one whole block to another in the order of the current stream."""
        queue = self.queue()
        self.forbid_capture(queue, "a tensor gets more memory")
        queue.send("copy")
        self.enter()
        self.driver.copy(target, source, nbytes, WITHIN, queue.stream)
        note_move(queue, target, source)

    # -- sending and waiting --

    def forbid_capture(self, queue: Queue, what: str) -> None:
        """Raise RuntimeError where a stream captures a graph."""
        if queue.capture is not None:
            queue.capture.refuse(what)

    def enter(self) -> None:
        """Make the device's context the running thread's."""
        if forks.forked:
            forks.refuse()
        self.hot.use(self.context)
        if self.telling or mode_table.ring is not None:
            tell_site(self.driver)

    def check(self) -> None:
        """Raise what a kernel reported."""
        if self.slot.taken.value:
            raise_report(self)

    def boundary(self) -> None:
        """A point that the framework knows: the end of backward or of an optimizer's step."""
        self.queue().boundary()

    def lasting(self) -> dict[Any, Any] | None:
        """The queue's own; None in a capture, and where a pool of the user's gives the memory."""
        queue = self.queue()
        if queue.capture is not None or self.allocator.route is not None:
            return None
        return queue.lasting

    def send_all(self, reason: str = "wait") -> None:
        """Send the windows of all streams."""
        for queue in tuple(self.queues):
            queue.send(reason)

    def drain_all(self) -> None:
        """Let all that is recorded go out, while windows keep their places."""
        for queue in tuple(self.queues):
            queue.drain()

    def drain(self) -> None:
        """Send everything and wait for it: memory runs out, or goes back to the card."""
        for queue in tuple(self.queues):
            queue.lasting = {}
        host_waits(self.device, "memory", self.finish_all, bound=True)

    def look(self) -> None:
        """What the watchdog does, where time is virtual."""
        for queue in tuple(self.queues):
            queue.tick()

    def unsent(self) -> list[int]:
        """The moments at which launches were recorded that a driver does not have yet."""
        windows = [queue.window for queue in tuple(self.queues)]
        return [moment for window in windows for moment in window.moments[window.drained:]]

    def wait(self) -> None:
        """Return when all submitted work is done; raises what a kernel reported."""
        self.forbid_capture(self.queue(), "the host waits for the device")
        self.finish_all()

    def finish_all(self) -> None:
        """The same wherever it is called; captured work is no submitted work."""
        queues = tuple(self.queues)
        # First: what other threads record meanwhile is not waited for.
        places = [self.order.snapshot(queue) for queue in queues]
        self.send_all()
        last = self.slot.latest()
        self.enter()
        self.streams.wait(queues, places)
        self.check()
        self.slot.settled(last)


def raise_report(backend: CudaBackend) -> None:
    """Raise what a kernel reported, with the line that launched it."""
    last = backend.slot.latest()
    # What was sent after it looks at the slot too, and has to find it as it is.
    backend.streams.wait(tuple(backend.queues))
    windows = [queue.window for queue in tuple(backend.queues)]
    backend.slot.check(last, [(each.launches[:each.drained], each.sites)
                              for each in windows if each.drained])


def storage_of(backend: CudaBackend, address: int, nbytes: int) -> Storage:
    """A block as a storage, made without a call of __init__: this is a hot path."""
    made: Storage = Storage.__new__(Storage)
    made.device = backend.device
    made.address = address
    made.nbytes = nbytes
    made.owner = backend.owner
    return made


def run_plan(backend: CudaBackend, plan: Plan, operands: tuple[Any, ...],
             numbers: tuple[Any, ...]) -> None:
    """Record what is no single launch."""
    if isinstance(plan.kernel, LaunchKernel) and isinstance(plan.binding, Bound):
        bound: Bound = plan.binding
        bound.record(backend, operands, numbers)
    else:
        plan.kernel.run(plan, operands, numbers)


def tickets_of(backend: CudaBackend, queue: Queue) -> int:
    """The tickets of a stream, made when they are first wanted."""
    known: dict = backend.counters.addresses
    found = known.get(queue.number)
    if found is None:
        found = backend.counters.of(queue.number, queue.stream, backend.enter)
    address: int = found
    return address


def send_exported(queue: Queue, operands: tuple[Any, ...]) -> None:
    """Send what was recorded where other code has memory that it touches."""
    tensor: TensorBase
    for each in operands:
        tensor = each
        if tensor.storage.exported:
            queue.send("exported storage")
            return


def call_timed(queue: Queue, name: str, call: Any) -> None:
    """Make a library call, its time told to a profile."""
    ring = mode_table.ring
    begun = None if ring is None else ring.timer.begin(queue)
    call(queue.stream)
    if ring is not None:
        ring.timer.called(queue, name, begun)


def tell_site(driver: Any) -> None:
    """Tell the simulated driver the user's line, which it keeps with each piece of work.

    Launches have theirs of their windows; copies and fills have it of here.
    """
    state: ModeState = mode_table.current()
    driver.site = (state.code, state.instruction)


def make(device: Device, prelude: str) -> CudaBackend:
    """The backend of a CUDA device, whose kernels begin with ``prelude``."""
    modules.prelude = prelude
    return CudaBackend(device)
