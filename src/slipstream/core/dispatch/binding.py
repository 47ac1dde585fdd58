"""Binding a known recipe to new sizes: the short way, for plain calls of pointwise formulas."""

from __future__ import annotations

from typing import Any

import cython

from slipstream.core.dispatch.op import Op
from slipstream.core.dispatch.signature import STATIC, STATIC_NUMBER
from slipstream.core.shapes.specs import SpecTable, specs
from slipstream.core.shapes.strides import output_strides_of_pointwise
from slipstream.core.vocab.modes import ModeState
from slipstream.core.vocab.records import KERNEL, Plan, Spec, TensorBase

__all__ = ["Binder", "SpecTable", "binder"]


class Binder:
    """Makes recipe keys and plans; a singleton, `binder`."""

    def key(self, op: Op, state: ModeState, values: Any, target: Any,
            form: cython.int) -> tuple[Any, ...]:
        """What a recipe depends on: devices, dtypes, ranks, kinds of numbers, static arguments."""
        parts: list = [form, state.device]
        tensor: TensorBase
        place: cython.Py_ssize_t = 0
        for value in values:
            if isinstance(value, TensorBase):
                tensor = value
                parts.append(tensor.spec.kind)
            elif place == op.unkeyed:
                parts.append(None)
            elif op.kinds[place] == STATIC_NUMBER:
                parts.append((type(value), value))
            elif op.kinds[place] == STATIC or value is op.defaults[place]:
                parts.append(tuple(value) if isinstance(value, list) else value)
            else:
                parts.append(type(value))
            place += 1
        if isinstance(target, TensorBase):
            tensor = target
            parts.append(tensor.spec.dtype)
        elif target is not None:
            parts.append(tuple([each.spec.dtype for each in target]))
        return tuple(parts)

    def bind(self, recipe: Any, values: Any, flags: cython.int) -> Plan | None:
        """The plan for these sizes, or None where the long way has to find out more."""
        inputs: list = [values[position] for position in recipe.operands]
        domain: tuple | None = self._domain(inputs)
        if domain is None:
            return None
        plan = Plan(recipe.op, recipe, KERNEL)
        first: TensorBase = inputs[0]
        dtype = recipe.results[0]
        spec: Spec = first.spec
        contiguous = True
        strides: list = [None]
        tensor: TensorBase
        for each in inputs:
            tensor = each
            contiguous = contiguous and tensor.spec.contiguous
            strides.append(self._strides(tensor.spec, domain))
        if not contiguous:
            geometry = [(each.spec.shape, each.spec.strides) for each in inputs]
            steps = output_strides_of_pointwise(domain, geometry)
            spec = specs.intern(spec.device, dtype, domain, steps)
        elif spec.dtype is not dtype or spec.shape != domain:
            spec = specs.contiguous(spec.device, dtype, domain)
        plan.out_spec = spec
        plan.out_specs = (spec,)
        plan.outputs = 1
        plan.operands = recipe.operands
        plan.numbers = recipe.numbers
        plan.backend = recipe.backend
        plan.kernel = recipe.kernel
        if recipe.backend.has_data:
            strides[0] = spec.strides
            plan.binding = recipe.kernel.bind(domain, (), strides)
        if flags:
            plan.rule = recipe.rules[flags]
        return plan

    def _domain(self, inputs: list) -> tuple | None:
        """The broadcast shape; None where the shapes do not fit."""
        tensor: TensorBase = inputs[0]
        domain: tuple = tensor.spec.shape
        place: cython.Py_ssize_t
        for place in range(1, len(inputs)):
            tensor = inputs[place]
            shape: tuple = tensor.spec.shape
            if shape == domain:
                continue
            domain = broadcast_two(domain, shape)
            if domain is None:
                return None
        return domain

    def _strides(self, spec: Spec, domain: tuple) -> tuple:
        """The strides over the domain: 0 where a size is repeated."""
        if spec.shape == domain:
            return spec.strides
        extra: cython.Py_ssize_t = len(domain) - len(spec.shape)
        steps: list = [0] * len(domain)
        place: cython.Py_ssize_t
        for place in range(len(spec.shape)):
            if spec.shape[place] == domain[place + extra]:
                steps[place + extra] = spec.strides[place]
        return tuple(steps)


def broadcast_two(a: Any, b: Any) -> Any:
    """The shape that two shapes broadcast to, or None."""
    if len(a) < len(b):
        a, b = b, a
    sizes = list(a)
    shift = len(a) - len(b)
    for place, size in enumerate(b):
        mine = sizes[place + shift]
        if mine == 1:
            sizes[place + shift] = size
        elif size not in (1, mine):
            return None
    return tuple(sizes)


binder = Binder()
