"""Starting the CUDA road anew over another simulated driver, as a fresh process would."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

from slipstream.core.dispatch.op import Op, drop_plans, plan_table
from slipstream.core.dispatch.updating import UpdateOp
from slipstream.core.kernels.cuda.library import libraries
from slipstream.core.launch.cuda.modules import modules
from slipstream.core.launch.door import NoMemory, backends, door
from slipstream.core.memory import pools
from slipstream.core.native.drivers import drivers
from slipstream.core.native.simulated import SimulatedDriver
from slipstream.core.vocab.devices import current
from slipstream.core.vocab.modes import modes
from slipstream.core.vocab.records import owners
from slipstream.core.vocab.settings import SimulatedCard, settings

# The ops that the collector does not see while things are settled.
settled_ops: list[Op] = []


@contextlib.contextmanager
def settled() -> Iterator[None]:
    """What lives by now is no business of the collector's meanwhile.

    Else every new start would go through all that earlier tests of the process left.
    """
    gc.collect()
    settled_ops[:] = [each for each in gc.get_objects() if isinstance(each, Op)]
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        settled_ops.clear()


def forget() -> None:
    """Forget every context, and the plans, modules and blocks that belong to one."""
    gc.collect()
    modes.current().stream = None
    current.index = 0
    gone = [backends.pop(device) for device in tuple(backends) if device.type == "cuda"]
    for backend in gone:
        # Tensors that are still alive give their blocks back to nobody.
        owners[backend.owner] = NoMemory()
        if backend.pinning is not None:
            # The driver would live on with it, and the addresses of drivers are used up.
            owners[backend.pinning.owner] = NoMemory()
    door.windowed = tuple(each for each in door.windowed if each not in gone)
    # The ring of plans keeps those that their ops forget.
    plan_table.ring.clear()
    plan_table.hand = 0
    for each in (*settled_ops, *gc.get_objects()):
        if isinstance(each, Op):
            drop_plans(each)
            if isinstance(each, UpdateOp):
                each.known.clear()
    pools.routes.clear()
    libraries.found.clear()
    libraries.tuners.clear()
    for table in (modules.functions, modules.loaded, modules.shared, modules.attributes,
                  modules.architectures):
        table.clear()


def restart(memo: bool = True, blocking: bool = False, **options: Any) -> SimulatedDriver:
    """Put a new simulated driver with these options under everything; returns it."""
    forget()
    settings.memo, settings.blocking = memo, blocking
    driver = SimulatedDriver(SimulatedCard(**options))
    drivers.use(driver)
    return driver
