"""Memory beside a device's own: pools that a user makes, and allocators that a user brings."""

from __future__ import annotations

import ctypes
import itertools
import threading
import weakref
from typing import Any, ClassVar

from slipstream.core.memory.card import CHUNK, MINIMUM, DeviceMemory, round_up
from slipstream.core.memory.device import DeviceAllocator, plugged

__all__ = ["Pool", "Routes", "Uncached", "UserFunctions", "UserMemory", "plugged"]


class UserFunctions:
    """Two C functions of a user's library that allocate and free device memory.

    ``void* allocate(ssize_t size, int device, cudaStream_t stream)`` and
    ``void release(void* pointer, ssize_t size, int device, cudaStream_t stream)``.
    """

    def __init__(self, path: str, allocate: str, release: str) -> None:
        library = ctypes.CDLL(path)
        self.allocate = getattr(library, allocate)
        self.allocate.restype = ctypes.c_void_p
        self.allocate.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        self.release = getattr(library, release)
        self.release.restype = None
        self.release.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]


class UserMemory:
    """Pieces of memory from a user's functions: what a pool over them is built on."""

    def __init__(self, functions: UserFunctions, owner: DeviceAllocator) -> None:
        self.functions = functions
        self.owner = owner
        self.granularity = CHUNK
        self.minimum = MINIMUM
        self.pieces: dict[int, int] = {}
        self.windows: dict[int, Any] = {}
        self.physical = 0

    def reserve(self, nbytes: int) -> int:
        """Return the address of a new piece, 0 where there is none."""
        self.owner.memory.enter()
        address = self.functions.allocate(nbytes, self.owner.ordinal, self.owner.handle()) or 0
        if address:
            self.pieces[address] = nbytes
            self.physical += nbytes
        return address

    def release(self, address: int) -> None:
        """Give a piece back."""
        self.owner.memory.enter()
        nbytes = self.pieces.pop(address)
        self.physical -= nbytes
        self.functions.release(address, nbytes, self.owner.ordinal, self.owner.handle())


class Uncached:
    """Blocks straight from a provider, each a piece of its own.

    What comes back is released before the next request, once all that is recorded is done.
    """

    def __init__(self, provider: Any, owner: DeviceAllocator) -> None:
        self.provider = provider
        self.owner = owner
        self.given: list[int] = []
        self.lock = threading.RLock()

    def allocate(self, nbytes: int) -> int:
        """The address of a new piece."""
        self.finish()
        size = round_up(nbytes, MINIMUM)
        fits = self.owner.pieces.fits(size)
        address: int = self.provider.reserve(size) if fits else 0
        if not address:
            raise self.owner.error(self.owner, nbytes)
        self.owner.pieces.came_beside(self.provider.pieces[address], 1)
        return address

    def free(self, address: int, nbytes: int) -> None:
        """Note that a piece came back."""
        self.given.append(address)

    def itself(self, nbytes: int) -> Uncached:
        """As a route: every request comes here."""
        return self

    def finish(self) -> None:
        """Release what came back."""
        # What other threads give while this one waits is not waited for.
        with self.lock:
            given, self.given = self.given, []
            try:
                if given and self.owner.drain is not None:
                    self.owner.drain()
                while given:
                    self.release(given.pop())
            finally:
                self.given += given

    def release(self, address: int) -> None:
        """Give a piece back to the provider."""
        nbytes = self.provider.pieces[address]
        self.provider.release(address)
        self.owner.pieces.went_beside(nbytes, 1)

    def block_size(self, address: int, nbytes: int) -> int:
        """The size of a piece."""
        size: int = self.provider.pieces[address]
        return size


