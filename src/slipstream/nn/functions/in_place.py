"""Activations under names that end in an underscore: they write into their input."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import slipstream as ss
from slipstream.core.api.install import functions
from slipstream.nn.functions.others import rrelu

Function = Callable[..., ss.Tensor]


def written(function: Function) -> Function:
    """The function with ``inplace=True``; its other options are those of ``function``."""

    @functools.wraps(function)
    def in_place(input: ss.Tensor, *options: Any, **named: Any) -> ss.Tensor:
        return function(input, *options, **named, inplace=True)

    in_place.__name__ = in_place.__qualname__ = f"{function.__name__}_"
    in_place.__doc__ = f"``{function.__name__}``, written into ``input``."
    return in_place


_own = functions["nn.functional"]
celu_: Function = written(_own["celu"])
elu_: Function = written(_own["elu"])
hardtanh_: Function = written(_own["hardtanh"])
leaky_relu_: Function = written(_own["leaky_relu"])
selu_: Function = written(_own["selu"])
threshold_: Function = written(_own["threshold"])
rrelu_: Function = written(rrelu)
