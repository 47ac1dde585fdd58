# cython: annotation_typing=False
"""Plans of entries that are formulas: pointwise ops, reductions and composites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from slipstream.core.dispatch.binding import binder
from slipstream.core.dispatch.calls import Call
from slipstream.core.dispatch.entry import POINTWISE, contiguous_layout
from slipstream.core.dispatch.gradients import parameters_of, rule_for
from slipstream.core.dispatch.numbers import guard
from slipstream.core.dispatch.op import IN_PLACE, OUT, PLAIN, Op, static_key
from slipstream.core.dispatch.plans import remember
from slipstream.core.dispatch.promotion import class_of_number
from slipstream.core.dispatch.registry import (
    considered_kernels,
    kernel_for,
    number_positions,
    registered_kernels,
    tensor_positions,
)
from slipstream.core.dispatch.signature import STATIC, STATIC_NUMBER
from slipstream.core.dispatch.writing import check_apart, check_target, fit_out
from slipstream.core.fuse.trace import NARROW, NumberArgument, TensorArgument, Traced, trace
from slipstream.core.launch.door import backend_of
from slipstream.core.shapes import broadcast, views
from slipstream.core.shapes.specs import specs
from slipstream.core.shapes.strides import output_strides_of_pointwise
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.dtypes import DType, can_cast
from slipstream.core.vocab.modes import ModeState
from slipstream.core.vocab.programs import ROW, Program
from slipstream.core.vocab.records import KERNEL, Backend, Kernel, Plan, Spec, TensorBase


@dataclass(slots=True, eq=False, repr=False)
class Recipe:
    """What does not depend on sizes: promotion, program, kernel, which arguments enter it."""

    op: Op
    traced: Traced
    results: tuple[DType, ...]
    kernel: Any
    operands: tuple[int, ...]
    numbers: tuple[int, ...]
    considered: list[tuple[str, str]] = field(default_factory=list)
    backend: Backend | None = None
    device: Any = None
    # Whether plain calls can be bound the short way, and the rules by what wants a gradient.
    short: bool = False
    # Which outputs have one value a row.
    lines: tuple[bool, ...] = ()
    rules: dict[int, Any] = field(default_factory=lambda: {0: None})
    pointwise: bool = False
    single: bool = False
    reduced: tuple[int, ...] = ()
    keepdims: tuple[bool, ...] = ()
    # Whether results are contiguous whatever the operands' strides.
    dense: bool = False


class FormulaBuilder:
    """Makes plans from an entry's formula; a singleton, `formula_builder`."""

    def plan(self, op: Op, state: ModeState, values: Any, target: Any, form: int,
             flags: int) -> Plan:
        """The plan of a call; raises the op's errors for operands that do not fit."""
        try:
            recipe = op.recipes.get(binder.key(op, state, values, target, form))
        except (TypeError, AttributeError):
            # An argument of a wrong kind: the long way says which.
            recipe = None
        if recipe is not None and recipe.short and not op.kernels and flags in recipe.rules and (
                op.entry.fits is None or op.entry.fits(values)):
            plan = binder.bind(recipe, values, flags)
            if plan is not None:
                return plan
        call = Call(op, state, values, target, form)
        device = call.device()
        if recipe is None:
            if op.entry.check is not None:
                op.entry.check(call)
            drops = op.drops
            recipe = make_recipe(call, device)
            if drops == op.drops:
                remember(op.recipes, binder.key(op, state, values, target, form), recipe)
        return _bind(recipe, call, device, flags)


formula_builder = FormulaBuilder()


def promoted(call: Call) -> tuple[DType, DType]:
    """The dtype that operands are computed in, and that of the result."""
    return call.op.entry.promotion(call)


def make_recipe(call: Call, device: Any) -> Recipe:
    """What calls have in common whatever their sizes."""
    op = call.op
    common, result = promoted(call)
    arguments = _trace_arguments(call, common)
    outputs: Sequence[DType] = result if isinstance(result, tuple) else (result,)
    if isinstance(call.target, TensorBase):
        if not op.entry.converts:
            _check_cast(call, outputs[0])
        outputs = (call.target.spec.dtype,)
    elif call.target is not None:
        outputs = tuple(target.spec.dtype for target in call.target)
    traced, kernel, considered = _program(op, arguments, tuple(outputs), device)
    names = op.names
    return Recipe(
        op, traced, tuple(outputs), kernel,
        tuple(names.index(name) for name in traced.operands),
        tuple(names.index(name) for name in traced.number_names),
        considered, backend_of(device), device, _is_short(call, traced),
        lines_of(traced.program), pointwise=op.entry.kind == POINTWISE, single=traced.single,
        reduced=tuple(traced.reduced_dims), keepdims=tuple(traced.keepdims),
        dense=op.entry.layout is contiguous_layout,
    )


def lines_of(program: Program) -> tuple[bool, ...]:
    """Which outputs of a program have one value a row, and none where nothing is reduced."""
    return tuple([program.has_rows and program.level_of(output.value) == ROW
                  for output in program.outputs])


