# cython: annotation_typing=False
"""The history of views: in-place writes through a view change the history of its base."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from slipstream.core.engine.hooks import move_retainer
from slipstream.core.engine.tape import Rule, tape
from slipstream.core.shapes.overlap import self_overlaps
from slipstream.core.shapes.specs import specs
from slipstream.core.shapes.strides import element_range
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.dtypes import DType
from slipstream.core.vocab.modes import ModeState, modes
from slipstream.core.vocab.records import GradRecord, Node, Spec, TensorBase


class Operations:
    """Ops that the engine calls; set once at import by wiring."""

    accumulate: Any
    sum: Any
    sum_to: Any
    cast: Any
    cast_list: Any
    move: Any
    full: Any
    zeros: Any
    index_put: Any
    strided_view: Any
    come_after: Any


operations = Operations()


def check_inplace(target: TensorBase, state: ModeState, recording: bool) -> None:
    """Raise RuntimeError where autograd forbids writing to ``target`` in place."""
    if not state.grad_enabled:
        return
    wants = tape.requires_grad(target)
    record: GradRecord | None = target.record
    base = target.base
    if base is not None:
        _check_view(target, base, wants, recording)
    if wants and record is not None and record.node is None:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place "
                           f"operation: {target.spec!r}\n"
                           "  mend: write under no_grad(), or to a clone()")


def _check_view(target: TensorBase, base: TensorBase, wants: bool, recording: bool) -> None:
    origin: GradRecord | None = base.record
    if origin is not None and origin.requires_grad:
        if origin.node is None:
            raise RuntimeError("a view of a leaf Variable that requires grad is being used in an "
                               f"in-place operation: {target.spec!r} is a view of {base.spec!r}\n"
                               "  mend: write under no_grad(), or to a clone()")
        if not wants:
            # The base would keep a history that knows nothing of the write.
            raise RuntimeError("A view was created in no_grad mode and is being modified inplace "
                               f"with grad mode enabled: {target.spec!r}\n"
                               "  mend: make the view with grad mode enabled, or write under "
                               "no_grad()")
    if target.record is not None and target.record.node is not None:
        _check_node(target.record.node, target.record.output)
    if recording:
        _check_span(base)


def _check_node(node: Node, output: int) -> None:
    """Refuse to write through a view whose node cannot give it a new history."""
    if len(node.outputs) > 1:
        raise RuntimeError(f"Output {output} of {node.name()} is a view and is being "
                           "modified inplace. This view is the output of a function that returns "
                           "multiple views. Such functions do not allow the output views to be "
                           "modified inplace.\n  mend: use separate indexing, such as x[0], or "
                           "clone()")
    if not node.rule.follows_base:
        raise RuntimeError(f"Output {output} of {node.name()} is a view and is being "
                           "modified inplace. This view was created inside a custom Function (or "
                           "because an input was returned as-is) and the autograd logic to handle "
                           "view+inplace would override the custom backward associated with the "
                           "custom Function, leading to incorrect gradients.\n  mend: clone() the "
                           "output of the custom Function")


def rebase(target: TensorBase, node: Node) -> None:
    """Make ``node`` the history of ``target``, which has just been written in place."""
    if target.spec.dtype.category < 2:
        return
    base = target.base
    if base is None or base.spec.dtype.category < 2:
        _renew(target, node)
        return
    before = target.record
    tape.attach(node, (target,))
    if before is not None:
        # What the view was before decides which gradient it keeps.
        target.record = before
    places = node.places or (0,) * len(node.edges)
    origin, place = tape.edge_of(base) or (None, 0)
    copy = Node(CopySlices(node, target, base), (origin, *_others(node, node.edges)),
                (place, *_others(node, places)))
    copy.inputs = (base.spec, *_others(node, node.inputs))
    copy.code = node.code
    copy.instruction = node.instruction
    tape.sequence += 1
    copy.sequence = tape.sequence
    copy.stream = node.stream
    _renew(base, copy)
    _follow(target, base)


def _renew(tensor: TensorBase, node: Node) -> None:
    """Give a tensor that is no view a new history; its views see that it is a later one."""
    before: GradRecord | None = tensor.record
    tape.attach(node, (tensor,))
    after: GradRecord = tensor.record  # type: ignore[assignment]  # attach made it
    after.generation = 1
    if before is not None:
        after.generation += before.generation
        move_retainer(before, before.node, after)


def _others(node: Node, each: tuple[Any, ...]) -> tuple[Any, ...]:
    """What belongs to the inputs of an in-place op but its target."""
    places = node.rule.differentiable
    return each[1:] if places and places[0] == 0 else each


def _check_span(base: TensorBase) -> None:
    if base.spec.ndim and any(s == 0 and n > 1
                              for s, n in zip(base.spec.strides, base.spec.shape, strict=True)):
        raise RuntimeError("an in-place write through a view whose base is expanded cannot be "
                           f"recorded: base {base.spec!r}\n  mend: clone() first")


def _follow(view: TensorBase, base: TensorBase) -> None:
    """Give a view the history of its base as that is now."""
    before: GradRecord | None = view.record
    history: GradRecord = base.record  # type: ignore[assignment]  # it was written
    if not history.requires_grad or view.spec.dtype.category < 2:
        if before is not None:
            before.generation = history.generation
        return
    origin, place = tape.edge_of(base) or (None, 0)
    node = Node(ViewOfBase(view, base), (origin,), (place,))
    node.inputs = (base.spec,)
    node.outputs = (view.spec,)
    state = modes.current()
    node.code = state.code
    node.instruction = state.instruction
    node.stream = state.stream
    tape.sequence += 1
    node.sequence = tape.sequence
    # A new record: saved copies of the view keep the history that they had.
    record = GradRecord()
    record.generation = history.generation
    record.requires_grad = True
    record.node = node
    view.record = record
    if before is not None:
        move_retainer(before, before.node, record)


def refresh(view: TensorBase) -> None:
    """Bring a view's history up to date after its base was written in place."""
    base = view.base
    if base is None or base.record is None or base.record.generation == 0:
        # A view made without gradients of a base that wants them stays without.
        return
    record: GradRecord | None = view.record
    if record is None or record.generation != base.record.generation:
        if base.record.requires_grad and record is not None and record.node is not None:
            _check_followed(record.node, record.output)
        _follow(view, base)


