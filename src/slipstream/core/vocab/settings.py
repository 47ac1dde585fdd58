"""The settings, typed and documented; the one place that reads the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(slots=True)
class Settings:
    """Everything that can be set from outside.

    core: ``compiled`` (use the compiled core where it was built) or ``uncompiled`` (run the same
        sources as plain Python).  SLIPSTREAM_CORE.
    debug: 0 to 5, how much the runtime tells on standard error.  SLIPSTREAM_DEBUG.
    plans: how many plans are kept before the least recently used are dropped.
        SLIPSTREAM_PLANS.
    delay_seed: seed of the order in which the ``delay`` device runs the work of its streams.
        SLIPSTREAM_DELAY_SEED.
    """

    core: str = "compiled"
    debug: int = 0
    plans: int = 8192
    delay_seed: int = 0


def _from_environment() -> Settings:
    read = os.environ.get
    return Settings(
        core=read("SLIPSTREAM_CORE", "compiled"),
        debug=int(read("SLIPSTREAM_DEBUG", "0")),
        plans=int(read("SLIPSTREAM_PLANS", "8192")),
        delay_seed=int(read("SLIPSTREAM_DELAY_SEED", "0")),
    )


settings = _from_environment()
