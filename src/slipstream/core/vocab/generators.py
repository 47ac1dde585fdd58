"""Random number generators: a seed and the counter of the next draw, both owned by the host.

A kernel that draws takes (seed, base) from its generator at the call and knows from its plan how
many counters it consumes, so reading a generator's state never waits for a device.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable, Hashable
from typing import Any
from weakref import WeakValueDictionary

import cython

# PyTorch's seed of a generator that nobody seeded.
DEFAULT_SEED = 67280421310721
MASK = (1 << 64) - 1
# The state: seed and counter, both little-endian and 64 bits wide.
STATE = struct.Struct("<QQ")
# Captured graphs by the seeds that stood for their generators: a gradient that is captured by
# itself draws again what its forward graph drew; and the seeds of captures that go on.
known_tokens: WeakValueDictionary[int, Any] = WeakValueDictionary()
open_tokens: set[int] = set()


def checked_seed(seed: object) -> int:
    """Return a seed as an unsigned 64-bit number; negative ones count from 2**64 downwards.

    Raises RuntimeError for what is no integer, ValueError outside [-2**63, 2**64).
    """
    if isinstance(seed, bool) or not hasattr(seed, "__index__"):
        raise RuntimeError(f"manual_seed expected a long, but got {type(seed).__name__}")
    value = seed.__index__()
    if not -(1 << 63) <= value <= MASK:
        raise ValueError("Overflow when unpacking long long")
    return value & MASK


class Generator:
    """A stream of random numbers on a device, with PyTorch's interface.

    States are bytes here.  Every method is safe to call from several threads.  Where the running
    thread captures a graph that takes its draws from here, a `StandIn` answers.
    """

    def __init__(self, device: Hashable = "cpu") -> None:
        self._device = device
        self._seed = DEFAULT_SEED
        self._counter = 0
        self._lock = threading.Lock()
        # By capture; nothing but single steps of a dict, since a collector may end a capture.
        self._stand_ins: dict[object, StandIn] = {}

    @property
    def device(self) -> Hashable:
        """The device whose random numbers these are."""
        return self._device

    def stand_in(self, capture: object, found: StandIn | None) -> None:
        """Let a generator stand for this one where a capture goes on, or none any more."""
        if found is None:
            self._stand_ins.pop(capture, None)
        else:
            self._stand_ins[capture] = found

    def _standing(self) -> StandIn | None:
        """What stands for this generator on the running thread."""
        for each in list(self._stand_ins.values()):
            if each.is_here():
                return each
        return None

    def manual_seed(self, seed: object) -> Generator:
        """Start the stream of ``seed`` from its beginning, and return the generator.

        Raises RuntimeError for what is no integer and inside a capture, ValueError outside
        [-2**63, 2**64).
        """
        value = checked_seed(seed)
        self.check_seeding()
        with self._lock:
            self._seed = value
            self._counter = 0
        return self

    def check_seeding(self) -> None:
        """Raise RuntimeError where the running thread captures draws of this generator."""
        if self._stand_ins and self._standing() is not None:
            raise RuntimeError("cuda graph: a generator is seeded inside the capture, which no "
                               "replay would repeat\n  mend: seed it outside of the capture")

    def seed(self) -> int:
        """Seed with a number from the system's source of randomness and return it."""
        value = int.from_bytes(os.urandom(8), "little")
        self.manual_seed(value)
        return value

    def initial_seed(self) -> int:
        """Return the seed the stream was started with."""
        return self._seed

    def advance(self, count: int) -> int:
        """Consume ``count`` counters and return the first of them."""
        return self.draw(count)[1]

    def draw(self, count: int) -> tuple[int, int]:
        """Consume ``count`` counters; return the stream (seed, first counter) they belong to."""
        if self._stand_ins:
            found = self._standing()
            if found is not None:
                return found.draw(count)
        if cython.compiled:
            # No bytecode runs in between, and 64-bit counters go round by themselves.
            first: cython.ulonglong = self._counter
            self._counter = first + count
            return self._seed, first
        with self._lock:
            base = self._counter
            self._counter = (base + count) & MASK
            return self._seed, base

    def get_offset(self) -> int:
        """Return the counter of the next draw."""
        found = self._standing() if self._stand_ins else None
        if found is not None:
            return found.get_offset()
        return self._counter

    def set_offset(self, offset: int) -> None:
        """Move to counter ``offset``.  Raises ValueError outside [0, 2**64)."""
        if not 0 <= offset <= MASK:
            raise ValueError(f"offset {offset} is outside [0, 2**64)")
        found = self._standing() if self._stand_ins else None
        if found is not None:
            found.set_offset(offset)
            return
        with self._lock:
            self._counter = offset

    def get_state(self) -> bytes:
        """Return what ``set_state`` takes to continue from here."""
        found = self._standing() if self._stand_ins else None
        if found is not None:
            return found.get_state()
        with self._lock:
            return STATE.pack(self._seed, self._counter)

    def set_state(self, state: bytes) -> None:
        """Continue from a state.  Raises RuntimeError for a state of another size."""
        if len(state) != STATE.size:
            raise RuntimeError(
                f"Expected a generator state of size {STATE.size} but found the input RNG state "
                f"size to be {len(state)}"
            )
        found = self._standing() if self._stand_ins else None
        if found is not None:
            found.set_state(state)
            return
        seed, counter = STATE.unpack(bytes(state))
        with self._lock:
            self._seed = seed
            self._counter = counter

    def clone_state(self) -> Generator:
        """Return another generator of the same device that continues from here on its own."""
        clone = Generator(self._device)
        clone.set_state(self.get_state())
        return clone

    def __repr__(self) -> str:
        return f"<slipstream.Generator object at {id(self):#x}>"


