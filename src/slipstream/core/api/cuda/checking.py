"""What a call of a user's kernel is checked for, and how it is said."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

from slipstream.core.api.cuda.launching import DOUBLE, HALF, INTEGER, SINGLE, TRUTH
from slipstream.core.api.cuda.signatures import FLOATING, POINTER, Parameter, Signature
from slipstream.core.api.cuda.signatures import TRUTH as TRUTH_KIND
from slipstream.core.api.cuda.sources import Source
from slipstream.core.api.cuda.tokens import line_and_column, point_at
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.dtypes import bfloat16
from slipstream.core.vocab.errors import explain
from slipstream.core.vocab.records import TensorBase


class Checked:
    """A kernel's signature, and the checks of arguments against it."""

    name: str
    file: str
    source: Source
    signature: Signature
    parameters: list[Parameter]

    def checked_device(self, args: Any) -> Device:
        """Check the arguments against the signature; the card they are on."""
        if len(args) != len(self.parameters):
            raise self.failure(
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
                                f"pointer takes {wanted}",
                                instead(parameter, f"{name}.to({element.dtypes[0]!r})"))
        if spec.device.type != "cuda":
            raise self._refusal(RuntimeError, args, parameter,
                                f"is on {spec.device}, and kernels run on a card",
                                instead(parameter, f"{name}.cuda()"))
        if device is not None and spec.device is not device:
            raise self._refusal(RuntimeError, args, parameter, f"is on {spec.device}, and what "
                                f"comes before it on {device}",
                                instead(parameter, f'{name}.to("{device}")'))
        if not spec.contiguous:
            raise self._refusal(RuntimeError, args, parameter, f"is not contiguous: its strides "
                                f"are {spec.strides}",
                                instead(parameter, f"{name}.contiguous()"))
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
                            f"multiple of {alignment} bytes",
                            instead(parameter, f"{parameter.name}.clone()"))

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
        return self.failure(kind, args, f"{parameter.name} {what}: the kernel declares "
                             f"`{parameter.text}`\n{where}", mend)

    def failure(self, kind: type[Exception], args: Any, rule: str, mend: str = "") -> Exception:
        """An error in the one format, with every argument by its name."""
        names = [each.name for each in self.parameters]
        names += [f"argument {place + 1}" for place in range(len(names), len(args))]
        return kind(explain(self.name, dict(zip(names, args, strict=False)), rule, mend))


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


def instead(parameter: Parameter, made: str) -> str:
    """The mend that passes another tensor: what a kernel writes there has to come back."""
    if parameter.constant:
        return made
    return f"own = {made}, pass own, and {parameter.name}.copy_(own) after the launch"
