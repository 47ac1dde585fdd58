"""Backward from several tensors, and gradients as results."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, TypeAlias

import slipstream as ss
from slipstream.core.api import autograd as engine

Tensors: TypeAlias = "ss.Tensor | Sequence[ss.Tensor]"


def _sequence(value: Any) -> list[Any]:
    return [value] if isinstance(value, ss.Tensor) else list(value)


def _starts(outputs: list[Any], given: Any) -> list[Any]:
    if given is None:
        return [None] * len(outputs)
    starts = _sequence(given)
    if len(starts) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(starts)} gradients")
    return starts


def backward(tensors: Tensors, grad_tensors: Any = None, retain_graph: bool | None = None,
             create_graph: bool = False, grad_variables: Any = None, inputs: Any = None) -> None:
    """Compute the gradients of the leaves that ``tensors`` depend on, into their ``grad``.

    ``grad_tensors``: the gradients to start from, each of its tensor's shape; None for tensors of
    one element.  ``inputs``: compute the ``grad`` of these only.  Raises RuntimeError where there
    is nothing to differentiate or a gradient does not fit.
    """
    outputs = _sequence(tensors)
    given = grad_tensors if grad_variables is None else grad_variables
    engine.backward_all(outputs, _starts(outputs, given), retain_graph, create_graph, inputs)


def grad(outputs: Tensors, inputs: Tensors, grad_outputs: Any = None,
         retain_graph: bool | None = None, create_graph: bool = False,
         only_inputs: bool = True, allow_unused: bool | None = None,
         is_grads_batched: bool = False, materialize_grads: bool = False) -> tuple[Any, ...]:
    """The gradients of ``outputs`` with respect to ``inputs``, of their shapes and dtypes.

    ``grad_outputs``: the gradients to start from; None for outputs of one element.
    ``create_graph``: record the computation, to differentiate it again.  An input that no output
    depends on raises RuntimeError, unless ``allow_unused`` (gives None) or ``materialize_grads``
    (gives zeros).  ``only_inputs`` stands for scripts that name it: there is no other way, and
    False is told so by a FutureWarning.  Raises NotImplementedError for ``is_grads_batched``.
    """
    if not only_inputs:
        warnings.warn("only_inputs argument is deprecated and is ignored now (defaults to True). "
                      "To accumulate gradient for other parts of the graph, please use "
                      "autograd.backward.", FutureWarning, stacklevel=2)
    if is_grads_batched:
        raise NotImplementedError("grad(is_grads_batched=True): batches of gradients are not "
                                  "supported\n  mend: call grad once for each of them")
    if materialize_grads and allow_unused is False:
        raise ValueError("Expected allow_unused to be True or not passed when "
                         "materialize_grads=True, but got: allow_unused=False.")
    roots, leaves = _sequence(outputs), _sequence(inputs)
    if not leaves:
        raise ValueError("grad requires non-empty inputs.")
    kept = create_graph if retain_graph is None else retain_graph
    found = engine.gradients(roots, leaves, _starts(roots, grad_outputs), kept, create_graph)
    if materialize_grads:
        return tuple([ss.zeros_like(leaf) if each is None else each
                      for each, leaf in zip(found, leaves, strict=True)])
    if not allow_unused and any(each is None for each in found):
        raise RuntimeError("One of the differentiated Tensors appears to not have been used in the "
                           "graph. Set allow_unused=True if this is the desired behavior.")
    return tuple(found)
