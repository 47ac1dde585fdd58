"""Kernels from a string: CUDA C++ becomes a function whose every argument is checked."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from slipstream.core.api.cuda.checking import Checked, check_of
from slipstream.core.api.cuda.launching import (
    DOUBLE,
    HALF,
    INTEGER,
    SINGLE,
    TRUTH,
    Launcher,
    Prepared,
)
from slipstream.core.api.cuda.signatures import POINTER, Parameter, Signature
from slipstream.core.api.cuda.signatures import TRUTH as TRUTH_KIND
from slipstream.core.api.cuda.sources import Source, explained
from slipstream.core.api.cuda.streams import stream as stream_scope
from slipstream.core.launch.cuda.launches import KernelCode, Launch, LaunchKernel, make_launch
from slipstream.core.launch.cuda.modules import modules
from slipstream.core.launch.door import backend_of, door
from slipstream.core.native.driver import CompileError
from slipstream.core.native.drivers import drivers
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.records import KERNEL, OpBase, Plan, TensorBase

Sizes = tuple[int, int, int]
# Threads of a block where neither the call nor the kernel's __launch_bounds__ says.
DEFAULT_BLOCK = 256
MOST_GRID = (2**31 - 1, 65535, 65535)
MOST_BLOCK = (1024, 1024, 64)
MOST_THREADS = 1024
# How many shapes, calls of one shape, and `kernel[...]` are remembered.
MOST_SHAPES, MOST_PLANS, MOST_LAUNCHERS = 256, 512, 1024
ABSENT: Any = object()


class CustomOp(OpBase):
    """What plans of a user's kernel are plans of."""

    def __init__(self, name: str) -> None:
        self.name = name


