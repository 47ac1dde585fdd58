"""A card's memory, in pieces: what the allocator of a CUDA device is built on.

Where the driver has virtual memory, a growing piece is a range of addresses of which a part has
physical memory behind it: chunks, mapped one after the other, each at least 2 MiB.
"""

from __future__ import annotations

from collections.abc import Callable

from slipstream.core.native.driver import Driver, DriverError
from slipstream.core.native.hot import use_context

# Physical memory is asked for in multiples of this, or of the driver's granularity.
CHUNK = 1 << 21
# The smallest block.
MINIMUM = 512
# A growing piece may become so many times as large as the card: holes in it cost no memory.
SPAN = 4
# One extension is made of at most about so many chunks: each costs three calls of the driver.
PARTS = 16


def round_up(nbytes: int, multiple: int) -> int:
    """``nbytes`` rounded up to a multiple."""
    return (nbytes + multiple - 1) // multiple * multiple


class Window:
    """A range of addresses at ``base``: ``length`` bytes are in use by the allocator.

    ``chunks``: size of each mapped chunk by its offset; ``end``: where the last one ends.
    """

    def __init__(self, base: int, size: int) -> None:
        self.base = base
        self.size = size
        self.length = 0
        self.end = 0
        self.chunks: dict[int, int] = {}


