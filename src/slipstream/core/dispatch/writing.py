# cython: annotation_typing=False
"""The in-place and ``out=`` forms: what is checked before a write, and what follows it.

What depends on identity (same storage, overlap, read-only memory) is decided at every call and
never cached.
"""

from __future__ import annotations

from typing import Any

from slipstream.core.dispatch.entry import INDEX, LIBRARY
from slipstream.core.dispatch.op import IN_PLACE, OUT
from slipstream.core.dispatch.places import restate_devices
from slipstream.core.engine import views as view_history
from slipstream.core.engine.tape import tape
from slipstream.core.launch.door import backend_of, door, outgrown
from slipstream.core.launch.waiting import wait
from slipstream.core.shapes.overlap import in_bytes, may_share, self_overlaps
from slipstream.core.shapes.specs import specs
from slipstream.core.shapes.strides import element_range
from slipstream.core.vocab.dtypes import can_cast
from slipstream.core.vocab.errors import MixedDeviceError, explain
from slipstream.core.vocab.modes import ModeState, modes
from slipstream.core.vocab.records import FOR_GOOD, Node, Plan, Storage, TensorBase, owners, slots
from slipstream.core.vocab.warned import warn_caller


class Hooks:
    """What writing needs of upper layers; set at import by wiring."""

    copy_of: Any = None
    copy_into: Any = None
    move_bytes: Any = None


hooks = Hooks()


def begin_write(op: Any, plan: Plan, state: ModeState, values: Any, targets: tuple[Any, ...],
                form: int) -> Any:
    """Check that ``targets`` may be written; return the arguments, overlapping ones copied."""
    flags = plan.rule is not None
    for target in targets:
        check_target(op, values, target)
        if form == OUT and op.entry.kind == INDEX:
            check_apart(op, values, target, may_be_first(op))
    if form == IN_PLACE:
        view_history.check_inplace(targets[0], state, flags)
    elif form == OUT and state.grad_enabled:
        _check_out_grad(op, values, targets, flags)
    if op.entry.kind in (INDEX, LIBRARY):
        values = _without_self(values, targets, form)
    if form == IN_PLACE and flags and 0 in plan.rule.saves:
        # The gradient needs the value that the write destroys.
        kept = exact_copy(targets[0])
        values = tuple([kept if value is targets[0] else value for value in values])
    return _without_overlap(values, targets, form)


def check_target(op: Any, values: Any, target: Any) -> None:
    """Raise unless the target is a tensor whose memory may be written, element by element."""
    if not isinstance(target, TensorBase):
        raise TypeError(f"{op.name}(): argument 'out' must be Tensor, not {type(target).__name__}")
    if target.storage.read_only:
        raise _refusal(op, _with(op, values, target), ValueError,
                       "the memory of the output is read-only", "write to a clone()")
    if op.entry.uniform and not isinstance(values[1], TensorBase):
        # A number: whatever is written several times is the same.
        return
    check_single(op, values, target)


def check_single(op: Any, values: Any, target: Any) -> None:
    """Raise where several elements of the target are one place in memory."""
    spec = target.spec
    if not spec.contiguous and self_overlaps(spec.shape, spec.strides):
        raise _refusal(
            op, _with(op, values, target), RuntimeError,
            "unsupported operation: more than one element of the written-to tensor refers to "
            "a single memory location. Please clone() the tensor before performing the operation.")


def may_be_first(op: Any) -> bool:
    """Whether ``out`` may be the first operand itself, as in PyTorch; it is read before."""
    return op.entry.inplace or "index" not in op.names


def check_apart(op: Any, values: Any, target: TensorBase, first: bool = False) -> None:
    """Raise where an ``out=`` tensor of an index op shares memory with an operand.

    With ``first`` it may be the first operand, element by element.
    """
    given = values
    if first and isinstance(values[0], TensorBase) and _is_same(values[0], target):
        values = values[1:]
    opened = [each for value in values
              for each in (value if isinstance(value, (list, tuple)) else (value,))]
    for each in opened:
        if isinstance(each, TensorBase) and each.spec.numel and target.spec.numel and (
                _is_same(each, target) or _clashes(each, target)):
            raise _refusal(
                op, _with(op, given, target), RuntimeError,
                "unsupported operation: some elements of the input tensor and the written-to "
                "tensor refer to a single memory location. Please clone() the tensor before "
                "performing the operation.")


def _check_out_grad(op: Any, values: Any, targets: tuple[Any, ...], flags: bool) -> None:
    wants = any(t.record is not None and t.record.requires_grad for t in targets)
    if flags or wants:
        raise _refusal(op, _with(op, values, targets), RuntimeError,
                       f"{op.name}(): functions with out=... arguments don't support automatic "
                       "differentiation, but one of the arguments requires grad.",
                       "use the form without out=, or no_grad()")


