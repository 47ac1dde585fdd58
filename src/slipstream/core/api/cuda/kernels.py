"""Kernels from a string: CUDA C++ becomes a function whose every argument is checked."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from slipstream.core.api.cuda.launching import (
    DOUBLE,
    HALF,
    INTEGER,
    SINGLE,
    TRUTH,
    Launcher,
    Prepared,
)
from slipstream.core.api.cuda.signatures import FLOATING, POINTER, Parameter, Signature
from slipstream.core.api.cuda.signatures import TRUTH as TRUTH_KIND
from slipstream.core.api.cuda.sources import Source, explained
from slipstream.core.api.cuda.streams import stream as stream_scope
from slipstream.core.api.cuda.tokens import line_and_column, point_at
from slipstream.core.launch.cuda.launches import KernelCode, Launch, LaunchKernel, make_launch
from slipstream.core.launch.cuda.modules import modules
from slipstream.core.launch.door import backend_of, door
from slipstream.core.native.driver import CompileError
from slipstream.core.native.drivers import drivers
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.dtypes import bfloat16
from slipstream.core.vocab.errors import explain
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


class Kernel:
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
            raise self._failure(TypeError, args, f"{self.name} was called without a grid",
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
        device = self._checked_device(args)
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

    # -- checks --

    def _checked_device(self, args: Any) -> Device:
        """Check the arguments against the signature; the card they are on."""
        if len(args) != len(self.parameters):
            raise self._failure(
                TypeError, args, f"{self.name} takes {len(self.parameters)} arguments, "
                f"{len(args)} were given: its signature is {self.signature}")
        device = None
        for value, parameter in zip(args, self.parameters, strict=True):
            if parameter.kind != POINTER:
                self._check_number(args, parameter, value)
            elif value is not None:
                self._check_tensor(args, parameter, value, device)
                device = device or value.spec.device
        return device or Device("cuda")

    def _check_number(self, args: Any, parameter: Parameter, value: Any) -> None:
        if isinstance(value, TensorBase):
            raise self._refusal(TypeError, args, parameter, "is a tensor, and a number is declared",
                                f"{parameter.name}.item(), which waits for the card")
        fits = isinstance(value, number_types(parameter))
        if not fits:
            mend = "int(...)" if isinstance(value, (float, np.floating)) else ""
            raise self._refusal(TypeError, args, parameter, f"is of type {type(value).__name__}",
                                mend)

    def _check_tensor(self, args: Any, parameter: Parameter, value: Any,
                      device: Device | None) -> None:
        name, element = parameter.name, parameter.element
        if not isinstance(value, TensorBase):
            raise self._refusal(TypeError, args, parameter, f"is of type {type(value).__name__}, "
                                "and a pointer takes a tensor (or None)")
        spec = value.spec
        if element.dtypes and spec.dtype not in element.dtypes:
            wanted = " or ".join(each.name for each in element.dtypes)
            raise self._refusal(TypeError, args, parameter, f"is {spec.dtype.name}, and the "
                                f"pointer takes {wanted}", f"{name}.to({element.dtypes[0]!r})")
        if spec.device.type != "cuda":
            raise self._refusal(RuntimeError, args, parameter,
                                f"is on {spec.device}, and kernels run on a card", f"{name}.cuda()")
        if device is not None and spec.device is not device:
            raise self._refusal(RuntimeError, args, parameter, f"is on {spec.device}, and what "
                                f"comes before it on {device}", f'{name}.to("{device}")')
        if not spec.contiguous:
            raise self._refusal(RuntimeError, args, parameter, f"is not contiguous: its strides "
                                f"are {spec.strides}", f"{name}.contiguous()")
        if spec.numel % element.count:
            raise self._refusal(RuntimeError, args, parameter, f"has {spec.numel} elements, which "
                                f"is no multiple of the vector's {element.count}")

    def _pointer(self, args: Any, place: int) -> Parameter:
        """The parameter of the place-th tensor of a call."""
        return [each for value, each in zip(args, self.parameters, strict=True)
                if isinstance(value, TensorBase)][place]

    def _number(self, place: int) -> Parameter:
        return [each for each in self.parameters if each.kind != POINTER][place]

    def refuse_alignment(self, args: Any, place: int, alignment: int) -> None:
        """Raise for a tensor whose address does not suit the pointer's type."""
        parameter = self._pointer(args, place)
        raise self._refusal(RuntimeError, args, parameter, "starts at an address that is no "
                            f"multiple of {alignment} bytes", f"{parameter.name}.clone()")

    def refuse_write(self, args: Any, place: int) -> None:
        """Raise for read-only memory behind a pointer that is not to const."""
        parameter = self._pointer(args, place)
        raise self._refusal(ValueError, args, parameter, "is read-only memory, and the pointer is "
                            "not const", f"declare const {parameter.text}, or pass "
                            f"{parameter.name}.clone()")

    def refuse_gradient(self, args: Any, place: int) -> None:
        """Raise for a tensor that requires grad and may be written."""
        parameter = self._pointer(args, place)
        raise self._refusal(RuntimeError, args, parameter, "requires grad and may be written, and "
                            "a kernel from a string has no gradient",
                            "no_grad(), or an autograd.Function around the launch")

    def refuse_number(self, args: Any, place: int) -> None:
        """Raise for a number that the declared type cannot hold."""
        parameter = self._number(place)
        value = args[self.parameters.index(parameter)]
        kind = "1 or 0" if parameter.kind == TRUTH_KIND else "what the declared type holds"
        low, high = parameter.limits()
        limits = f"; it goes from {low} to {high}" if check_of(parameter) == INTEGER else ""
        raise self._refusal(OverflowError, args, parameter, f"is {value}, not {kind}{limits}")

    def double_of(self, args: Any, place: int, value: Any) -> float:
        """A number as a double; raises OverflowError for an int that is larger than all of them."""
        try:
            return float(value)
        except OverflowError:
            self.refuse_number(args, place)
            raise

    def half_bits(self, args: Any, place: int, value: Any) -> int:
        """The bits of a 16-bit float; raises OverflowError for what is too large."""
        dtype = self._number(place).element.dtypes[0]
        value = self.double_of(args, place, value)
        if dtype is bfloat16:
            bits = int(np.asarray(value, dtype.numpy).view(np.uint16))
            finite = (bits & 0x7F80) != 0x7F80
        else:
            with np.errstate(over="ignore"):
                bits = int(struct.unpack("<H", np.float16(value).tobytes())[0])
            finite = (bits & 0x7C00) != 0x7C00
        if not finite and math.isfinite(value):
            self.refuse_number(args, place)
        return bits

    def _refusal(self, kind: type[Exception], args: Any, parameter: Parameter, what: str,
                 mend: str = "") -> Exception:
        line, column = line_and_column(self.source.text, parameter.start)
        where = point_at(self.source.text, line, column, self.file)
        return self._failure(kind, args, f"{parameter.name} {what}: the kernel declares "
                             f"`{parameter.text}`\n{where}", mend)

    def _failure(self, kind: type[Exception], args: Any, rule: str, mend: str = "") -> Exception:
        names = [each.name for each in self.parameters]
        names += [f"argument {place + 1}" for place in range(len(names), len(args))]
        return kind(explain(self.name, dict(zip(names, args, strict=False)), rule, mend))


NUMBER_CLASSES = {INTEGER: "i64", SINGLE: "f32", DOUBLE: "f64", HALF: "i64", TRUTH: "i64"}


def check_of(parameter: Parameter) -> int:
    """How a number of a parameter is checked, and packed."""
    if parameter.kind == TRUTH_KIND:
        return TRUTH
    if parameter.kind != FLOATING:
        return INTEGER
    return {2: HALF, 4: SINGLE, 8: DOUBLE}[parameter.element.size]


def number_types(parameter: Parameter) -> tuple[type, ...]:
    """What a number may be in Python."""
    if parameter.kind == FLOATING:
        return (float, int, np.floating, np.integer)
    if parameter.kind == TRUTH_KIND:
        return (bool, int, np.bool_, np.integer)
    return (int, np.integer)


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
