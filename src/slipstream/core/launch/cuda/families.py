"""What is known of chains that are alike (`chains`)."""

from __future__ import annotations

from typing import Any

from slipstream.core.native.driver import MOMENT_BITS


class Family:
    """Chains of the same parts, wired alike, whatever their sizes.

    ``make``: gives the launch for a count of elements once there is a kernel; ``seen`` and
    ``saved``: how often they came, and the bytes that one kernel would have saved.
    """

    def __init__(self) -> None:
        self.seen = 0
        self.saved = 0
        self.make: Any = None
        self.refused = False


def make_key(key: Any) -> Any:
    """What a kernel depends on."""
    launches, codes, dead = key
    return tuple([launch.part for launch in launches]), codes, dead


def joined_moment(moments: list[int]) -> int:
    """The moments at which one launch was recorded, as the simulated driver takes them.

    The last one, and above it how many came before.
    """
    return moments[-1] | (moments[-1] - moments[0]) << MOMENT_BITS
