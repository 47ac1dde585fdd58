"""Binding a known recipe to new sizes: the short way, for plain calls of formulas."""

from __future__ import annotations

from typing import Any

import cython

from slipstream.core.dispatch.op import Op, static_key
from slipstream.core.dispatch.signature import STATIC, STATIC_NUMBER
from slipstream.core.shapes.specs import SpecTable, specs
from slipstream.core.shapes.strides import is_in_order, output_strides_of_pointwise
from slipstream.core.vocab.devices import Device
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
            elif place == op.device_at and value is not None:
                parts.append(Device(value))
            elif op.kinds[place] in (STATIC, STATIC_NUMBER) or value is op.defaults[place]:
                parts.append(static_key(value))
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
        domain: tuple | None
        if inputs:
            domain = self._domain(inputs)
        else:
            domain = plain_sizes(values[recipe.op.unkeyed])
        if domain is None or (not domain and not recipe.pointwise):
            return None
        plan = Plan(recipe.op, recipe, KERNEL)
        strides: list = [None] * len(recipe.results)
        contiguous: cython.bint = True
        tensor: TensorBase
        for each in inputs:
            tensor = each
            contiguous = contiguous and tensor.spec.contiguous
            strides.append(self._strides(tensor.spec, domain))
        plan.out_specs = self._results(recipe, inputs, domain, strides, contiguous)
        plan.out_spec = plan.out_specs[0]
        plan.outputs = 1 if recipe.single else len(plan.out_specs)
        plan.operands = recipe.operands
        plan.numbers = recipe.numbers
        plan.backend = recipe.backend
        plan.kernel = recipe.kernel
        if recipe.backend.has_data:
            plan.binding = recipe.kernel.bind(domain, recipe.reduced, strides)
        if flags:
            plan.rule = recipe.rules[flags]
        return plan

    def _results(self, recipe: Any, inputs: list[Any], domain: tuple[int, ...],
                 strides: list[Any], contiguous: bool) -> tuple[Any, ...]:
        """The results' specs; their strides over the domain go to the first places."""
        found: list = []
        spec: Spec
        place: cython.Py_ssize_t
        lines: tuple = recipe.lines
        # Operands in row-major order give results in it, whether dims are repeated or not.
        dense: cython.bint = (
            contiguous or recipe.dense or is_in_order(strides[len(lines):]))
        for place in range(len(lines)):
            dtype = recipe.results[place]
            if lines[place]:
                shape, steps = reduced_layout(domain, recipe.reduced, recipe.keepdims[place])
                spec = specs.intern(recipe.device, dtype, shape, steps[1])
                strides[place] = steps[0]
            elif dense:
                spec = specs.contiguous(recipe.device, dtype, domain)
                strides[place] = spec.strides
            else:
                geometry = [(each.spec.shape, each.spec.strides) for each in inputs]
                strides[place] = output_strides_of_pointwise(domain, geometry)
                spec = specs.intern(recipe.device, dtype, domain, strides[place])
            found.append(spec)
        return tuple(found)

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


def plain_sizes(size: Any) -> Any:
    """Sizes that are a tuple of plain integers, or None."""
    if type(size) is not tuple:
        return None
    for each in size:
        if type(each) is not int or each < 0:
            return None
    return size


def reduced_layout(domain: Any, reduced: Any, keepdim: Any) -> Any:
    """The shape of what is reduced, and its strides over the domain and over its own dims."""
    rank: cython.Py_ssize_t = len(domain)
    over: list = [0] * rank
    shape: list = []
    own: list = []
    step: object = 1
    dim: cython.Py_ssize_t
    for dim in range(rank - 1, -1, -1):
        if dim in reduced:
            if keepdim:
                shape.append(1)
                own.append(step)
            continue
        size = domain[dim]
        over[dim] = step
        shape.append(size)
        own.append(step)
        if size > 1:
            step = step * size
    return tuple(shape[::-1]), (tuple(over), tuple(own[::-1]))


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
