"""The backward walk: nodes in the reverse order of their recording, each when it is complete."""

# The .pxd declares the C functions.
# mypy: disable-error-code="name-defined"

from __future__ import annotations

from typing import Any

import cython

from slipstream.core.engine.accumulating import Accumulator, accumulator
from slipstream.core.engine.anomaly import AGAIN, apply_noted, check_nan, first_gradient, zeros_of
from slipstream.core.engine.fitting import fit
from slipstream.core.engine.hooks import call_node_hooks, call_tensor_hooks
from slipstream.core.engine.tape import Rule, Tape, tape
from slipstream.core.engine.tape import accumulate as accumulate_rule
from slipstream.core.engine.views import Operations, operations
from slipstream.core.engine.wanted import note_wanted, targets_of
from slipstream.core.launch.door import LaunchDoor, door
from slipstream.core.vocab.autocast import AWAKE
from slipstream.core.vocab.dtypes import float32
from slipstream.core.vocab.modes import ModeState, ModeTable, modes
from slipstream.core.vocab.records import Backend, GradRecord, Node, Plan, Spec, Storage, TensorBase
from slipstream.core.vocab.recycling import recycle
from slipstream.core.vocab.ring import PYTHON, SPAN, TAPE

__all__ = ["Accumulator", "Backend", "GradRecord", "LaunchDoor", "ModeState", "ModeTable",
           "Operations", "Plan", "Rule", "Tape", "Visit", "Walk", "run_backward", "weight_cast"]


class Checks:
    """What every step of backward is checked for; `autograd.detect_anomaly` sets it.

    ``held_bytes``: the most bytes of gradients that wait to be cast; ``walks``: how many are under
    way, of all threads, ``begun`` how many ever began.
    """

    nan: bool
    held_bytes: int
    walks: int
    begun: int

    def __init__(self) -> None:
        self.nan = False
        self.walks = 0
        self.begun = 0
        self.held_bytes = 32 << 20


checks = Checks()
# The same object where compiled code finds it without a look-up.
_checks = checks


class Visit:
    """A node that a walk reaches: the gradients that wait there, and how many are still to come."""

    node: Node
    grads: list[Any] | None
    left: int


recycle(Visit)


def visit_of(node: Node) -> Visit:
    """The visit of a node, at which nothing waits yet; without a call of __init__."""
    visit: Visit = Visit.__new__(Visit)
    visit.node = node
    visit.grads = None
    visit.left = 0
    return visit


def _sequence(visit: Visit) -> int:
    """The sequence number of a visit's node."""
    return visit.node.sequence


class WeightCastRule(Rule):
    """The rule of autocast's casts of weights."""

    def apply(self, node: Node, grads: list[Any], create_graph: bool) -> list[Any]:
        """The gradient in the weight's dtype."""
        spec: Spec = node.inputs[0]
        return [operations.cast.call((grads[0], spec.dtype), None)]


weight_cast = WeightCastRule("ToDtypeBackward0", (0,))


