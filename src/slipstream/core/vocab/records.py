# cython: c_api_binop_methods=True
"""The records that every layer may hold: Spec, Storage, Plan, Node, TensorBase and their kin.

They carry fields and almost no behaviour.  `TensorBase` has the operator slots of the hot
operators only: a compiled class cannot be given slots later, and a Python method would hide them.
"""

from __future__ import annotations

import numbers as abstract_numbers
from types import CodeType
from typing import Any

import cython
import numpy as np

from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.dtypes import DType
from slipstream.core.vocab.hooks import HookHandle, add_hook
from slipstream.core.vocab.operators import expose
from slipstream.core.vocab.recycling import recycle

# How a plan is carried out; see dispatch.
KERNEL = 0
VIEW = 1
COMPOUND = 2
KINDS = {KERNEL: "launch", VIEW: "view", COMPOUND: "compound"}


# (device, dtype, rank) -> the same, so that specs of one kind hold one object.
kinds: dict[tuple[Any, ...], tuple[Any, ...]] = {}


def kind_of(device: Device, dtype: DType, rank: int) -> tuple[Any, ...]:
    """What a recipe needs to know of an operand; equal ones are one object."""
    key = (device, dtype, rank)
    return kinds.setdefault(key, key)


class Spec:
    """What a tensor looks like: device, dtype, shape, strides and what follows from them.

    Specs are interned by `shapes.specs`: live equal specs are the same object, so that comparing
    them is comparing an address.  ``kind`` is what a recipe needs to know of an operand: its
    dtype, rank and whether it is a scalar tensor.
    """

    device: Device
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    numel: int
    ndim: int
    itemsize: int
    nbytes: int
    extent: int
    contiguous: bool
    differentiable: bool
    kind: tuple[Any, ...]
    key: tuple[Any, ...]

    def __init__(self, key: tuple[Any, ...], numel: int, contiguous: bool) -> None:
        device, dtype, shape, strides = key
        self.key = key
        self.device = device
        self.dtype = dtype
        self.shape = shape
        self.strides = strides
        self.numel = numel
        self.ndim = len(shape)
        self.itemsize = dtype.itemsize
        self.nbytes = numel * dtype.itemsize
        self.extent = self.nbytes
        if numel and not contiguous:
            # Strides may leave gaps: what a new tensor needs reaches to its last element.
            last = sum([(n - 1) * abs(step) for n, step in zip(shape, strides, strict=True)])
            self.extent = (last + 1) * dtype.itemsize
        self.contiguous = contiguous
        self.differentiable = dtype.is_floating_point or dtype.is_complex
        self.kind = kind_of(device, dtype, len(shape))

    def __del__(self) -> None:
        # The table holds specs weakly: a spec leaves it in its own release.
        key = self.key
        if key is not None and table is not None:
            held = table.get(key)
            if held is not None and held() is self:
                del table[key]

    def __repr__(self) -> str:
        return f"{self.dtype.name}{list(self.shape)}@{self.device}"


# Interned specs: key -> weak reference.  `shapes.specs` fills it.
table: dict[tuple[Any, ...], Any] = {}


class Memory:
    """An allocator, as storages see it."""

    def allocate(self, nbytes: int) -> int:
        """Return the address of a free block of at least ``nbytes`` bytes."""
        raise NotImplementedError

    def free(self, address: int, nbytes: int) -> None:
        """Take back a block; may run anywhere, so it only notes the block."""
        raise NotImplementedError


# Allocators by number: a storage names its owner by a C number, so that it can give its block
# back in `__del__` even when the collector has cleared its object fields.
owners: list[Memory] = []


# What stands in `Storage.exported` for a bare address, beside the count of consumers.
FOR_GOOD = 1 << 30


class Release:
    """When a storage was released, told by how many launches its window held by then.

    ``launches``: those of the window that is recorded; number ``place`` of them reads what output
    ``output`` of the one before it wrote; ``after``: how many there were when the storage was
    released, -1 while it lives.
    """

    launches: list[Any] | None
    place: int
    output: int
    after: int

    def __init__(self, launches: list[Any], place: int, output: int) -> None:
        self.launches = launches
        self.place = place
        self.output = output
        self.after = -1

    def note(self) -> None:
        """The storage is released."""
        if self.launches is not None:
            self.after = len(self.launches)