def _program(op: Op, arguments: dict[str, Any], outputs: tuple[DType, ...],
             device: Any) -> tuple[Traced, Kernel, list[tuple[str, str]]]:
    """The traced formula and its kernel; pointwise programs are the same for every rank."""
    key = None
    if op.entry.kind == "pointwise":
        # What the formula does not name, such as the size of what is made, leaves it as it is.
        named = [arguments[name] for name in parameters_of(op.entry.formula) if name in arguments]
        key = (device, outputs, *[
            (value.dtype, value.cls, value.rounded) if isinstance(value, TensorArgument)
            else static_key(value)
            for value in named])
        known = op.programs.get(key)
        if known is not None:
            return known
    traced = trace(op.entry.formula, arguments, outputs)
    found = (traced, *kernel_for(device, traced.program))
    if key is not None:
        remember(op.programs, key, found)
    return found


def _is_short(call: Call, traced: Traced) -> bool:
    """Plain calls whose operands, or plain sizes, alone decide the results' geometry."""
    entry, tensors = call.op.entry, call.tensors()
    if call.form != PLAIN or entry.stores or (entry.check_sizes and not entry.fits) or (
            entry.layout not in (None, contiguous_layout)):
        return False
    if not tensors:
        return call.op.unkeyed >= 0
    return (entry.shape is None and len(traced.operands) == len(tensors)
            and (entry.kind == POINTWISE or any([tensor.spec.ndim for tensor in tensors])))


def _check_cast(call: Call, result: DType) -> None:
    target = call.target.spec.dtype
    if not can_cast(result, target):
        raise call.error(
            RuntimeError,
            f"result type {result.name} can't be cast to the desired output type {target.name}",
            f"write the result to a tensor of dtype {result.name}",
        )


def _trace_arguments(call: Call, common: DType) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    rank = domain_rank(call)
    rounded = common.name if call.op.entry.alike and common in NARROW else ""
    for parameter, value in zip(call.op.signature.parameters, call.values, strict=True):
        name = parameter.name
        if isinstance(value, TensorBase):
            dtype = value.spec.dtype
            cls = dtype.compute if _keeps_class(call, name, dtype) else common.compute
            arguments[name] = TensorArgument(dtype, cls, max(value.spec.ndim, min(rank, 1)),
                                             rounded="" if dtype is common else rounded)
        elif (parameter.kind in (STATIC, STATIC_NUMBER) or value is None
              or value is parameter.default):
            arguments[name] = value
        else:
            arguments[name] = NumberArgument(class_of_number(value), rounded)
    return arguments


def _keeps_class(call: Call, name: str, dtype: DType) -> bool:
    """Masks stay bool, whatever the other operands are computed in."""
    return name in ("condition", "mask") and dtype is dtypes.bool_


def domain_rank(call: Call) -> int:
    """The rank of the domain; a reduction of a scalar tensor sees one dim of size one."""
    rank = max((tensor.spec.ndim for tensor in call.tensors()), default=0)
    return max(rank, 1) if call.op.entry.kind != "pointwise" else rank


def _bind(recipe: Recipe, call: Call, device: Any, flags: int) -> Plan:
    if recipe.op.entry.check_sizes is not None:
        recipe.op.entry.check_sizes(call)
    plan = Plan(recipe.op, recipe, KERNEL)
    traced = recipe.traced
    domain = _domain(recipe, call)
    reduced = traced.reduced_dims
    inputs = [call.values[position] for position in recipe.operands]
    outs = _output_specs(recipe, domain, call, device)
    if isinstance(call.target, TensorBase):
        outs = [_target_spec(call, outs[0], plan)]
    elif call.target is not None:
        outs = _target_specs(call, outs)
    plan.out_spec = outs[0]
    plan.out_specs = tuple(outs)
    plan.outputs = len(outs) if not traced.single else 1
    plan.operands = recipe.operands
    plan.numbers = recipe.numbers
    plan.backend = backend_of(device)
    plan.kernel = recipe.kernel
    if recipe.op.kernels and _take_registered(plan, recipe, call, device):
        pass
    elif plan.backend.has_data:
        strides = [_aligned(outs[i], traced, i, domain) if line else _strides(outs[i], domain)
                   for i, line in enumerate(recipe.lines)]
        strides += [_strides(tensor.spec, domain) for tensor in inputs]
        plan.binding = recipe.kernel.bind(domain, reduced, strides)
    if recipe.op.entry.stores:
        guard(plan, recipe.op.entry.stores, call.values, recipe.results[0])
    if flags:
        plan.rule = recipe.rules[flags] = rule_for(recipe.op, flags, call.values)
    return plan


