"""The recorded graph: its nodes, and what becomes of the tensors that they save."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slipstream.core.api.autograd import pop_saved_hooks, push_saved_hooks
from slipstream.core.vocab.records import Node

__all__ = ["Node", "disable_saved_tensors_hooks", "save_on_cpu", "saved_tensors_hooks"]


class saved_tensors_hooks:  # noqa: N801
    """A scope in which ``pack_hook(tensor)`` decides what is kept of each saved tensor.

    ``unpack_hook`` gets what it returned, at backward, and returns the tensor.  With hooks the
    tape holds no tensor itself and changes in place go unseen.
    """

    def __init__(self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def __enter__(self) -> None:
        push_saved_hooks(self.pack_hook, self.unpack_hook)

    def __exit__(self, *failure: object) -> None:
        pop_saved_hooks()


class save_on_cpu(saved_tensors_hooks):  # noqa: N801
    """A scope in which saved tensors wait in the CPU's memory for backward."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(lambda tensor: (tensor.device, tensor.cpu()),
                         lambda packed: packed[1].to(packed[0]))


class disable_saved_tensors_hooks:  # noqa: N801
    """A scope in which saved-tensor hooks raise RuntimeError with ``error_message``."""

    def __init__(self, error_message: str) -> None:
        self.error_message = error_message

    def __enter__(self) -> None:
        push_saved_hooks(None, self.error_message)

    def __exit__(self, *failure: object) -> None:
        pop_saved_hooks()
