"""How gradients add up in the ``grad`` of leaves: whose memory they lie in, and how it is laid out.
"""

# The .pxd declares the C functions.
# mypy: disable-error-code="name-defined"

from __future__ import annotations

import os
import sys
import threading
from time import sleep
from typing import Any

import cython

from slipstream.core.engine.hooks import call_node_hooks, of_kind
from slipstream.core.engine.tape import Tape, tape
from slipstream.core.engine.views import Operations, operations
from slipstream.core.shapes.strides import contiguous_strides, is_dense_non_overlapping
from slipstream.core.vocab.devices import CPU
from slipstream.core.vocab.modes import ModeState, ModeTable, modes
from slipstream.core.vocab.records import GradRecord, Spec, Storage, TensorBase

__all__ = ["Accumulator", "ModeState", "ModeTable", "Operations", "Tape", "accumulator"]


# So often a thread looks at once whether it is its turn, and then so many seconds later each time.
AT_ONCE = 100
ASLEEP = 5e-5


class Accumulator:
    """Adds gradients to leaves, for one thread at a time; a singleton, `accumulator`.

    Between the reading of a leaf's ``grad`` and its writing a kernel may let another thread run,
    whose gradient would be lost.  ``adder``: the state of the thread whose turn it is; compiled,
    nobody comes between a look at it and its setting, so that a free turn costs next to nothing.
    Uncompiled the turn is the lock ``turn``.  ``lone``: the holders of a list's only tensor and of
    that tensor's only storage.  ``strided``: the op that makes memory; wiring sets it.
    """

    adder: ModeState | None
    forking: bool
    turn: Any
    lone: int
    strided: Any

    def __init__(self) -> None:
        self.adder = None
        self.turn = threading.RLock()
        self.strided = None
        self.forking = False
        if hasattr(os, "register_at_fork"):
            # A child has no thread that could end another one's turn.
            os.register_at_fork(before=self.before_fork, after_in_parent=self.after_fork,
                                after_in_child=self.after_fork)
        self.lone = 0
        self.lone = self.holders(_probe())

    def claim(self, state: ModeState) -> bool:
        """Wait for the turn; False where this thread has it already."""
        if not cython.compiled:
            self.turn.acquire()
            return True
        if self.adder is state:
            return False
        tries: cython.int = 0
        while self.adder is not None:
            # An add is over soon, or takes long enough to wait for it asleep.
            tries += 1
            sleep(0 if tries < AT_ONCE else ASLEEP)
        self.adder = state
        return True

    def before_fork(self) -> None:
        """Have the turn while the process forks."""
        self.forking = self.claim(modes.current())

    def after_fork(self) -> None:
        """Let it go, in the parent and in the child."""
        if self.forking:
            self.leave()

    def leave(self) -> None:
        """Let the next thread have the turn."""
        if cython.compiled:
            self.adder = None
        else:
            self.turn.release()

    def accumulate(self, record: GradRecord, grads: list[Any], create_graph: bool,
                   state: ModeState) -> None:
        """Add a gradient, the only one of the list, to a leaf's ``grad``; call its node's hooks."""
        if not record.hooks:
            self.put(record, grads, create_graph, state)
            return
        if of_kind(record.hooks, "pre"):
            grads = call_node_hooks(record.hooks, "pre", grads)
        # Who holds the gradient for nothing has it copied.
        given = tuple(grads) if of_kind(record.hooks, "post") else None
        if grads[0] is not None and record.requires_grad:
            self.put(record, grads, create_graph, state)
            for _, hook in of_kind(record.hooks, "accumulated"):
                hook()
        if given is not None:
            call_node_hooks(record.hooks, "post", [], given)

    def put(self, record: GradRecord, grads: list[Any], create_graph: bool,
            state: ModeState) -> None:
        """Add a gradient to a leaf's ``grad``, unless its flag was turned off since the forward."""
        if not record.requires_grad:
            return
        first: cython.bint = self.claim(state)
        try:
            if record.grad is None:
                record.grad = self.owned(record, grads, create_graph)
            elif create_graph:
                record.grad = operations.accumulate(record.grad, grads[0])
            else:
                record.grad = self.added(record.grad, grads[0])
        finally:
            if first:
                self.leave()

    def add_cast(self, record: GradRecord, grad: TensorBase, state: ModeState) -> None:
        """Add a gradient that nobody else has, and that is laid out as the leaf is."""
        first: cython.bint = self.claim(state)
        try:
            record.grad = grad if record.grad is None else self.added(record.grad, grad)
        finally:
            if first:
                self.leave()

    def added(self, before: TensorBase, grad: TensorBase) -> TensorBase:
        """In place where nobody wants the history; the sum in new memory would be garbage soon."""
        if before.record is not None and before.record.requires_grad:
            return operations.accumulate(before, grad)
        return operations.accumulate.call_inplace((before, grad), None)

    def owned(self, record: GradRecord, grads: list[Any], create_graph: bool) -> TensorBase:
        """A gradient that later sums may be written into: one in other hands too is copied.

        ``a + b`` hands one gradient to both its inputs; hooks and callers may keep theirs.  It has
        the strides of its leaf, as optimizers and `view` expect.
        """
        alone: cython.bint = self.holders(grads) == self.lone
        grad: TensorBase = grads[0]
        whole: cython.bint = grad.base is None and grad.storage.nbytes == grad.spec.nbytes
        strides: tuple | None = None
        if grad.spec is not record.outputs[0]:
            strides = _wanted_strides(grad.spec, record.outputs[0])
        if strides is not None:
            grad = self.laid_out(grad, strides)
        elif not alone or not whole or grad.storage.keep is not None:
            grad = grads[0].clone()
        return grad if create_graph or grad.record is None else tape.alias(grad)

    def laid_out(self, grad: TensorBase, strides: tuple[Any, ...]) -> TensorBase:
        """A copy with these strides."""
        spec = grad.spec
        out = self.strided.call((spec.shape, strides),
                                {"dtype": spec.dtype, "device": spec.device})
        return out.copy_(grad)

    def holders(self, grads: list[Any]) -> int:
        """How many hold a list's tensor, and its storage."""
        tensor: TensorBase = grads[0]
        if cython.compiled:
            return slip_holders(tensor) + slip_holders(tensor.storage)  # noqa: F821
        return sys.getrefcount(tensor) + sys.getrefcount(tensor.storage)


def _probe() -> list[Any]:
    tensor = TensorBase()
    tensor.storage = Storage(CPU, 0, 0)
    return [tensor]


def _wanted_strides(spec: Spec, leaf: Spec) -> tuple[Any, ...] | None:
    """The strides of a leaf's gradient where it has others: the leaf's, if that leaves no gaps."""
    if spec.shape != leaf.shape or spec.strides == leaf.strides:
        return None
    wanted: tuple = leaf.strides
    if not is_dense_non_overlapping(leaf.shape, wanted):
        wanted = contiguous_strides(leaf.shape)
    place: cython.Py_ssize_t
    for place in range(spec.ndim):
        # The stride of a dim of one element says nothing.
        if spec.shape[place] > 1 and spec.strides[place] != wanted[place]:
            return wanted
    return None


accumulator = Accumulator()
