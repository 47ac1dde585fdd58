"""Printing tensors."""

from __future__ import annotations

from typing import Any

from slipstream.core.api import printing
from slipstream.core.api.interop import host_array
from slipstream.core.dispatch.promotion import defaults
from slipstream.core.engine.tape import tape


def represent(self: Any) -> str:
    """The text that PyTorch would print."""
    spec = self.spec
    wants = tape.requires_grad(self)
    node = self.record.node if self.record is not None else None
    facts = printing.Facts(
        dtype_name=spec.dtype.name, default_dtype_name=defaults.dtype.name,
        device=None if spec.device.type == "cpu" else str(spec.device),
        requires_grad=wants and node is None,
        grad_fn_name=node.rule.name if node is not None else None,
    )
    if spec.device.type == "meta":
        return printing.format_without_data(spec.shape, facts)
    return printing.format_tensor(host_array(self, "print"), facts)
