# cython: annotation_typing=False
"""Which kernels there are for an op on a device, and which one a recipe takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from slipstream.core.dispatch.signature import NUMBER, TENSOR_OR_NUMBER
from slipstream.core.kernels.cpu.programs import ProgramKernel
from slipstream.core.vocab import optional
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.programs import Program
from slipstream.core.vocab.records import Kernel, TensorBase

# Devices that run another device's kernels.
KERNELS_OF = {"delay": "cpu", "meta": "cpu"}


class Candidate(NamedTuple):
    """A kernel on offer: ``refuses(call)`` gives the reason why it cannot take a call, or "".

    ``sizes(plan, call)``: what binds a plan that it made to other sizes of the same dtypes and
    ranks, or None.
    """

    name: str
    make: Callable[..., Any]
    refuses: Callable[..., str] = lambda call: ""
    sizes: Callable[..., Any] = lambda plan, call: None


def device_type(device: Device) -> str:
    """The device type whose kernels run on ``device``."""
    return KERNELS_OF.get(device.type, device.type)


def kernel_for(device: Device, program: Program) -> tuple[Kernel, list[tuple[str, str]]]:
    """The kernel that runs a program on a device, and the list of those considered."""
    kind = device_type(device)
    if kind == "cpu":
        kernel: Kernel = ProgramKernel(program)
    elif kind == "cuda":
        kernel = optional.load("core.kernels.cuda.programs").ProgramKernel(program, device)
    else:
        raise RuntimeError(f"no kernels for formulas on {device}")
    return kernel, [(kernel.name, "chosen: runs any program")]


def candidates_of(op: Any, kind: str) -> tuple[Candidate, ...]:
    """The kernels registered for an op on a device type, best first.

    An entry may name one as ``family.function`` of the device type's kernels: such a module is
    imported when it is first needed.
    """
    found: tuple[Any, ...] = op.kernels.get(kind, ())
    if any(isinstance(candidate, str) for candidate in found):
        found = op.kernels[kind] = tuple(
            _named(kind, each) if isinstance(each, str) else each for each in found)
    return found


def _named(kind: str, name: str) -> Candidate:
    family, _, function = name.partition(".")
    module = optional.load(f"core.kernels.{kind}.{family}")
    more = {what: getattr(module, f"{function}_{what}") for what in ("refuses", "sizes")
            if hasattr(module, f"{function}_{what}")}
    return Candidate(f"{kind} {family}.{function}", getattr(module, function), **more)


def registered_kernels(op: Any, call: Any, device: Device) -> tuple[Candidate | None, list[Any]]:
    """The first registered kernel that takes the call, if any, and all with their verdicts."""
    verdicts = []
    chosen = None
    for candidate in candidates_of(op, device_type(device)):
        reason = candidate.refuses(call)
        if reason or chosen is not None:
            verdicts.append((candidate.name, reason or "not needed: an earlier one was chosen"))
        else:
            chosen = candidate
            verdicts.append((candidate.name, "chosen"))
    return chosen, verdicts


def considered_kernels(op: Any, call: Any, device: Device) -> tuple[Candidate, list[Any]]:
    """As `registered_kernels`; raises NotImplementedError where no kernel takes the call."""
    chosen, verdicts = registered_kernels(op, call, device)
    if chosen is None:
        listed = "; ".join(f"{name}: {reason}" for name, reason in verdicts) or "none registered"
        raise call.error(NotImplementedError,
                         f"no kernel of {op.name} takes this call on {device} ({listed})")
    return chosen, verdicts


def tensor_positions(op: Any, values: Any) -> tuple[int, ...]:
    """Which arguments hold tensors."""
    found = []
    for place, value in enumerate(values):
        several = isinstance(value, (tuple, list)) and value
        if isinstance(value[0] if several else value, TensorBase):
            found.append(place)
    return tuple(found)


def number_positions(op: Any, values: Any) -> tuple[int, ...]:
    """Which arguments are numbers given at run time."""
    kinds = op.kinds
    return tuple([
        place for place, value in enumerate(values)
        if kinds[place] == NUMBER
        or (kinds[place] == TENSOR_OR_NUMBER and not isinstance(value, TensorBase))
    ])
