"""Hooks of the tape: (kind, output number, function) in the table of a node or of a leaf's record.

``output``: a tensor hook, which sees and may replace the gradient of one output; ``retain``: keeps
it in the tensor's ``grad``, after every tensor hook; ``pre`` and ``post``: a node's own hooks,
before and after its rule; ``accumulated``: after a leaf's gradient was added to its ``grad``.
"""

from __future__ import annotations

import weakref
from typing import Any

from slipstream.core.shapes.formats import contiguous_format
from slipstream.core.vocab.hooks import HookHandle, add_hook
from slipstream.core.vocab.records import GradRecord, Node, TensorBase

Table = dict[int, tuple[str, int, Any]]


def of_kind(table: Table, kind: str) -> list[tuple[int, Any]]:
    """(Output number, function) of each hook of a kind, in the order of registration."""
    return [(place, hook) for each, place, hook in list(table.values()) if each == kind]


def call_tensor_hooks(table: Table, grads: list[Any]) -> list[Any]:
    """The gradients after the tensor hooks; raises TypeError, RuntimeError for what is no match."""
    for place, hook in of_kind(table, "output"):
        if grads[place] is not None:
            changed = hook(grads[place])
            if changed is not None:
                _check(hook, grads[place], changed)
                grads[place] = changed
    for place, hook in of_kind(table, "retain"):
        if grads[place] is not None:
            hook(grads[place])
    return grads


def _check(hook: Any, grad: TensorBase, changed: Any) -> None:
    if not isinstance(changed, TensorBase):
        raise TypeError(f"expected Variable, but hook returned '{type(changed).__name__}'")
    name = getattr(hook, "__name__", repr(hook))
    if changed.spec.shape != grad.spec.shape:
        raise RuntimeError(f"hook '{name}' has changed the size of value: {grad.spec!r} became "
                           f"{changed.spec!r}")
    if changed.spec.dtype is not grad.spec.dtype:
        raise RuntimeError(f"hook '{name}' has changed the type of value: {grad.spec!r} became "
                           f"{changed.spec!r}")


def call_node_hooks(table: Table, kind: str, values: Any, others: Any = None) -> list[Any]:
    """What a node's own hooks make of gradients; ``others`` is the second argument, if any."""
    for _, hook in of_kind(table, kind):
        known = tuple(values)
        changed = hook(known) if others is None else hook(known, others)
        if changed is not None:
            given = changed if isinstance(changed, tuple) else (changed,)
            if len(given) != len(known):
                raise RuntimeError(f"hook '{getattr(hook, '__name__', hook)}' has returned an "
                                   f"incorrect number of values (got {len(given)}, but expected "
                                   f"{len(known)})")
            values = list(given)
    return list(values)


class Keeper:
    """The hook of ``retain_grad``; it does not keep the tensor's record alive."""

    def __init__(self, record: GradRecord) -> None:
        self.held = weakref.ref(record)

    def __call__(self, grad: Any) -> None:
        """Keep a gradient, in memory of its own; one of a later backward is added."""
        record = self.held()
        if record is None:
            return
        if record.grad is None:
            record.grad = grad.clone(memory_format=contiguous_format)
        else:
            record.grad = record.grad + grad


def table_of(node: Node) -> Table:
    """The node's hooks, made if it has none."""
    if node.hooks is None:
        node.hooks = {}
    table: Table = node.hooks
    return table


def retain(record: GradRecord) -> None:
    """Keep the gradient that reaches the record's node and output."""
    record.retains_grad = True
    if record.node is not None:
        add_hook(table_of(record.node), ("retain", record.output, Keeper(record)))


def move_retainer(before: GradRecord, node: Node | None, after: GradRecord) -> None:
    """After an in-place write the newest value's gradient is the one to be kept."""
    if not before.retains_grad:
        return
    after.grad = before.grad
    if node is not None and node.hooks:
        for number, (kind, _, hook) in list(node.hooks.items()):
            if kind == "retain" and hook.held() is before:
                del node.hooks[number]
    if after.node is not None:
        retain(after)


__all__ = ["HookHandle", "Keeper", "add_hook", "call_node_hooks", "call_tensor_hooks",
           "move_retainer", "of_kind", "retain", "table_of"]