def _check_followed(node: Node, output: int) -> None:
    """Refuse a new history to a view whose node would be left out of it."""
    if not node.rule.follows_base:
        raise RuntimeError(f"Output {output} of {node.name()} is a view and its base or another "
                           "view of its base has been modified inplace. This view was created "
                           "inside a custom Function (or because an input was returned as-is) and "
                           "the autograd logic to handle view+inplace would override the custom "
                           "backward associated with the custom Function, leading to incorrect "
                           "gradients.\n  mend: clone() the output of the custom Function")


tape.refresh = refresh


@contextmanager
def without_grad() -> Iterator[None]:
    """A scope in which this thread records nothing."""
    state = modes.current()
    before = state.grad_enabled
    state.grad_enabled = False
    try:
        yield
    finally:
        state.grad_enabled = before


class Geometry:
    """A tensor's place in its storage."""

    def __init__(self, tensor: TensorBase) -> None:
        self.spec = tensor.spec
        self.offset = tensor.offset


class Window:
    """A view's place in its base, and the two linear maps that come with it.

    ``take``: the view's part of a value of the base.  ``put``: the value of the base with another
    part.  The gradient of each is made of the two, so that they can be differentiated again.
    """

    def __init__(self, view: TensorBase, base: TensorBase) -> None:
        self.view = Geometry(view)
        self.base = Geometry(base)

    def take(self, whole: TensorBase) -> TensorBase:
        """The part, in new memory."""
        with without_grad():
            part: Any = self._laid_out(whole)[1]
            part = part.clone()
        return _recorded(TakePart(self), (whole,), part)

    def put(self, whole: TensorBase, part: TensorBase | None) -> TensorBase:
        """``whole`` with its part replaced, by zeros for None."""
        with without_grad():
            result, window = self._laid_out(whole)
            place: Any = window
            if part is None:
                place.zero_()
            else:
                place.copy_(part)
        inputs = (whole,) if part is None else (whole, part)
        return _recorded(PutPart(self), inputs, result)

    def embed(self, part: TensorBase) -> TensorBase:
        """Zeros of the base's shape with the part in its place."""
        spec, view = self.base.spec, self.view.spec
        if not view.contiguous and self_overlaps(view.shape, view.strides):
            return self._added(part)
        return self.put(operations.zeros(part, spec.shape, dtype=spec.dtype), part)

    def _added(self, part: Any) -> TensorBase:
        """Zeros of the base's shape; what the view shows several times adds up there."""
        spec = self.base.spec
        low, high = element_range(spec.shape, spec.strides)
        with without_grad():
            places = operations.zeros(part, (high - low + 1,), dtype=dtypes.int64)
            places = (places + 1).cumsum(0) - 1
            shown: Any = _window(places, self.view.spec, self.view.offset - self.base.offset - low,
                                 dtypes.int64)
            shown = shown.reshape(-1)
        total = operations.zeros(part, (high - low + 1,), dtype=spec.dtype)
        total = operations.index_put(total, (shown,), part.reshape(-1), True)
        return operations.strided_view(total, spec.shape, spec.strides, -low)

    def _laid_out(self, whole: TensorBase) -> tuple[TensorBase, TensorBase]:
        """A copy of ``whole`` laid out as the base is, and the view's place in it."""
        spec = self.base.spec
        low, high = element_range(spec.shape, spec.strides)
        buffer = operations.zeros(whole, (high - low + 1,), dtype=spec.dtype)
        result = _window(buffer, spec, -low)
        result.copy_(whole)
        # Offsets count elements of each tensor's own dtype: those of a complex view or base are
        # twice as long.
        moved = (-low - self.base.offset) * spec.itemsize
        place = self.view.offset + moved // self.view.spec.itemsize
        return result, _window(buffer, self.view.spec, place)


