"""The backward walk: nodes in the reverse order of their recording, each when it is complete."""

from __future__ import annotations

import heapq
from typing import Any

from slipstream.core.engine.tape import accumulate as accumulate_rule
from slipstream.core.engine.tape import tape
from slipstream.core.engine.views import CopySlices, operations
from slipstream.core.vocab.modes import decode_site, modes
from slipstream.core.vocab.records import GradRecord, Node, Spec, TensorBase

AGAIN = ("Trying to backward through the graph a second time (or directly access saved tensors "
         "after they have already been freed). Saved intermediate values of the graph are freed "
         "when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to "
         "backward through the graph a second time or if you need to access saved tensors after "
         "calling backward.")


class Walk:
    """One backward: the gradients that wait at nodes, and how many more each node expects."""

    def __init__(self, retain_graph: bool, create_graph: bool) -> None:
        self.retain_graph = retain_graph
        self.create_graph = create_graph
        self.grads: dict[Node, list[Any]] = {}
        self.expected: dict[Node, int] = {}
        self.ready: list[tuple[int, int, Node]] = []
        self.wanted: dict[tuple[Node, int], Any] = {}
        self.needed: set[Node] | None = None
        self.accumulate = True

    def give(self, node: Node, place: int, grad: TensorBase) -> None:
        """Add a gradient to what waits for an output of a node."""
        waiting = self.grads.get(node)
        if waiting is None:
            waiting = self.grads[node] = [None] * max(len(node.outputs), 1)
        before = waiting[place]
        waiting[place] = grad if before is None else operations.accumulate(before, grad)

    def push(self, node: Node) -> None:
        """The node has all its gradients."""
        heapq.heappush(self.ready, (-node.sequence, id(node), node))

    def count(self, roots: list[Node]) -> None:
        """How many edges lead to each node that can be reached."""
        seen = set(roots)
        stack = list(seen)
        while stack:
            node = stack.pop()
            self.expected.setdefault(node, 0)
            for edge in node.edges:
                if edge is None:
                    continue
                target = edge[0]
                self.expected[target] = self.expected.get(target, 0) + 1
                if target not in seen:
                    seen.add(target)
                    stack.append(target)

    def restrict(self, targets: set[Node]) -> None:
        """Only nodes from which a target can be reached need to run."""
        needed = set(targets)
        # Edges lead to lower sequence numbers, accumulators apart, so one sorted pass decides.
        order = sorted(self.expected, key=lambda node: node.sequence)
        for node in order:
            if any(edge is not None and edge[0] in needed for edge in node.edges):
                needed.add(node)
        self.needed = needed

    def run(self) -> None:
        """Run nodes until none is ready."""
        while self.ready:
            node = heapq.heappop(self.ready)[2]
            grads = self.grads.pop(node, None)
            if grads is None:
                self.release(node, [])
                continue
            grads = call_hooks(node, grads)
            for place, grad in enumerate(grads):
                if (node, place) in self.wanted:
                    self.wanted[node, place] = grad
            if node.rule is accumulate_rule:
                if self.accumulate and self._runs(node):
                    accumulate_leaf(node.extra, grads[0], self.create_graph)
                continue
            if not self._runs(node):
                self.release(node, [])
                continue
            results = self.step(node, grads)
            self.release(node, results)
        self.grads.clear()

    def _runs(self, node: Node) -> bool:
        return self.needed is None or node in self.needed

    def step(self, node: Node, grads: list[Any]) -> list[Any]:
        """The gradients of a node's inputs."""
        if node.saved is None:
            raise RuntimeError(AGAIN)
        if len(grads) > 1 and any(grad is None for grad in grads):
            grads = [_zeros(grad, spec, grads) for grad, spec in zip(grads, node.outputs,
                                                                     strict=True)]
        results = node.rule.apply(node, grads, self.create_graph)
        if len(results) != len(node.edges):
            raise RuntimeError(f"{node.rule.name} returned {len(results)} gradients for "
                               f"{len(node.edges)} inputs")
        fitted = []
        for edge, grad, spec in zip(node.edges, results, node.inputs, strict=True):
            fitted.append(None if edge is None or grad is None else fit(grad, spec, node))
        if not self.retain_graph:
            node.saved = None
            if node.extra is not None and not isinstance(node.rule, CopySlices):
                node.extra = None
        return fitted

    def release(self, node: Node, results: list[Any]) -> None:
        """Hand results on along the edges; nodes that now have everything become ready."""
        for place, edge in enumerate(node.edges):
            if edge is None:
                continue
            target, output = edge
            if place < len(results) and results[place] is not None:
                self.give(target, output, results[place])
            self.expected[target] -= 1
            if self.expected[target] == 0:
                self.push(target)


def _zeros(grad: Any, spec: Spec, grads: list[Any]) -> Any:
    if grad is not None:
        return grad
    like = next(each for each in grads if each is not None)
    return operations.zeros(like, spec.shape, dtype=spec.dtype)


