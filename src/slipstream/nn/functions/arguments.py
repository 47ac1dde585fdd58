"""What the functions say to arguments that are no tensors."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import slipstream as ss


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, raising TypeError where it fails because a tensor argument is none.

    Nothing is looked at before it fails, so that calls which succeed cost no more.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except AttributeError as failure:
            signature = inspect.signature(function)
            given = signature.bind(*args, **kwargs).arguments
            for name, parameter in signature.parameters.items():
                wanted = parameter.annotation == "ss.Tensor" and name in given
                if wanted and not isinstance(given[name], ss.Tensor):
                    raise TypeError(f"{function.__name__}(): argument '{name}' must be Tensor, "
                                    f"not {type(given[name]).__name__}") from failure
            raise

    return call