class Walk:
    """One backward: what it visits, and what of that is ready.

    ``all``: its visits.  A node holds its own while one walk alone is under way; a walk that begins
    inside another one, or beside it, has them in ``visits``.
    ``next``: the ready node that comes first, where it is not among those in ``ready``.
    ``ones``: the gradient that it starts from, where the device keeps that between backwards in
    ``lasting``; nothing else of ours may hold it.  ``leaves`` and ``held``: weights that autocast
    cast, and their gradients in its dtype, which nobody can see before they are cast together.
    """

    retain_graph: bool
    create_graph: bool
    accumulate: bool
    alone: bool
    all: list[Visit]
    visits: dict[Node, Visit]
    ready: list[Visit]
    wanted: dict[tuple[Node, int], Any]
    needed: set[Node] | None
    ones: list[Any]
    lasting: dict[Any, Any] | None
    next: Visit | None
    roots: list[Visit]
    state: ModeState
    early: list[Visit]
    leaves: list[GradRecord]
    held: list[TensorBase]
    held_bytes: int

    def __init__(self, retain_graph: bool, create_graph: bool) -> None:
        self.retain_graph = retain_graph
        self.create_graph = create_graph
        self.alone = False
        self.all = []
        self.visits = {}
        self.ready = []
        self.wanted = {}
        self.needed = None
        self.accumulate = True
        self.ones = []
        self.lasting = None
        self.next = None
        self.roots = []
        self.state = modes.current()
        self.early = []
        self.leaves = []
        self.held = []
        self.held_bytes = 0

    def begin(self, node: Node, place: int, grad: TensorBase) -> None:
        """Start at an output of a node."""
        visit: Visit | None = self.find(node)
        if visit is None:
            visit = self.meet(node)
            self.roots.append(visit)
        self.give(visit, place, grad)

    def find(self, node: Node) -> Visit | None:
        """The visit of a node, None where it has none yet."""
        return node.visit if self.alone else self.visits.get(node)

    def meet(self, node: Node) -> Visit:
        """A node's first visit."""
        visit: Visit = visit_of(node)
        if self.alone:
            node.visit = visit
        else:
            self.visits[node] = visit
        self.all.append(visit)
        return visit

    def give(self, visit: Visit, place: int, grad: TensorBase) -> None:
        """Add a gradient to what waits for an output of a node."""
        waiting: list | None = visit.grads
        if waiting is None:
            if len(visit.node.outputs) < 2:
                visit.grads = [grad]
                return
            waiting = visit.grads = [None] * len(visit.node.outputs)
        before = waiting[place]
        waiting[place] = grad if before is None else operations.accumulate(before, grad)

    def push(self, visit: Visit) -> None:
        """The node has all its gradients: it takes its place in the order of sequence numbers."""
        ready: list = self.ready
        low: cython.Py_ssize_t = 0
        high: cython.Py_ssize_t = len(ready)
        middle: cython.Py_ssize_t
        sequence: cython.Py_ssize_t = visit.node.sequence
        other: Visit | None = self.next
        if other is not None and other.node.sequence < sequence:
            ready.append(other)
            self.next = visit
            return
        if other is None and (not high or _sequence(ready[high - 1]) < sequence):
            self.next = visit
            return
        while low < high:
            middle = (low + high) // 2
            other = ready[middle]
            if other.node.sequence < sequence:
                low = middle + 1
            else:
                high = middle
        ready.insert(low, visit)

    def count(self) -> None:
        """How many edges lead to each node that can be reached from where the walk begins."""
        visit: Visit
        edges: tuple
        target: Node
        found: Visit | None
        at: cython.Py_ssize_t = 0
        # Whatever is met takes its place at the end.
        while at < len(self.all):
            visit = self.all[at]
            at += 1
            edges = visit.node.edges
            for each in edges:
                if each is None:
                    continue
                target = each
                found = self.find(target)
                if found is None:
                    found = self.meet(target)
                found.left += 1

    def run(self) -> None:
        """Run nodes until none is ready."""
        visit: Visit
        while self.early or self.next is not None or self.ready:
            if self.early:
                visit = self.early.pop()
            elif self.next is not None:
                visit, self.next = self.next, None
            else:
                visit = self.ready.pop()
            self.visit(visit)
        self.flush()

    def hold(self, visit: Visit) -> bool:
        """Keep back the gradient of a weight's cast, to be cast with others; False where it runs.

        Only where the leaf has no other gradient and no hook looks at what passes.
        """
        node: Node = visit.node
        leaf: GradRecord = node.edges[0]  # type: ignore[assignment]  # a weight is a leaf
        if self.create_graph or not self.accumulate or self.wanted or _checks.nan:
            return False
        if (leaf.rule is not accumulate_rule or leaf.grad is not None or leaf.hooks or node.hooks
                or self.state.stack or visit.grads is None or not leaf.requires_grad):
            return False
        other: Visit = self.find(leaf)  # type: ignore[assignment]  # an edge leads there
        grads: list = visit.grads
        grad: TensorBase = grads[0]
        spec: Spec = grad.spec
        own: Spec = node.inputs[0]
        if (other.left != 1 or other.grads is not None or not spec.contiguous
                or not own.contiguous or spec.device.type != "cuda" or spec.shape != own.shape):
            return False
        visit.grads = None
        if not self.leaves:
            tape.waiting.append(self)
        self.leaves.append(leaf)
        self.held.append(grad)
        self.held_bytes += spec.nbytes
        if self.held_bytes > _checks.held_bytes:
            self.flush()
        return True

    def flush(self) -> None:
        """Cast the gradients that are kept back and give them to their leaves."""
        if not self.leaves:
            return
        leaves: list = self.leaves
        held: list = self.held
        tape.waiting.remove(self)
        self.leaves = []
        self.held = []
        self.held_bytes = 0
        casts: list = operations.cast_list(held, float32)
        place: cython.Py_ssize_t
        leaf: GradRecord
        for place in range(len(leaves)):
            leaf = leaves[place]
            accumulator.add_cast(leaf, casts[place], self.state)

    def visit(self, visit: Visit) -> None:
        """Run a node's hooks, note the gradients asked for, run the node.

        A frame of its own: what it held is let go before the next node looks whether a gradient
        is in anyone else's hands.
        """
        node: Node = visit.node
        grads: Any = visit.grads
        visit.grads = None
        if grads is None:
            self.release(node, [])
            return
        rule: Rule = node.rule
        leaf = rule is accumulate_rule
        if self.leaves and (node.hooks or rule.foreign):
            self.flush()
        if node.hooks:
            grads = call_tensor_hooks(node.hooks, grads)
        if self.wanted:
            note_wanted(self.wanted, node, grads)
        runs = self.needed is None or node in self.needed
        if rule.casts and self.skips(node, grads[0]):
            self.release(node, grads)
        elif not leaf:
            self.release(node, self.step(node, grads) if runs else [])
        elif runs and self.accumulate and grads[0] is not None:
            record: GradRecord = node  # type: ignore[assignment]
            accumulator.accumulate(record, grads, self.create_graph, self.state)

    def skips(self, node: Node, grad: TensorBase) -> bool:
        """Whether a cast's gradient may go on as it is: its only reader widens what it reads."""
        target: Node = node.edges[0]  # type: ignore[assignment]  # it was recorded
        rule: Rule = target.rule
        if not rule.widens or self.create_graph or self.wanted or _checks.nan or self.state.stack:
            return False
        visit: Visit = self.find(target)  # type: ignore[assignment]  # an edge leads there
        if node.hooks or target.hooks or visit.left != 1 or visit.grads is not None:
            return False
        spec: Spec = node.inputs[0]
        return (spec.dtype is float32 and grad.spec.dtype.itemsize == 2
                and grad.spec.shape == spec.shape)

    def step(self, node: Node, grads: list[Any]) -> list[Any]:
        """The gradients of a node's inputs."""
        if node.saved is None:
            raise RuntimeError(AGAIN)
        rule: Rule = node.rule
        if len(grads) > 1 and rule.materializes and _lacks(grads):
            grads = [zeros_of(grad, spec, grads) for grad, spec in zip(grads, node.outputs,
                                                                     strict=True)]
        if node.hooks:
            grads = call_node_hooks(node.hooks, "pre", grads)
        results: list
        if _checks.nan:
            results = apply_noted(node, grads, self.create_graph)
        else:
            results = rule.apply(node, grads, self.create_graph)
        if len(results) != len(node.edges):
            raise RuntimeError(f"{rule.name} returned {len(results)} gradients for "
                               f"{len(node.edges)} inputs")
        spec: Spec
        tensor: TensorBase
        place: cython.Py_ssize_t
        # A rule hands over a list of its own.
        for place in range(len(results)):
            grad = results[place]
            if grad is None:
                continue
            if node.edges[place] is None:
                results[place] = None
                continue
            tensor = grad
            spec = node.inputs[place]
            if tensor.spec is not spec:
                results[place] = fit(tensor, spec, node, place)
        if _checks.nan:
            check_nan(node, results)
        if node.hooks:
            results = call_node_hooks(node.hooks, "post", results, tuple(grads))
        if not self.retain_graph:
            _free(node)
        return results

    def release(self, node: Node, results: list[Any]) -> None:
        """Hand results on along the edges; nodes that now have everything become ready."""
        places: tuple | None = node.places
        edges: tuple = node.edges
        target: Node
        visit: Visit
        place: cython.Py_ssize_t
        known: cython.Py_ssize_t = len(results)
        for place in range(len(edges)):
            each = edges[place]
            if each is None:
                continue
            target = each
            visit = self.find(target)  # type: ignore[assignment]  # it was counted
            if place < known and results[place] is not None:
                self.give(visit, 0 if places is None else places[place], results[place])
            visit.left -= 1
            if visit.left == 0:
                self.complete(visit)

    def complete(self, visit: Visit) -> None:
        """The node has all its gradients.

        Weights may be cast long before they are used, but their gradients go on at once.
        """
        if visit.node.rule is not weight_cast:
            self.push(visit)
        elif not self.hold(visit):
            self.early.append(visit)


