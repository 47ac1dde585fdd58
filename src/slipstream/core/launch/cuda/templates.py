"""Kernels of a library, launched like ours: parameter blocks with the operands' addresses in."""

from __future__ import annotations

from typing import Any

import cython

from slipstream.core.launch.cuda.backend import CudaBackend
from slipstream.core.launch.cuda.launches import Launch
from slipstream.core.launch.cuda.queue import Queue
from slipstream.core.launch.cuda.words import Words
from slipstream.core.vocab.records import Kernel, Plan, Spec, Storage, TensorBase

__all__ = ["CudaBackend", "Launch", "Plan", "Queue", "Spec", "Storage", "TemplateKernel", "Words"]


class TemplateKernel(Kernel):
    """The launches of a library call.

    ``first(kernel, plan, operands)`` stands for ``launches`` until they are made: it calls the
    library, or makes them and returns False.  ``order``: which operands the argument words are,
    before the stream's workspace; a run-time number that is not 1 goes to ``own``, a kernel of ours
    with its binding; operands whose address is no multiple of ``alignment`` are replaced by
    ``aligner``'s copies.
    """

    launches: list[Any]
    first: Any
    order: tuple[int, ...]
    alignment: int
    aligner: Any
    make_own: Any
    own: Kernel | None
    own_binding: Any

    def __init__(self, name: str, first: Any, order: tuple[int, ...], make_own: Any,
                 aligner: Any) -> None:
        self.name = name
        self.launches = [first]
        self.first = first
        self.order = order
        self.alignment = 16
        self.aligner = aligner
        self.make_own = make_own
        self.own = None
        self.own_binding = None

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Record the library's kernels, or ours where a number does not fit."""
        backend: CudaBackend = plan.backend  # type: ignore[assignment]
        tensor: TensorBase
        storage: Storage
        fits: cython.bint = True
        for number in numbers:
            if number != 1:
                self.run_own(plan, operands, numbers)
                return
        if self.first is not None and self.first(self, plan, operands):
            return
        queue: Queue = backend.queue()
        for operand in operands:
            tensor = operand
            storage = tensor.storage
            if (storage.address + tensor.offset * tensor.spec.itemsize) % self.alignment:
                fits = False
        space: cython.size_t = backend.workspace()
        moved: tuple = operands if fits else self.aligner.bring(plan, operands, self.alignment)
        for launch in self.launches:
            self.record(queue, launch, moved, space)
        if not fits:
            self.aligner.give_back(plan, operands, moved)

    def run_own(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Launch our own kernel."""
        own: Kernel | None = self.own
        if own is None:
            own, self.own_binding = self.make_own(plan)
            self.own = own
        plan.binding = self.own_binding
        own.run(plan, operands, numbers)

    def record(self, queue: Queue, launch: Launch, operands: tuple[Any, ...],
               space: cython.size_t) -> None:
        """Record one of the launches."""
        if cython.compiled:
            self.put(queue, launch, operands, space)
        else:
            # Other threads stay out, as they do of a queue's own records.
            with queue.lock:
                self.put(queue, launch, operands, space)

    def put(self, queue: Queue, launch: Launch, operands: tuple[Any, ...],
            space: cython.size_t) -> None:
        """`record`, one thread at a time."""
        tensor: TensorBase
        if queue.due:
            queue.send("")
        if not cython.compiled:
            queue.begin()
        words: Words = queue.window.words
        for place in self.order:
            tensor = operands[place]
            words.append(tensor.storage.address + tensor.offset * tensor.spec.itemsize)
        words.append(space)
        queue.finish(launch, ())
