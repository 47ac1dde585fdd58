"""What is known of chains that are alike (`chains`)."""

from __future__ import annotations

from typing import Any


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
