"""The tape: how a call leaves a node behind.

Edges point to nodes; a leaf is reached through its record.  A node saves a tensor only if a
gradient formula names it.  An output that its own node saves is stored bare, without its record,
and gets its history back when unpacked: no reference cycle, so memory comes back at once.
"""

# The .pxd declares the C functions.
# mypy: disable-error-code="name-defined"

from __future__ import annotations

from typing import Any

import cython

from slipstream.core.vocab.dtypes import DType
from slipstream.core.vocab.modes import ModeState, decode_site, modes
from slipstream.core.vocab.records import GradRecord, Node, Plan, Spec, Storage, TensorBase
from slipstream.core.vocab.recycling import recycle

# Accumulators run as soon as they are ready: later than any recorded node in sequence.
ACCUMULATOR_SEQUENCE = 2**62

__all__ = ["ACCUMULATOR_SEQUENCE", "Plan", "Rule", "SavedTensor", "Spec", "Storage", "Tape",
           "tape"]


class Rule:
    """How gradients pass one op, for one choice of inputs that want them.

    ``differentiable``: positions of the arguments that get gradients, in the order of the edges;
    ``saves``: positions of the tensors that the formulas name; ``keeps``: (position, whether only
    its spec) of the other arguments they name; ``saves_output``: whether they name the result,
    ``saves_second`` the second one, which is saved after the arguments.
    """

    name: str
    differentiable: tuple[int, ...]
    saves: tuple[int, ...]
    keeps: tuple[tuple[int, bool], ...]
    saves_output: bool
    saves_second: bool
    materializes: bool
    follows_base: bool
    foreign: bool
    casts: bool
    widens: bool
    constant: bool

    def __init__(self, name: str, differentiable: tuple[int, ...]) -> None:
        self.name = name
        self.differentiable = differentiable
        self.saves = ()
        self.keeps = ()
        self.saves_output = False
        self.saves_second = False
        # Whether missing gradients of outputs reach ``apply`` as zeros.
        self.materializes = True
        # Whether outputs that are views may take a new history of their base's.
        self.follows_base = True
        # Whether ``apply`` is a user's code, which may look at any tensor's ``grad``.
        self.foreign = False
        # Whether it is a cast's, and whether it takes a gradient in 16 bits as one that was cast.
        self.casts = False
        self.widens = False
        # Whether what it keeps of arguments follows from a call's plan.
        self.constant = False

    def apply(self, node: Node, grads: list[Any], create_graph: bool) -> list[Any]:
        """Gradients of the inputs, one for each edge, from those of the outputs."""
        raise NotImplementedError

    def free(self, node: Node) -> None:
        """Drop what the node saved; a node that saved something cannot run again."""
        if node.saved or node.extra is not None:
            node.saved = None
            node.extra = None


class SavedTensor:
    """A tensor saved for backward, with the version of its storage at that time.

    ``tensor`` is None where the user's hooks keep it as ``packed``.
    """

    tensor: TensorBase
    version: int
    is_output: bool
    packed: tuple[Any, Any] | None
    record: GradRecord | None

    def __init__(self, tensor: TensorBase, is_output: bool) -> None:
        self.tensor = tensor
        self.version = tensor.storage.version
        self.is_output = is_output
        self.packed = None
        self.record = None

    def hand_over(self, pack: Any) -> None:
        """Let the user's hooks keep the tensor: ``pack`` gives (unpack, value), or None."""
        tensor: TensorBase = self.tensor
        packed = pack(_alias(tensor, None))
        if packed is not None:
            self.packed = packed
            if not self.is_output:
                self.record = tensor.record
            self.tensor = None  # type: ignore[assignment]

    def unpack(self, node: Node, record: GradRecord | None) -> TensorBase:
        """The tensor again; raises RuntimeError if it was changed in place since.

        ``record`` is the history of an output, whose own node saved it without.
        """
        if self.packed is not None:
            hook, value = self.packed
            tape.settle()
            return _alias(hook(value), record if self.is_output else self.record)
        tensor: TensorBase = self.tensor
        if tensor.storage.version != self.version:
            raise RuntimeError(_changed_text(node, self))
        if not self.is_output:
            return tensor
        return _alias(tensor, record)


def _alias(tensor: Any, record: GradRecord | None) -> TensorBase:
    """Another tensor over the same memory, with a history of its own."""
    if not isinstance(tensor, TensorBase):
        raise TypeError("Output of saved tensor unpack_hook expected to be a Tensor but got result "
                        f"of type {type(tensor).__name__}")
    again: TensorBase
    source: TensorBase = tensor
    if cython.compiled:
        again = slip_new(tape.tensor_class)  # noqa: F821
    else:
        again = TensorBase.__new__(tape.tensor_class)
    again.spec = source.spec
    again.storage = source.storage
    again.offset = source.offset
    again.record = record
    return again


