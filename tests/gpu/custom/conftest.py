"""Custom kernels run on the machine's card, or on the simulated driver where there is none."""

from __future__ import annotations

from slipstream.core.native.drivers import drivers
from slipstream.core.vocab.settings import settings

if settings.driver == "auto" and not drivers.available():
    settings.driver = "sim"
    drivers.use(None)
