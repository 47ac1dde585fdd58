"""Which work of one stream is known to come before what another stream does next.

Each queue numbers its launches.  ``covers`` of a queue says, for every other stream, up to which
launch that stream's work is before this one's next: by an event wait, or because the host waited.
"""

from __future__ import annotations

from typing import Any


class Order:
    """The recorded order of a device's streams."""

    def __init__(self) -> None:
        self.covers: dict[int, dict[int, int]] = {}
        self.host: dict[int, int] = {}

    def snapshot(self, queue: Any) -> tuple[int, dict[int, int]]:
        """What an event that is recorded on a queue now stands for."""
        known = dict(self.covers.get(queue.number, {}))
        known[queue.number] = queue.sequence
        return queue.number, known

    def waited(self, number: int, place: tuple[int, dict[int, int]]) -> None:
        """A stream waits for an event: what the event stands for comes before its next work."""
        mine = self.covers.setdefault(number, {})
        for other, sequence in place[1].items():
            mine[other] = max(mine.get(other, 0), sequence)

    def host_waited(self, place: tuple[int, dict[int, int]]) -> None:
        """The host waited: it comes before whatever is submitted next, on every stream."""
        for other, sequence in place[1].items():
            self.host[other] = max(self.host.get(other, 0), sequence)

    def covered(self, number: int, other: int) -> int:
        """Up to which launch of stream ``other`` is before the next one of stream ``number``."""
        mine = self.covers.get(number, {}).get(other, 0)
        return max(mine, self.host.get(other, 0))