def _refusal(op: Any, shown: dict[str, Any], kind: type[Exception], rule: str,
             mend: str = "") -> Exception:
    return kind(explain(op.name, shown, rule, mend))


def _with(op: Any, values: Any, target: Any) -> dict[str, Any]:
    """The arguments by name; a target that is not the first of them is ``out``."""
    shown = dict(zip(op.names, values, strict=True))
    if isinstance(target, tuple) and len(target) == 1:
        target = target[0]
    return shown if values and target is values[0] else shown | {"out": target}


def _without_overlap(values: Any, targets: tuple[Any, ...], form: int) -> Any:
    """Sources that share part of a target's memory are read as if copied first."""
    changed = list(values)
    written = [target.storage for target in targets]
    for place, value in enumerate(values):
        if isinstance(value, TensorBase):
            if value.storage in written and any(_clashes(value, target) for target in targets):
                changed[place] = exact_copy(value)
        elif isinstance(value, (list, tuple)) and value and isinstance(value[0], TensorBase):
            changed[place] = [
                exact_copy(each) if any(_clashes(each, t) for t in targets) else each
                for each in value
            ]
    return tuple(changed)


def _without_self(values: Any, targets: tuple[Any, ...], form: int) -> Any:
    """A kernel that reads elsewhere than it writes gets a copy of a source that is the target."""
    first = 1 if form == IN_PLACE else 0
    changed = list(values)
    for place in range(first, len(values)):
        value = changed[place]
        if isinstance(value, TensorBase) and any(_is_same(value, t) for t in targets):
            changed[place] = exact_copy(value)
        elif isinstance(value, (list, tuple)) and value and isinstance(value[0], TensorBase):
            changed[place] = [exact_copy(each) if any(_is_same(each, t) for t in targets)
                              else each for each in value]
    return tuple(changed)


def exact_copy(source: TensorBase) -> TensorBase:
    """A copy with the source's strides and history: a plan was made for these strides.

    All memory between its first and its last element is copied, gaps too.
    """
    spec = source.spec
    low, high = element_range(spec.shape, spec.strides, source.offset)
    flat = _bare(specs.contiguous(spec.device, spec.dtype, (high - low + 1,)), source.storage, low)
    tape.requires_grad(source)
    copy = _bare(spec, hooks.copy_of(flat).storage, source.offset - low)
    copy.record = source.record
    return copy


def _bare(spec: Any, storage: Storage, offset: int) -> TensorBase:
    made = TensorBase.__new__(slots.tensor_class)
    made.spec, made.storage, made.offset = spec, storage, offset
    return made


def made_like(op: Any, values: Any, target: Any, form: int) -> Any:
    """The arguments of a compound op that writes.

    A dtype and a device that makers leave open are ``out``'s.  What is recorded in place works on
    a copy of its target: its gradients may need the values that the write destroys.
    """
    if form == IN_PLACE:
        if (not modes.current().grad_enabled or not isinstance(target, TensorBase)
                or not tape.requires_grad(target)):
            return values
        copy = hooks.copy_of.call((target,), None)
        return tuple([copy if value is target else value for value in values])
    if "device" not in op.names or not isinstance(target, TensorBase):
        return values
    own = {"dtype": target.spec.dtype, "device": target.spec.device}
    return tuple([own.get(name) if value is None else value
                  for name, value in zip(op.names, values, strict=True)])


def deliver(op: Any, values: Any, result: Any, target: Any, form: int) -> Any:
    """Write the result of a compound op to the target of its in-place or ``out=`` form."""
    if result is target:
        # The function wrote in place itself.
        return target
    if isinstance(result, tuple) and isinstance(target, (tuple, list)) and (
            len(result) == len(target)):
        if form == OUT:
            _check_each_apart(op, values, target)
        for part, place in zip(result, target, strict=True):
            deliver(op, values, part, place, form)
        return type(result)(*target) if hasattr(result, "_fields") else tuple(target)
    if not isinstance(target, TensorBase) or not isinstance(result, TensorBase):
        raise TypeError(f"{op.name}() has no such form: its results cannot be written to "
                        f"{type(target).__name__}")
    if form == OUT:
        check_target(op, values, target)
        alike = op.entry.waits == "never" and target.spec.shape == result.spec.shape
        check_apart(op, values, target, alike and may_be_first(op))
        if modes.current().grad_enabled:
            _check_out_grad(op, values, (target,), tape.requires_grad(result))
        if not can_cast(result.spec.dtype, target.spec.dtype):
            raise _refusal(op, _with(op, values, target), RuntimeError,
                           f"Expected out tensor to have dtype {result.spec.dtype.name}, but got "
                           f"{target.spec.dtype.name} instead")
        fit_out(target, result.spec.shape)
    elif not can_cast(result.spec.dtype, target.spec.dtype):
        raise _refusal(op, dict(zip(op.names, values, strict=False)), RuntimeError,
                       f"result type {result.spec.dtype.name} can't be cast to the desired output "
                       f"type {target.spec.dtype.name}")
    try:
        hooks.copy_into.call_inplace((target, result), None)
    except MixedDeviceError as failure:
        restate_devices(failure, op.name, _with(op, values, target))
        raise
    return target