class Kernel(Checked):
    """A kernel of CUDA C++: ``kernel[grid, block](a, b, n)`` launches it.

    ``name`` and ``signature`` are those of the source.  It is compiled at its first launch, or by
    `compile`, and kept on disk.
    """

    def __init__(self, text: str, name: str | None, options: tuple[str, ...],
                 file: str = "") -> None:
        self.source = Source(text, options)
        self.signature: Signature = self.source.named(name)
        self.name = self.__name__ = self.signature.name
        self.parameters: list[Parameter] = self.signature.parameters
        self.file = file or f"{self.name}.cu"
        self.code = KernelCode(self.name, self.source.compiled_text(self.file),
                               self.source.options)
        self.code.with_prelude = False
        self.op = CustomOp(self.name)
        self.launchers: dict[Any, Launcher] = {}
        self.tables: dict[Any, dict[Any, Prepared]] = {}
        # The same by the grid as it was given, which needs no look at its kind.
        self.grids: dict[Any, tuple[Any, dict[Any, Prepared]]] = {}
        # (block, shared) as they were given -> the shape of a launcher whose grid is a function.
        self.blocks: dict[Any, Any] = {}

    # -- the ways to give a grid and a block --

    def __getitem__(self, index: Any) -> Launcher:
        """``kernel[grid]``, ``[grid, block]``, ``[grid, block, shared]`` or with a stream too.

        ``grid``: blocks as a number, a tuple of up to three, or a function of the arguments that
        returns either; ``block``: threads, a number or tuple; ``shared``: bytes of dynamic shared
        memory; ``stream``: None for the current one.  Raises TypeError for other kinds of values
        and ValueError for sizes that no card has.
        """
        try:
            found = self.launchers.get(index)
        except TypeError:
            return self._launcher(index)
        if found is None:
            found = self._launcher(index)
            if found.grid is not None:
                # Such functions are made anew in every call: they are not worth keeping.
                return found
            if len(self.launchers) >= MOST_LAUNCHERS:
                self.launchers.clear()
            self.launchers[index] = found
        return found

    def __call__(self, *args: Any, grid: Any = None, block: Any = None, shared: int = 0,
                 stream: Any = None, shared_mem: int = 0) -> Any:
        """Launch: ``kernel(a, b, n, grid=..., block=...)`` or ``kernel(grid, block, (a, b, n))``.

        ``kernel(grid, block)`` returns what `kernel[grid, block]` does.
        """
        shared = shared or shared_mem
        if grid is not None:
            self[grid, block, shared, stream](*args)
            return None
        given = len(args) in (2, 3) and _is_size(args[0], True) and _is_size(args[1], False)
        if not given or (len(args) == 3 and not isinstance(args[2], (tuple, list))):
            raise self.failure(TypeError, args, f"{self.name} was called without a grid",
                                f"write {self.name}[grid, block](...)")
        launcher = self[args[0], args[1], shared, stream]
        if len(args) == 2:
            return launcher
        launcher(*args[2])
        return None

    def _launcher(self, index: Any) -> Launcher:
        grid, block, shared, stream, *more = (
            *(index if isinstance(index, tuple) else (index,)), *(ABSENT,) * 4)[:5]
        if more and more[0] is not ABSENT:
            raise TypeError(f"{self.name}[grid, block, shared, stream] takes at most four values")
        if block is ABSENT or block is None:
            block = self.signature.threads or DEFAULT_BLOCK
        stream = None if stream is ABSENT else stream
        if stream is not None and not hasattr(stream, "queue"):
            raise TypeError(f"{self.name}: a stream has to be a slipstream.cuda.Stream, not "
                            f"{type(stream).__name__}")
        shared = 0 if shared is ABSENT else shared
        if not callable(grid):
            return Launcher(self, self.shape_of(grid, block, shared), stream, None)
        try:
            shape = self.blocks.get((block, shared))
        except TypeError:
            shape = None
        if shape is None:
            shape = self.shape_of(0, block, shared)
            key = block if isinstance(block, int) else shape[1]
            self.blocks[key, shared] = shape
        return Launcher(self, shape, stream, grid)

    def shape_of(self, grid: Any, block: Any, shared: Any) -> tuple[Sizes, Sizes, int]:
        """(grid, block, shared) as whole sizes; raises TypeError or ValueError for others."""
        blocks = self._sizes("grid", grid, MOST_GRID, 0)
        threads = self._sizes("block", block, MOST_BLOCK, 1)
        most = self.signature.threads or MOST_THREADS
        if math.prod(threads) > most:
            why = "__launch_bounds__ of the kernel says" if self.signature.threads else "a card has"
            raise ValueError(f"{self.name}: a block of {threads} has {math.prod(threads)} threads, "
                             f"{why} at most {most}")
        if not isinstance(shared, int) or shared < 0:
            raise ValueError(f"{self.name}: shared memory is a number of bytes, not {shared!r}")
        return blocks, threads, shared

    def _sizes(self, what: str, given: Any, most: Sizes, least: int) -> Sizes:
        values = tuple(given) if isinstance(given, (tuple, list)) else (given,)
        try:
            sizes = tuple(operator.index(each) for each in values)
        except TypeError:
            raise TypeError(f"{self.name}: {what} is a whole number or up to three, not {given!r}"
                            "\n  mend: blocks for n elements are -(-n // threads)") from None
        if not 1 <= len(sizes) <= 3 or any(not least <= size <= limit for size, limit in
                                           zip(sizes, most, strict=False)):
            raise ValueError(f"{self.name}: no card has a {what} of {given!r}; at most {most}")
        x, y, z = (*sizes, 1, 1)[:3]
        return x, y, z

    # -- plans --

    def plans_of(self, shape: Any) -> dict[Any, Prepared]:
        """The plans of a grid, block and shared memory."""
        found = self.tables.get(shape)
        if found is None:
            if len(self.tables) >= MOST_SHAPES:
                self.tables.clear()
            found = self.tables[shape] = {}
        return found

    def table_of(self, grid: Any, shape: Any) -> tuple[Any, dict[Any, Prepared]]:
        """The shape of a launcher with the grid that its function returned, and its plans."""
        try:
            found = self.grids.get((grid, shape[1], shape[2]))
        except TypeError:
            grid = tuple(grid)
            found = None
        if found is None:
            if len(self.grids) >= MOST_SHAPES:
                self.grids.clear()
            whole = self.shape_of(grid, shape[1], shape[2])
            found = self.grids[grid, shape[1], shape[2]] = whole, self.plans_of(whole)
        return found

    def prepare(self, plans: dict[Any, Prepared], key: Any, shape: Any, args: Any) -> Prepared:
        """Check everything that a call's specs and types decide, and bind the launch."""
        device = self.checked_device(args)
        plan = Plan(self.op, None, KERNEL)
        plan.backend = backend_of(device)
        plan.kernel = LaunchKernel(self.name)
        made = Prepared(plan)
        tensors = [(value, each) for value, each in zip(args, self.parameters, strict=True)
                   if isinstance(value, TensorBase)]
        numbers = [each for each in self.parameters if each.kind != POINTER]
        made.alignments = tuple(each.element.alignment for _, each in tensors)
        made.writes = tuple(place for place, (_, each) in enumerate(tensors) if not each.constant)
        made.checks = tuple(check_of(each) for each in numbers)
        made.limits = tuple((0, 1) if each.kind == TRUTH_KIND else each.limits()
                            for each in numbers)
        if all(shape[0]):
            plan.binding = self._bound(device, shape, [each for _, each in tensors] + numbers)
        if len(plans) >= MOST_PLANS:
            plans.clear()
        plans[key] = made
        return made

    def _bound(self, device: Device, shape: Any, words: list[Parameter]) -> Launch:
        """The launch, with the place in the parameter block of each argument word."""
        classes = [NUMBER_CLASSES[check_of(each)] for each in words if each.kind != POINTER]
        launch = self._compiled(device, shape, tuple(classes))
        launch.places = tuple((word, each.place, 0, each.width)
                              for word, each in enumerate(words))
        return launch

    def _compiled(self, device: Device, shape: Any, classes: tuple[str, ...]) -> Launch:
        try:
            return make_launch(self.code, device, shape[0], shape[1], shared=shape[2],
                               numbers=classes, tail=bytes(self.signature.nbytes))
        except CompileError as error:
            raise explained(error, self.file, self.source) from None

    def submit_on(self, stream: Any, plan: Plan, operands: Any, numbers: Any) -> None:
        """Launch on a stream that was named."""
        if stream.backend is not plan.backend:
            raise RuntimeError(f"{self.name}: the stream is of {stream.device}, the arguments are "
                               f"on {plan.backend.name}")
        with stream_scope(stream):
            door.submit(plan, operands, numbers)

    # -- what is asked of a kernel --

    def compile(self, device: Any = None) -> Kernel:
        """Compile and load the kernel for a card (the current one) now; return the kernel.

        Raises CompileError with the source's lines.
        """
        self.attributes(device)
        return self

    def attributes(self, device: Any = None) -> dict[str, int]:
        """What it takes on a card: registers, shared, local, constant, max_threads, binary."""
        found = Device("cuda") if device is None else Device(device)
        backend: Any = backend_of(found)
        backend.enter()
        try:
            return drivers.current().function_attributes(modules.function(found, self.code))
        except CompileError as error:
            raise explained(error, self.file, self.source) from None

    def __repr__(self) -> str:
        return f"<slipstream.cuda kernel {self.signature}>"