class StandIn(Generator):
    """What a generator draws from inside a capture: ``is_here`` says whether that is now.

    The seed is made up: it tells the words of the generator's draws apart from all others.
    """

    def __init__(self, device: Hashable, seed: int, is_here: Callable[[], bool]) -> None:
        super().__init__(device)
        self.is_here = is_here
        self.manual_seed(seed)


# The seed of generators still to be made, and the state of each that was there, by device.
Kept = tuple[int | None, dict[Hashable, bytes]]


class Own(threading.local):
    """Generators by device that a thread draws from in place of the process's, or None."""

    by_device: dict[Hashable, Generator] | None = None


class DefaultGenerators:
    """The generator that each device draws from where a call names none.

    A thread may have ``own`` ones, as a process would: seeds and states it sets are theirs alone.
    """

    # The class of the generators made here; the users' own, which hands states out as tensors.
    generator_class: type[Generator] = Generator

    def __init__(self) -> None:
        self._by_device: dict[Hashable, Generator] = {}
        self._seed: int | None = None
        self._lock = threading.Lock()
        self.own = Own()

    def of(self, device: Hashable) -> Generator:
        """Return the default generator of a device, made on first use.

        It starts with the last ``manual_seed`` of all devices, else with a random seed.
        """
        own = self.own.by_device
        found = (self._by_device if own is None or device not in own else own).get(device)
        if found is not None:
            return found
        with self._lock:
            return self._by_device.setdefault(device, self._made(device))

    def kept(self) -> Kept:
        """Return what ``put_back`` takes to bring all default generators to where they are.

        Generators made later belong to them: the seed that they are going to start with is drawn
        here where there is none yet.
        """
        own = self.own.by_device
        with self._lock:
            if own is None and self._seed is None:
                self._seed = int.from_bytes(os.urandom(8), "little")
            found = self._by_device if own is None else own
            return self._seed, {device: Generator.get_state(each) for device, each in found.items()}

    def put_back(self, kept: Kept) -> None:
        """Bring every default generator to where it was; one made since, to where it began."""
        seed, states = kept
        own = self.own.by_device
        with self._lock:
            if own is None:
                self._seed = seed
            for device, each in (self._by_device if own is None else own).items():
                if device in states:
                    Generator.set_state(each, states[device])
                else:
                    # No seeding, which a capture would refuse.
                    first = each.initial_seed() if seed is None else seed
                    Generator.set_state(each, STATE.pack(first, 0))

    def _made(self, device: Hashable) -> Generator:
        generator = self.generator_class(device)
        if self._seed is None:
            generator.seed()
        else:
            generator.manual_seed(self._seed)
        return generator

    def manual_seed(self, seed: object) -> None:
        """Seed every default generator, those made later too."""
        value = checked_seed(seed)
        own = self.own.by_device
        with self._lock:
            found = list((self._by_device if own is None else own).values())
            # All of them or none.
            for generator in found:
                generator.check_seeding()
            if own is None:
                self._seed = value
            for generator in found:
                generator.manual_seed(value)


defaults = DefaultGenerators()


def default_generator(device: Hashable = "cpu") -> Generator:
    """Return the default generator of a device (whatever key stands for the device)."""
    return defaults.of(device)


def manual_seed(seed: object, device: Hashable = "cpu") -> Generator:
    """Seed the default generators of all devices and return that of ``device``.

    The seed is converted by ``int()``.  Raises ValueError outside
    [-2**63, 2**64), TypeError for what is no number.
    """
    defaults.manual_seed(int(seed))  # type: ignore[call-overload]
    return defaults.of(device)
