"""Lists of tensors: one formula over all of them, in one launch or one loop.

A list is fitted once to the specs of its tensors.  A call then looks at each tensor: where all have
the specs they had, the launch goes out with the addresses of now; where the addresses are those of
an earlier call, as in a loop that repeats itself, nothing but the numbers is new.
"""

# The .pxd declares the C functions.
# mypy: disable-error-code="name-defined"
# ruff: noqa: F821

from __future__ import annotations

import ctypes
from typing import Any

import cython

from slipstream.core.dispatch.carrying import OpCore
from slipstream.core.launch.cuda.words import Words
from slipstream.core.launch.door import LaunchDoor, door
from slipstream.core.shapes.spans import overlap
from slipstream.core.vocab.modes import ModeState
from slipstream.core.vocab.records import GradRecord, Plan, Spec, Storage, TensorBase

__all__ = ["GradRecord", "LaunchDoor", "ModeState", "OpCore", "Plan", "Snapshot", "Spec", "Steps",
           "Storage", "TensorBase", "TensorList", "Words"]


class TensorList:
    """Tensors of one device, each with ``width`` operands, the first ``targets`` of them written.

    ``specs``: those of all operands, column by column; ``words``: their addresses at the last
    call; ``operands``: what is handed to the door; ``tables``: where these come from, None for a
    device that reads ``words`` itself; ``places``: the tensors' numbers among those given.
    """

    plan: Plan
    specs: list[Spec]
    words: Words
    operands: tuple[Any, ...] | None
    tables: Any
    stream: Any
    places: list[int]
    count: int
    width: int
    targets: int
    exported: bool
    moved: bool
    busy: bool

    def __init__(self, plan: Plan, specs: list[Spec], targets: int, places: list[int]) -> None:
        self.plan = plan
        self.specs = specs
        self.places = places
        self.count = len(places)
        self.width = len(specs) // self.count
        self.targets = targets
        self.words = Words()
        for _ in specs:
            self.words.append(0)
        self.operands = None
        self.tables = None
        self.stream = None
        self.exported = False
        self.moved = True
        self.busy = False

    def new_column(self) -> list[Any]:
        """Tensors with memory of their own for the first column."""
        op: OpCore = self.plan.op  # type: ignore[assignment]  # every plan is an Op's
        made: list = []
        place: cython.Py_ssize_t
        for place in range(self.count):
            made.append(op._new(self.specs[place], self.plan.backend))
        return made

    def run(self, state: ModeState, columns: tuple[Any, ...], numbers: tuple[Any, ...],
            shared: tuple[Any, ...]) -> bool:
        """Carry out the formula; False, with nothing written, where the tensors do not fit.

        ``columns``: a list of tensors each, None for the gradients of the first column's;
        ``shared``: tensors that the whole list reads.
        """
        if self.busy:
            # Another thread is in the middle of a call, without the interpreter's lock.
            return False
        self.busy = True
        try:
            if not self.look(state, columns):
                return False
            if (self.moved or self.stream is not state.stream) and not self.find(state):
                return False
            operands: tuple = self.operands or ()
            door.submit(self.plan, operands + shared if shared else operands, numbers)
            if self.tables is not None:
                self.tables.note(columns)
        finally:
            self.busy = False
        if self.exported and self.tables is not None:
            self.tables.send("exported storage")
        return True

    def look(self, state: ModeState, columns: tuple[Any, ...]) -> bool:
        """Compare specs, take down addresses, and count the writes."""
        column: cython.Py_ssize_t
        self.exported = False
        site = (state.code, state.instruction)
        for column in range(self.width):
            gradients: cython.bint = columns[column] is None
            tensors: list = columns[0] if gradients else columns[column]
            if not self.look_at(tensors, column, gradients,
                                site if column < self.targets else None):
                return False
        return True

    def look_at(self, tensors: list[Any], column: cython.Py_ssize_t, gradients: cython.bint,
                site: Any) -> bool:
        """One column, or the gradients of its tensors; ``site``: the line that writes it.

        Everything that is here is done for each tensor in each step: hence one loop, no calls.
        """
        row: cython.Py_ssize_t
        place: cython.Py_ssize_t = column * self.count
        tensor: TensorBase
        storage: Storage
        record: GradRecord | None
        words: Words = self.words
        specs: list = self.specs
        written: cython.bint = site is not None
        immediate: cython.bint = self.plan.backend.immediate
        if len(tensors) != self.count:
            return False
        for row in range(self.count):
            # Whoever made the list saw to it that it holds tensors.
            tensor = cython.cast(TensorBase, tensors[row])
            record = tensor.record
            if gradients:
                if record is None or record.grad is None:
                    return False
                tensor = record.grad
            storage = tensor.storage
            if tensor.spec is not specs[place]:
                return False
            if written:
                if (storage.read_only or tensor.base is not None
                        or (record is not None and record.node is not None)):
                    return False
                storage.version += 1
                storage.write_site = site
            if words.replace(place, storage.address + tensor.offset * tensor.spec.itemsize):
                self.moved = True
            if storage.exported:
                self.exported = True
            if storage.pending is not None and immediate:
                door.settle_storage(storage)
            place += 1
        return True

    def find(self, state: ModeState) -> bool:
        """Find the tables of new addresses; False where a target shares its memory."""
        addresses = self.words.block(0, self.count * self.width, b"")
        tables = self.tables
        found = None if tables is None else tables.find(addresses)
        if found is None:
            nbytes = [spec.nbytes for spec in self.specs]
            if overlap(addresses, nbytes, self.count * self.targets):
                self.moved = True
                return False
            found = () if tables is None else tables.make(addresses)
        self.operands = found
        self.stream = state.stream
        self.moved = False
        return True


