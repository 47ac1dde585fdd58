# cython: annotation_typing=False
"""Tensors and autograd: requires_grad, grad, hooks, backward."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from typing import Any

import cython

from slipstream.core.api.interop import copy_from_device
from slipstream.core.catalog.table import ops
from slipstream.core.engine.backward import run_backward
from slipstream.core.engine.hooks import HookHandle, add_hook, retain, table_of
from slipstream.core.engine.tape import tape
from slipstream.core.launch.waiting import asked
from slipstream.core.shapes.views import normalize_dim
from slipstream.core.vocab.modes import modes
from slipstream.core.vocab.records import GradRecord, TensorBase

# Compiled, no frame lies between a warning and the caller's.
CALLER = 1 if cython.compiled else 2


def item_of_dims(values: tuple[int, ...], dim: int) -> int:
    """The size or stride of one dim, counted from the end where negative."""
    return values[normalize_dim(dim, len(values), wrap_scalar=False)]


def record_of(tensor: TensorBase) -> GradRecord:
    """The tensor's record, made if it has none."""
    tape.requires_grad(tensor)
    if tensor.record is None:
        tensor.record = GradRecord()
    return tensor.record


def copy_(self: Any, source: Any, non_blocking: bool = False) -> Any:
    """Write the elements of ``source``, broadcast, cast and brought to the device, into self."""
    if non_blocking and isinstance(source, TensorBase) and copy_from_device(self, source):
        return self
    if isinstance(source, TensorBase) and source.spec.device is not self.spec.device:
        source = asked("copy_", self, ops.to_device.call, (source, self.spec.device), None)
    return ops.copy.call_inplace((self, source, non_blocking), None)


def set_requires_grad(self: Any, wanted: bool) -> None:
    """Set the flag of a leaf; RuntimeError for other tensors and for integers."""
    if tape.requires_grad(self) and self.record.node is not None:
        if wanted:
            return
        raise RuntimeError("you can only change requires_grad flags of leaf variables. If you want "
                           "to use a computed variable in a subgraph that doesn't require "
                           "differentiation use var_no_grad = var.detach().")
    if wanted and self.spec.dtype.category < 2:
        raise RuntimeError("only Tensors of floating point dtype can require gradients: "
                           f"{self.spec!r}")
    if wanted or self.record is not None:
        record_of(self).requires_grad = bool(wanted)


def grad_of(self: Any) -> Any:
    """The accumulated gradient; warns where backward will not fill it: not of a leaf."""
    record = self.record
    if tape.waiting:
        tape.settle()
    if record is None and self.base is None:
        return None
    if record is None or record.grad is None:
        if tape.requires_grad(self) and self.record.node is not None and (
                not self.record.retains_grad):
            warnings.warn("grad of a tensor that is no leaf is None: backward() fills the grad of "
                          "leaves only. Call retain_grad() on this tensor before backward(), or "
                          "ask the leaf for its grad.", UserWarning, stacklevel=CALLER)
    return None if self.record is None else self.record.grad


def set_grad(self: Any, grad: Any) -> None:
    """Replace the gradient; RuntimeError or TypeError where it does not fit the tensor."""
    tape.settle()
    if grad is not None:
        if not isinstance(grad, TensorBase):
            raise TypeError("assigned grad expected to be a Tensor or None but got grad of type "
                            f"{type(grad).__name__}")
        if grad.spec.shape != self.spec.shape:
            raise RuntimeError(f"assigned grad has data of a different size: {grad.spec!r} for "
                               f"{self.spec!r}")
        if grad.spec.device is not self.spec.device or grad.spec.dtype is not self.spec.dtype:
            raise RuntimeError(f"assigned grad has data of a different type: {grad.spec!r} for "
                               f"{self.spec!r}")
    elif self.record is None:
        return
    record_of(self).grad = grad


def delete_grad(self: Any) -> None:
    """Drop the gradient."""
    tape.settle()
    if self.record is not None:
        self.record.grad = None


def node_of(self: Any) -> Any:
    """The node that made the tensor, or None for a leaf."""
    return self.record.node if tape.requires_grad(self) else None


def is_leaf(self: Any) -> bool:
    """Whether no node made it."""
    return node_of(self) is None


def retains_grad(self: Any) -> bool:
    """Whether its gradient is kept though it is no leaf."""
    return self.record is not None and self.record.retains_grad


def output_number(self: Any) -> int:
    """Which result of its node it is."""
    return 0 if self.record is None else self.record.output


def _bare(self: Any) -> Any:
    out = TensorBase.__new__(tape.tensor_class)
    out.spec = self.spec
    out.storage = self.storage
    out.offset = self.offset
    out.record = None
    out.base = None
    return out