def _window(buffer: TensorBase, spec: Spec, offset: int, dtype: DType | None = None) -> Any:
    """A tensor of the spec's shape and strides, and its dtype or another, over the buffer."""
    out = TensorBase.__new__(tape.tensor_class)
    out.spec = specs.intern(buffer.spec.device, dtype or spec.dtype, spec.shape, spec.strides)
    out.storage = buffer.storage
    out.offset = offset
    return out


def _recorded(rule: Rule, inputs: tuple[TensorBase, ...], result: TensorBase) -> TensorBase:
    state = modes.current()
    if state.grad_enabled and any(tape.requires_grad(each) for each in inputs):
        rule.differentiable = tuple(range(len(inputs)))
        tape.record(rule, inputs, (result,), state)
    return result


class TakePart(Rule):
    """The rule of ``Window.take``."""

    def __init__(self, window: Window) -> None:
        super().__init__("TakePartBackward", ())
        self.window = window

    def apply(self, node: Node, grads: list[Any], create_graph: bool) -> list[Any]:
        """The gradient in the part's place."""
        return [self.window.embed(grads[0])]


class PutPart(Rule):
    """The rule of ``Window.put``."""

    def __init__(self, window: Window) -> None:
        super().__init__("PutPartBackward", ())
        self.window = window

    def apply(self, node: Node, grads: list[Any], create_graph: bool) -> list[Any]:
        """The gradient but for the part, and the part's."""
        whole = self.window.put(grads[0], None)
        return [whole] if len(node.edges) == 1 else [whole, self.window.take(grads[0])]


def _twin(node: Node) -> Node:
    """Another node of the same call, which holds what the first one saved."""
    twin = Node(node.rule, node.edges, node.places)
    for name in ("saved", "values", "inputs", "outputs", "extra", "code", "instruction",
                 "sequence", "stream"):
        setattr(twin, name, getattr(node, name))
    return twin


class CopySlices(Rule):
    """An in-place op on a view, seen from the base: the written part passes through the op."""

    def __init__(self, node: Node, view: TensorBase, base: TensorBase) -> None:
        super().__init__("CopySlices", ())
        self.node = node
        self.window = Window(view, base)

    def apply(self, node: Node, grads: list[Any], create_graph: bool) -> list[Any]:
        """Gradient of the base: passed through the op where written, unchanged elsewhere."""
        # What the op saved of its result gets a history, whose node is freed by itself.
        inner = _twin(self.node) if create_graph else self.node
        part = self.window.take(grads[0])
        results = list(inner.rule.apply(inner, [part], create_graph))
        places = inner.rule.differentiable
        own = results.pop(0) if places and places[0] == 0 else None
        if own is not None:
            own = operations.sum_to(own, self.window.view.spec.shape)
        return [self.window.put(grads[0], own), *results]

    def free(self, node: Node) -> None:
        """Drop what the inner node saved."""
        inner = self.node
        inner.rule.free(inner)
        if inner.saved is None:
            node.saved = None


class ViewOfBase(Rule):
    """A view of a base whose history changed: its gradient goes to its part of the base."""

    def __init__(self, view: TensorBase, base: TensorBase) -> None:
        super().__init__("AsStridedBackward0", (0,))
        self.window = Window(view, base)

    def apply(self, node: Node, grads: list[Any], create_graph: bool) -> list[Any]:
        """The gradient laid into zeros of the base's shape."""
        return [self.window.embed(grads[0])]