class Storage:
    """A block of memory of a device; owned by an allocator, or kept alive by ``keep``.

    ``release``: what waits to hear of its end, or None.
    """

    address: int
    nbytes: int
    version: int
    owner: int
    read_only: bool
    exported: int
    device: Device
    keep: Any
    pending: Any
    write_site: tuple[Any, int] | None
    release: Release | None

    def __init__(self, device: Device, address: int, nbytes: int, owner: int = -1) -> None:
        self.device = device
        self.address = address
        self.nbytes = nbytes
        self.owner = owner
        self.version = 0
        self.read_only = False
        self.exported = 0
        self.keep = None
        self.pending = None
        self.write_site = None
        self.release = None

    def __del__(self) -> None:
        owner: Memory
        if self.release is not None:
            self.release.note()
        if self.owner >= 0 and self.address and owners is not None:
            owner = owners[self.owner]
            owner.free(self.address, self.nbytes)


class Kernel:
    """Code that a plan launches: reads and writes the operands' memory, nothing else."""

    name: str

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Run over ``operands`` (outputs first, then inputs) with run-time ``numbers``."""
        raise NotImplementedError


class Backend:
    """A device's way of launching: `launch.submit` hands every plan to one.

    ``on_host``: its memory is the host's, which NumPy reads and writes.
    """

    name: str
    owner: int
    memory: Memory
    has_data: bool
    on_host: bool
    immediate: bool

    def submit(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Launch ``plan`` now or later, in order."""
        raise NotImplementedError

    def boundary(self) -> None:
        """A point at which a loop repeats itself: a window may end here."""

    def lasting(self) -> dict[Any, Any] | None:
        """Where tensors may be kept that work of the thread's current stream filled.

        None where nothing may: what is recorded is not run for certain, or runs at once anyway.
        """
        return None

    def read_back(self, address: int, nbytes: int) -> bytes:
        """Bytes of the device's memory, once all submitted work has written them."""
        raise NotImplementedError

    def write(self, address: int, data: Any) -> None:
        """Copy a contiguous buffer of the host to the device's memory, in order."""
        raise NotImplementedError

    def wait(self) -> None:
        """Return when all submitted work is done."""


class Plan:
    """A recipe bound to sizes: everything that a call with the same key needs.

    ``out_spec``, ``kernel`` and ``backend`` are None until a builder fills them in, and stay so
    where a plan of its kind has none.  ``in_specs``: those of the inputs that its rule gives
    gradients to, once it was recorded.  ``bare``: a call needs the operands alone.
    ``kept``: what its nodes keep of arguments that are the same in every call of it.
    ``quick``: what the short way of the uncompiled core needs.  ``passing``: how gradients passed
    a call of it last, kept by `dispatch.gradients`.
    """

    op: OpBase
    recipe: Any
    key: tuple[Any, ...] | None
    short_key: tuple[Any, ...] | None
    kind: int
    out_spec: Spec
    out_specs: tuple[Spec, ...]
    in_specs: tuple[Spec, ...] | None
    outputs: int
    kernel: Kernel
    binding: Any
    backend: Backend
    operands: tuple[int, ...]
    numbers: tuple[int, ...]
    statics: tuple[Any, ...] | None
    offset: int
    steps: tuple[int, ...] | None
    prepare: Any
    rule: Any
    used: bool
    bare: bool
    kept: tuple[Any, ...] | None
    quick: tuple[Any, ...] | None
    passing: Any

    def __init__(self, op: OpBase, recipe: object, kind: int) -> None:
        self.op = op
        self.recipe = recipe
        self.kind = kind
        self.key = None
        self.short_key = None
        self.out_spec = None  # type: ignore[assignment]
        self.out_specs = ()
        self.in_specs = None
        self.outputs = 0
        self.kernel = None  # type: ignore[assignment]
        self.binding = None
        self.backend = None  # type: ignore[assignment]
        self.operands = ()
        self.numbers = ()
        self.statics = ()
        self.offset = 0
        self.steps = None
        self.prepare = None
        self.rule = None
        self.used = True
        self.bare = False
        self.kept = None
        self.quick = None
        self.passing = None

    def __repr__(self) -> str:
        op = "nothing" if self.op is None else self.op.name
        found = ", ".join([repr(spec) for spec in self.out_specs or ()])
        kernel = "no kernel" if self.kernel is None else f"kernel {self.kernel.name}"
        return f"<plan of {op}: {found or 'no results'}; {KINDS.get(self.kind)}, {kernel}>"