class Pool:
    """Memory of its own for what is asked for inside a scope, on each device where it is used.

    ``functions``: where its memory comes from; None for the card.
    """

    numbers = itertools.count(1)
    # Those that exist, by number.
    known: ClassVar[weakref.WeakValueDictionary[int, Pool]] = weakref.WeakValueDictionary()

    def __init__(self, functions: UserFunctions | None = None) -> None:
        self.functions = functions
        self.number = next(self.numbers)
        self.known[self.number] = self
        self.scopes = 0
        self.allocators: dict[int, DeviceAllocator] = {}

    def on(self, owner: DeviceAllocator) -> DeviceAllocator:
        """The pool's allocator beside a device's own."""
        found = self.allocators.get(owner.ordinal)
        if found is None:
            found = self.allocators[owner.ordinal] = self.make(owner)
            owner.add_beside(found)
        return found

    def make(self, owner: DeviceAllocator) -> DeviceAllocator:
        """An allocator that knows of streams what the device's own knows."""
        memory: Any = DeviceMemory(owner.driver, owner.ordinal)
        if self.functions is not None:
            memory = UserMemory(self.functions, owner)
        made = DeviceAllocator(owner.driver, owner.ordinal, memory)
        made.number = self.number
        made.follow(owner)
        return made

    def hold(self, owner: DeviceAllocator) -> DeviceAllocator:
        """A graph's replays use the pool's memory on a device from here on; its allocator."""
        memory = self.on(owner)
        memory.hold(owner)
        return memory

    def let_go(self) -> None:
        """Nobody enters the pool any more: what is not in use goes back when memory runs out.

        May run anywhere, so it does nothing now.
        """
        for allocator in self.allocators.values():
            allocator.leave_behind()

    def __del__(self) -> None:
        self.let_go()


class Routes:
    """Which thread's requests go to which pool on one device."""

    def __init__(self, owner: DeviceAllocator) -> None:
        self.owner = owner
        self.threads: dict[int, list[Pool | None]] = {}
        self.others = owner.route
        self.direct: Uncached | None = None

    def uncached(self) -> Uncached:
        """The driver's memory, block by block; what came back of it is released at need too."""
        if self.direct is None:
            direct = Uncached(DeviceMemory(self.owner.driver, self.owner.ordinal), self.owner)
            self.owner.callbacks.append(lambda nbytes: direct.finish())
            self.direct = direct
        return self.direct

    def finish(self) -> None:
        """Release what came back of the driver's memory."""
        if self.direct is not None:
            self.owner.settled()
            self.direct.finish()

    def enter(self, pool: Pool | None) -> tuple[int, Pool | None]:
        """Send the running thread's requests to a pool; None: to no pool.  What `leave` takes."""
        thread = threading.get_ident()
        self.threads.setdefault(thread, []).append(pool)
        if pool is not None:
            pool.scopes += 1
        self.owner.divert(self.find)
        return thread, pool

    def leave(self, entered: tuple[int, Pool | None]) -> None:
        """Send a thread's requests where they went before; another thread may say so."""
        thread, pool = entered
        pools = self.threads[thread]
        # The innermost scope of that pool: another one may have been left out of turn.
        del pools[len(pools) - 1 - pools[::-1].index(pool)]
        if pool is not None:
            pool.scopes -= 1
        if not pools:
            del self.threads[thread]
        if not self.threads:
            self.owner.divert(self.others)

    def find(self, nbytes: int) -> Any:
        """The memory for a request of the running thread; None for the device's own."""
        pools = self.threads.get(threading.get_ident())
        pool = pools[-1] if pools else None
        if pool is not None:
            return pool.on(self.owner)
        return self.others(nbytes) if self.others is not None else None


routes: dict[int, Routes] = {}


def routes_of(owner: DeviceAllocator) -> Routes:
    """The routes of a device."""
    found = routes.get(id(owner))
    if found is None or found.owner is not owner:
        found = routes[id(owner)] = Routes(owner)
    return found


def replace_all(functions: UserFunctions) -> None:
    """Let a user's functions serve every device from its first use on."""
    plugged.make = lambda owner: Uncached(UserMemory(functions, owner), owner).itself


def set_caching(owner: DeviceAllocator, caching: bool) -> None:
    """Keep what comes back for the next request, or ask the driver for every block."""
    found = routes_of(owner)
    found.others = None if caching else found.uncached().itself
    owner.divert(found.find if found.threads else found.others)
