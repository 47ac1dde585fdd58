"""What autocast is told in one thread, and what it keeps."""

from __future__ import annotations

import weakref
from typing import Any

from slipstream.core.vocab.dtypes import DType, bfloat16, float16

# A thread's ``special``: a bit for each device type whose autocast is on and awake, and what each
# mode or listener adds above them.
BITS = {"cpu": 1, "cuda": 2}
AWAKE = 3
MODE = 4
DEVICE_TYPES = tuple(BITS)


class AutocastState:
    """One thread's settings by device type, and the casts of weights that are used again.

    ``casts``: by what stands for the weight and the dtype, a cast; ``nesting``: how many scopes the
    thread is in; ``members``: by the same keys, which weights were cast in one scope of late.
    """

    enabled: dict[str, bool]
    dtypes: dict[str, DType]
    caching: bool
    nesting: int
    casts: dict[Any, Any]
    members: dict[Any, Member]

    def __init__(self) -> None:
        self.enabled = dict.fromkeys(DEVICE_TYPES, False)
        self.dtypes = {"cpu": bfloat16, "cuda": float16}
        self.caching = True
        self.nesting = 0
        self.casts = {}
        self.members = {}


class Member(weakref.ref[Any]):
    """A weight that is cast with others; ``members`` forgets it when the weight goes.

    ``group``: the members that were cast in the same scope, this one among them, or None;
    ``left``: how often it was in a group and not used.
    """

    __slots__ = ("group", "key", "left")
    group: list[Member] | None
    key: Any
    left: int

    @classmethod
    def make(cls, weight: Any, members: dict[Any, Member], key: Any) -> Member:
        """A member of no group, noted under its key."""

        def forget(gone: Any) -> None:
            members.pop(gone.key, None)

        made = members[key] = cls(weight, forget)
        made.group, made.key, made.left = None, key, 0
        return made

    def leave(self) -> None:
        """Go out of the group."""
        if self.group is not None:
            self.group[:] = [each for each in self.group if each is not self]
            self.group = None
