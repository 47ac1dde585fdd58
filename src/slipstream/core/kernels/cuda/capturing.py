"""A library's kernels as launches of ours: captured, and their operands' places found.

A product is captured with addresses that nobody reads.  The words of the captured kernels that
follow the operands' addresses are found by a second capture with other addresses, once a kernel
function: another product with the same kernels needs one capture, and is looked at whole for words
that point where no known place is.
"""

from __future__ import annotations

import struct
from typing import Any
from zlib import crc32

from slipstream.core.launch.cuda.launches import Launch
from slipstream.core.native.cublaslt import NOWHERE, Addresses, Call, CublasLt, Product
from slipstream.core.native.driver import DriverError

# Two addresses for each operand that are never read, at different distances.
APART = 38
FIRST = [NOWHERE + (place << APART) for place in range(len(Addresses._fields))]
SECOND = [address + ((place + 1) << 33) for place, address in enumerate(FIRST)]
# How far behind an operand's address a word may point that follows it.
REACH = 1 << 32
# (word, place, addend) of each word of a parameter block that follows an operand.
Places = tuple[tuple[int, int, int], ...]


class Library:
    """What is known of the library on one card.

    ``places``: for each kernel function the bytes of its block, and the places in it for each
    choice of operands.
    """

    def __init__(self, backend: Any, lt: CublasLt) -> None:
        self.backend = backend
        self.lt = lt
        self.card = backend.driver.properties(backend.ordinal)
        self.capability = (self.card.major, self.card.minor)
        self.places: dict[tuple[int, int, tuple[int, ...]], list[Places]] = {}
        self.marks: dict[int, int] = {}
        # Captures and measurements go over a stream of their own, under the library's lock.
        self.stream = backend.driver.create_stream()

    def launches(self, call: Call) -> list[Launch] | None:
        """The launches of a library call; None where they cannot be patched."""
        with self.lt.lock:
            return self._launches(call)

    def _launches(self, call: Call) -> list[Launch] | None:
        used = used_by(call.product)
        first = self.capture(call, FIRST)
        if first is None:
            return None
        found = [self.known(kernel, used) for kernel in first]
        if None in found:
            second = self.capture(call, SECOND)
            found = self.compared(first, second, used) if second is not None else []
        made = [self.launch(kernel, places)
                for kernel, places in zip(first, found, strict=False) if places is not None]
        return made if len(made) == len(first) else None

    def known(self, kernel: Any, used: tuple[int, ...]) -> Places | None:
        """Places that another product with this kernel has and this one too; or None."""
        function, _, block = kernel
        targets = pointing(block)
        for places in self.places.get((function, len(block), used), ()):
            mine = {place: FIRST[used[word]] + more for word, place, more in places}
            if mine == targets:
                return places
        return None

    def compared(self, first: Any, second: Any, used: tuple[int, ...]) -> list[Places | None]:
        """The places of each kernel, found by comparing two captures; None where there are none."""
        if len(first) != len(second):
            return []
        found: list[Places | None] = []
        for (function, _, block), (other, _, changed) in zip(first, second, strict=True):
            places = patchable(block, changed, used) if function == other else None
            every = self.places.setdefault((function, len(block), used), [])
            if places is not None and places not in every:
                every.append(places)
            found.append(places)
        return found

    def capture(self, call: Call, addresses: list[int]) -> Any:
        """The kernels of a call with the given addresses of its operands."""
        driver = self.backend.driver
        product = call.product
        given = list(addresses)
        given[3] *= product.biased
        given[4] *= product.auxiliary
        self.backend.enter()
        driver.begin_capture(self.stream)
        try:
            call.run(Addresses(*given), self.stream)
        finally:
            graph = driver.end_capture(self.stream)
        try:
            return driver.captured_kernels(graph)
        except DriverError:
            return None
        finally:
            driver.destroy_graph(graph)

    def launch(self, kernel: Any, places: Places) -> Launch:
        """A library's kernel as a launch."""
        function, shape, block = kernel
        mark = self.marks.get(function)
        if mark is None:
            mark = self.marks[function] = self.mark_of(kernel)
        made = Launch(LibraryCode(mark), function, shape, (), block)
        made.places = places
        return made

    def mark_of(self, kernel: Any) -> int:
        """What windows are cut by: the kernel's name, which is the same in every process.

        A handle is not; where the driver tells no names, the sizes are.
        """
        function, (grid, threads, shared), block = kernel
        name = self.backend.driver.function_name(function)
        return crc32((name or str((grid, threads, shared, len(block)))).encode())


class LibraryCode:
    """What stands for the source of a library's kernel."""

    name = "cublasLt kernel"
    source = ""
    fusion = "product of the library"

    def __init__(self, mark: int) -> None:
        self.mark = mark


def used_by(product: Product) -> tuple[int, ...]:
    """Which operands the argument words are: a, b, d, bias, auxiliary output, the workspace."""
    return (0, 1, 2, *((3,) if product.biased else ()), *((4,) if product.auxiliary else ()), 5)


def pointing(block: bytes) -> dict[int, int]:
    """The words of a block that point near one of the first addresses, by place."""
    words = struct.unpack_from(f"<{len(block) // 8}Q", block)
    end = NOWHERE + (len(FIRST) << APART)
    return {8 * place: word for place, word in enumerate(words)
            if NOWHERE <= word < end and (word - NOWHERE) % (1 << APART) < REACH}


def patchable(block: bytes, changed: bytes, used: tuple[int, ...]) -> Places | None:
    """The words that follow an operand; None where another differs."""
    places = []
    for place in range(0, len(block) - 7, 8):
        if block[place:place + 8] == changed[place:place + 8]:
            continue
        before = int.from_bytes(block[place:place + 8], "little")
        after = int.from_bytes(changed[place:place + 8], "little")
        follows = [(word, before - FIRST[operand]) for word, operand in enumerate(used)
                   if before - FIRST[operand] == after - SECOND[operand]
                   and 0 <= before - FIRST[operand] < REACH]
        if len(follows) != 1:
            return None
        places.append((follows[0][0], place, follows[0][1]))
    return tuple(places)
