"""How a plan is carried out: memory for the results, the launch, the tape, views and writes."""

# The .pxd declares the C functions.
# mypy: disable-error-code="name-defined"

from __future__ import annotations

from typing import Any

import cython

from slipstream.core.dispatch.arguments import NumPyScalarError, without_numpy
from slipstream.core.dispatch.facts import OpFacts
from slipstream.core.dispatch.numbers import StoredNumbers
from slipstream.core.dispatch.tracing import (
    profiled_compound,
    traced_allocation,
    traced_node,
    traced_record,
)
from slipstream.core.dispatch.ways import Keywords
from slipstream.core.engine.tape import Rule, Tape, tape
from slipstream.core.launch.door import LaunchDoor, door
from slipstream.core.vocab.modes import ModeState, ModeTable, modes
from slipstream.core.vocab.records import (
    KERNEL,
    VIEW,
    Backend,
    GradRecord,
    Kernel,
    Memory,
    Node,
    Plan,
    Slots,
    Spec,
    Storage,
    TensorBase,
    slots,
)
from slipstream.core.vocab.ring import ALLOCATION, TAPE, Ring

__all__ = ["IN_PLACE", "OUT", "PLAIN", "Kernel", "Keywords", "LaunchDoor", "Memory", "ModeTable",
           "OpCore", "Ring", "Rule", "Slots", "Tape", "note_bare_view", "wiring"]

# The forms of a call.
PLAIN = 0
IN_PLACE = 1
OUT = 2
# Marks short keys of two operands whose plan goes the long way.
LONG = "long"
# The same as C numbers, and the kinds of plans: compared without objects.
_plain = PLAIN
_in_place = IN_PLACE
_kernel = KERNEL
_view = VIEW


class Wiring:
    """Functions of upper or side layers that the door calls; set once at import."""

    special: Any = None
    gather: Any = None
    begin_write: Any = None
    end_write: Any = None
    deliver: Any = None
    made_like: Any = None
    blame: Any = None
    blame_launch: Any = None
    shortened: Any = None
    arguments: Any = None


wiring = Wiring()


