"""Which operands of a call that lie on several devices should go where."""

from __future__ import annotations

from typing import Any

from slipstream.core.vocab.devices import CPU, Device
from slipstream.core.vocab.errors import CALL, MixedDeviceError, explain
from slipstream.core.vocab.records import TensorBase


def is_parameter(tensor: TensorBase) -> bool:
    """Whether a tensor is a parameter or another leaf that wants a gradient, or its view."""
    whole = tensor if tensor.base is None else tensor.base
    record = whole.record
    leaf = record is not None and record.requires_grad and record.node is None
    return leaf or of_module(tensor)


def of_module(tensor: TensorBase) -> bool:
    """Whether it is a parameter by its class: modules make them, frozen ones want no gradient."""
    whole = tensor if tensor.base is None else tensor.base
    return any(each.__name__ == "Parameter" for each in type(whole).__mro__)


def tensors_of(arguments: dict[str, Any]) -> list[tuple[str, TensorBase]]:
    """Every tensor among arguments with its name, lists opened; names of these end in ``[]``."""
    found = []
    for name, value in arguments.items():
        if isinstance(value, TensorBase):
            found.append((name, value))
        elif isinstance(value, (tuple, list)):
            found += [(f"{name}[]", each) for each in value if isinstance(each, TensorBase)]
    return found


def meeting_place(arguments: dict[str, Any]) -> str:
    """Which operands to move where: to the parameters, else to the first device but the CPU.

    Parameters that were left on the CPU go to the others: who works on a card wants them there.
    """
    named = tensors_of(arguments)
    parameters = [tensor for _, tensor in named if is_parameter(tensor)]
    tensors = [tensor for _, tensor in named]
    away = [each for group in (parameters, tensors) for each in group
            if each.spec.device is not CPU]
    device = (away or tensors)[0].spec.device
    strangers = [(name, tensor) for name, tensor in named if tensor.spec.device is not device]
    behind = [(name, tensor) for name, tensor in strangers if is_parameter(tensor)]
    if behind:
        return moved_model(behind, named, device)
    names = [name for name, _ in strangers if not name.endswith("[]")]
    if names == ["out"]:
        # A moved copy of it would be written, and nobody would see that.
        return f"make out on {device}, or out.copy_() the result"
    example = names[0] if names else "tensor"
    return (f"move {listed(names) or 'the others'} to {device}, "
            f"for example {example}.to('{device}')")


def moved_model(behind: list[tuple[str, TensorBase]], named: list[tuple[str, TensorBase]],
                device: Device) -> str:
    """What to do about parameters that were left behind, and who is where."""
    place = behind[0][1].spec.device
    one = len(behind) == 1
    there = next(name for name, tensor in named if tensor.spec.device is device)
    who = listed([name for name, _ in behind])
    if any(of_module(tensor) for _, tensor in behind):
        kind = "is a parameter" if one else "are parameters"
        mend = f"move {'its' if one else 'their'} module, model.to('{device}')"
    else:
        kind = "is a leaf" if one else "are leaves"
        mend = f"make {'it' if one else 'them'} there, with device='{device}'"
    return f"{who} {kind} on {place}, {there} is on {device}: {mend}, or {there}.to('{place}')"


def listed(names: list[str]) -> str:
    """Names as a text."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def restate_devices(failure: Exception, name: str, arguments: dict[str, Any]) -> None:
    """Let the mend of such an error inside a compound op name the operands of the op itself."""
    devices = {tensor.spec.device for _, tensor in tensors_of(arguments)}
    if isinstance(failure, MixedDeviceError) and len(devices) > 1:
        rule = str(failure.args[0]).partition(CALL)[0]
        failure.args = (explain(name, arguments, rule, meeting_place(arguments)),)
