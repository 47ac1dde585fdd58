"""The call of a kernel from a string: look-up of its plan, what is checked every time, the launch.

The plan is found by the specs of tensors and the types of numbers, so that what depends on them
alone was checked when the plan was made.  Addresses, values and memory that may not be written are
looked at in every call.
"""

from __future__ import annotations

from typing import Any

import cython

from slipstream.core.engine.tape import Tape, tape
from slipstream.core.launch.door import LaunchDoor, door
from slipstream.core.vocab.devices import current
from slipstream.core.vocab.modes import ModeState, ModeTable, modes
from slipstream.core.vocab.records import Plan, Storage, TensorBase

__all__ = ["Launcher", "LaunchDoor", "ModeTable", "Prepared", "Tape"]

# How a number is checked, by its parameter's type.
INTEGER, SINGLE, DOUBLE, HALF, TRUTH = 0, 1, 2, 3, 4
LARGEST_SINGLE = 3.4028234663852886e38
# The same where compiled code finds them as C numbers.
_INTEGER, _SINGLE, _HALF, _TRUTH, _LARGEST = INTEGER, SINGLE, HALF, TRUTH, LARGEST_SINGLE


class Prepared:
    """A plan with what must be looked at in every call.

    ``alignments``: for each operand, the bytes that its address must be a multiple of;
    ``writes``: the operands that the kernel may write; ``checks``: for each number, how it is
    checked; ``limits``: the least and greatest value of each; ``key``: the specs and types that
    it was made for.
    """

    plan: Plan
    alignments: tuple[int, ...]
    writes: tuple[int, ...]
    checks: tuple[int, ...]
    limits: tuple[tuple[int, int], ...]
    key: tuple[Any, ...]

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.alignments = self.writes = self.checks = self.limits = self.key = ()


class Launcher:
    """A kernel with its grid, block, shared memory and stream; call it with the arguments."""

    kernel: Any
    grid: Any
    shape: tuple[Any, ...]
    stream: Any
    plans: dict[Any, Any]
    recent: Prepared | None

    def __init__(self, kernel: Any, shape: tuple[Any, ...], stream: Any, grid: Any) -> None:
        self.kernel = kernel
        self.shape = shape
        self.stream = stream
        self.grid = grid
        self.plans = kernel.plans_of(shape) if grid is None else {}
        # What was found last, where the grid is always the same.
        self.recent = None

    def __call__(self, *args: Any) -> None:
        """Launch the kernel on the arguments, in the order of its parameters.

        Raises TypeError for arguments of a wrong number, kind or dtype, OverflowError for numbers
        that the declared type cannot hold, ValueError for memory that may not be written and
        RuntimeError for devices, contiguity and alignment.
        """
        state: ModeState = modes.current()
        modes.note_site(state)
        operands: list = []
        numbers: list = []
        prepared: Prepared | None = self.recent
        if prepared is None or not self.sort(prepared.key, args, operands, numbers):
            operands = []
            numbers = []
            prepared = self.look_up(args, operands, numbers)
        self.check(state, prepared, operands, args)
        if numbers:
            self.check_numbers(prepared, numbers, args)
        if self.stream is None:
            door.submit(prepared.plan, tuple(operands), tuple(numbers))
        else:
            self.kernel.submit_on(self.stream, prepared.plan, tuple(operands), tuple(numbers))
        self.written(state, prepared, operands)

    def sort(self, key: tuple[Any, ...], args: tuple[Any, ...], operands: list[Any],
             numbers: list[Any]) -> bool:
        """Part tensors from numbers; False at the first that is not of the kind in the key."""
        tensor: TensorBase
        place: cython.Py_ssize_t
        if len(args) != len(key):
            return False
        for place in range(len(args)):
            value = args[place]
            if isinstance(value, TensorBase):
                tensor = value
                if tensor.spec is not key[place]:
                    return False
                operands.append(value)
            elif value is None:
                if key[place] is not None:
                    return False
            elif type(value) is not key[place]:
                return False
            else:
                numbers.append(value)
        return True

    def look_up(self, args: tuple[Any, ...], operands: list[Any],
                numbers: list[Any]) -> Prepared:
        """What a call's specs and types decide, found by these or made."""
        shape = self.shape
        plans: dict = self.plans
        if self.grid is not None:
            shape, plans = self.kernel.table_of(self.grid(*args), shape)
        parts: list = []
        tensor: TensorBase
        for value in args:
            if isinstance(value, TensorBase):
                tensor = value
                parts.append(tensor.spec)
                operands.append(value)
            elif value is None:
                parts.append(None)
            else:
                parts.append(type(value))
                numbers.append(value)
        if not operands:
            parts.append(current.index)
        key: tuple = tuple(parts)
        found = plans.get(key)
        if found is None:
            found = self.kernel.prepare(plans, key, shape, args)
        prepared: Prepared = found
        prepared.key = key
        if self.grid is None:
            self.recent = prepared
        return prepared

    def check(self, state: ModeState, prepared: Prepared, operands: list[Any], args: Any) -> None:
        """Look at the operands' addresses, and whether those that are written may be."""
        tensor: TensorBase
        storage: Storage
        place: cython.Py_ssize_t = 0
        for each in operands:
            tensor = each
            storage = tensor.storage
            address: cython.size_t = storage.address + tensor.offset * tensor.spec.itemsize
            alignment: cython.size_t = prepared.alignments[place]
            if address & (alignment - 1):
                self.kernel.refuse_alignment(args, place, alignment)
            place += 1
        for at in prepared.writes:
            tensor = operands[at]
            storage = tensor.storage
            if storage.read_only:
                self.kernel.refuse_write(args, at)
            if tensor.record is not None or tensor.base is not None:
                if state.grad_enabled and tape.requires_grad(tensor):
                    self.kernel.refuse_gradient(args, at)

    def check_numbers(self, prepared: Prepared, numbers: list[Any], args: Any) -> None:
        """Look at the numbers' values; a 16-bit float becomes its bits."""
        place: cython.Py_ssize_t = 0
        for value in numbers:
            kind: cython.int = prepared.checks[place]
            if kind in (_INTEGER, _TRUTH):
                least, greatest = prepared.limits[place]
                if not least <= value <= greatest:
                    self.kernel.refuse_number(args, place)
            elif kind == _HALF:
                numbers[place] = self.kernel.half_bits(args, place, value)
            else:
                if type(value) is not float:
                    # Nothing may fail any more once the launch is being recorded.
                    value = numbers[place] = self.kernel.double_of(args, place, value)
                double: cython.double = value
                # Infinities and nan pass: their difference from themselves is no zero.
                if (kind == _SINGLE and double - double == 0
                        and (double > _LARGEST or double < -_LARGEST)):
                    self.kernel.refuse_number(args, place)
            place += 1

    def written(self, state: ModeState, prepared: Prepared, operands: list[Any]) -> None:
        """Count the writes in the storages' versions: autograd looks at them."""
        tensor: TensorBase
        storage: Storage
        place: cython.Py_ssize_t
        at: cython.Py_ssize_t
        for place in range(len(prepared.writes)):
            at = prepared.writes[place]
            tensor = operands[at]
            storage = tensor.storage
            storage.version += 1
            storage.write_site = (state.code, state.instruction)

    def __repr__(self) -> str:
        grid = self.shape[0] if self.grid is None else self.grid
        return f"<{self.kernel.signature}, grid {grid}, block {self.shape[1]}>"