def _free(node: Node) -> None:
    """Drop what a node saved; the streams that wrote it may be taken again."""
    rule: Rule = node.rule
    rule.free(node)
    node.stream = None


def _lacks(grads: list[Any]) -> bool:
    """Whether a gradient is None; ``in`` would ask tensors whether they equal it."""
    lacks = False
    for grad in grads:
        lacks = lacks or grad is None
    return lacks


# Kinds of the number 1 that a stream keeps.
MOST_ONES = 16


def run_backward(tensors: list[Any], grads: list[Any], retain_graph: bool, create_graph: bool,
                 inputs: list[Any] | None, accumulate: bool) -> list[Any]:
    """Walk back from ``tensors``; return the gradients of ``inputs`` where they are given."""
    walk: Walk = Walk(retain_graph, create_graph)
    walk.accumulate = accumulate
    state: ModeState = modes.current()
    before: cython.bint = state.grad_enabled
    state.grad_enabled = create_graph
    # Gradients are computed in the dtypes of the forward, whatever autocast is now.
    awake: cython.longlong = state.special & AWAKE
    state.special -= awake
    code = state.code
    instruction: cython.int = state.instruction
    ring = modes.ring
    site = 0 if ring is None else modes.note_scope(state, ring)
    outside = PYTHON if ring is None else ring.surround(TAPE)
    begun = 0 if ring is None else ring.last
    edges: list | None = None
    # Uncompiled, another thread may begin a walk between any two of these.
    walk.alone = bool(cython.compiled) and _checks.walks == 0
    _checks.walks += 1
    _checks.begun += 1
    try:
        start_walk(walk, tensors, grads)
        walk.count()
        if inputs is not None:
            edges = targets_of(walk, inputs)
        come_after_forward(walk)
        push_roots(walk)
        walk.run()
        if walk.ones:
            _put_back(walk)
    finally:
        _let_go(walk)
        _checks.walks -= 1
        try:
            # There may be no memory for it, least of all after a failure for want of memory.
            walk.flush()
        finally:
            state.grad_enabled = before
            state.special |= awake
            state.code = code
            state.instruction = instruction
        door.boundary()
        if ring is not None:
            ring.surround(outside)
            ring.write(SPAN, ring.name_of("backward"), site, begun, ring.now(), 0)
    if edges is None:
        return []
    return [walk.wanted.get(edge) if edge is not None else None for edge in edges]


