"""Kernels of your own: ``library.impl`` puts a function in front of an op's kernels on a device.

The op stays what it is: binding, promotion, shapes, autograd, modes and in-place forms are the
catalogue's; only what computes the result changes::

    @library.impl("add", "cpu", arrays=True)
    def add_in_numpy(a, b, alpha):
        return a + alpha * b

    ss.explain(ss.add, x, y)    # lists add_in_numpy among the kernels considered
    add_in_numpy.remove()       # the kernels that came with the op are back
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slipstream.core.api import library as kernels
from slipstream.core.api.library import Implementation


def impl(name: str, device: str = "cpu", function: Callable[..., Any] | None = None, *,
         refuses: Callable[[Any], str] | None = None, arrays: bool = False) -> Any:
    """Register ``function`` as the first kernel of op ``name`` on a device type; a decorator too.

    The function gets the op's arguments in the order of its signature and returns the result: a
    tensor, or with ``arrays=True`` NumPy arrays for tensors and an array, of the dtype and shape
    that the op's own rules give; a tuple for several results.  It may run later than the call and
    runs below autograd and modes.  ``refuses(call)`` returns why a call is not taken ("" takes
    it), and the kernels behind are asked; ``call["name"]`` is an argument, ``call.spec("name")``
    the spec of a tensor.

    Returns an `Implementation`: ``remove()`` takes the kernel away, ``redispatch(...)`` calls the
    op without it.  All plans of the op are dropped both times.

    Raises ValueError for an op that does not exist, is a view or calls other ops; RuntimeError
    for what is no device.
    """
    op = kernels.op_named(name)
    if function is not None:
        return kernels.register(op, device, function, refuses, arrays)

    def decorate(decorated: Callable[..., Any]) -> Implementation:
        return kernels.register(op, device, decorated, refuses, arrays)

    return decorate


__all__ = ["Implementation", "impl"]
