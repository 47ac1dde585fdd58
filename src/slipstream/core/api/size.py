"""Size: the type of shapes."""

from __future__ import annotations

from typing import Any


class Size(tuple):
    """A shape: a tuple of ints that knows its number of elements."""

    __slots__ = ()

    def numel(self) -> int:
        """The product of the sizes."""
        count = 1
        for size in self:
            count *= size
        return count

    def __repr__(self) -> str:
        return f"slipstream.Size({list(self)})"

    def __getitem__(self, index: Any) -> Any:
        found = tuple.__getitem__(self, index)
        return Size(found) if isinstance(index, slice) else found

    def __add__(self, other: Any) -> Size:
        return Size(tuple.__add__(self, tuple(other)))


Size.__module__ = "slipstream"