def _check_each_apart(op: Any, values: Any, targets: Any) -> None:
    """Raise where two results would be written to one place."""
    found = [target for target in targets if isinstance(target, TensorBase) and target.spec.numel]
    for place, target in enumerate(found):
        for other in found[:place]:
            if target is other or _is_same(other, target) or _clashes(other, target):
                raise _refusal(op, _with(op, values, targets), RuntimeError,
                               "unsupported operation: two of the written-to tensors refer to a "
                               "single memory location", "give each result memory of its own")


def _is_same(source: TensorBase, target: TensorBase) -> bool:
    return (source.storage is target.storage and source.offset == target.offset
            and source.spec is target.spec)


def _clashes(source: TensorBase, target: TensorBase) -> bool:
    if source is target or source.storage is not target.storage or not target.spec.numel:
        return False
    a, b = source.spec, target.spec
    if a is b and source.offset == target.offset:
        return False
    if a.itemsize == b.itemsize:
        geometry = (b.shape, b.strides, target.offset), (a.shape, a.strides, source.offset)
    else:
        geometry = (
            in_bytes((b.shape, b.strides, target.offset), b.itemsize),
            in_bytes((a.shape, a.strides, source.offset), a.itemsize),
        )
    return may_share(*geometry) != "no"


def end_write(plan: Plan, state: ModeState, targets: tuple[Any, ...], node: Node | None) -> None:
    """Count the write in the storages' versions and give the targets their new history."""
    for target in targets:
        storage: Storage = target.storage
        storage.version += 1
        storage.write_site = (state.code, state.instruction)
    if node is not None:
        view_history.rebase(targets[0], node)


def fit_out(target: TensorBase, shape: tuple[int, ...]) -> bool:
    """Give an ``out=`` tensor the result's shape; True if it had another."""
    if target.spec.shape == shape:
        return False
    if target.spec.numel:
        warn_caller(
            f"An output with one or more elements was resized since it had shape "
            f"{list(target.spec.shape)}, which does not match the required output shape "
            f"{list(shape)}.")
    resize(target, shape)
    return True


def resize(target: TensorBase, shape: tuple[int, ...]) -> None:
    """Give a tensor another shape, with more memory where its storage is too small."""
    spec = specs.contiguous(target.spec.device, target.spec.dtype, shape)
    needed = target.offset * spec.itemsize + spec.nbytes
    if spec.numel and needed > target.storage.nbytes:
        grow(target.storage, needed)
    target.spec = spec


def grow(storage: Storage, nbytes: int) -> None:
    """Move a storage to a larger block, keeping its bytes."""
    backend = backend_of(storage.device)
    if storage.owner < 0 and backend.has_data:
        raise RuntimeError("Trying to resize storage that is not resizable: its memory belongs "
                           "to another library")
    if storage.exported % FOR_GOOD:
        raise RuntimeError("Trying to resize storage that is not resizable: an array shares its "
                           "memory")
    if not backend.has_data:
        storage.nbytes = nbytes
        return
    if backend.on_host:
        wait(storage.device, "resize")
        door.settle_storage(storage)
    # Pinned memory stays pinned.  Before anything changes: there may be no memory, and a capture
    # refuses the copy.
    memory: Any = owners[storage.owner]
    address = memory.allocate(nbytes)
    kept = min(storage.nbytes, nbytes)
    device: Any = backend
    try:
        if kept and backend.on_host:
            hooks.move_bytes(address, storage.address, kept)
        elif kept:
            device.move(address, storage.address, kept)
    except BaseException:
        memory.free(address, nbytes)
        raise
    # The old block goes back as any storage's does, where no graph replays with it.
    before = Storage(storage.device, storage.address, storage.nbytes, storage.owner)
    storage.address = address
    storage.nbytes = nbytes
    # No graph has the CPU's own memory.
    for tell in () if memory is backend.memory and backend.on_host else outgrown:
        tell(storage, before)
