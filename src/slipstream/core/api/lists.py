"""What optimizers and gradient utilities do with lists of tensors on a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slipstream.core.api.updates import update_op
from slipstream.core.catalog.table import ops
from slipstream.core.dispatch.listing import Task, make_list
from slipstream.core.dispatch.lists import TensorList
from slipstream.core.dispatch.op import OUT
from slipstream.core.launch.door import backend_of
from slipstream.core.vocab import dtypes, optional
from slipstream.core.vocab.modes import modes
from slipstream.core.vocab.records import KERNEL, Plan, TensorBase

# Fitted lists that are kept for each of the functions here.
MOST = 16


class Fitted:
    """Lists that were fitted before, by the specs of their tensors; kept on the op ``add``.

    There they are forgotten whenever plans are.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def find(self, tensors: Sequence[TensorBase], facts: Any, make: Any) -> TensorList | None:
        """The list of these tensors, made where it is not known; None where there can be none."""
        lists: dict[Any, Any] = ops.add.lists.setdefault(self.name, {})
        key = (facts, tuple([tensor.spec for tensor in tensors]))
        if key not in lists:
            if len(lists) >= MOST:
                lists.clear()
            lists[key] = make() if together(tensors) else None
        found: TensorList | None = lists[key]
        return found


def together(tensors: Sequence[TensorBase]) -> bool:
    """Whether tensors can be one list: of one CUDA device and dtype, without gaps."""
    first = tensors[0].spec
    return first.device.type == "cuda" and all(
        tensor.spec.contiguous and tensor.spec.device is first.device
        and tensor.spec.dtype is first.dtype for tensor in tensors)


norms = Fitted("norms of lists")
unscaled = Fitted("unscaled lists")


def norm_and_factor(tensors: Sequence[Any], order: float, most: float) -> tuple[Any, Any] | None:
    """The norm of all elements together and what it is made of, in two launches.

    ``tensors``: of one CUDA device and one float dtype, which is the norm's.  The second result is
    float64[2]: most / (norm + 1e-6) limited to 1, and the norm over its scale, which is finite
    wherever all elements are.  None where the tensors are of several kinds, or a mode wants to see
    every op.
    """
    state = modes.current()
    if state.stack:
        return None
    first: TensorBase = tensors[0]

    def make() -> TensorList | None:
        found = optional.load("core.kernels.cuda.list_norms").bound(
            backend_of(first.spec.device), first.spec.dtype, order,
            [tensor.spec.numel for tensor in tensors])
        if found is None:
            return None
        plan = Plan(ops.add, None, KERNEL)
        plan.backend = backend_of(first.spec.device)
        made = TensorList(plan, [tensor.spec for tensor in tensors], 0, list(range(len(tensors))))
        plan.kernel, plan.binding, made.tables = found
        return made

    fitted = norms.find(tensors, order, make)
    if fitted is None:
        return None
    modes.note_site(state)
    facts, norm = [ops.empty.call((shape,), {"dtype": dtype, "device": first.spec.device})
                   for shape, dtype in (((2,), dtypes.float64), ((), first.spec.dtype))]
    if not fitted.run(state, (list(tensors),), (order, most), (facts, norm)):
        return None
    return norm, facts


def _unscaling(at: Any) -> tuple[Any, Any]:
    """The product, and whether the element is not finite."""
    return at.gradient * at.inverse, at.gradient.isfinite().logical_not()


def unscale(tensors: Sequence[Any], inverse: Any, found: Any) -> bool:
    """Multiply tensors by ``inverse`` in place and set ``found`` to 1 where one is not finite.

    ``inverse`` and ``found`` are float32 tensors of no dims on their device.  One launch; False,
    with nothing done, where the tensors cannot be one list.
    """
    state = modes.current()
    if state.stack or not tensors[0].spec.dtype.is_floating_point:
        return False
    op = update_op(_unscaling, ("gradient",), ("found", "inverse"), ())

    def make() -> TensorList | None:
        task = Task(op, OUT, (None, found, inverse), (0,), shared=(1, 2), flag=1)
        before = state.grad_enabled
        state.grad_enabled = False
        try:
            return make_list(task, state, [(n, (each,)) for n, each in enumerate(tensors)])
        finally:
            state.grad_enabled = before

    fitted = unscaled.find(tensors, op.name, make)
    modes.note_site(state)
    return fitted is not None and fitted.run(state, (list(tensors),), (), (found, inverse))
