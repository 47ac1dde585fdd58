"""Several launches of one op, over its operands and scratch memory."""

from __future__ import annotations

import cython

from slipstream.core.launch.cuda.backend import CudaBackend
from slipstream.core.launch.cuda.launches import Bound, Launch
from slipstream.core.launch.cuda.queue import Queue
from slipstream.core.launch.cuda.words import Words
from slipstream.core.vocab.records import Backend, Storage, TensorBase

__all__ = ["Queue", "Staged", "Step", "Words"]


class Step:
    """One of the launches: ``places`` says what its addresses are.

    An operand's place; -1 for the scratch memory, and -1 - n for n bytes further on in it.
    ``counts``: the stream's tickets come last.
    """

    launch: Launch
    places: tuple[int, ...]
    counts: bool

    def __init__(self, launch: Launch, places: tuple[int, ...], counts: bool = False) -> None:
        self.launch = launch
        self.places = places
        self.counts = counts

    def record(self, backend: CudaBackend, operands: tuple[TensorBase, ...], scratch: int,
               numbers: tuple[int | float, ...]) -> None:
        """Record the launch; the scratch memory is the caller's until the last one is."""
        tickets: cython.size_t = backend.tickets() if self.counts else 0
        queue: Queue = backend.queue()
        if not cython.compiled:
            found = [address_of(self, operands, scratch, at) for at in range(len(self.places))]
            queue.record_addresses(self.launch, (*found, tickets) if tickets else tuple(found),
                                   numbers)
            return
        if queue.due:
            queue.send("")
        # Nothing between these steps makes an object: no collection comes in between.
        words: Words = queue.window.words
        place: cython.Py_ssize_t
        for place in range(len(self.places)):
            words.append(address_of(self, operands, scratch, place))
        if tickets:
            words.append(tickets)
        queue.finish(self.launch, numbers)


def address_of(step: Step, operands: tuple[TensorBase, ...], scratch: int, at: int) -> int:
    """One address of a launch."""
    places: tuple = step.places
    place: cython.Py_ssize_t = places[at]
    if place < 0:
        return scratch - 1 - place
    tensor: TensorBase = operands[place]
    return tensor.storage.address + tensor.offset * tensor.spec.itemsize


class Staged(Bound):
    """Launches over the operands and ``nbytes`` of scratch memory, all with the numbers."""

    stages: list[Step]
    nbytes: int

    def __init__(self, stages: list[Step], nbytes: int) -> None:
        self.stages = stages
        self.nbytes = nbytes

    @property
    def launches(self) -> list[Launch]:
        """The launches, for who looks at a plan."""
        found = []
        for each in self.stages:
            found.append(each.launch)
        return found

    def record(self, backend: Backend, operands: tuple[TensorBase, ...],
               numbers: tuple[int | float, ...]) -> None:
        """Record the launches."""
        step: Step
        card: CudaBackend = backend  # type: ignore[assignment]  # it is bound for a card
        # Held until the last launch is recorded.
        scratch: Storage = card.scratch(self.nbytes)
        for each in self.stages:
            step = each
            step.record(card, operands, scratch.address, numbers)
