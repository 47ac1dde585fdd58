"""Gradients against finite differences.

A complex number is treated as its two real parts throughout: the gradient of a real loss L with
respect to z is dL/d(real z) + i dL/d(imag z), so a Jacobian over the real parts of all inputs and
outputs is compared, real for real.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import slipstream as ss
from slipstream.autograd.walks import grad

Function = Callable[..., Any]


class GradcheckError(RuntimeError):
    """Raised by `gradcheck` and `gradgradcheck` where gradients are wrong."""


class Tolerances:
    """How far numbers may be apart, and the step of the differences."""

    def __init__(self, eps: float, atol: float, rtol: float, nondet: float) -> None:
        self.eps = eps
        self.atol = atol
        self.rtol = rtol
        self.nondet = nondet


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _differentiable(value: Any) -> bool:
    return isinstance(value, ss.Tensor) and (value.is_floating_point() or value.is_complex())


def _outputs(function: Function, inputs: Sequence[Any]) -> list[ss.Tensor]:
    """The outputs that have gradients."""
    with ss.enable_grad():
        found = _as_tuple(function(*inputs))
    return [each for each in found if _differentiable(each)]


def _host(tensor: ss.Tensor) -> np.ndarray:
    return np.array(tensor.detach().cpu().numpy())


def _reals(array: np.ndarray) -> np.ndarray:
    """All real parts as one flat float64 (or wider) array."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if np.iscomplexobj(flat):
        return flat.view(flat.real.dtype).astype(np.float64)
    return flat.astype(np.float64)


def _with_value(like: ss.Tensor, array: np.ndarray) -> ss.Tensor:
    """A tensor laid out as ``like`` that holds an array's elements."""
    made = like.detach().clone()
    made.copy_(ss.from_numpy(np.array(array, order="C")).to(made.device))
    made.requires_grad_(like.requires_grad)
    return made


def _numerical(function: Function, inputs: Sequence[Any], place: int, eps: float
               ) -> list[np.ndarray]:
    """Jacobians of all outputs' real parts by one input's, each [inputs, outputs]."""
    start = _host(inputs[place])
    count = _reals(start).size
    columns: list[list[np.ndarray]] = []
    for i in range(count):
        sides = []
        for step in (eps, -eps):
            moved = np.array(start, order="C")
            parts = moved.reshape(-1)
            parts = parts.view(parts.real.dtype) if np.iscomplexobj(parts) else parts
            parts[i] += step
            # The inputs that stay are the caller's own.
            changed = [*inputs[:place], _with_value(inputs[place], moved), *inputs[place + 1:]]
            sides.append([_reals(_host(each)) for each in _outputs(function, changed)])
        columns.append([(up - down) / (2 * eps) for up, down in zip(*sides, strict=True)])
    outputs = len(columns[0]) if columns else 0
    return [np.stack([column[k] for column in columns]) for k in range(outputs)]


def _basis(output: ss.Tensor, i: int) -> ss.Tensor:
    """The gradient that picks the i-th real part of an output."""
    array = np.zeros(tuple(output.shape), _host(output).dtype)
    flat = array.reshape(-1)
    parts = flat.view(flat.real.dtype) if np.iscomplexobj(flat) else flat
    parts[i] = 1
    return ss.from_numpy(array).to(output.device)


def _rows(output: ss.Tensor, inputs: list[ss.Tensor]) -> list[np.ndarray]:
    """Jacobians of one output by each input, each [inputs, outputs], from backward."""
    count = _reals(_host(output)).size
    sizes = [_reals(_host(each)).size for each in inputs]
    found = [np.zeros((size, count)) for size in sizes]
    for i in range(count):
        grads = grad(output, inputs, _basis(output, i), retain_graph=True, allow_unused=True)
        for jacobian, each in zip(found, grads, strict=True):
            if each is not None:
                jacobian[:, i] = _reals(_host(each))
    return found


def _check_inputs(inputs: Sequence[Any]) -> list[int]:
    places = [i for i, each in enumerate(inputs)
              if isinstance(each, ss.Tensor) and each.requires_grad]
    for i in places:
        each = inputs[i]
        if _host(each).real.dtype != np.float64:
            warnings.warn(f"Input #{i} requires gradient and is not a double precision floating "
                          "point or complex. This check will likely fail if all the inputs are "
                          "not of double precision floating point or complex. ", stacklevel=4)
        if each.numel() and any(step == 0 and size > 1
               for step, size in zip(each.stride(), each.shape, strict=True)):
            raise RuntimeError(f"The {i}th input has a dimension with stride 0. gradcheck only "
                               "supports inputs that are non-overlapping to be able to compute the "
                               "numerical gradients correctly. You should call .contiguous on the "
                               "input before passing it to gradcheck.")
    if not places:
        raise ValueError("gradcheck expects at least one input tensor to require gradient, but "
                         "none of the them have requires_grad=True.")
    return places


def _close(a: np.ndarray, b: np.ndarray, atol: float, rtol: float) -> bool:
    return bool(np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True))


def _check_jacobians(function: Function, inputs: Sequence[Any], places: list[int],
                     tolerances: Tolerances) -> None:
    outputs = _outputs(function, inputs)
    leaves = [inputs[i] for i in places]
    analytical: list[Any] = []
    for output in outputs:
        analytical.append(_rows(output, leaves) if output.requires_grad else None)
        if output.requires_grad and tolerances.nondet >= 0:
            _check_repeats(analytical[-1], _rows(output, leaves), tolerances)
    for j, place in enumerate(places):
        for i, numerical in enumerate(_numerical(function, inputs, place, tolerances.eps)):
            _compare(None if analytical[i] is None else analytical[i][j], numerical, (i, j),
                     tolerances)