class Steps:
    """The step counters of parameters that began together: tensors of one number on the CPU.

    ``latest``: what all of them hold since the last `advance`.
    """

    tensors: list[TensorBase]
    spec: Spec
    single: bool
    latest: float

    def __init__(self, tensors: list[TensorBase]) -> None:
        self.tensors = tensors
        self.latest = 0.0
        tensor: TensorBase = tensors[0]
        self.spec = tensor.spec
        self.single = self.spec.itemsize == 4

    @staticmethod
    def alike(tensors: Any) -> bool:
        """Whether counters can be read together: one float each, of the host's memory."""
        first = tensors[0]
        return (isinstance(first, TensorBase) and first.spec.device.type == "cpu"
                and first.spec.dtype.name in ("float32", "float64") and first.spec.numel == 1
                and all([isinstance(each, TensorBase) and each.spec is first.spec
                         for each in tensors]))

    def address(self, each: TensorBase) -> int:
        """Where a counter lies; 0 for one that is of another kind by now."""
        tensor: TensorBase = each
        storage: Storage = tensor.storage
        if tensor.spec is not self.spec or storage.read_only:
            return 0
        if storage.pending is not None:
            door.settle_storage(storage)
        return storage.address + tensor.offset * self.spec.itemsize

    def read(self, address: cython.size_t) -> float:
        """A counter."""
        if cython.compiled:
            return slip_read_number(address, self.single)
        kind = ctypes.c_float if self.single else ctypes.c_double
        return float(kind.from_address(address).value)

    def advance(self, state: ModeState) -> bool:
        """Count one step more in all; False, with nothing changed, where they differ."""
        place: cython.Py_ssize_t
        address: cython.size_t
        value: cython.double = 0
        tensor: TensorBase
        site = (state.code, state.instruction)
        for place in range(len(self.tensors)):
            tensor = cython.cast(TensorBase, self.tensors[place])
            address = self.address(tensor)
            if place == 0 and address != 0:
                value = self.read(address)
            if address == 0 or self.read(address) != value:
                self.go_back(place, value)
                return False
            self.write(address, value + 1)
            tensor.storage.version += 1
            tensor.storage.write_site = site
        self.latest = value + 1
        return True

    def write(self, address: cython.size_t, value: cython.double) -> None:
        """Set a counter."""
        if cython.compiled:
            slip_write_number(address, value, self.single)
        else:
            kind = ctypes.c_float if self.single else ctypes.c_double
            kind.from_address(address).value = value

    def go_back(self, count: int, value: float) -> None:
        """Set the first counters to what they were."""
        for each in self.tensors[:count]:
            self.write(self.address(each), value)


class Snapshot:
    """What an optimizer went over: its groups, parameters, and everything in its state.

    All is compared by identity, so that whatever was replaced is found.
    """

    groups: list[dict[str, Any]]
    params: list[TensorBase]
    trained: list[bool]
    held: list[Any]

    def __init__(self, groups: Any, state: Any) -> None:
        self.groups = list(groups)
        self.params = [each for group in groups for each in group["params"]]
        self.trained = [has_gradient(each) for each in self.params]
        self.held = flattened(state)

    def same(self, groups: list[dict[str, Any]], state: Any) -> bool:
        """Whether nothing was added, removed or replaced."""
        place: cython.Py_ssize_t = 0
        row: cython.Py_ssize_t
        number: cython.Py_ssize_t
        members: list
        tensor: TensorBase
        record: GradRecord | None
        wanted: cython.bint
        if len(groups) != len(self.groups):
            return False
        for number in range(len(groups)):
            group = groups[number]
            if group is not self.groups[number] or type(group["params"]) is not list:
                return False
            members = group["params"]
            for row in range(len(members)):
                if place >= len(self.params) or members[row] is not self.params[place]:
                    return False
                tensor = members[row]
                record = tensor.record
                wanted = self.trained[place]
                if (record is not None and record.grad is not None) != wanted:
                    return False
                place += 1
        return place == len(self.params) and self.same_state(state)

    def same_state(self, state: Any) -> bool:
        """Whether the state holds the very objects it held."""
        if cython.compiled:
            return slip_same_state(state, self.held)
        now = flattened(state)
        return len(now) == len(self.held) and all(
            [mine is other for mine, other in zip(now, self.held, strict=True)])


def has_gradient(tensor: TensorBase) -> bool:
    """Whether a parameter has a gradient."""
    record = tensor.record
    return record is not None and record.grad is not None


def flattened(state: Any) -> list[Any]:
    """Keys and values of a dict of dicts, in their order."""
    found: list = []
    for key, value in state.items():
        found.append(key)
        found.append(value)
        if isinstance(value, dict):
            for name, item in value.items():
                found.append(name)
                found.append(item)
    return found


def drop_gradients(tensors: list[TensorBase]) -> None:
    """Set the gradients of parameters to None."""
    for each in tensors:
        tensor: TensorBase = each
        if tensor.record is not None:
            tensor.record.grad = None
