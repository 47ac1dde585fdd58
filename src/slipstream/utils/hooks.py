"""Handles that take a registered hook away again."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable
from types import TracebackType
from typing import Any


class HookTable(OrderedDict[int, Callable[..., Any]]):
    """Hooks by the number of their handle; an ordinary dict cannot be referred to weakly."""


class RemovableHandle:
    """What registering a hook returns: ``remove()`` takes the hook away.

    As a context manager it removes the hook at the end of the block.  Removing twice is fine, and
    the handle does not keep the hook's owner alive.  ``extra`` tables name hooks by the same number
    and lose it at the same time.
    """

    next_id = 0

    def __init__(self, hooks: HookTable, *, extra: tuple[dict[int, bool], ...] = ()) -> None:
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1
        self.hooks_ref: weakref.ref[HookTable] | None = weakref.ref(hooks)
        self.extra = extra

    def remove(self) -> None:
        """Take the hook away; nothing happens where it is gone already."""
        hooks = self.hooks_ref() if self.hooks_ref else None
        if hooks is not None:
            hooks.pop(self.id, None)
        for table in self.extra:
            table.pop(self.id, None)

    def __getstate__(self) -> dict[str, Any]:
        # A weak reference cannot be pickled; the copy of a handle removes nothing.
        return {"id": self.id, "hooks_ref": None, "extra": ()}

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.remove()


def add_hook(hooks: HookTable, hook: Callable[..., Any], *, prepend: bool = False,
             extra: tuple[dict[int, bool], ...] = ()) -> RemovableHandle:
    """Put ``hook`` at the end of ``hooks`` (at the front if ``prepend``); return its handle."""
    handle = RemovableHandle(hooks, extra=extra)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle
