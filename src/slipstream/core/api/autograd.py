"""What `slipstream.autograd` needs of the engine: walks, user-defined steps, saved-tensor hooks."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from slipstream.core.api import history
from slipstream.core.api.autocasting import awakened
from slipstream.core.catalog.table import ops
from slipstream.core.engine.anomaly import AGAIN
from slipstream.core.engine.backward import checks, run_backward
from slipstream.core.engine.tape import Rule, SavedTensor, tape
from slipstream.core.engine.views import check_inplace, operations, rebase, without_grad
from slipstream.core.vocab.modes import ModeState, modes
from slipstream.core.vocab.records import GradRecord, Node, Spec, TensorBase

backward_all = history.run_all


def gradients(outputs: Sequence[Any], inputs: Sequence[Any], grad_outputs: Sequence[Any],
              retain_graph: bool, create_graph: bool) -> list[Any]:
    """The gradients of ``inputs``, None where an output does not depend on one."""
    return run_backward(list(outputs), list(grad_outputs), retain_graph, create_graph,
                        list(inputs), accumulate=False)


def set_anomaly_check(wanted: bool) -> bool:
    """Let backward look for NaN in every step; returns what was set before."""
    before = checks.nan
    checks.nan = wanted
    return before


# -- steps that users define -----------------------------------------------------------------------
class FunctionContext:
    """What the forward of a user's step leaves for its backward."""

    def __init__(self) -> None:
        self._to_save: tuple[Any, ...] = ()
        self._saved: list[Any] | None = None
        self._node: weakref.ref[Node] | None = None
        self._dirty: tuple[Any, ...] = ()
        self._constant: tuple[Any, ...] = ()
        self._materialize = True
        self.needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Save inputs, outputs or other tensors; read them as ``saved_tensors``.

        Raises TypeError for what is neither a tensor nor None.
        """
        for place, each in enumerate(tensors):
            if each is not None and not isinstance(each, TensorBase):
                raise TypeError("save_for_backward can only save variables, but argument "
                                f"{place} is of type {type(each).__name__}")
        self._to_save = tensors

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The saved tensors.  Raises RuntimeError after they were freed or changed in place."""
        if self._node is None:
            return self._to_save
        node = self._node()
        if self._saved is None or node is None:
            raise RuntimeError(AGAIN)
        return tuple([_unpacked(each, node) for each in self._saved])

    def mark_dirty(self, *tensors: Any) -> None:
        """Say which inputs ``forward`` changed in place; it must return them."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Say which outputs have no gradient."""
        self._constant = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether missing gradients of outputs reach ``backward`` as zeros (by default) or None."""
        self._materialize = value


def _unpacked(each: Any, node: Node) -> Any:
    if each is None:
        return None
    saved, place = each
    record = None
    if place >= 0 and modes.current().grad_enabled:
        record = GradRecord()
        record.requires_grad = True
        record.node = node
        record.output = place
    return saved.unpack(node, record)


class FunctionRule(Rule):
    """The rule of one call of a user's step."""

    def __init__(self, cls: Any, ctx: FunctionContext, places: tuple[int, ...],
                 count: int) -> None:
        super().__init__(f"{cls.__name__}Backward", places)
        self.cls = cls
        self.ctx = ctx
        self.count = count
        self.materializes = False
        self.follows_base = False
        self.foreign = True

    def apply(self, node: Node, grads: list[Any], create_graph: bool) -> list[Any]:
        """What the user's backward returns, for the inputs that are tensors."""
        if self.ctx._materialize:
            like = next(grad for grad in grads if grad is not None)
            grads = [_zeros(like, spec) if grad is None and spec is not None else grad
                     for grad, spec in zip(grads, node.outputs, strict=True)]
        with awakened():
            results = self.cls.backward(self.ctx, *grads)
        results = tuple(results) if isinstance(results, (tuple, list)) else (results,)
        return self._checked(results)

    def _checked(self, results: tuple[Any, ...]) -> list[Any]:
        extra = results[self.count:]
        if len(results) < self.count or any(each is not None for each in extra):
            raise RuntimeError(f"function {self.name} returned an incorrect number of gradients "
                               f"(expected {self.count}, got {len(results)})")
        for place, grad in enumerate(results[:self.count]):
            if grad is None:
                continue
            if place not in self.differentiable:
                raise RuntimeError(f"function {self.name} returned a gradient different than None "
                                   f"at position {place + 1}, but the corresponding forward input "
                                   "was not a Variable")
            if not isinstance(grad, TensorBase):
                raise TypeError(f"expected Variable or None (got {type(grad).__name__})")
        return [results[place] for place in self.differentiable]

    def free(self, node: Node) -> None:
        """Drop what the user's forward saved."""
        if self.ctx._saved:
            self.ctx._saved = None


def _zeros(like: TensorBase, spec: Spec) -> Any:
    return operations.zeros(like, spec.shape, dtype=spec.dtype, device=spec.device)


def apply_function(cls: Any, args: tuple[Any, ...]) -> Any:
    """Call a user's step: run its forward without recording, then record it as one node."""
    ctx = cls.context_class()
    state = modes.current()
    places = tuple(i for i, each in enumerate(args) if isinstance(each, TensorBase))
    ctx.needs_input_grad = tuple(
        isinstance(each, TensorBase) and tape.requires_grad(each) for each in args)
    recording = state.grad_enabled and any(ctx.needs_input_grad)
    node = None
    if recording:
        node = _node_of(cls, ctx, args, places, state)
    with without_grad():
        returned = cls.run_forward(ctx, args)
    outputs = returned if isinstance(returned, tuple) else (returned,)
    made = _outputs(ctx, args, outputs, node, state)
    if node is not None:
        _save(ctx, node, made)
    return made if isinstance(returned, tuple) else made[0]


