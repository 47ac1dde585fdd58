"""`slipstream.amp` for CUDA, by the names that PyTorch had before it had other devices."""

from __future__ import annotations

import functools

import slipstream as ss
from slipstream import amp

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]

custom_fwd = functools.partial(amp.custom_fwd, device_type="cuda")
custom_bwd = functools.partial(amp.custom_bwd, device_type="cuda")


class autocast(amp.autocast):
    """``slipstream.amp.autocast("cuda", ...)``."""

    _depth = 4

    def __init__(self, enabled: bool = True, dtype: ss.dtype = ss.float16,
                 cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """``slipstream.amp.GradScaler("cuda", ...)``."""

    _depth = 3

    def __init__(self, init_scale: float = 2.0 ** 16, growth_factor: float = 2.0,
                 backoff_factor: float = 0.5, growth_interval: int = 2000,
                 enabled: bool = True) -> None:
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval,
                         enabled)
