"""What autocast is told in one thread, and what it keeps."""

from __future__ import annotations

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

    ``casts``: by the weight's identity and the dtype, a `WeightCast`; ``nesting``: how many scopes
    the thread is in.
    """

    __slots__ = ("caching", "casts", "dtypes", "enabled", "nesting")

    def __init__(self) -> None:
        self.enabled = dict.fromkeys(DEVICE_TYPES, False)
        self.dtypes: dict[str, DType] = {"cpu": bfloat16, "cuda": float16}
        self.caching = True
        self.nesting = 0
        self.casts: dict[tuple[int, DType], WeightCast] = {}


class WeightCast:
    """A weight, what it held, and the cast of that: it serves as long as nothing wrote the weight.

    The weight is held, so that no other object gets its identity.
    """

    __slots__ = ("cast", "storage", "version", "weight")

    def __init__(self, weight: Any, cast: Any) -> None:
        self.weight = weight
        self.storage = weight.storage
        self.version = weight.storage.version
        self.cast = cast

    def serves(self, grad_enabled: bool) -> bool:
        """Whether the cast still holds the weight's numbers, and carries the gradient if wanted."""
        storage = self.weight.storage
        if storage is not self.storage or storage.version != self.version:
            return False
        return not grad_enabled or self.cast.record is not None
