"""Training in narrow types: ops that choose their dtype, and scaling the loss."""

from __future__ import annotations

from slipstream.amp.autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available
from slipstream.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