def _node_of(cls: Any, ctx: FunctionContext, args: tuple[Any, ...], places: tuple[int, ...],
             state: ModeState) -> Node:
    """The node, with edges to the inputs as they are before forward runs."""
    modes.note_site(state)
    return tape.make_node(FunctionRule(cls, ctx, places, len(args)), args, state)


def _among(tensor: Any, tensors: Sequence[Any]) -> bool:
    return any(each is tensor for each in tensors)


def _outputs(ctx: FunctionContext, args: tuple[Any, ...], outputs: tuple[Any, ...],
             node: Node | None, state: ModeState) -> tuple[Any, ...]:
    """The results with their history: inputs changed in place keep their identity."""
    for each in ctx._dirty:
        if not _among(each, outputs):
            raise RuntimeError("Some elements marked as dirty during the forward method were not "
                               "returned as output. The inputs that are modified inplace must all "
                               "be outputs of the Function.")
        if node is not None and len(outputs) > 1 and each.base is not None:
            raise RuntimeError("Functions which modify views in-place must return a single "
                               "Variable\n  mend: pass a clone() of the view")
    made: list[Any] = []
    specs: list[Any] = []
    for each in outputs:
        if not isinstance(each, TensorBase):
            # It has a place all the same: backward gets None for it.
            made.append(each)
            specs.append(None)
            continue
        dirty = _among(each, ctx._dirty)
        constant = node is None or _among(each, ctx._constant)
        out = each if dirty or not _among(each, args) else _another(each, constant)
        made.append(out)
        if node is not None and not constant:
            _attach(node, out, len(specs), dirty, state)
        specs.append(out.spec)
    if node is not None:
        node.outputs = tuple(specs)
    return tuple(made)


def _another(tensor: Any, constant: bool) -> Any:
    """An input that is returned as it is.

    A result with a history of its own is a view: in-place writes through it, which would go past
    that history, are refused as those to other views are.
    """
    if constant:
        return history.data_of(tensor)
    with without_grad():
        return ops.view.call((tensor, tensor.spec.shape), None)


def _attach(node: Node, out: Any, place: int, dirty: bool, state: ModeState) -> None:
    if dirty:
        check_inplace(out, state, True)
        node.outputs = (out.spec,)
        rebase(out, node)
    elif out.spec.dtype.category >= 2:
        record = GradRecord()
        record.requires_grad = True
        record.node = node
        out.record = record
        if out.base is not None and out.base.record is not None:
            record.generation = out.base.record.generation
    if out.record is not None and out.record.node is node:
        out.record.output = place


def _save(ctx: FunctionContext, node: Node, made: tuple[Any, ...]) -> None:
    """Saved outputs are stored bare: their node would hold itself."""
    ctx._node = weakref.ref(node)
    kept: list[Any] = []
    for each in ctx._to_save:
        if each is None:
            kept.append(None)
            continue
        # An input that was returned as it is, is no result: that is another tensor.
        place = next((i for i, other in enumerate(made) if other is each), -1)
        record = made[place].record if place >= 0 else None
        own = record is not None and record.node is node
        saved = SavedTensor(history.data_of(each) if own else each, own)
        if tape.pack is not None:
            saved.hand_over(tape.pack)
        kept.append((saved, place if own else -1))
    ctx._saved = kept
    ctx._to_save = ()
    ctx._dirty = ()
    ctx._constant = ()


class TwiceRule(Rule):
    """The history of gradients that were computed without one."""

    def __init__(self, text: str) -> None:
        super().__init__("DelayedError", ())
        self.text = text

    def apply(self, node: Node, grads: list[Any], create_graph: bool) -> list[Any]:
        """Raise RuntimeError."""
        raise RuntimeError(self.text)


def refuse_second(tensors: Sequence[Any], text: str) -> list[Any]:
    """The tensors with a history that raises RuntimeError with ``text`` when differentiated."""
    state = modes.current()
    results = []
    for each in tensors:
        if isinstance(each, TensorBase):
            each = history.data_of(each)
            tape.record(TwiceRule(text), (), (each,), state)
        results.append(each)
    return results


# -- hooks of saved tensors ------------------------------------------------------------------------
Pack = Callable[[Any], Any]


class _SavedHooks(threading.local):
    """The running thread's hooks, innermost last; (None, message) forbids them."""

    def __init__(self) -> None:
        self.stack: list[tuple[Any, Any]] = []


saved_hooks = _SavedHooks()


def _pack(tensor: Any) -> Any:
    if not saved_hooks.stack or saved_hooks.stack[-1][0] is None:
        return None
    pack, unpack = saved_hooks.stack[-1]
    with without_grad():
        return unpack, pack(tensor)


def push_saved_hooks(pack: Pack | None, unpack: Any) -> None:
    """Hand every tensor that this thread saves to ``pack``; ``unpack`` gives it back."""
    if pack is not None and saved_hooks.stack and saved_hooks.stack[-1][0] is None:
        raise RuntimeError(saved_hooks.stack[-1][1])
    # The tape asks `_pack` from now on; it answers None in threads without hooks.
    tape.pack = _pack
    saved_hooks.stack.append((pack, unpack))


def pop_saved_hooks() -> None:
    """Take away the innermost hooks."""
    saved_hooks.stack.pop()
