"""Uncompiled, ``a + b`` in one frame: tensors that autograd does not know, and a known plan.

Frames are what the uncompiled core pays for, so the steps of `Op.call2`, `OpCore._new`, the door
and the kernel are written out here in their order, for plans whose program is one ufunc.  Whatever
is not plain goes the common way: modes, listeners, views, history, other classes, numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from slipstream.core.fuse.evaluator import SILENT, binary_ufunc
from slipstream.core.kernels.cpu.programs import ProgramKernel
from slipstream.core.launch.door import door
from slipstream.core.vocab.modes import ROOT, modes
from slipstream.core.vocab.records import Plan, Storage, TensorBase, slots

# Ops of slots, and the methods that Python looks for.
METHODS = {"add": "__add__", "sub": "__sub__", "mul": "__mul__", "div": "__truediv__"}
Operator = Callable[[Any, Any], Any]
adopted: set[str] = set()


def adopt(op: Any, plan: Plan) -> None:
    """Give a plan of two operands its short way, and the op's slot an operator that takes it."""
    kernel = plan.kernel
    if plan.operands != (0, 1) or not plan.backend.immediate or plan.rule is not None:
        return
    ufunc = binary_ufunc(kernel.program) if isinstance(kernel, ProgramKernel) else None
    if ufunc is None or op.name not in METHODS:
        return
    bound: Any = plan.binding
    plan.quick = (ufunc, bound.array, *bound.views, plan.out_spec, plan.backend.memory.allocate,
                  plan.backend.owner)
    if op.name not in adopted:
        adopted.add(op.name)
        method = METHODS[op.name]
        setattr(TensorBase, method, short_way(op, getattr(TensorBase, method)))


def short_way(op: Any, common: Operator) -> Operator:
    """The operator of an op's slot; ``common`` is the one for what is not plain."""
    binary, cls, heeds = op.binary, slots.tensor_class, op.heeds
    local, copy, new, caller = modes._local, SILENT.copy, object.__new__, sys._getframe

    def operator(self: Any, other: Any) -> Any:
        if other.__class__ is not cls or self.__class__ is not cls:
            return common(self, other)
        plan = binary.get((self.spec, other.spec, 0))
        try:
            state = local.state
        except AttributeError:
            return common(self, other)
        if (plan is None or plan.quick is None or (state.special and state.special & heeds)
                or door.pending or self.offset or other.offset
                or modes.listeners is not None or modes.ring is not None or self.base is not None
                or self.record is not None or other.record is not None or other.base is not None):
            return common(self, other)
        frame = caller(1)
        if frame.f_code.co_filename.startswith(ROOT):
            return common(self, other)
        state.code = frame.f_code
        state.instruction = frame.f_lasti
        plan.used = True
        ufunc, array, targets, lefts, rights, spec, allocate, owner = plan.quick
        storage = new(Storage)
        storage.device = spec.device
        storage.nbytes = spec.extent
        storage.address = at = allocate(spec.extent)
        storage.owner = owner
        out = new(cls)
        out.spec = spec
        out.storage = storage
        out.offset = 0
        door.launches += 1
        target = targets.get(at)
        at = self.storage.address
        left = lefts.get(at)
        if left is None:
            left = array(lefts, at)
        at = other.storage.address
        right = rights.get(at)
        if right is None:
            right = array(rights, at)
        if target is None:
            target = array(targets, storage.address)
        copy().run(ufunc, left, right, target)
        return out

    return operator