def _changed_text(node: Node, saved: SavedTensor) -> str:
    """Names the op, the tensor, both versions and both lines."""
    file, line = decode_site(node.code, node.instruction)
    text = (
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: {saved.tensor.spec!r}, which {node.rule.name} saved at {file}:{line}, is at "
        f"version {saved.tensor.storage.version}; expected version {saved.version} instead"
    )
    write = saved.tensor.storage.write_site
    if write is not None:
        file, line = decode_site(write[0], write[1])
        text += f"\n  last written in place at {file}:{line}"
    return text + ("\n  mend: write to a copy (clone() first), or use the form that returns a new "
                   "tensor")


class Tape:
    """Makes nodes; a singleton, `tape`.  ``refresh`` is set by `engine.views`; ``waiting``: the
    backward walks that hold gradients of leaves back, to cast them together.
    """

    sequence: int
    refresh: Any
    pack: Any
    tensor_class: type[TensorBase]
    waiting: list[Any]

    def __init__(self) -> None:
        self.sequence = 0
        self.waiting = []
        self.refresh = None
        self.pack = None
        self.tensor_class = TensorBase

    def settle(self) -> None:
        """Give leaves the gradients that a backward of this thread holds back for them."""
        state = modes.current() if self.waiting else None
        for walk in list(self.waiting):
            if walk.state is state:
                walk.flush()

    def requires_grad(self, tensor: TensorBase) -> bool:
        """Whether the tensor wants a gradient, after bringing a view's history up to date."""
        if tensor is None:
            raise TypeError("expected a Tensor, but got None")
        base: TensorBase | None = tensor.base
        record: GradRecord | None = tensor.record
        if base is not None and base.record is not None:
            if record is None or record.generation != base.record.generation:
                self.refresh(tensor)
                record = tensor.record
        return record is not None and record.requires_grad

    def edge_of(self, tensor: TensorBase) -> tuple[Node, int] | None:
        """The node that the tensor's edge leads to, and which of its outputs the tensor is."""
        node = self._target(tensor)
        if node is None:
            return None
        record: GradRecord = tensor.record  # type: ignore[assignment]  # it wants a gradient
        return (node, record.output)

    def alias(self, tensor: TensorBase) -> TensorBase:
        """The tensor outside the tape, over the same memory."""
        return _alias(tensor, None)

    def _target(self, tensor: TensorBase) -> Node | None:
        """The tensor's node, or its record if it is a leaf; None where it wants no gradient."""
        if not self.requires_grad(tensor):
            return None
        record: GradRecord = tensor.record  # type: ignore[assignment]  # it wants a gradient
        if record.node is not None:
            return record.node
        if record.rule is None:
            record.rule = accumulate
            record.edges = ()
            record.outputs = (tensor.spec,)
            record.sequence = ACCUMULATOR_SEQUENCE
        elif record.rule is accumulate:
            known: tuple = record.outputs
            if known[0] is not tensor.spec:
                # Its gradients are laid out as it is by now.
                record.outputs = (tensor.spec,)
        return record

    def _save(self, value: Any) -> Any:
        if isinstance(value, TensorBase):
            return self._saved(value, False)
        if isinstance(value, (list, tuple)):
            return [self._save(each) for each in value]
        return value

    def _saved(self, tensor: TensorBase, is_output: bool) -> SavedTensor:
        # Without a call of __init__: this is the hot path.
        saved: SavedTensor = SavedTensor.__new__(SavedTensor)
        saved.tensor = tensor
        saved.version = tensor.storage.version
        saved.is_output = is_output
        if self.pack is not None:
            saved.hand_over(self.pack)
        return saved

    def _begin(self, rule: Rule, state: ModeState) -> Node:
        """A node with its rule and site."""
        node: Node = Node.__new__(Node)
        node.rule = rule
        node.saved = ()
        node.values = ()
        node.code = state.code
        node.instruction = state.instruction
        self.sequence += 1
        node.sequence = self.sequence
        node.stream = state.stream
        return node

    def _keep(self, node: Node, rule: Rule, values: Any) -> None:
        """Save what the rule's formulas name of the arguments."""
        if rule.saves:
            self._keep_tensors(node, rule, values)
        if rule.keeps:
            node.values = tuple([_kept(values[position], spec) for position, spec in rule.keeps])

    def _keep_tensors(self, node: Node, rule: Rule, values: Any) -> None:
        """Save the tensors that the rule's formulas name."""
        given: tuple = values if type(values) is tuple else tuple(values)
        places: tuple = rule.saves
        count: cython.Py_ssize_t = len(places)
        if count == 1:
            node.saved = (self._save(given[places[0]]),)
        elif count == 2:
            node.saved = (self._save(given[places[0]]), self._save(given[places[1]]))
        else:
            node.saved = tuple([self._save(given[place]) for place in places])

    def _keep_of_plan(self, node: Node, plan: Plan, values: Any) -> None:
        """Save what the rule of a plan names; what is the same in every call is kept once."""
        rule: Rule = plan.rule
        if rule.saves:
            self._keep_tensors(node, rule, values)
        if not rule.keeps:
            return
        if plan.kept is not None:
            node.values = plan.kept
            return
        node.values = tuple([_kept(values[position], spec) for position, spec in rule.keeps])
        if rule.constant and _last(node.values):
            plan.kept = node.values

    def make_node(self, rule: Rule, values: Any, state: ModeState) -> Node:
        """A node with its edges, saved inputs and site; outputs are attached later."""
        tensors = _differentiated(rule, values)
        node = self._begin(rule, state)
        self._lead(node, tensors)
        node.inputs = _specs_of(tensors)
        self._keep(node, rule, values)
        return node

    def _lead(self, node: Node, tensors: list[Any]) -> None:
        """Make the edges to the tensors."""
        edges: list = []
        several: cython.bint = False
        tensor: TensorBase
        target: Node | None
        for each in tensors:
            tensor = each
            target = self._target(tensor)
            edges.append(target)
            if target is not None and _number(tensor) > 0:
                several = True
        node.edges = tuple(edges)
        node.places = None
        if several:
            places: list = []
            for each in tensors:
                tensor = each
                places.append(0 if edges[len(places)] is None else _number(tensor))
            node.places = tuple(places)

    def _lead_plainly(self, node: Node, places: tuple[int, ...], values: Any) -> bool:
        """The same for one to three tensors, each the first output of its node; else False."""
        count: cython.Py_ssize_t = len(places)
        one = values[places[0]]
        if count > 3 or not isinstance(one, TensorBase):
            return False
        first: Node | None = self._target(one)
        if _number(one) > 0:
            return False
        if count == 1:
            node.edges = (first,)
            return True
        two = values[places[1]]
        if not isinstance(two, TensorBase):
            return False
        second: Node | None = self._target(two)
        if _number(two) > 0:
            return False
        if count == 2:
            node.edges = (first, second)
            return True
        three = values[places[2]]
        if not isinstance(three, TensorBase):
            return False
        third: Node | None = self._target(three)
        if _number(three) > 0:
            return False
        node.edges = (first, second, third)
        return True

    def attach(self, node: Node, outs: tuple[Any, ...]) -> None:
        """Make ``outs`` the node's outputs; save the first one bare if the rule names it."""
        place: cython.int = 0
        specs: list = []
        for out in outs:
            tensor: TensorBase = out
            specs.append(tensor.spec)
            self._belong(tensor, node, place)
            place += 1
        node.outputs = tuple(specs)
        rule: Rule = node.rule
        if rule.saves_output:
            self._save_output(node, outs[0])
        if rule.saves_second:
            self._save_second(node, outs[1])

    def _belong(self, out: TensorBase, node: Node, place: cython.int) -> None:
        """Make a tensor an output of a node."""
        if out.spec.differentiable:
            record: GradRecord = GradRecord.__new__(GradRecord)
            record.requires_grad = True
            record.node = node
            record.output = place
            out.record = record

    def _save_output(self, node: Node, out: TensorBase) -> None:
        """Save the first output."""
        node.extra = self._bare(out)

    def _save_second(self, node: Node, out: TensorBase) -> None:
        """Save the second output after the arguments."""
        node.saved = (*node.saved, self._bare(out))  # type: ignore[misc]  # nothing was freed yet

    def _bare(self, out: TensorBase) -> SavedTensor:
        """An output saved without its record, so that the node does not hold itself."""
        bare: TensorBase = TensorBase.__new__(TensorBase)
        bare.spec = out.spec
        bare.storage = out.storage
        bare.offset = out.offset
        return self._saved(bare, True)

    def record(self, rule: Rule, values: Any, outs: tuple[Any, ...], state: ModeState) -> Node:
        """Record a call whose results are new tensors."""
        node = self.make_node(rule, values, state)
        self.attach(node, outs)
        return node

    def record_cast(self, rule: Rule, leaf: TensorBase, facts: tuple[Any, ...],
                    state: ModeState) -> None:
        """Record a copy of a leaf; ``facts``: the copy, and specs by themselves, in tuples that
        nodes share."""
        out: TensorBase = facts[0]
        known: dict = facts[1]
        node = self._begin(rule, state)
        node.edges = (self._target(leaf),)
        node.inputs = _alone(known, leaf.spec)
        node.outputs = _alone(known, out.spec)
        self._belong(out, node, 0)

    def record_plan(self, plan: Plan, values: Any, outs: tuple[Any, ...],
                    state: ModeState) -> Node:
        """Record a call of a plan, whose operands and results have the same specs every time."""
        rule: Rule = plan.rule
        node = self._begin(rule, state)
        node.plan = plan
        if plan.in_specs is None or not self._lead_plainly(node, rule.differentiable, values):
            tensors = _differentiated(rule, values)
            self._lead(node, tensors)
            if plan.in_specs is None:
                plan.in_specs = _specs_of(tensors)
        node.inputs = plan.in_specs
        node.outputs = plan.out_specs
        if rule.saves or rule.keeps:
            self._keep_of_plan(node, plan, values)
        place: cython.int = 0
        for out in outs:
            self._belong(out, node, place)
            place += 1
        if rule.saves_output:
            self._save_output(node, outs[0])
        if rule.saves_second:
            self._save_second(node, outs[1])
        return node

    def record_short(self, plan: Plan, operands: tuple[Any, ...], tail: tuple[Any, ...],
                     out: TensorBase, state: ModeState) -> Node:
        """``record_plan`` for one result of one or two operands, all else in ``tail``."""
        rule: Rule = plan.rule
        node = self._begin(rule, state)
        node.plan = plan
        places: tuple = rule.differentiable
        first: TensorBase = operands[places[0]]
        last: TensorBase = operands[places[len(places) - 1]]
        if _number(first) > 0 or _number(last) > 0:
            self._lead(node, [operands[place] for place in places])
        elif first is last and len(places) == 1:
            node.edges = (self._target(first),)
        else:
            node.edges = (self._target(first), self._target(last))
        if plan.in_specs is None:
            plan.in_specs = _specs_of([operands[place] for place in places])
        node.inputs = plan.in_specs
        node.outputs = plan.out_specs
        if rule.saves or rule.keeps:
            self._keep_of_plan(node, plan, operands + tail)
        self._belong(out, node, 0)
        if rule.saves_output:
            self._save_output(node, out)
        return node


