"""The history of views: in-place writes through a view change the history of its base."""

from __future__ import annotations

from typing import Any

from slipstream.core.engine.tape import Rule, tape
from slipstream.core.vocab.modes import ModeState, modes
from slipstream.core.vocab.records import GradRecord, Node, TensorBase


class Operations:
    """Ops that the engine calls; set once at import by wiring."""

    as_strided: Any = None
    zeros_strided: Any = None
    accumulate: Any = None
    sum_to: Any = None
    cast: Any = None
    ones: Any = None
    zeros: Any = None


operations = Operations()


def check_inplace(target: TensorBase, state: ModeState, recording: bool) -> None:
    """Raise RuntimeError where autograd forbids writing to ``target`` in place."""
    if not state.grad_enabled:
        return
    record: GradRecord | None = target.record
    base = target.base
    if base is not None and base.record is not None:
        tape.requires_grad(target)
        if base.record.requires_grad and base.record.node is None:
            raise RuntimeError("a view of a leaf Variable that requires grad is being used in an "
                               f"in-place operation: {target.spec!r} is a view of {base.spec!r}\n"
                               "  mend: write under no_grad(), or to a clone()")
    if record is not None and record.requires_grad and record.node is None and base is None:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place "
                           f"operation: {target.spec!r}\n"
                           "  mend: write under no_grad(), or to a clone()")
    if record is not None and record.node is not None and record.node.rule.name == "UnbindBackward":
        raise RuntimeError("a view that is one of several outputs of one call is being modified "
                           "inplace\n  mend: use separate indexing, such as x[0], or clone()")


def rebase(target: TensorBase, node: Node) -> None:
    """Make ``node`` the history of ``target``, which has just been written in place."""
    if target.base is None:
        tape.attach(node, (target,))
        record: GradRecord = target.record
        record.generation = 1 if record.generation == 0 else record.generation + 1
        return
    base = target.base
    _check_span(base)
    tape.attach(node, (target,))
    rule = CopySlices(node, target, base)
    copy = Node(rule, (_edge(base), *_other_edges(node)))
    copy.inputs = (base.spec, *node.inputs[1:])
    copy.code = node.code
    copy.instruction = node.instruction
    tape.sequence += 1
    copy.sequence = tape.sequence
    generation = 0 if base.record is None else base.record.generation
    tape.attach(copy, (base,))
    base.record.generation = generation + 1
    _follow(target, base)


def _edge(base: TensorBase) -> Any:
    return tape.edge_of(base)


def _other_edges(node: Node) -> tuple[Any, ...]:
    """The edges of an in-place op's node but that of the target itself."""
    if node.rule.differentiable and node.rule.differentiable[0] == 0:
        return node.edges[1:]
    return node.edges


def _check_span(base: TensorBase) -> None:
    if base.spec.ndim and any(s == 0 and n > 1
                              for s, n in zip(base.spec.strides, base.spec.shape, strict=True)):
        raise RuntimeError("an in-place write through a view whose base is expanded cannot be "
                           f"recorded: base {base.spec!r}\n  mend: clone() first")


def _follow(view: TensorBase, base: TensorBase) -> None:
    """Give a view the history of its base as that is now."""
    record = view.record
    if record is None:
        record = view.record = GradRecord()
    record.generation = base.record.generation
    if not base.record.requires_grad:
        return
    rule = ViewOfBase(view, base)
    node = Node(rule, (tape.edge_of(base),))
    node.inputs = (base.spec,)
    node.outputs = (view.spec,)
    state = modes.current()
    node.code = state.code
    node.instruction = state.instruction
    tape.sequence += 1
    node.sequence = tape.sequence
    record.requires_grad = True
    record.node = node
    record.output = 0


def refresh(view: TensorBase) -> None:
    """Bring a view's history up to date after its base was written in place."""
    base = view.base
    record = view.record
    if record is None and base.record.generation == 0:
        # A view made without gradients of a base that wants them stays without.
        return
    if record is not None and record.generation == base.record.generation:
        return
    if base.record.generation == 0:
        return
    _follow(view, base)


tape.refresh = refresh


class _Geometry:
    """A tensor's place in its storage."""

    def __init__(self, tensor: TensorBase) -> None:
        self.shape = tensor.spec.shape
        self.strides = tensor.spec.strides
        self.offset = tensor.offset
        self.spec = tensor.spec


def _spread(grad: TensorBase, base: _Geometry) -> tuple[Any, int]:
    """A buffer laid out as the base's storage is, holding ``grad``; and where offset 0 lies."""
    low = sum((n - 1) * s for n, s in zip(base.shape, base.strides, strict=True) if s < 0)
    high = sum((n - 1) * s for n, s in zip(base.shape, base.strides, strict=True) if s > 0)
    buffer = operations.zeros(grad, (high - low + 1,))
    start = -low
    whole = operations.as_strided(buffer, base.shape, base.strides, start)
    whole.copy_(grad)
    return buffer, start - base.offset


class CopySlices(Rule):
    """An in-place op on a view, seen from the base: the written part passes through the op."""

    def __init__(self, node: Node, view: TensorBase, base: TensorBase) -> None:
        super().__init__("CopySlices", ())
        self.node = node
        self.view = _Geometry(view)
        self.base = _Geometry(base)

    def apply(self, node: Node, grads: list[Any], create_graph: bool) -> list[Any]:
        """Gradient of the base: zero or passed on where written, unchanged elsewhere."""
        buffer, shift = _spread(grads[0], self.base)
        view, base = self.view, self.base
        part = operations.as_strided(buffer, view.shape, view.strides, view.offset + shift)
        inner = self.node
        results = list(inner.rule.apply(inner, [part.clone()], create_graph))
        own = None
        if inner.rule.differentiable and inner.rule.differentiable[0] == 0:
            own = results.pop(0)
        if own is None:
            part.zero_()
        else:
            part.copy_(operations.sum_to(own, view.shape))
        whole = operations.as_strided(buffer, base.shape, base.strides, base.offset + shift)
        return [whole, *results]

    def release(self) -> None:
        """Drop what the inner node saved."""
        self.node.saved = ()


class ViewOfBase(Rule):
    """A view of a base whose history changed: its gradient goes to its part of the base."""

    def __init__(self, view: TensorBase, base: TensorBase) -> None:
        super().__init__("AsStridedBackward", (0,))
        self.view = _Geometry(view)
        self.base = _Geometry(base)

    def apply(self, node: Node, grads: list[Any], create_graph: bool) -> list[Any]:
        """The gradient laid into zeros of the base's shape."""
        zeros = operations.zeros(grads[0], self.base.shape)
        buffer, shift = _spread(zeros, self.base)
        view, base = self.view, self.base
        part = operations.as_strided(buffer, view.shape, view.strides, view.offset + shift)
        part.copy_(grads[0])
        return [operations.as_strided(buffer, base.shape, base.strides, base.offset + shift)]