class DeviceMemory:
    """Reserves and releases pieces of one card's memory, as any provider of an allocator does.

    ``enter`` makes the card's context the running thread's; ``physical`` counts the bytes that are
    taken from the card now.
    """

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self.driver = driver
        self.ordinal = ordinal
        properties = driver.properties(ordinal)
        self.total = properties.total_memory
        self.virtual = properties.virtual_memory
        self.minimum = MINIMUM
        self.granularity = CHUNK
        if self.virtual:
            self.granularity = round_up(CHUNK, driver.granularity(ordinal))
        self.windows: dict[int, Window] = {}
        self.pieces: dict[int, int] = {}
        # What the driver failed to take back.
        self.handles: list[int] = []
        self.ranges: list[tuple[int, int]] = []
        self.physical = 0
        self.enter: Callable[[], None] = self.make_current

    def make_current(self) -> None:
        """Make the card's primary context the running thread's."""
        use_context(self.driver, self.driver.context(self.ordinal))

    def reserve(self, nbytes: int) -> int:
        """Return the address of a new piece, 0 where there is none."""
        self.enter()
        try:
            address = self.driver.allocate(nbytes)
        except DriverError as error:
            return self.none_left(error)
        self.pieces[address] = nbytes
        self.physical += nbytes
        return address

    def none_left(self, error: DriverError) -> int:
        """0 where the card has no more memory; any other error is raised."""
        if error.code != "OUT_OF_MEMORY":
            raise error
        return 0

    def release(self, address: int) -> None:
        """Give a piece back; nothing may use it any more."""
        self.enter()
        self.drop_ranges()
        window = self.windows.get(address)
        if window is None:
            self.driver.free(address)
            self.physical -= self.pieces.pop(address)
            return
        self.unmap_from(window, 0)
        self.driver.release(address, window.size)
        del self.windows[address]

    def reserve_growing(self, nbytes: int) -> int:
        """Return the address of a new piece that can be extended, 0 where there is none."""
        if not self.virtual:
            return 0
        self.enter()
        self.drop_ranges()
        size = round_up(max(nbytes, SPAN * self.total), self.granularity)
        try:
            base = self.driver.reserve(size)
        except DriverError as error:
            return self.none_left(error)
        self.windows[base] = Window(base, size)
        done = False
        try:
            done = self.extend(base, nbytes)
        finally:
            if not done:
                del self.windows[base]
                self.ranges.append((base, size))
                self.drop_ranges()
        return base if done else 0

    def drop_ranges(self) -> None:
        """Give back ranges that nothing is mapped to; where that fails, it is tried again."""
        while self.ranges:
            self.driver.release(*self.ranges[-1])
            self.ranges.pop()

    def extend(self, address: int, nbytes: int) -> bool:
        """Make a piece ``nbytes`` bytes longer in place; False where that is not possible."""
        window = self.windows[address]
        length = window.length + nbytes
        if length > window.size:
            return False
        self.enter()
        start = window.end
        try:
            self.map_chunks(window, round_up(length, self.granularity))
        except DriverError as error:
            # What was mapped before the error goes back.
            self.unmap_from(window, start)
            return bool(self.none_left(error))
        window.length = length
        return True

    def map_chunks(self, window: Window, end: int) -> None:
        """Map chunks from where the window's last one ends up to ``end``."""
        for offset, part in self.parts(window.end, end):
            self.map_chunk(window, offset, part)
            window.end = offset + part

    def map_chunk(self, window: Window, offset: int, nbytes: int) -> None:
        """Put physical memory behind a part of a window."""
        self.drop_handles()
        handle = self.driver.create_physical(nbytes, self.ordinal)
        try:
            self.driver.map(window.base + offset, nbytes, handle, self.ordinal)
            window.chunks[offset] = nbytes
            self.physical += nbytes
        finally:
            # The memory stays while it is mapped.
            self.handles.append(handle)
            self.drop_handles()

    def drop_handles(self) -> None:
        """Give back handles of physical memory; one for which that fails stays for next time."""
        while self.handles:
            self.driver.destroy_physical(self.handles[-1])
            self.handles.pop()

    def unmap_chunk(self, window: Window, offset: int) -> None:
        """Take the physical memory away from behind one chunk."""
        nbytes = window.chunks[offset]
        self.driver.unmap(window.base + offset, nbytes)
        del window.chunks[offset]
        self.physical -= nbytes

    def window_of(self, address: int) -> Window | None:
        """The window that an address lies in."""
        for window in self.windows.values():
            if window.base <= address < window.base + window.size:
                return window
        return None

    def interior(self, address: int, nbytes: int) -> tuple[int, int]:
        """(start, size) of the chunks that lie wholly inside a range; size 0 for none."""
        window = self.window_of(address)
        if window is None:
            return address, 0
        low = address - window.base
        inside = sorted(offset for offset, size in window.chunks.items()
                        if low <= offset and offset + size <= low + nbytes)
        if not inside:
            return address, 0
        end = inside[-1] + window.chunks[inside[-1]]
        return window.base + inside[0], end - inside[0]

    def unmap_range(self, address: int, nbytes: int) -> None:
        """Take away the memory behind whole chunks in the middle of a window."""
        window = self.windows_at(address)
        self.enter()
        low = address - window.base
        for offset in sorted(window.chunks):
            if low <= offset < low + nbytes:
                self.unmap_chunk(window, offset)

    def map_range(self, address: int, nbytes: int) -> bool:
        """Put memory behind addresses again that lost it; False where there is none left."""
        window = self.windows_at(address)
        self.enter()
        low = address - window.base
        try:
            for offset, part in self.parts(low, low + nbytes):
                if offset not in window.chunks:
                    self.map_chunk(window, offset, part)
        except DriverError as error:
            for offset in [each for each in window.chunks if low <= each < low + nbytes]:
                self.unmap_chunk(window, offset)
            return bool(self.none_left(error))
        return True

    def windows_at(self, address: int) -> Window:
        """The window that an address lies in; there must be one."""
        window = self.window_of(address)
        if window is None:
            raise ValueError(f"no window holds {address:#x}")
        return window

    def parts(self, start: int, end: int) -> list[tuple[int, int]]:
        """(offset, size) of the chunks to map between two offsets."""
        size = self.granularity
        while size * PARTS < end - start:
            size *= 2
        return [(offset, min(size, end - offset)) for offset in range(start, end, size)]

    def unmap_from(self, window: Window, start: int) -> None:
        """Unmap every chunk that begins at ``start`` or behind it."""
        while window.chunks:
            last = max(window.chunks)
            if last < start:
                break
            self.unmap_chunk(window, last)
        window.end = max((at + size for at, size in window.chunks.items()), default=0)

    def shrink(self, address: int, nbytes: int) -> None:
        """Give back what lies behind the first ``nbytes`` bytes of a growing piece.

        The chunk in which the piece now ends stays.
        """
        window = self.windows[address]
        window.length = nbytes
        self.enter()
        self.unmap_from(window, nbytes)

    def chunk_end(self, address: int) -> int:
        """Where the chunk ends that begins before an address and reaches behind it.

        The address itself where there is none.
        """
        window = self.window_of(address)
        if window is not None:
            place = address - window.base
            for offset, size in window.chunks.items():
                if offset < place < offset + size:
                    return window.base + offset + size
        return address

    def missing(self, address: int, nbytes: int) -> int:
        """How much physical memory it takes to make a piece ``nbytes`` bytes longer."""
        window = self.windows[address]
        return max(0, round_up(window.length + nbytes, self.granularity) - window.end)

    def info(self) -> tuple[int, int]:
        """(free, total) bytes of the card, as the driver says."""
        self.enter()
        return self.driver.memory_info()
