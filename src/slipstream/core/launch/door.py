"""The one door out: every kernel, copy and library call leaves through `door.submit`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import cython

from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.events import TraceEvent
from slipstream.core.vocab.modes import ModeState, modes
from slipstream.core.vocab.records import Backend, Kernel, Memory, Plan, Storage, TensorBase, owners
from slipstream.core.vocab.ring import Ring

__all__ = ["ImmediateBackend", "Kernel", "LaunchDoor", "ModeState", "Ring", "Storage", "TensorBase",
           "backend_of", "door", "outgrown", "register_backend"]


class ImmediateBackend(Backend):
    """Runs every plan where it is submitted: the CPU."""

    def __init__(self, name: str, memory: Memory) -> None:
        self.name = name
        self.memory = memory
        self.has_data = True
        self.on_host = True
        self.immediate = True
        self.owner = len(owners)
        owners.append(memory)

    def submit(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Run the plan's kernel now."""
        plan.kernel.run(plan, operands, numbers)

    def wait(self) -> None:
        """Nothing is ever pending."""


class NoMemory(Memory):
    """The allocator of a device without memory."""

    def allocate(self, nbytes: int) -> int:
        """Address 0: there is nothing to hold."""
        return 0

    def free(self, address: int, nbytes: int) -> None:
        """Nothing to take back."""


class MetaBackend(Backend):
    """Runs nothing: only specs are computed."""

    def __init__(self) -> None:
        self.name = "meta"
        self.memory = NoMemory()
        self.has_data = False
        self.on_host = True
        self.immediate = False
        self.owner = -1

    def submit(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Nothing to run."""

    def wait(self) -> None:
        """Nothing is ever pending."""


class Makers:
    """What makes the backends of device types at their first use; set once at import."""

    cuda: Callable[[Device], Backend]


class LaunchDoor:
    """Hands plans to their backend and writes the trace event; a singleton, `door`."""

    def __init__(self) -> None:
        self.launches = 0
        # Backends that gather launches in windows.
        self.windowed: tuple[Backend, ...] = ()
        # Host storages that a copy still fills or reads.
        self.pending = 0
        # Captures of graphs that are under way, of all threads.
        self.captures = 0

    def submit(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Launch ``plan`` on ``operands`` (outputs first, then inputs)."""
        self.launches += 1
        if modes.listeners is not None:
            self._traced(plan, operands, numbers)
            return
        if modes.ring is not None:
            self._profiled(plan, operands, numbers)
            return
        if plan.backend.immediate:
            if self.pending:
                self.settle(operands)
            plan.kernel.run(plan, operands, numbers)
        else:
            plan.backend.submit(plan, operands, numbers)

    def settle(self, operands: tuple[Any, ...]) -> None:
        """Wait for the copies that still fill or read the operands' memory."""
        for tensor in operands:
            self.settle_storage(tensor.storage)

    def settle_storage(self, storage: Storage) -> None:
        """Wait for the copy that still fills or reads a storage."""
        pending = storage.pending
        if pending is not None:
            # It may be refused: then the copy is still under way.
            pending.wait()
            if storage.pending is pending:
                storage.pending = None
                pending.counted -= 1
                self.pending -= 1

    def note_capture(self, more: int) -> None:
        """One capture more or less."""
        self.captures += more

    def boundary(self) -> None:
        """A point at which a loop repeats itself: the end of backward, of an optimizer's step."""
        backend: Backend
        for each in self.windowed:
            backend = each
            backend.boundary()

    def _profiled(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        ring: Ring | None = modes.ring
        if ring is None:
            return
        state: ModeState = modes.current()
        start: cython.longlong = ring.begin(plan, plan.backend.immediate, state)
        name: cython.Py_ssize_t = ring.launching
        if plan.backend.immediate:
            if self.pending:
                self.settle(operands)
            plan.kernel.run(plan, operands, numbers)
        else:
            plan.backend.submit(plan, operands, numbers)
        ring.finish(name, state.code, state.instruction, start, state)

    def _traced(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        start = time.perf_counter_ns()
        if self.pending and plan.backend.immediate:
            self.settle(operands)
        plan.backend.submit(plan, operands, numbers)
        end = time.perf_counter_ns()
        shared = [(place, operand.storage.address) for place, operand in enumerate(operands)
                  if operand.storage.exported]
        details = {"plan": plan, "operands": [t.spec for t in operands], "numbers": numbers,
                   "shared": shared}
        emit("launch", plan.kernel.name if plan.kernel is not None else "nothing",
             start, end, details)


def emit(kind: str, name: str, start: int, end: int, details: dict[str, Any]) -> None:
    """Hand a trace event to whoever listens."""
    state = modes.current()
    event = TraceEvent(kind, name, start, end, state.code, state.instruction, details)
    for listener in modes.listeners or ():
        listener(event)


def register_backend(device: Device, backend: Backend) -> None:
    """Make ``backend`` carry out what is submitted for ``device``."""
    backends[device] = backend


def backend_of(device: Device) -> Backend:
    """The backend of a device; raises RuntimeError where there is none."""
    found = backends.get(device)
    if found is None and device.type == "cuda":
        with making:
            # Another thread may have made it meanwhile: a card has one backend.
            found = backends.get(device)
            if found is None:
                found = backends[device] = makers.cuda(device)
                door.windowed = (*door.windowed, found)
    if found is None:
        raise RuntimeError(f"device {device} is not available: no backend is registered for it")
    return found


# Called with a storage that moved to a larger block, and one that stands for its old block.
outgrown: list[Callable[[Storage, Storage], None]] = []
backends: dict[Device, Backend] = {}
making = threading.RLock()
makers = Makers()
door = LaunchDoor()
