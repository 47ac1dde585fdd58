"""Functions made of several ops, whose results between are kept in float32 for narrow types."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import slipstream as ss

NARROW = (ss.float16, ss.bfloat16)


def in_float32(function: Callable[..., ss.Tensor]) -> Callable[..., ss.Tensor]:
    """Decorate a function of tensors: of float16 or bfloat16 it rounds once, at its end.

    Operands of several float types reach the function as they are: it says what is wrong.
    """

    @functools.wraps(function)
    def wide(*args: Any, **kwargs: Any) -> ss.Tensor:
        dtypes = {each.dtype for each in (*args, *kwargs.values()) if _is_float(each)}
        if len(dtypes) != 1 or not dtypes.issubset(NARROW):
            return function(*args, **kwargs)
        named = {name: _wider(value) for name, value in kwargs.items()}
        return function(*map(_wider, args), **named).to(*dtypes)

    return wide


def _is_float(value: Any) -> bool:
    return isinstance(value, ss.Tensor) and value.is_floating_point()


def _wider(value: Any) -> Any:
    return value.float() if _is_float(value) else value


def in_layout_of(output: ss.Tensor, input: ss.Tensor) -> ss.Tensor:
    """The output with its channels innermost where those of ``input`` are, else contiguous."""
    form = {4: ss.channels_last, 5: ss.channels_last_3d}.get(input.ndim)
    if form is not None and not input.is_contiguous() and input.is_contiguous(memory_format=form):
        return output.contiguous(memory_format=form)
    return output.contiguous()