def data_of(self: Any) -> Any:
    """The same elements outside the tape; in-place writes are still counted."""
    return _bare(self)


def take_over(self: Any, source: TensorBase) -> None:
    """Point a tensor at another's storage."""
    self.spec = source.spec
    self.storage = source.storage
    self.offset = source.offset


def set_(self: Any, source: Any) -> Any:
    """Take over another tensor's storage and geometry."""
    if not isinstance(source, TensorBase):
        raise TypeError(f"set_(): argument 'source' must be Tensor, not "
                        f"{source.__class__.__name__}")
    take_over(self, source)
    return self


def view_in_place(name: str) -> Callable[..., Any]:
    """The method ``tensor.name_(...)`` of a view: the tensor takes over the view's geometry.

    Raises RuntimeError for a leaf that requires grad.
    """

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if tape.requires_grad(self) and self.record.node is None and grad_enabled():
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place "
                               "operation.")
        before = _bare(self)
        before.record, before.base = self.record, self.base
        view = getattr(ops, name).call((before, *args), kwargs)
        self.spec, self.offset = view.spec, view.offset
        # One that was not recorded leaves the tensor what it was: a leaf, a parameter.
        if view.record is not None and view.record.node is not None:
            self.record = view.record
        # Whoever saved this tensor for backward finds it changed.
        self.storage.version += 1
        return self

    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = f"`{name}`, changing the shape and strides of the tensor itself."
    return method


def set_data(self: Any, source: Any) -> None:
    """Replace the tensor's memory, keeping its history."""
    if not isinstance(source, TensorBase):
        raise TypeError(f"Variable data has to be a tensor, but got {type(source).__name__}")
    take_over(self, source)


def detach_(self: Any) -> Any:
    """Take the tensor out of the tape in place."""
    if self.base is not None:
        raise RuntimeError("Can't detach views in-place. Use detach() instead.")
    before: Any = self.record
    if before is None or before.node is None:
        # A leaf keeps its gradient, and one on its way there finds the flag off.
        if before is not None:
            before.requires_grad = False
        return self
    # Its views see by the generation whether their histories are its latest.
    self.record = GradRecord()
    self.record.generation = before.generation
    self.record.grad = before.grad
    return self


def backward(self: Any, gradient: Any = None, retain_graph: bool | None = None,
             create_graph: bool = False, inputs: Any = None) -> None:
    """Compute the gradients of the leaves that this tensor depends on, into their ``grad``.

    ``gradient`` is that of this tensor; it may be left out for a single element.  Raises
    RuntimeError where there is nothing to differentiate.
    """
    if inputs is None:
        kept = create_graph if retain_graph is None else retain_graph
        run_backward([self], [gradient], bool(kept), create_graph, None, True)
    else:
        run_all([self], [gradient], retain_graph, create_graph, inputs)


def run_all(tensors: list[Any], gradients: list[Any], retain_graph: bool | None,
            create_graph: bool, inputs: Any) -> None:
    """Backward from several tensors, into ``grad`` of all leaves or of ``inputs``."""
    chosen = None
    if inputs is not None:
        chosen = [inputs] if isinstance(inputs, TensorBase) else list(inputs)
        if not chosen:
            raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
        for each in chosen:
            if tape.requires_grad(each):
                retain_grad(each)
    kept = create_graph if retain_graph is None else retain_graph
    run_backward(tensors, gradients, bool(kept), create_graph, chosen, True)


def register_hook(self: Any, hook: Callable[[Any], Any]) -> HookHandle:
    """Call ``hook(grad)`` when the tensor's gradient is computed; it may return another."""
    if not tape.requires_grad(self):
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    record = self.record
    if record.node is None:
        if record.hooks is None:
            record.hooks = {}
        return add_hook(record.hooks, ("output", 0, hook))
    return add_hook(table_of(record.node), ("output", record.output, hook))


def register_post_accumulate_grad_hook(self: Any, hook: Callable[[Any], Any]) -> HookHandle:
    """Call ``hook(tensor)`` after the leaf's gradient has been accumulated."""
    if not tape.requires_grad(self) or self.record.node is not None:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    if self.record.hooks is None:
        self.record.hooks = {}
    owner = weakref.ref(self)
    return add_hook(self.record.hooks, ("accumulated", 0, lambda: hook(owner())))


def retain_grad(self: Any) -> None:
    """Keep the gradient of a tensor that is no leaf in its ``grad``."""
    if not tape.requires_grad(self):
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    record = self.record
    if record.node is None or record.retains_grad:
        return
    retain(record)


def grad_enabled() -> bool:
    """Whether ops are recorded for backward."""
    return modes.current().grad_enabled