class OpCore(OpFacts):
    """How an op's plans are carried out; `dispatch.op.Op` finds them."""

    def _specs(self, tensors: Any, grad_enabled: bool) -> tuple[tuple[Any, ...], bool]:
        """What the key holds of a list of tensors, and whether any of them wants a gradient."""
        specs: list = []
        wants = False
        for each in tensors:
            if isinstance(each, TensorBase):
                tensor: TensorBase = each
                specs.append(tensor.spec)
                if ((tensor.record is not None or tensor.base is not None)
                        and grad_enabled and tape.requires_grad(tensor)):
                    wants = True
            else:
                specs.append(None if each is None else type(each))
        return tuple(specs), wants

    def _compound(self, values: Any) -> Any:
        """Call the function of a compound op; an error inside it names this op."""
        try:
            if modes.ring is not None:
                return profiled_compound(self, values)
            return self.function(*values)
        except Exception as failure:
            wiring.blame(self, values, failure)
            raise wiring.shortened(failure)  # noqa: B904

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """All arguments in the order of the signature, defaults filled in."""
        n: cython.Py_ssize_t = len(args)
        if not kwargs:
            if n == self.count and n == self.positional:
                return args
            if self.required <= n <= self.positional:
                return args + self.tails[n]
            if 0 <= self.variadic < n - 1:
                return (args[:self.variadic] + (args[self.variadic:],)
                        + self.tails[self.variadic + 1])
        elif (bound := self.keywords.bound(args, self.tails, kwargs)) is not None:
            return bound
        return wiring.arguments(self, args, kwargs or {})

    def _carry_out(
        self, plan: Plan, state: ModeState, values: Any, target: Any, form: int
    ) -> Any:
        if form != _plain:
            return self._write(plan, state, values, target, form)
        if plan.kind == _kernel:
            return self._launch(plan, state, values)
        if plan.kind == _view:
            return self._view(plan, state, values)
        return plan.binding(*values)

    def call_again(self, a: TensorBase, b: TensorBase) -> Any:
        """`call2` the long way, without gradients; None where the operands are new to it."""
        state: ModeState = modes.current()
        plan: Plan | None = self.binary.get((LONG, (a.spec, b.spec, 0)))
        if plan is None or state.grad_enabled or state.special & self.heeds:
            return None
        modes.note_site(state)
        plan.used = True
        return self._carry_out(plan, state, (a, b), None, PLAIN)

    def _gathered(self, state: ModeState, values: Any, written: Any,
                  error: BaseException) -> Any:
        """The call with its operands brought to one device, or in Python's numbers, as it asks for.

        The error where they may not be.

        ``written``: (target, form), or None for a plain call.
        """
        target, form = (None, PLAIN) if written is None else written
        gathered = (without_numpy(self, values) if isinstance(error, NumPyScalarError)
                    else wiring.gather(self, values, target))
        if gathered is None:
            raise error
        return self.dispatch(state, gathered, target, form)  # type: ignore[attr-defined]

    def _new(self, spec: Spec, backend: Backend) -> TensorBase:
        """A new tensor with memory of its own."""
        out: TensorBase
        address: cython.size_t
        if modes.listeners is None and modes.ring is None:
            address = backend.memory.allocate(spec.extent)
        else:
            address = watched_block(backend, spec.extent)
        storage: Storage = Storage.__new__(Storage)
        storage.device = spec.device
        storage.address = address
        storage.nbytes = spec.extent
        storage.owner = backend.owner
        if cython.compiled:
            out = slip_new(slots.tensor_class)  # noqa: F821
        else:
            out = TensorBase.__new__(slots.tensor_class)
        out.spec = spec
        out.storage = storage
        out.offset = 0
        return out

    def _numbers(self, plan: Plan, values: Any) -> tuple[Any, ...]:
        stored: StoredNumbers
        place: cython.Py_ssize_t
        if plan.prepare is not None:
            if isinstance(plan.prepare, StoredNumbers):
                stored = plan.prepare
                return stored.of(values)
            return plan.prepare(values)
        if not plan.numbers:
            return ()
        if len(plan.numbers) == 1:
            place = plan.numbers[0]
            return (values[place],)
        return tuple([values[position] for position in plan.numbers])

    def _launch(self, plan: Plan, state: ModeState, values: Any) -> Any:
        outs: tuple
        specs: tuple = plan.out_specs
        if plan.outputs == 1 and not self.refuses and plan.rule is None:
            out: TensorBase = self._new(plan.out_spec, plan.backend)
            door.submit(plan, _operands_beside(plan, out, values), self._numbers(plan, values))
            return out
        if plan.outputs == 1:
            outs = (self._new(plan.out_spec, plan.backend),)
        elif plan.outputs == 2:
            outs = (self._new(specs[0], plan.backend), self._new(specs[1], plan.backend))
        else:
            outs = tuple([self._new(spec, plan.backend) for spec in plan.out_specs])
        if self.refuses:
            self._submit(plan, outs, values)
        else:
            door.submit(plan, _operands(plan, outs, values), self._numbers(plan, values))
        if plan.rule is not None:
            self._record(plan, state, values, outs)
        return outs[0] if plan.outputs == 1 else outs

    def _submit(self, plan: Plan, outs: tuple[Any, ...], values: Any) -> None:
        """Launch what may refuse elements, such as an index: its error names the call."""
        try:
            door.submit(plan, _operands(plan, outs, values), self._numbers(plan, values))
        except (IndexError, RuntimeError) as failure:
            # A device that runs later tells of launches before this one.
            if plan.backend.immediate:
                wiring.blame_launch(self, values, failure)
            raise

    def _record(self, plan: Plan, state: ModeState, values: Any, outs: tuple[Any, ...]) -> None:
        if modes.listeners is None and modes.ring is None:
            tape.record_plan(plan, values, outs, state)
        else:
            watched_record(plan, values, outs, state)

    def _view(self, plan: Plan, state: ModeState, values: Any) -> Any:
        source: TensorBase = values[0]
        if plan.binding is not None:
            return self._views(plan, state, values)
        offset: cython.Py_ssize_t = source.offset + plan.offset
        if plan.steps is not None:
            offset += distance(values[plan.numbers[0]], plan.steps)
        out = self._alias(source, plan.out_spec, offset, plan.statics)
        if plan.rule is not None:
            self._record_view(plan, state, values, (out,))
        elif out.base is not None and out.base.record is not None:
            note_bare_view(out)
        if modes.ring is not None:
            modes.ring.viewed(plan, state.code, state.instruction)
        return out

    def _views(self, plan: Plan, state: ModeState, values: Any) -> Any:
        source: TensorBase = values[0]
        moves = plan.binding(values) if callable(plan.binding) else plan.binding
        found: list = []
        for move in moves:
            found.append(self._alias(source, plan.out_specs[len(found)], source.offset + move,
                                     plan.statics))
        outs = tuple(found)
        if plan.rule is not None:
            self._record_view(plan, state, values, outs)
        elif source.record is not None or source.base is not None:
            for out in outs:
                note_bare_view(out)
        if modes.ring is not None:
            modes.ring.viewed(plan, state.code, state.instruction)
        return outs if plan.outputs != 1 else outs[0]

    def _alias(self, source: TensorBase, spec: Spec, offset: int, tracked: Any) -> TensorBase:
        """A tensor over the same storage; ``tracked`` unless it is detached."""
        out: TensorBase
        if cython.compiled:
            out = slip_new(slots.tensor_class)  # noqa: F821
        else:
            out = TensorBase.__new__(slots.tensor_class)
        out.spec = spec
        out.storage = source.storage
        out.offset = offset
        if tracked is None:
            return out
        out.base = source if source.base is None else source.base
        return out

    def _record_view(
        self, plan: Plan, state: ModeState, values: Any, outs: tuple[Any, ...]
    ) -> None:
        self._record(plan, state, values, outs)
        for out in outs:
            view: TensorBase = out
            if view.record is not None and view.base is not None and view.base.record is not None:
                view.record.generation = view.base.record.generation

    def _write(
        self, plan: Plan, state: ModeState, values: Any, target: Any, form: int
    ) -> Any:
        """The in-place and ``out=`` forms: the results' memory is given."""
        written: TensorBase
        if self._plainly_writable(plan, state, values, target, form):
            written = target
            if plan.prepare is None and not self.refuses:
                door.submit(plan, _operands_beside(plan, written, values),
                            self._numbers(plan, values))
            else:
                self._submit(plan, (written,), values)
            note_write(written.storage, state)
            return target
        # A known call gives what its plan needs; what comes here looks at all arguments.
        if len(values) < self.count:
            values = values + self.tails[len(values)]
        targets: tuple = target if isinstance(target, tuple) else (target,)
        values = wiring.begin_write(self, plan, state, values, targets, form)
        node: Node | None = None
        if plan.rule is not None:
            node = (tape.make_node(plan.rule, values, state) if modes.listeners is None
                    else traced_node(plan.rule, values, state))
        self._submit(plan, targets, values)
        if node is None and isinstance(target, TensorBase):
            written = target
            note_write(written.storage, state)
        else:
            wiring.end_write(plan, state, targets, node)
        return target

    def _plainly_writable(
        self, plan: Plan, state: ModeState, values: Any, target: Any, form: int
    ) -> bool:
        """Whether a write needs no further look: nothing shared, read-only, or on the tape."""
        if not isinstance(target, TensorBase) or plan.rule is not None:
            return False
        written: TensorBase = target
        if not written.spec.contiguous or written.storage.read_only:
            return False
        if state.grad_enabled and (written.record is not None or written.base is not None):
            return False
        source: TensorBase
        same: cython.int = 0 if form == _in_place else 1
        for value in values:
            if isinstance(value, TensorBase):
                source = value
                if source is written:
                    same += 1
                elif source.storage is written.storage:
                    return False
            elif isinstance(value, (list, tuple)):
                return False
        # Only a pointwise op may read its target: others read elsewhere than they write.
        return same <= 1 or self.pointwise


