"""DLPack under the names of PyTorch's ``torch.utils.dlpack``."""

from __future__ import annotations

from typing import Any

import slipstream as ss

__all__ = ["from_dlpack", "to_dlpack"]


def from_dlpack(ext_tensor: Any) -> ss.Tensor:
    """A tensor that shares the memory of a capsule, or of any object with ``__dlpack__``."""
    return ss.from_dlpack(ext_tensor)


def to_dlpack(tensor: ss.Tensor) -> Any:
    """A capsule over a tensor's memory; from_dlpack of any library takes it once."""
    return tensor.__dlpack__()
