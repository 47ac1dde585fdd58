"""Programs that are bound by one thing each: every maker returns a step, and says by what."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import slipstream as ss
from slipstream.core.native.drivers import drivers
from slipstream.core.vocab.settings import settings
from slipstream.utils.data import DataLoader, Dataset

Step = Callable[[], Any]
REAL = settings.driver == "real"
# Elements of a tensor whose kernels take long: virtual time counts threads, a card bytes.
LARGE = 1 << 27 if REAL else 1 << 20
BATCH = 1 << 26 if REAL else 1 << 18


def host_works(seconds: float) -> None:
    """Stand for work of the host: time passes, on the simulated driver in its own time."""
    if REAL:
        time.sleep(seconds)
    else:
        drivers.current().advance(seconds)


def launch_of_exported_memory() -> Step:
    """Each launch touches memory whose address another library has, so none is replayed."""
    x, mask = ss.ones(64, device="cuda"), ss.ones(64, device="cuda")
    mask.data_ptr()  # the line that is named

    def step() -> None:
        y = x
        for _ in range(20):
            y = y * mask

    return step


def launch_of_many_small() -> Step:
    """Many small tensors, one op at a time."""
    xs = [ss.ones(32, device="cuda") for _ in range(16)]

    def step() -> None:
        for x in xs:
            x.add_(1.0)
            x.mul_(0.5)
            x.sub_(0.25)

    return step


def gpu_of_a_chain() -> Step:
    """A chain over a large tensor."""
    x = ss.ones(LARGE, device="cuda")

    def step() -> None:
        y = x
        for _ in range(3):
            y = y.exp()

    return step


def gpu_in_place() -> Step:
    """Updates in place of a large tensor."""
    x = ss.ones(LARGE, device="cuda")

    def step() -> None:
        x.add_(1.0)
        x.mul_(0.5)

    return step


def wait_for_item() -> Step:
    """A number is read after every other op."""
    x = ss.ones(64, device="cuda")

    def step() -> None:
        for _ in range(8):
            (x * 2.0).sum().item()

    return step


def wait_for_if() -> Step:
    """A branch of the program depends on the card."""
    x = ss.ones(64, device="cuda")

    def step() -> None:
        for _ in range(8):
            y = x + 1.0
            if (y > 0.0).all():
                y = y * 2.0

    return step


def copy_to_the_card() -> Step:
    """A large batch goes up for little work."""
    batch = ss.ones(BATCH)

    def step() -> None:
        batch.to("cuda").add_(1.0)

    return step


def copy_to_the_host() -> Step:
    """A large result comes back each step."""
    x = ss.ones(BATCH, device="cuda")

    def step() -> None:
        (x * 2.0).cpu()

    return step


class Slow(Dataset[Any]):
    """Samples that take the host long to make."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, place: int) -> Any:
        host_works(100e-6)
        return np.full(16, place, np.float32)


def data_of_a_loader() -> Step:
    """A DataLoader without workers over a slow dataset."""
    batches = iter(DataLoader(Slow(), batch_size=4))
    weight = ss.ones(16, device="cuda")

    def step() -> None:
        (next(batches).to("cuda") * weight).add_(1.0)

    return step


def data_of_its_own() -> Step:
    """The program reads its files itself."""
    weight = ss.ones(16, device="cuda")

    def step() -> None:
        host_works(400e-6)
        (ss.ones(4, 16).to("cuda") * weight).add_(1.0)

    return step


PLANTED: list[tuple[Callable[[], Step], str]] = [
    (launch_of_exported_memory, "launch"), (launch_of_many_small, "launch"),
    (gpu_of_a_chain, "GPU"), (gpu_in_place, "GPU"),
    (wait_for_item, "wait"), (wait_for_if, "wait"),
    (copy_to_the_card, "copy"), (copy_to_the_host, "copy"),
    (data_of_a_loader, "data"), (data_of_its_own, "data"),
]
