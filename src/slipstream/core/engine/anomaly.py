"""What a backward is looked at for: gradients that do not fit or are missing, failures, NaN."""

from __future__ import annotations

from typing import Any

from slipstream.core.engine.views import operations
from slipstream.core.vocab.modes import decode_site
from slipstream.core.vocab.records import Node, Spec, TensorBase

AGAIN = ("Trying to backward through the graph a second time (or directly access saved tensors "
         "after they have already been freed). Saved intermediate values of the graph are freed "
         "when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to "
         "backward through the graph a second time or if you need to access saved tensors after "
         "calling backward.")


def apply_noted(node: Node, grads: list[Any], create_graph: bool) -> list[Any]:
    """Run a node's rule; an error of it says where the node was recorded."""
    try:
        return node.rule.apply(node, grads, create_graph)
    except Exception as failure:
        file, line = decode_site(node.code, node.instruction)
        failure.add_note(f"in the backward of {node.name()}, which was recorded at {file}:{line}")
        raise


def check_nan(node: Node, grads: list[Any]) -> None:
    """RuntimeError where a gradient holds a NaN; it names the forward line."""
    for place, grad in enumerate(grads):
        if grad is not None and bool((grad != grad).any()):
            file, line = decode_site(node.code, node.instruction)
            raise RuntimeError(f"Function '{node.name()}' returned nan values in its {place}th "
                               f"output; it was recorded at {file}:{line}")


def zeros_of(grad: Any, spec: Spec, grads: list[Any]) -> Any:
    """A gradient, or zeros in its place."""
    if grad is not None:
        return grad
    like = next(each for each in grads if each is not None)
    return operations.zeros(like, spec.shape, dtype=spec.dtype)


def fitting_gradient(spec: Spec, grad: Any, place: int) -> TensorBase:
    """The gradient of an output that the caller gave; RuntimeError where it does not fit."""
    if not isinstance(grad, TensorBase):
        raise TypeError(f"gradients can be either Tensors or None, not {type(grad).__name__}")
    if grad.spec.shape != spec.shape:
        raise RuntimeError(f"Mismatch in shape: grad_output[{place}] has a shape of "
                           f"{list(grad.spec.shape)} and output[{place}] has a shape of "
                           f"{list(spec.shape)}.")
    if grad.spec.dtype.is_complex != spec.dtype.is_complex:
        raise RuntimeError("For complex Tensors, both grad_output and output are required to have "
                           f"the same dtype. Mismatch in dtype: grad_output[{place}] has a dtype "
                           f"of {grad.spec.dtype.name} and output[{place}] has a dtype of "
                           f"{spec.dtype.name}.")
    if grad.spec.device is not spec.device:
        if spec.shape:
            raise RuntimeError(f"invalid gradient at index {place} - expected device {spec.device} "
                               f"but got {grad.spec.device}: grad_output[{place}] is "
                               f"{grad.spec!r}, output[{place}] {spec!r}\n"
                               f"  mend: move it with .to('{spec.device}')")
        grad = operations.move(grad, spec.device)
    return grad if grad.spec.dtype is spec.dtype else operations.cast(grad, spec.dtype)


def first_gradient(tensor: TensorBase, grad: Any, place: int = 0) -> TensorBase:
    """The gradient that backward starts from; RuntimeError where it does not fit."""
    spec = tensor.spec
    if grad is None:
        if spec.numel != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs, not for "
                               f"{spec!r}\n  mend: sum() or mean() it first, or pass gradient=, "
                               "a tensor of its shape")
        if spec.dtype.is_complex:
            raise RuntimeError("grad can be implicitly created only for real scalar outputs but "
                               f"got {spec!r}")
        return operations.full.call((spec.shape, 1, spec.dtype, spec.device), None)
    return fitting_gradient(spec, grad, place)
