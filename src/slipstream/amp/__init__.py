"""Training in narrow types: scaling the loss."""

from __future__ import annotations

from slipstream.amp.scaler import GradScaler

__all__ = ["GradScaler"]
