"""Generators and their states, for users: `manual_seed`, `Generator`, `fork_rng`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from slipstream.core.api import interop
from slipstream.core.vocab import dtypes, generators
from slipstream.core.vocab.devices import CPU, Device
from slipstream.core.vocab.records import TensorBase


class Generator(generators.Generator):
    """A stream of random numbers on a device: a seed and the counter of the next draw.

    ``Generator(device="cpu")`` starts with PyTorch's default seed, so it is the same every time
    until ``manual_seed`` or ``seed`` is called.
    """

    def __init__(self, device: Device | str = CPU) -> None:
        super().__init__(Device(device))

    def get_state(self) -> Any:
        """The state as a uint8 tensor that ``set_state`` takes to continue from here."""
        return _as_tensor(super().get_state())

    def set_state(self, state: Any) -> None:
        """Continue from a state.  Raises TypeError for what is no uint8 tensor, RuntimeError for
        a state of another size, and one from outside of the capture that goes on."""
        data = _as_bytes(state)
        self._check_state(data)
        super().set_state(data)

    def _check_state(self, data: bytes) -> None:
        """Raise RuntimeError for a state from outside where the running thread captures draws.

        The states that captures give out are of their own streams: with one of these the same is
        drawn again at each replay.
        """
        found = self._standing()
        if found is None or len(data) != generators.STATE.size:
            return
        seed = generators.STATE.unpack(data)[0]
        if seed not in generators.open_tokens and seed not in generators.known_tokens:
            raise RuntimeError(
                "cuda graph: a generator's state from outside is set inside the capture, which no "
                "replay would repeat\n  mend: set it outside of the capture; states that "
                "get_state gives inside can be set there")

    def clone_state(self) -> Generator:
        """Another generator of the same device that continues from here on its own."""
        clone = Generator(self.device)  # type: ignore[arg-type]
        generators.Generator.set_state(clone, generators.Generator.get_state(self))
        return clone

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.device, generators.Generator.get_state(self))


Generator.__module__ = "slipstream"


def _rebuilt(device: Device, state: bytes) -> Generator:
    made = Generator(device)
    generators.Generator.set_state(made, state)
    return made


def _as_tensor(state: bytes) -> Any:
    return interop.from_numpy(np.frombuffer(state, np.uint8).copy())


def _as_bytes(state: Any) -> bytes:
    if not isinstance(state, TensorBase) or state.spec.dtype is not dtypes.uint8:
        found = state.spec.dtype.name if isinstance(state, TensorBase) else type(state).__name__
        raise TypeError(f"RNG state must be a uint8 tensor, not {found}")
    return bytes(interop.to_numpy(state).tobytes())


# Default generators are of the users' class.
generators.defaults.generator_class = Generator
default_generator: Any = generators.defaults.of(CPU)


def _default() -> Any:
    """The CPU's generator for this thread: a worker of a DataLoader has its own."""
    return generators.defaults.of(CPU)


def manual_seed(seed: int) -> Generator:
    """Seed the generators of all devices; return that of the CPU.

    Raises ValueError for a seed outside [-2**63, 2**64), TypeError for what is no number.
    """
    generators.defaults.manual_seed(int(seed))
    return _default()


def seed() -> int:
    """Seed the generators of all devices with a random number and return it."""
    chosen = int.from_bytes(os.urandom(8), "little")
    generators.defaults.manual_seed(chosen)
    return chosen


def initial_seed() -> int:
    """The seed that the CPU's generator was started with."""
    return _default().initial_seed()


def get_rng_state() -> Any:
    """The state of the CPU's generator, as a uint8 tensor."""
    return _default().get_state()


def set_rng_state(new_state: Any) -> None:
    """Let the CPU's generator continue from a state.  Raises as ``Generator.set_state`` does."""
    _default().set_state(new_state)


@contextmanager
def fork_rng(devices: Any = None, enabled: bool = True) -> Iterator[None]:
    """A scope after which every default generator is back in the state it had before.

    One that is first used inside begins anew.
    """
    if not enabled:
        yield
        return
    kept = generators.defaults.kept()
    try:
        yield
    finally:
        generators.defaults.put_back(kept)


NAMES = ("Generator", "default_generator", "manual_seed", "seed", "initial_seed", "get_rng_state",
         "set_rng_state", "fork_rng")
