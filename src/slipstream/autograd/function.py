"""Steps of the tape that users define."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import slipstream as ss
from slipstream.core.api.autograd import FunctionContext, apply_function, refuse_second

FunctionCtx = FunctionContext


class Function:
    """A step with a forward and a backward of its own, called as ``Step.apply(...)``.

    ``forward(ctx, *args)`` computes the outputs, unrecorded, and leaves what ``backward`` needs
    with ``ctx.save_for_backward``; or ``forward(*args)`` with ``setup_context(ctx, inputs,
    output)``.  ``backward(ctx, *grads)`` takes a gradient for each output and returns one for each
    argument of forward, None for those without.  Written with differentiable ops it can be
    differentiated again.
    """

    context_class = FunctionContext

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the outputs.  Raises NotImplementedError unless a subclass defines it."""
        raise NotImplementedError("You must implement the forward function for custom "
                                  "autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Leave in ``ctx`` what backward needs, where forward takes no ``ctx``."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Gradients of forward's arguments.  Raises NotImplementedError unless defined."""
        raise NotImplementedError("You must implement either the backward or vjp method for your "
                                  "custom autograd.Function to use it with backward mode AD.")

    @classmethod
    def run_forward(cls, ctx: Any, args: tuple[Any, ...]) -> Any:
        """Run forward in the style in which the subclass wrote it."""
        if cls.setup_context is Function.setup_context:
            return cls.forward(ctx, *args)
        output = cls.forward(*args)
        cls.setup_context(ctx, args, output)
        return output

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Call the step; its outputs carry it as their history.

        Raises RuntimeError where an input was changed in place and not returned.
        """
        if vars(cls).get("vjp") is not None and cls.backward is Function.backward:
            cls.backward = vars(cls)["vjp"]  # type: ignore[method-assign]
        return apply_function(cls, args)


def once_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a backward that cannot be differentiated again: doing so raises RuntimeError."""

    @functools.wraps(function)
    def wrapper(ctx: Any, *args: Any) -> Any:
        with ss.no_grad():
            outputs = function(ctx, *args)
        if not ss.is_grad_enabled():
            return outputs
        if not any(isinstance(each, ss.Tensor) and each.requires_grad for each in args):
            return outputs
        given = outputs if isinstance(outputs, tuple) else (outputs,)
        results = refuse_second(given, "trying to differentiate twice a function that was marked "
                                       "with @once_differentiable")
        return tuple(results) if isinstance(outputs, tuple) else results[0]

    return wrapper