def start_walk(walk: Walk, tensors: list[Any], grads: list[Any]) -> None:
    """Give the walk the gradients that it starts from."""
    place: cython.Py_ssize_t
    edge: tuple | None
    tensor: TensorBase
    for place in range(len(tensors)):
        tensor = tensors[place]
        edge = tape.edge_of(tensor)
        if edge is None:
            raise RuntimeError(f"element {place} of tensors does not require grad and does not "
                               f"have a grad_fn: {tensor.spec!r}\n  mend: requires_grad_() on what "
                               "it is computed from, and compute it outside of no_grad()")
        if grads[place] is None and len(tensors) == 1:
            walk.begin(edge[0], edge[1], lasting_ones(walk, edge[0], tensor))
        else:
            walk.begin(edge[0], edge[1], first_gradient(tensor, grads[place], place))


def _let_go(walk: Walk) -> None:
    """Take the visits from the nodes that hold them."""
    visit: Visit
    node: Node
    if walk.alone:
        for each in walk.all:
            visit = each
            node = visit.node
            node.visit = None


def come_after_forward(walk: Walk) -> None:
    """Let the current streams come after those on which nodes of the walk were recorded."""
    here = walk.state.stream
    others: list = []
    visit: Visit
    for each in walk.all:
        visit = each
        stream = visit.node.stream
        if stream is not here and _is_on_a_card(visit.node) and not any(
                [known is stream for known in others]):
            others.append(stream)
    if others:
        operations.come_after(others)


def _is_on_a_card(node: Node) -> bool:
    """Whether a card made what a node of the walk stands for."""
    spec: Spec | None
    if node.rule is accumulate_rule:
        return False
    for each in node.outputs:
        spec = each  # None for what a user's step returns beside tensors.
        if spec is not None:
            return bool(spec.device.type == "cuda")
    return False


def push_roots(walk: Walk) -> None:
    """Those nodes that nothing else has to come before are ready."""
    visit: Visit
    for each in walk.roots:
        visit = each
        if visit.left == 0:
            walk.push(visit)


def lasting_ones(walk: Walk, node: Node, tensor: TensorBase) -> TensorBase:
    """The gradient 1 that backward starts from: the last backward's where that is still itself.

    A training loop starts from the same number in every step; a device that runs later need not
    fill memory with it each time.
    """
    spec: Spec = tensor.spec
    backend: Backend | None = None if node.plan is None else node.plan.backend
    lasting = None
    if backend is not None and modes.listeners is None and modes.ring is None:
        lasting = backend.lasting()
    if lasting is None:
        return first_gradient(tensor, None)
    kept: list | None = lasting.pop(spec, None)
    if kept is None:
        kept = [first_gradient(tensor, None)]
    else:
        modes.note_site(modes.current())
    walk.ones = kept
    walk.lasting = lasting
    return kept[0]


def _put_back(walk: Walk) -> None:
    """Keep the gradient 1 for the next backward, if nobody else has it and nobody wrote to it."""
    kept: list = walk.ones
    lasting: dict = walk.lasting  # type: ignore[assignment]  # a walk with ones has it
    if accumulator.holders(kept) == accumulator.lone and len(lasting) < MOST_ONES:
        tensor: TensorBase = kept[0]
        storage: Storage = tensor.storage
        if (storage.version == 0 and storage.exported == 0 and storage.keep is None
                and tensor.record is None and tensor.base is None):
            lasting[tensor.spec] = kept
