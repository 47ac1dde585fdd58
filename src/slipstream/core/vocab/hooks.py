"""Hooks by number, with a handle that removes them."""

from __future__ import annotations

import itertools
from typing import Any

_numbers = itertools.count()


class HookHandle:
    """Removes its hook; also a context manager."""

    def __init__(self, table: dict[int, Any], number: int) -> None:
        self._table = table
        self.id = number

    def remove(self) -> None:
        """Take the hook away; nothing happens the second time."""
        self._table.pop(self.id, None)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *failure: object) -> None:
        self.remove()


def add_hook(table: dict[int, Any], hook: Any) -> HookHandle:
    """Put a hook in a table."""
    number = next(_numbers)
    table[number] = hook
    return HookHandle(table, number)
