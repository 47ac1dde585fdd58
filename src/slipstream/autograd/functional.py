"""Jacobians, Hessians and their products with vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import slipstream as ss
from slipstream.autograd.walks import grad

Function = Callable[..., Any]


def _as_tuple(value: Any, name: str) -> tuple[bool, tuple[Any, ...]]:
    """(whether it was several, all of them); TypeError for what is no tensor."""
    several = isinstance(value, tuple | list)
    every = tuple(value) if several else (value,)
    for place, each in enumerate(every):
        if not isinstance(each, ss.Tensor):
            raise TypeError(f"The {name} must be either a Tensor or a tuple of Tensors but the "
                            f"value at index {place} has type {type(each)}.")
    return several, every


def _fresh(inputs: tuple[Any, ...], create_graph: bool) -> tuple[Any, ...]:
    """Inputs to differentiate by: views with the history, or leaves without it."""
    if create_graph:
        return tuple([each.view_as(each) if each.requires_grad
                      else each.detach().requires_grad_(True) for each in inputs])
    return tuple([each.detach().requires_grad_(True) for each in inputs])


def _run(func: Function, inputs: tuple[Any, ...]) -> tuple[bool, tuple[Any, ...]]:
    with ss.enable_grad():
        return _as_tuple(func(*inputs), "outputs given to the user-provided function")


def _finished(values: Any, create_graph: bool) -> Any:
    if isinstance(values, tuple):
        return tuple([_finished(each, create_graph) for each in values])
    return values if create_graph else values.detach()


def _packed(several: bool, values: tuple[Any, ...]) -> Any:
    return values if several else values[0]


def _gradients(outputs: Any, inputs: tuple[Any, ...], starts: Any, create_graph: bool,
               strict: bool) -> tuple[Any, ...]:
    """Gradients by all inputs; zeros, or RuntimeError if ``strict``, where there is none."""
    wanted = [(output, start) for output, start in zip(outputs, starts, strict=True)
              if output.requires_grad]
    if not wanted:
        found: tuple[Any, ...] = (None,) * len(inputs)
    else:
        found = grad([output for output, _ in wanted], inputs, [start for _, start in wanted],
                     retain_graph=True, create_graph=create_graph, allow_unused=True)
    for place, each in enumerate(found):
        if each is None and strict:
            raise RuntimeError("The output of the user-provided function is independent of input "
                               f"{place}. This is not allowed in strict mode.")
    return tuple([ss.zeros_like(own) if each is None else each
                  for each, own in zip(found, inputs, strict=True)])


def jacobian(func: Function, inputs: Any, create_graph: bool = False, strict: bool = False,
             vectorize: bool = False, strategy: str = "reverse-mode") -> Any:
    """The derivatives of every output element by every input element.

    For one tensor in and out, shape (*output, *input); tuples give tuples: of outputs, then of
    inputs.  ``create_graph`` keeps the result differentiable; ``strict`` raises RuntimeError where
    an output does not depend on an input.  ``vectorize`` and ``strategy`` change nothing.
    """
    several_in, given = _as_tuple(inputs, "inputs given to jacobian")
    leaves = _fresh(given, create_graph)
    several_out, outputs = _run(func, leaves)
    rows = []
    for output in outputs:
        lines: list[list[Any]] = [[] for _ in leaves]
        for place in range(output.numel()):
            start = ss.zeros(output.numel(), dtype=output.dtype, device=output.device)
            start[place] = 1
            found = _gradients((output,), leaves, (start.reshape(output.shape),), create_graph,
                               strict)
            for line, each in zip(lines, found, strict=True):
                line.append(each)
        blocks = [_block(line, output, leaf) for line, leaf in zip(lines, leaves, strict=True)]
        rows.append(_packed(several_in, tuple(blocks)))
    return _finished(_packed(several_out, tuple(rows)), create_graph)


def _block(line: list[Any], output: Any, leaf: Any) -> Any:
    shape = (*output.shape, *leaf.shape)
    if not line:
        return ss.zeros(shape, dtype=leaf.dtype, device=leaf.device)
    return ss.stack(line).reshape(shape)


def _scalar(func: Function) -> Function:
    def checked(*inputs: Any) -> Any:
        output = func(*inputs)
        if not isinstance(output, ss.Tensor):
            raise RuntimeError("The function given to hessian should return a single Tensor")
        if output.numel() != 1:
            raise RuntimeError("The Tensor returned by the function given to hessian should "
                               "contain a single element")
        return output.reshape(())

    return checked


def hessian(func: Function, inputs: Any, create_graph: bool = False, strict: bool = False,
            vectorize: bool = False, outer_jacobian_strategy: str = "reverse-mode") -> Any:
    """The second derivatives of a function of one value, as the Jacobian of its gradient.

    For one input, shape (*input, *input); for a tuple, a tuple of tuples.
    """
    several, _ = _as_tuple(inputs, "inputs given to hessian")
    checked = _scalar(func)

    def slope(*given: Any) -> Any:
        found = jacobian(checked, given, create_graph=True)
        return found if several else found[0]

    return jacobian(slope, inputs, create_graph, strict)


def _vectors(v: Any, like: tuple[Any, ...]) -> tuple[Any, ...]:
    """Vectors of the shapes of ``like``; ones for a single value without them."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError("The vector v can only be None if the user-provided function "
                               "returns a single Tensor with a single element")
        return (ss.ones_like(like[0]),)
    _, vectors = _as_tuple(v, "vector")
    if len(vectors) != len(like) or any(
            each.shape != own.shape for each, own in zip(vectors, like, strict=False)):
        raise RuntimeError(f"v has invalid sizes: should be {[tuple(x.shape) for x in like]} but "
                           f"got {[tuple(x.shape) for x in vectors]}")
    return tuple([each.detach() for each in vectors])


def vjp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple[Any, Any]:
    """(outputs, v times the Jacobian): the gradient that ``v`` at the outputs gives."""
    several_in, given = _as_tuple(inputs, "inputs given to vjp")
    leaves = _fresh(given, create_graph)
    several_out, outputs = _run(func, leaves)
    found = _gradients(outputs, leaves, _vectors(v, outputs), create_graph, strict)
    return (_finished(_packed(several_out, outputs), create_graph),
            _finished(_packed(several_in, found), create_graph))


def jvp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple[Any, Any]:
    """(outputs, the Jacobian times v), by the derivative of the backward pass."""
    _, given = _as_tuple(inputs, "inputs given to jvp")
    leaves = _fresh(given, create_graph)
    vectors = _vectors(v, leaves)
    several_out, outputs = _run(func, leaves)
    # vjp is linear in its vector u: its derivative by u is the Jacobian.
    starts = tuple([ss.zeros_like(output).requires_grad_(True) for output in outputs])
    with ss.enable_grad():
        slopes = _gradients(outputs, leaves, starts, True, strict)
    found = _gradients(slopes, starts, vectors, create_graph, False)
    return (_finished(_packed(several_out, outputs), create_graph),
            _finished(_packed(several_out, found), create_graph))


def vhp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple[Any, Any]:
    """(output, v times the Hessian) of a function of one value."""
    several_in, given = _as_tuple(inputs, "inputs given to vhp")
    leaves = _fresh(given, create_graph)
    with ss.enable_grad():
        output = _scalar(func)(*leaves)
        slopes = _gradients((output,), leaves, (ss.ones_like(output),), True, strict)
    found = _gradients(slopes, leaves, _vectors(v, leaves), create_graph, strict)
    return (_finished(output, create_graph), _finished(_packed(several_in, found), create_graph))


# The Hessian is symmetric.
hvp = vhp

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
