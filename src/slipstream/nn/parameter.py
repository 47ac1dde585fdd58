"""Parameter, a tensor that a module trains, and Buffer, one that it keeps without training it."""

from __future__ import annotations

from typing import Any

import slipstream as ss


class Parameter(ss.Tensor):
    """A tensor that becomes a parameter of the module it is assigned to.

    ``data`` is a tensor of any shape, of a floating point or complex dtype where
    ``requires_grad``.  The parameter is a leaf that shares ``data``'s storage.  Raises RuntimeError
    if ``requires_grad`` is asked of an integer or boolean dtype, TypeError for other data.
    """

    def __new__(cls, data: ss.Tensor | None = None, requires_grad: bool = True) -> Parameter:
        """Wrap ``data``; None stands for a tensor without elements."""
        source = ss.empty(0) if data is None else data
        if not isinstance(source, ss.Tensor):
            raise TypeError(f"{cls.__name__}(): argument 'data' must be Tensor, not "
                            f"{type(data).__name__}\n  mend: {cls.__name__}("
                            f"slipstream.tensor(data))")
        parameter = source.detach().as_subclass(cls)
        return parameter.requires_grad_(requires_grad)

    def __init__(self, data: ss.Tensor | None = None, requires_grad: bool = True) -> None:
        pass

    def __repr__(self, **options: Any) -> str:
        return "Parameter containing:\n" + super().__repr__(**options)

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        known = memo.get(id(self))
        if known is None:
            known = type(self)(self.detach().clone(), self.requires_grad)
            memo[id(self)] = known
        return known


class Buffer(ss.Tensor):
    """A tensor that becomes a buffer of the module it is assigned to, as register_buffer makes it.

    ``persistent`` buffers are part of the module's ``state_dict()``.  It shares ``data``'s storage.
    Raises TypeError for other data.
    """

    persistent: bool

    def __new__(cls, data: ss.Tensor | None = None, *, persistent: bool = True) -> Buffer:
        """Wrap ``data``; None stands for a tensor without elements."""
        source = ss.empty(0) if data is None else data
        if not isinstance(source, ss.Tensor):
            raise TypeError(f"{cls.__name__}(): argument 'data' must be Tensor, not "
                            f"{type(data).__name__}")
        buffer = source.detach().as_subclass(cls)
        buffer.persistent = persistent
        return buffer.requires_grad_(source.requires_grad)

    def __init__(self, data: ss.Tensor | None = None, *, persistent: bool = True) -> None:
        pass