NUMBER_CLASSES = {INTEGER: "i64", SINGLE: "f32", DOUBLE: "f64", HALF: "i64", TRUTH: "i64"}


def _is_size(value: Any, function: bool) -> bool:
    if isinstance(value, (tuple, list)):
        return all(isinstance(each, (int, np.integer)) for each in value)
    return isinstance(value, (int, np.integer)) or (function and callable(value)
                                                    and not isinstance(value, TensorBase))


def kernel(source: str, name: str | None = None, options: Sequence[str] = ()) -> Kernel:
    """A kernel from CUDA C++ source; ``kernel[grid, block](*args)`` launches it.

    ``source`` holds a ``__global__`` function (``extern "C"`` is added), or several of which
    ``name`` picks one; ``options`` go to the compiler, such as ``-DT=float``.  Pointers take
    contiguous tensors of the declared dtype on one card (or None), numbers are converted to the
    declared type; every call is checked.  Compiled at the first launch, in milliseconds, without a
    toolkit; kept on disk.

    Raises ValueError (with the source's line and a caret) for what is no kernel; the first launch
    raises CompileError, with the compiler's words under the source's lines.
    """
    if not isinstance(source, str):
        raise TypeError(f"kernel(): the source has to be a str, not {type(source).__name__}")
    return Kernel(source, name, tuple(options))
