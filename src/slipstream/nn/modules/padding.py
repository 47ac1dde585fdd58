"""Padding layers."""

from __future__ import annotations

from collections.abc import Sequence

import slipstream as ss
from slipstream.nn import functional
from slipstream.nn.modules.module import Module

Sides = int | Sequence[int]


class _Pad(Module):
    """Places added at both ends of the last dims: one number, or two for each dim."""

    rank = 2
    mode = "constant"

    def __init__(self, padding: Sides) -> None:
        super().__init__()
        given = (padding,) * (2 * self.rank) if isinstance(padding, int) else tuple(padding)
        self.padding = given

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the padded input."""
        return functional.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return f"{self.padding}"


class _ConstantPad(_Pad):
    def __init__(self, padding: Sides, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the padded input."""
        return functional.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return f"padding={self.padding}, value={self.value}"



def _made(kind: str, rank: int, base: type, **facts: object) -> type:
    """The class of one kind and rank."""
    name = f"{kind}Pad{rank}d"
    return type(name, (base,), {
        "__module__": __name__, "__qualname__": name, "rank": rank, **facts,
        "__doc__": f"{kind} padding of the last {rank} dims: one number, or two for each dim, the "
                   "last dim's first."})


ConstantPad1d, ConstantPad2d, ConstantPad3d = [
    _made("Constant", rank, _ConstantPad) for rank in (1, 2, 3)]
ZeroPad1d, ZeroPad2d, ZeroPad3d = [_made("Zero", rank, _Pad) for rank in (1, 2, 3)]
ReflectionPad1d, ReflectionPad2d, ReflectionPad3d = [
    _made("Reflection", rank, _Pad, mode="reflect") for rank in (1, 2, 3)]
ReplicationPad1d, ReplicationPad2d, ReplicationPad3d = [
    _made("Replication", rank, _Pad, mode="replicate") for rank in (1, 2, 3)]
CircularPad1d, CircularPad2d, CircularPad3d = [
    _made("Circular", rank, _Pad, mode="circular") for rank in (1, 2, 3)]