def note_write(storage: Storage, state: ModeState) -> None:
    """Count a write in the storage's version, and keep the line that wrote."""
    storage.version += 1
    known = storage.write_site
    if cython.compiled and known is not None:
        # A loop writes at the same line again and again.
        site: tuple = known
        instruction: cython.int = site[1]
        if site[0] is state.code and instruction == state.instruction:
            return
    storage.write_site = (state.code, state.instruction)


def _operands_beside(plan: Plan, out: TensorBase, values: Any) -> tuple[Any, ...]:
    """The operands of a plan with one output: it comes first."""
    places: tuple = plan.operands
    count: cython.Py_ssize_t = len(places)
    if not count:
        return (out,)
    at: cython.Py_ssize_t = places[0]
    given: tuple = values if type(values) is tuple else tuple(values)
    first = given[at]
    if count > 2 or not isinstance(first, TensorBase):
        return _operands(plan, (out,), given)
    if count == 1:
        return (out, first)
    at = places[1]
    second = given[at]
    if isinstance(second, TensorBase):
        return (out, first, second)
    return _operands(plan, (out,), given)


def _operands(plan: Plan, outs: tuple[Any, ...], values: Any) -> tuple[Any, ...]:
    places: tuple = plan.operands
    count: cython.Py_ssize_t = len(places)
    if not count:
        return outs
    at: cython.Py_ssize_t = places[0]
    given: tuple = values if type(values) is tuple else tuple(values)
    first = given[at]
    if count < 5 and isinstance(first, TensorBase):
        if count == 1:
            return (outs[0], first) if len(outs) == 1 else (*outs, first)
        at = places[1]
        second = given[at]
        at = places[count - 1]
        last = given[at]
        at = places[2 if count == 4 else 1]
        third = given[at]
        if (isinstance(second, TensorBase) and isinstance(third, TensorBase)
                and isinstance(last, TensorBase)):
            if len(outs) == 1 and count < 4:
                return (outs[0], first, second) if count == 2 else (outs[0], first, second, last)
            if count < 4:
                return outs + ((first, second) if count == 2 else (first, second, last))
            return outs + (first, second, third, last)
    operands: list = list(outs)
    place: cython.Py_ssize_t
    for place in range(count):
        at = places[place]
        value = given[at]
        if isinstance(value, TensorBase):
            operands.append(value)
        elif value is not None:
            operands.extend(value)
    return tuple(operands)


