"""Registering kernels of one's own for an op on a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from slipstream.core.api.interop import wrap
from slipstream.core.catalog.table import ops, table
from slipstream.core.dispatch.op import Op, drop_plans
from slipstream.core.dispatch.registry import Candidate, device_type
from slipstream.core.kernels.cpu.arrays import tensor_array
from slipstream.core.shapes.specs import specs
from slipstream.core.vocab.devices import CPU, Device
from slipstream.core.vocab.modes import modes
from slipstream.core.vocab.records import Kernel, Plan, Storage, TensorBase


def op_named(name: str) -> Op:
    """The op of a name such as ``add``; raises ValueError where there is none."""
    found = table.get(name) if isinstance(name, str) else None
    if found is None:
        raise ValueError(f"there is no op named {name!r}")
    return found


class FunctionKernel(Kernel):
    """Runs a Python function on the operands and copies what it returns to the results."""

    def __init__(self, name: str, function: Callable[..., Any], arrays: bool, call: Any) -> None:
        self.name = name
        self.function = function
        self.arrays = arrays
        self.op = call.op.name
        self.values = tuple(None if _holds_tensors(value) else value for value in call.values)
        self.lengths = tuple(_holds_tensors(value) for value in call.values)

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Call the function with the arguments in the order of the op's signature."""
        count = len(plan.out_specs)
        seen = [self._shown(each) for each in operands[count:]]
        values = list(self.values)
        for place, number in zip(plan.numbers, numbers, strict=True):
            values[place] = number
        for place in plan.operands:
            length = self.lengths[place]
            taken = [seen.pop(0) for _ in range(max(length, 1))]
            values[place] = taken[0] if length < 0 else taken
        found = self._called(values)
        results = found if isinstance(found, (tuple, list)) else (found,)
        if len(results) != count:
            raise RuntimeError(f"{self.name} returned {len(results)} results for {self.op}, "
                               f"which has {count}")
        for target, result in zip(operands, results, strict=False):
            self._store(target, result)

    def _shown(self, operand: TensorBase) -> Any:
        return tensor_array(operand) if self.arrays else on_cpu(operand)

    def _called(self, values: list[Any]) -> Any:
        """A kernel is below autograd and the modes: nothing of it is recorded or seen."""
        state = modes.current()
        before = state.grad_enabled, state.stack
        # Another thread may begin to listen meanwhile: what it adds stays.
        hidden = state.special
        state.special -= hidden
        state.grad_enabled, state.stack = False, []
        try:
            return self.function(*values)
        finally:
            state.grad_enabled, state.stack = before
            state.special += hidden

    def _store(self, target: TensorBase, result: Any) -> None:
        spec = target.spec
        if isinstance(result, np.ndarray):
            if result.shape != spec.shape or result.dtype != spec.dtype.numpy:
                raise RuntimeError(f"{self.name} returned {result.dtype}{list(result.shape)} for "
                                   f"{self.op}, whose result is {spec!r}")
            tensor_array(target)[...] = result
            return
        if not isinstance(result, TensorBase):
            raise TypeError(f"{self.name} returned {type(result).__name__} for {self.op}; it has "
                            "to return a Tensor or an array")
        if result.spec.shape != spec.shape or result.spec.dtype is not spec.dtype:
            raise RuntimeError(f"{self.name} returned {result.spec!r} for {self.op}, whose result "
                               f"is {spec!r}")
        tensor_array(target)[...] = tensor_array(result)


def _holds_tensors(value: Any) -> int:
    """-1 for a tensor, the length of a list of tensors, else 0."""
    if isinstance(value, TensorBase):
        return -1
    if isinstance(value, (tuple, list)) and value and isinstance(value[0], TensorBase):
        return len(value)
    return 0


def on_cpu(operand: TensorBase) -> Any:
    """The operand as a tensor of the CPU, over the same memory and outside the tape."""
    spec = operand.spec
    storage = operand.storage
    if spec.device is not CPU:
        shared = Storage(CPU, storage.address, storage.nbytes)
        shared.keep = storage
        spec, storage = specs.intern(CPU, spec.dtype, spec.shape, spec.strides), shared
    return wrap(spec, storage, operand.offset)


class Implementation:
    """A kernel that was registered: the function, and the handle that takes it away again.

    Called, it is the function itself.  As a context manager it is removed at the end.
    """

    def __init__(self, op: Op, device: str, candidate: Candidate, function: Any) -> None:
        self.op = op
        self.device = device
        self.candidate = candidate
        self.function = function
        self._below: Op | None = None
        self.__doc__ = function.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, as it was registered."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<{self.candidate.name} for {self.op.name} on {self.device}>"

    def __enter__(self) -> Implementation:
        return self

    def __exit__(self, *failure: object) -> None:
        self.remove()

    def redispatch(self, *args: Any, **kwargs: Any) -> Any:
        """Call the op as if this kernel had never been registered: the kernels behind it."""
        behind = tuple(each for each in self.op.kernels.get(self.device, ())
                       if each is not self.candidate)
        if self._below is None or self._below.kernels.get(self.device, ()) != behind:
            self._below = Op(self.op.entry, self.op.builder)
            self._below.kernels = {**self.op.kernels, self.device: behind}
        return self._below.call(args, kwargs)

    def remove(self) -> None:
        """Take the kernel away; nothing happens the second time."""
        held = self.op.kernels.get(self.device, ())
        left = tuple(each for each in held if each is not self.candidate)
        if len(left) == len(held):
            return
        if left:
            self.op.kernels[self.device] = left
        else:
            del self.op.kernels[self.device]
        drop_plans(self.op)


def register(op: Op, device: str, function: Callable[..., Any], refuses: Any,
             arrays: bool) -> Implementation:
    """Put a function in front of an op's kernels on a device type."""
    if op.compound or op.entry.kind == "view":
        why = "calls other ops: implement these" if op.compound else "is a view: it has no kernel"
        raise ValueError(f"{op.name} {why}")
    if not callable(function):
        raise TypeError(f"a kernel has to be a function, not {type(function).__name__}")
    kind = device_type(Device(device))
    name = getattr(function, "__qualname__", type(function).__name__)

    def make(_: Plan, call: Any) -> FunctionKernel:
        return FunctionKernel(name, function, arrays, call)

    candidate = Candidate(name, make) if refuses is None else Candidate(name, make, refuses)
    op.kernels[kind] = (candidate, *op.kernels.get(kind, ()))
    drop_plans(op)
    return Implementation(op, kind, candidate, function)


__all__ = ["FunctionKernel", "Implementation", "op_named", "ops", "register"]