class OpBase:
    """An op, as tensors' operator slots see it."""

    name: str

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """The boxed call."""
        raise NotImplementedError

    def call_inplace(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """The boxed call that writes into the first argument."""
        raise NotImplementedError

    def call1(self, a: object) -> Any:
        """Call with one operand."""
        raise NotImplementedError

    def call2(self, a: object, b: object) -> Any:
        """Call with two operands."""
        raise NotImplementedError


class Slots:
    """The ops behind the compiled operator slots, and the class of every result; set at import."""

    add: OpBase
    sub: OpBase
    mul: OpBase
    div: OpBase
    matmul: OpBase
    neg: OpBase
    eq: OpBase
    ne: OpBase
    lt: OpBase
    le: OpBase
    gt: OpBase
    ge: OpBase
    tensor_class: type[TensorBase]
    with_array: Any

    def __init__(self) -> None:
        self.tensor_class = TensorBase
        self.with_array = None


class Node:
    """A step of the tape: the rule that turns gradients of outputs into those of inputs.

    ``edges`` holds, for each differentiable input, the node that made it or None; ``places`` which
    of that node's outputs it is, or is None itself where all are number 0; ``saved`` the tensors
    that the rule's formulas name; ``values`` the other arguments they name; ``inputs`` and
    ``outputs`` the specs of the differentiable inputs and of the op's results; ``code`` and
    ``instruction`` the line that called the op; ``hooks`` a table as `engine.hooks` describes;
    ``plan`` the plan of the call, where it was one whose results are new tensors; ``visit`` what
    a backward that is under way knows of the node; ``stream`` the thread's current streams where it
    was recorded, None for the default ones.
    """

    rule: Any
    edges: tuple[Node | None, ...]
    places: tuple[int, ...] | None
    saved: tuple[Any, ...] | None
    values: tuple[Any, ...]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    code: CodeType | None
    instruction: int
    sequence: int
    hooks: dict[int, Any] | None
    extra: Any
    plan: Plan | None
    visit: Any
    stream: Any

    def __init__(self, rule: Any, edges: tuple[Any, ...],
                 places: tuple[int, ...] | None = None) -> None:
        self.rule = rule
        self.edges = edges
        self.places = places
        self.saved = ()
        self.values = ()
        self.inputs = ()
        self.outputs = ()
        self.code = None
        self.instruction = 0
        self.sequence = 0
        self.hooks = None
        self.extra = None
        self.plan = None
        self.visit = None
        self.stream = None

    def name(self) -> str:
        """The name of the step, such as ``MulBackward0``."""
        name: str = self.rule.name
        return name

    @property
    def next_functions(self) -> tuple[Any, ...]:
        """For each differentiable input, (node, output number), or (None, 0)."""
        places = self.places or (0,) * len(self.edges)
        return tuple([(edge, 0 if edge is None else place)
                      for edge, place in zip(self.edges, places, strict=True)])

    def register_hook(self, hook: Any) -> HookHandle:
        """Call ``hook(grad_inputs, grad_outputs)`` after the node; it may return grad_inputs."""
        return self._add("post", hook)

    def register_prehook(self, hook: Any) -> HookHandle:
        """Call ``hook(grad_outputs)`` before the node; it may return new grad_outputs."""
        return self._add("pre", hook)

    def _add(self, kind: str, hook: Any) -> HookHandle:
        if self.hooks is None:
            self.hooks = {}
        return add_hook(self.hooks, (kind, 0, hook))

    def __repr__(self) -> str:
        return f"<{self.name()} object at {id(self):#x}>"


class GradRecord(Node):
    """What autograd knows of one tensor; made when it is first needed.

    That of a leaf is the node which the leaf's edges lead to: its accumulator.
    """

    requires_grad: bool
    retains_grad: bool
    grad: Any
    node: Node | None
    output: int
    generation: int

    def __init__(self) -> None:
        super().__init__(None, ())
        self.requires_grad = False
        self.retains_grad = False
        self.grad = None
        self.node = None
        self.output = 0
        self.generation = 0


def _are_operands(a: object, b: object) -> bool:
    """Whether an operator's sides are what a slot handles: tensors and numbers."""
    other = b if isinstance(a, TensorBase) else a
    if isinstance(other, TensorBase) or type(other) is float or type(other) is int:
        return True
    return isinstance(other, (int, float, complex, np.generic, abstract_numbers.Number))


def _with_array(ufunc: Any, a: object, b: object) -> Any:
    """An operator with an array on the left, which NumPy leaves to us."""
    return _slots.with_array(ufunc, a, b) if isinstance(a, np.ndarray) else NotImplemented


def _compared(ufunc: Any, a: object, b: object) -> Any:
    """A comparison with an array: NumPy leaves it to us wherever the array stands."""
    return _slots.with_array(ufunc, a, b) if isinstance(b, np.ndarray) else NotImplemented


class TensorBase:
    """The compiled part of a tensor: spec, storage, offset (in elements), autograd record.

    ``base`` is the tensor that this one is a view of, or None.
    """

    spec: Spec
    storage: Storage
    offset: int
    record: GradRecord | None
    base: TensorBase | None

    def __add__(self, other: object) -> Any:
        if _are_operands(self, other):
            return _slots.add.call2(self, other)
        return _with_array(np.add, self, other)

    def __sub__(self, other: object) -> Any:
        if _are_operands(self, other):
            return _slots.sub.call2(self, other)
        return _with_array(np.subtract, self, other)

    def __mul__(self, other: object) -> Any:
        if _are_operands(self, other):
            return _slots.mul.call2(self, other)
        return _with_array(np.multiply, self, other)

    def __truediv__(self, other: object) -> Any:
        if _are_operands(self, other):
            return _slots.div.call2(self, other)
        return _with_array(np.true_divide, self, other)

    def __matmul__(self, other: object) -> Any:
        if _are_operands(self, other):
            return _slots.matmul.call2(self, other)
        return _with_array(np.matmul, self, other)

    def __neg__(self) -> Any:
        return _slots.neg.call1(self)

    def __eq__(self, other: object) -> Any:
        if _are_operands(self, other):
            return _slots.eq.call2(self, other)
        return _compared(np.equal, self, other)

    def __ne__(self, other: object) -> Any:
        if _are_operands(self, other):
            return _slots.ne.call2(self, other)
        return _compared(np.not_equal, self, other)

    def __lt__(self, other: object) -> Any:
        if _are_operands(self, other):
            return _slots.lt.call2(self, other)
        return _compared(np.less, self, other)

    def __le__(self, other: object) -> Any:
        if _are_operands(self, other):
            return _slots.le.call2(self, other)
        return _compared(np.less_equal, self, other)

    def __gt__(self, other: object) -> Any:
        if _are_operands(self, other):
            return _slots.gt.call2(self, other)
        return _compared(np.greater, self, other)

    def __ge__(self, other: object) -> Any:
        if _are_operands(self, other):
            return _slots.ge.call2(self, other)
        return _compared(np.greater_equal, self, other)

    def __hash__(self) -> int:
        # Tensors are compared elementwise, so they hash by identity, as PyTorch's do.
        return object_hash(self)


object_hash = object.__hash__
slots = Slots()
# The same object where compiled code finds it without a look-up.
_slots = slots

if not cython.compiled:
    # Compiled, one slot serves both sides of an operator; uncompiled, Python asks for the other.
    for _name in ("add", "sub", "mul", "truediv", "matmul"):
        _slot = {"truediv": "div"}.get(_name, _name)
        _ufunc = {"sub": np.subtract, "mul": np.multiply}.get(_name) or getattr(
            np, _name.replace("truediv", "true_divide"))
        setattr(TensorBase, f"__r{_name}__", lambda self, other, slot=_slot, ufunc=_ufunc: getattr(
            slots, slot).call2(other, self) if _are_operands(other, self) else _with_array(
            ufunc, other, self))
    Storage.version = 0
    Storage.read_only = False
    Storage.exported = 0
    Storage.keep = None
    Storage.pending = None
    Storage.write_site = None
    Storage.release = None
    for _field in ("rule", "places", "code", "hooks", "extra", "plan", "visit",
                   "stream"):
        setattr(Node, _field, None)
    Node.instruction = Node.sequence = 0
    Node.edges = Node.saved = Node.values = Node.inputs = Node.outputs = ()
    GradRecord.requires_grad = GradRecord.retains_grad = False
    GradRecord.grad = GradRecord.node = None
    GradRecord.output = GradRecord.generation = 0
    # A compiled instance starts with None in these fields; an uncompiled one finds it here.
    TensorBase.record = None
    TensorBase.base = None

for _class in (Node, GradRecord, Storage, TensorBase):
    recycle(_class)
expose(TensorBase, np.ndarray)