def _compare(analytical: np.ndarray | None, numerical: np.ndarray, places: tuple[int, int],
             tolerances: Tolerances) -> None:
    if analytical is None:
        if not _close(numerical, np.zeros_like(numerical), tolerances.atol, 0):
            raise GradcheckError("Numerical gradient for function expected to be zero")
    elif not _close(analytical, numerical, tolerances.atol, tolerances.rtol):
        raise GradcheckError(f"Jacobian mismatch for output {places[0]} with respect to input "
                             f"{places[1]},\nnumerical:{numerical}\nanalytical:{analytical}\n")


def _check_repeats(first: list[np.ndarray], again: list[np.ndarray], tolerances: Tolerances
                   ) -> None:
    if not all(_close(a, b, tolerances.nondet, 0) for a, b in zip(first, again, strict=True)):
        raise GradcheckError("Backward is not reentrant, i.e., running backward with same input "
                             "and grad_output multiple times gives different values. The tolerance "
                             f"for nondeterminism was {tolerances.nondet}.")


def _check_linear(function: Function, inputs: Sequence[Any], places: list[int],
                  dtypes_too: bool) -> None:
    """A zero upstream gradient must give zeros, of the inputs' shapes."""
    outputs = [each for each in _outputs(function, inputs) if each.requires_grad]
    if not outputs:
        return
    leaves = [inputs[i] for i in places]
    zeros = [ss.zeros_like(each.detach()) for each in outputs]
    for leaf, each in zip(leaves, grad(outputs, leaves, zeros, allow_unused=True), strict=True):
        if each is None:
            continue
        if each.numel() and bool((each != 0).any()):
            raise GradcheckError("backward not multiplied by grad_output")
        if dtypes_too and each.dtype is not leaf.dtype:
            raise GradcheckError("grad is incorrect type")
        if each.shape != leaf.shape:
            raise GradcheckError("grad is incorrect size")


def gradcheck(func: Function, inputs: Any, *, eps: float = 1e-6, atol: float = 1e-5,
              rtol: float = 1e-3, raise_exception: bool = True, nondet_tol: float = 0.0,
              check_undefined_grad: bool = True, check_grad_dtypes: bool = False,
              fast_mode: bool = False, **others: bool) -> bool:
    """Compare the gradients of ``func`` with central differences; True where they agree.

    ``inputs``: its arguments; those that require gradients, best float64 or complex128, are
    checked.  Two Jacobians agree where abs(a - n) <= atol + rtol * abs(n).  Raises GradcheckError
    where they do not (or returns False, unless ``raise_exception``), ValueError where no input
    requires a gradient.  ``fast_mode`` checks the whole Jacobian too.
    """
    _refuse(others)
    arguments = _as_tuple(inputs)
    places = _check_inputs(arguments)
    tolerances = Tolerances(eps, atol, rtol, nondet_tol)
    try:
        _check_jacobians(func, arguments, places, tolerances)
        _check_linear(func, arguments, places, check_grad_dtypes)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _refuse(others: dict[str, bool]) -> None:
    known = ("check_batched_grad", "check_batched_forward_grad", "check_forward_ad",
             "check_fwd_over_rev", "check_rev_over_rev", "check_backward_ad", "masked")
    for name, value in others.items():
        if name not in known:
            raise TypeError(f"gradcheck() got an unexpected keyword argument '{name}'")
        if value and name not in ("check_backward_ad", "check_rev_over_rev"):
            raise NotImplementedError(f"gradcheck({name}=True) is not supported")


def _random_like(outputs: list[ss.Tensor]) -> list[ss.Tensor]:
    """Gradients to start from: the same at every call, and not from the user's generators."""
    numbers = np.random.default_rng(0)
    made = []
    for each in outputs:
        dtype = _host(each).dtype
        array = numbers.uniform(-1, 1, tuple(each.shape))
        if dtype.kind == "c":
            array = array + 1j * numbers.uniform(-1, 1, tuple(each.shape))
        start = ss.from_numpy(np.asarray(array).astype(dtype)).to(each.device)
        made.append(start.requires_grad_(True))
    return made


def gradgradcheck(func: Function, inputs: Any, grad_outputs: Any = None, *, eps: float = 1e-6,
                  atol: float = 1e-5, rtol: float = 1e-3,
                  gen_non_contig_grad_outputs: bool = False, raise_exception: bool = True,
                  nondet_tol: float = 0.0, check_undefined_grad: bool = True,
                  check_grad_dtypes: bool = False, fast_mode: bool = False,
                  **others: bool) -> bool:
    """Compare the gradients of the gradients of ``func`` with central differences.

    ``grad_outputs``: the gradients to start from; random ones by default.  Else as `gradcheck`.
    """
    arguments = _as_tuple(inputs)
    outputs = [each for each in _outputs(func, arguments) if each.requires_grad]
    starts = _random_like(outputs) if grad_outputs is None else list(_as_tuple(grad_outputs))
    count = len(starts)

    def first_order(*values: Any) -> tuple[Any, ...]:
        own = values[:len(values) - count]
        leaves = [each for each in own if isinstance(each, ss.Tensor) and each.requires_grad]
        roots = [each for each in _outputs(func, own) if each.requires_grad]
        found = grad(roots, leaves, values[len(values) - count:], create_graph=True,
                     allow_unused=True)
        return tuple(each for each in found if each is not None)

    return gradcheck(first_order, (*arguments, *starts), eps=eps, atol=atol, rtol=rtol,
                     raise_exception=raise_exception, nondet_tol=nondet_tol,
                     check_grad_dtypes=check_grad_dtypes, fast_mode=fast_mode, **others)
