"""Which CUDA driver there is: the real one, the simulated one, or none."""

from __future__ import annotations

import threading

from slipstream.core.native.driver import Driver
from slipstream.core.vocab import optional
from slipstream.core.vocab.ring import exports
from slipstream.core.vocab.settings import settings

# What the driver says at its start, and what to do.
MENDS = {
    "NO_DEVICE": "the driver finds no card: look at nvidia-smi, and at CUDA_VISIBLE_DEVICES",
    "SYSTEM_DRIVER_MISMATCH": "the driver's parts are of two versions: restart the machine",
    "SYSTEM_NOT_READY": "the driver's services do not run: start nvidia-fabricmanager",
}
WAYS_OUT = (
    f"install NVIDIA's driver (580 or newer) and its bindings: {optional.install_command('cuda')}; "
    "or set SLIPSTREAM_DRIVER=sim, the simulated driver, which needs no card and is slow; "
    "or use device='cpu'")


class Drivers:
    """Finds the driver at its first use and keeps it; a singleton, `drivers`."""

    def __init__(self) -> None:
        self.found: Driver | None = None
        # How many drivers there were: tells them apart in what is kept longer than they are.
        self.number = 0
        # Why there is none, and what would mend it where that is known.
        self.missing = ""
        self.mend = ""
        # One thread looks: a second driver would know nothing of the first one's memory.
        self.lock = threading.RLock()

    def current(self) -> Driver:
        """The driver; raises RuntimeError with the mend where there is none."""
        if self.found is None:
            with self.lock:
                if self.found is None:
                    self._find()
        if self.found is None:
            raise RuntimeError(f"CUDA is not available: {self.missing}" + (
                "" if settings.driver == "sim" else f"\n  mend: {WAYS_OUT}"))
        return self.found

    def available(self) -> bool:
        """Whether there is a driver with a card; makes no context."""
        with self.lock:
            if self.found is None and not self.missing:
                self._find()
        return self.found is not None and self.found.device_count() > 0

    def use(self, driver: Driver | None) -> None:
        """Take this driver from now on; None: find one again.  For tests, before any context."""
        self.found = driver
        self.number += 1
        self.missing = self.mend = ""
        # What left was memory of the driver before.
        exports.clear()

    def _find(self) -> None:
        simulated = settings.driver == "sim"
        self.number += 1
        try:
            if simulated:
                self.found = optional.load("core.native.simulated").SimulatedDriver()
            else:
                self.found = optional.load("core.native.real.driver").RealDriver()
        except ImportError as error:
            self.missing = f"NVIDIA's Python bindings are missing or broken ({error})"
            self.mend = optional.install_command("cuda")
        except OSError as error:
            self.missing = f"the driver's library is not found ({error})"
            self.mend = "install NVIDIA's driver, 580 or newer"
        except RuntimeError as error:
            self.missing = MENDS.get(getattr(error, "code", ""), str(error))


drivers = Drivers()