def _take_registered(plan: Plan, recipe: Recipe, call: Call, device: Any) -> bool:
    """Let a kernel that was registered for the op run the plan; False where none takes it."""
    candidate, verdicts = registered_kernels(recipe.op, call, device)
    fallback = "not needed: an earlier one was chosen" if candidate else "chosen"
    verdicts = [*verdicts, *[(name, fallback) for name, _ in recipe.considered]]
    plan.recipe = replace(recipe, considered=verdicts)
    if candidate is None:
        return False
    plan.operands = tensor_positions(recipe.op, call.values)
    plan.numbers = number_positions(recipe.op, call.values)
    plan.kernel = candidate.make(plan, call)
    return True


def _domain(recipe: Recipe, call: Call) -> tuple[int, ...]:
    if call.op.entry.shape is not None:
        return call.op.entry.shape(call)
    shapes = [call.values[position].spec.shape for position in recipe.operands]
    if not shapes or call.form == IN_PLACE:
        shapes = [tensor.spec.shape for tensor in call.tensors()]
    try:
        domain = shapes[0] if len(shapes) == 1 else broadcast.broadcast_shapes(*shapes)
    except (RuntimeError, ValueError) as failure:
        raise call.error(RuntimeError, str(failure),
                         "reshape or expand one of them so that sizes agree or are 1") from None
    if call.op.entry.kind != "pointwise" and not domain:
        return (1,)
    return domain


def _output_specs(recipe: Recipe, domain: tuple[int, ...], call: Call, device: Any) -> list[Spec]:
    found = []
    traced = recipe.traced
    tensors = call.tensors()
    shape = () if tensors and not any([t.spec.ndim for t in tensors]) else domain
    for i, dtype in enumerate(recipe.results):
        if recipe.lines[i]:
            keepdim = traced.keepdims[i] and bool(shape)
            reduced = reduced_shape(domain, traced.reduced_dims, keepdim)
            found.append(specs.contiguous(device, dtype, reduced))
        elif call.op.entry.layout is not None:
            found.append(specs.intern(device, dtype, shape, call.op.entry.layout(call, shape)))
        else:
            found.append(pointwise_spec(device, dtype, shape, tensors))
    return found


def pointwise_spec(device: Any, dtype: DType, shape: tuple[int, ...],
                   inputs: Sequence[TensorBase]) -> Spec:
    """The spec of a new pointwise result: the operands' memory format is kept."""
    if all([tensor.spec.contiguous for tensor in inputs]):
        return specs.contiguous(device, dtype, shape)
    geometry = [(tensor.spec.shape, tensor.spec.strides) for tensor in inputs]
    return specs.intern(device, dtype, shape, output_strides_of_pointwise(shape, geometry))


def reduced_shape(shape: tuple[int, ...], dims: tuple[int, ...], keepdim: bool) -> tuple[int, ...]:
    """The shape after reducing ``dims``."""
    if keepdim:
        return tuple([1 if i in dims else size for i, size in enumerate(shape)])
    return tuple([size for i, size in enumerate(shape) if i not in dims])


def _target_spec(call: Call, natural: Spec, plan: Plan) -> Spec:
    target: TensorBase = call.target
    if call.form == IN_PLACE and target.spec.shape != natural.shape:
        raise call.error(
            RuntimeError,
            f"output with shape {list(target.spec.shape)} doesn't match the broadcast shape "
            f"{list(natural.shape)}",
            "use the form that returns a new tensor",
        )
    if call.form == OUT and target.spec.shape != natural.shape:
        check_target(call.op, call.values, target)
        check_apart(call.op, call.values, target)
        fit_out(target, natural.shape)
        plan.key = ()
    return target.spec


def _target_specs(call: Call, natural: list[Spec]) -> list[Spec]:
    """Several targets, as an optimizer's update has: each must have its result's shape."""
    for target, spec in zip(call.target, natural, strict=True):
        if target.spec.shape != spec.shape:
            raise call.error(RuntimeError, f"a target of shape {list(target.spec.shape)} cannot "
                                           f"take a result of shape {list(spec.shape)}")
    return [target.spec for target in call.target]


def _strides(spec: Spec, domain: tuple[int, ...]) -> tuple[int, ...]:
    if spec.shape == domain:
        return spec.strides
    return broadcast.broadcast_strides(spec.shape, spec.strides, domain)


def _aligned(spec: Spec, traced: Traced, place: int, domain: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of an output of rows over the domain's dims; 0 along reduced dims."""
    reduced = traced.reduced_dims
    if traced.keepdims[place] and spec.ndim == len(domain):
        return tuple([0 if i in reduced else s for i, s in enumerate(spec.strides)])
    steps = iter(spec.strides)
    return tuple([0 if i in reduced else next(steps, 0) for i in range(len(domain))])


def normalized_dims(call: Call, name: str = "dim") -> tuple[int, ...]:
    """The dims of a reduction as a sorted tuple; all dims for None or ()."""
    rank = call.spec("self").ndim
    dim = call[name]
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return tuple(range(rank))
    given = tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)
    return tuple(sorted(views.normalize_dims(given, rank)))


__all__ = ["FormulaBuilder", "Recipe", "considered_kernels", "formula_builder", "normalized_dims",
           "pointwise_spec", "promoted", "reduced_shape"]