def fit(grad: TensorBase, spec: Spec, node: Node) -> TensorBase:
    """A gradient in the shape and dtype of its input: what broadcasting repeated is summed."""
    if grad.spec.shape != spec.shape:
        grad = operations.sum_to(grad, spec.shape)
    if grad.spec.dtype is not spec.dtype:
        if grad.spec.dtype.is_complex and not spec.dtype.is_complex:
            grad = grad.real
        grad = operations.cast(grad, spec.dtype) if grad.spec.dtype is not spec.dtype else grad
    return grad


def call_hooks(node: Node, grads: list[Any]) -> list[Any]:
    """Run the hooks of a node's outputs; a hook may replace a gradient."""
    if not node.hooks:
        return grads
    hooks = list(node.hooks.values())
    for kind, place, hook in [each for each in hooks if each[0] == "output"]:
        if grads[place] is not None:
            changed = hook(grads[place])
            grads[place] = grads[place] if changed is None else changed
    for kind, place, hook in [each for each in hooks if each[0] == "retain"]:
        if grads[place] is not None:
            hook(grads[place])
    return grads


def accumulate_leaf(record: GradRecord, grad: TensorBase, create_graph: bool) -> None:
    """Add a gradient to a leaf's ``grad``."""
    hooks = list(record.hooks.values()) if record.hooks else []
    for hook in hooks:
        if hook[0] == "pre":
            changed = hook[1](grad)
            grad = grad if changed is None else changed
    if record.grad is not None:
        if create_graph:
            record.grad = operations.accumulate(record.grad, grad)
        else:
            record.grad = _added(record.grad, grad)
    else:
        record.grad = _owned(grad, create_graph)
    for hook in hooks:
        if hook[0] == "post":
            hook[1]()


def _added(before: TensorBase, grad: TensorBase) -> TensorBase:
    """In place where nobody wants the history; the sum in new memory would be garbage soon."""
    if before.record is not None and before.record.requires_grad:
        return operations.accumulate(before, grad)
    return operations.accumulate.call_inplace((before, grad), None)


def _owned(grad: TensorBase, create_graph: bool) -> TensorBase:
    """A gradient that no one else writes: views and shared memory are copied."""
    if create_graph:
        return grad
    if grad.base is not None or grad.storage.nbytes != grad.spec.nbytes:
        return grad.clone()
    return tape_detached(grad)


def tape_detached(grad: TensorBase) -> TensorBase:
    """The gradient outside the tape, over the same memory."""
    cls = tape.tensor_class
    out = cls.__new__(cls)
    out.spec = grad.spec
    out.storage = grad.storage
    out.offset = grad.offset
    out.record = None
    out.base = None
    return out


def run_backward(tensors: list[Any], grads: list[Any], retain_graph: bool, create_graph: bool,
                 inputs: list[Any] | None, accumulate: bool) -> list[Any]:
    """Walk back from ``tensors``; return the gradients of ``inputs`` where they are given."""
    walk = Walk(retain_graph, create_graph)
    walk.accumulate = accumulate
    state = modes.current()
    before = state.grad_enabled
    state.grad_enabled = create_graph
    site = (state.code, state.instruction)
    try:
        roots = _start(walk, tensors, grads)
        walk.count(list(roots))
        edges = _targets(walk, inputs)
        for node in list(roots):
            if walk.expected[node] == 0:
                walk.push(node)
        walk.run()
    finally:
        state.grad_enabled = before
        state.code, state.instruction = site
    return [walk.wanted.get(edge) if edge is not None else None for edge in edges]


def _start(walk: Walk, tensors: list[Any], grads: list[Any]) -> dict[Node, None]:
    roots: dict[Node, None] = {}
    for tensor, grad in zip(tensors, grads, strict=True):
        edge = tape.edge_of(tensor)
        if edge is None:
            raise RuntimeError("element 0 of tensors does not require grad and does not have a "
                               f"grad_fn: {tensor.spec!r}")
        walk.give(edge[0], edge[1], first_gradient(tensor, grad))
        roots[edge[0]] = None
    return roots


def _targets(walk: Walk, inputs: list[Any] | None) -> list[Any]:
    if inputs is None:
        return []
    edges = []
    for tensor in inputs:
        edge = tape.edge_of(tensor)
        if edge is None:
            raise RuntimeError("One of the differentiated Tensors does not require grad: "
                               f"{tensor.spec!r}")
        edges.append(edge)
        walk.wanted[edge] = None
    walk.restrict({edge[0] for edge in edges})
    return edges


def first_gradient(tensor: TensorBase, grad: Any) -> TensorBase:
    """The gradient that backward starts from; RuntimeError where it does not fit."""
    if grad is None:
        if tensor.spec.numel != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs, not for "
                               f"{tensor.spec!r}")
        return operations.ones(tensor)
    if not isinstance(grad, TensorBase):
        raise TypeError(f"gradients can be either Tensors or None, not {type(grad).__name__}")
    if grad.spec.shape != tensor.spec.shape:
        raise RuntimeError(f"Mismatch in shape: grad_output[0] has a shape of "
                           f"{list(grad.spec.shape)} and output[0] has a shape of "
                           f"{list(tensor.spec.shape)}.")
    return grad


__all__ = ["Walk", "decode_site", "run_backward"]
