"""Seeds and states of the cards' generators; none of it makes a context or waits."""

from __future__ import annotations

import os
from typing import Any

from slipstream.core.api.cuda.devices import device_count, existing
from slipstream.core.vocab import generators
from slipstream.core.vocab.devices import Device


def generator(device: Any = None) -> Any:
    """A card's default generator."""
    return generators.defaults.of(Device("cuda", existing(device)))


def all_generators() -> tuple[Any, ...]:
    """The default generators of all cards, by index."""
    return tuple([generator(index) for index in range(device_count())])


def manual_seed(seed: int) -> None:
    """Start the current card's stream of random numbers anew."""
    generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """The same on all cards."""
    found = all_generators()
    # All of them or none.
    for each in found:
        each.check_seeding()
    for each in found:
        each.manual_seed(int(seed))


def seed() -> None:
    """Seed the current card's generator from the system's source of randomness."""
    generator().seed()


def seed_all() -> None:
    """Seed all cards' generators with one number from the system's source of randomness."""
    if device_count():
        manual_seed_all(int.from_bytes(os.urandom(8), "little"))


def initial_seed() -> int:
    """The seed that the current card's stream was started with."""
    found: int = generator().initial_seed()
    return found


def get_rng_state(device: Any = "cuda") -> Any:
    """The state of a card's generator as a uint8 tensor of the CPU."""
    return generator(device).get_state()


def set_rng_state(new_state: Any, device: Any = "cuda") -> None:
    """Let a card's generator continue from a state."""
    generator(device).set_state(new_state)


def get_rng_state_all() -> list[Any]:
    """The states of all cards' generators."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state_all(new_states: Any) -> None:
    """Set the states of all cards' generators."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