def distance(starts: Any, steps: Any) -> int:
    """How far a view's first element lies from its source's, in elements."""
    total: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t
    for i in range(len(steps)):
        start: cython.Py_ssize_t = starts[i]
        step: cython.Py_ssize_t = steps[i]
        total += start * step
    return total


def note_bare_view(view: TensorBase) -> None:
    """A view made without gradients stays so until its base is written with them."""
    base: TensorBase | None = view.base
    if base is not None and base.record is not None:
        record = GradRecord()
        record.generation = base.record.generation
        view.record = record


def watched_block(backend: Backend, nbytes: int) -> int:
    """A block for somebody who listens, or a profile that counts its time for the allocator."""
    ring: Ring | None = modes.ring
    if ring is None or modes.listeners is not None:
        return traced_allocation(backend, nbytes)
    ring.switch(ALLOCATION)
    # Until the launch begins, making the tensor around it counts too: a look at the clock less.
    return backend.memory.allocate(nbytes)


def watched_record(plan: Plan, values: Any, outs: tuple[Any, ...], state: ModeState) -> None:
    """Record a call on the tape for somebody who listens, or a profile."""
    ring: Ring | None = modes.ring
    if ring is None or modes.listeners is not None:
        traced_record(plan.rule, values, outs, state)
        return
    ring.switch(TAPE)
    tape.record_plan(plan, values, outs, state)
    ring.switch(ring.outside)