def _differentiated(rule: Rule, values: Any) -> list[Any]:
    """The tensors that the edges lead to, lists opened."""
    tensors: list = []
    for position in rule.differentiable:
        value = values[position]
        if isinstance(value, TensorBase):
            tensors.append(value)
        else:
            tensors.extend(value)
    return tensors


def _specs_of(tensors: list[Any]) -> tuple[Any, ...]:
    found: list = []
    tensor: TensorBase
    for each in tensors:
        tensor = each
        found.append(tensor.spec)
    return tuple(found)


def _alone(known: Any, spec: Spec) -> Any:
    """A spec in a tuple."""
    found = known.get(spec)
    if found is None:
        found = known[spec] = (spec,)
    return found


def _number(tensor: TensorBase) -> int:
    """Which output of its node a tensor is."""
    record: GradRecord | None = tensor.record
    return 0 if record is None else record.output


def _kept(value: Any, spec: bool) -> Any:
    if not spec:
        return _frozen(value)
    if isinstance(value, TensorBase):
        return value.spec
    return None if value is None else [each.spec for each in value]


def _frozen(value: Any) -> Any:
    """What the caller may not change any more: lists become tuples, at any depth."""
    if type(value) is list:
        return tuple([_frozen(each) for each in value])
    if type(value) is tuple:
        for each in value:
            if type(each) is list or type(each) is tuple:
                return tuple([_frozen(one) for one in value])
    return value


def _last(values: tuple[Any, ...]) -> bool:
    """Whether values are what they are for good."""
    for value in values:
        if value is None or type(value) in _LASTING:
            continue
        if type(value) is not tuple or not _last(value):
            return False
    return True


_LASTING = (Spec, DType, int, float, bool, str)

if not cython.compiled:
    # A compiled instance starts with None in these fields; an uncompiled one finds it here.
    SavedTensor.packed = None
    SavedTensor.record = None


class AccumulateGrad(Rule):
    """The rule of a leaf's record; `engine.backward` carries it out itself."""


accumulate = AccumulateGrad("AccumulateGrad", ())
tape = Tape()
recycle(SavedTensor)
