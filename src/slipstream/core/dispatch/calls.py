# cython: annotation_typing=False
"""A call that is met for the first time, as the builders of plans see it."""

from __future__ import annotations

from typing import Any

from slipstream.core.dispatch.arguments import check_types, shown_call
from slipstream.core.dispatch.carrying import OUT
from slipstream.core.dispatch.places import meeting_place
from slipstream.core.vocab.devices import CPU, Device
from slipstream.core.vocab.errors import MixedDeviceError, explain
from slipstream.core.vocab.modes import ModeState
from slipstream.core.vocab.records import Spec, TensorBase


def _are_tensors(target: Any) -> bool:
    several = target if isinstance(target, (tuple, list)) else (target,)
    return all(isinstance(each, TensorBase) for each in several)


class Call:
    """The op, its arguments by name, the target of an in-place or ``out=`` form."""

    def __init__(self, op: Any, state: ModeState, values: Any, target: Any, form: int) -> None:
        check_types(op, values)
        if form and not _are_tensors(target):
            raise TypeError(f"{op.name}(): argument 'out' must be Tensor, "
                            f"not {type(target).__name__}")
        self.op = op
        self.state = state
        self.values = values
        self.target = target
        self.form = form
        self.names: tuple[str, ...] = op.names
        self.found: list[TensorBase] | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """All arguments by name."""
        return dict(zip(self.names, self.values, strict=True))

    def __getitem__(self, name: str) -> Any:
        return self.values[self.names.index(name)]

    def spec(self, name: str) -> Spec:
        """The spec of a tensor argument."""
        return self.values[self.names.index(name)].spec

    def tensors(self) -> list[TensorBase]:
        """Every tensor among the arguments, lists opened, in order."""
        if self.found is not None:
            return self.found
        found: list[TensorBase] = []
        for value in self.values:
            if isinstance(value, TensorBase):
                found.append(value)
            elif isinstance(value, (tuple, list)):
                found.extend([each for each in value if isinstance(each, TensorBase)])
        self.found = found
        return found

    def error(self, kind: type[Exception], rule: str, mend: str = "") -> Exception:
        """An error of ``kind`` in the common format."""
        name, arguments = shown_call(self.op, self.values)
        if self.form == OUT:
            arguments["out"] = self.target
        elif self.target is not None and self.values and self.target is self.values[0]:
            name += "_"
        return kind(explain(name, arguments, rule, mend))

    def _shown(self) -> dict[str, Any]:
        """All that has to be on one device, by name."""
        return self.arguments | {"out": self.target} if self.form == OUT else self.arguments

    def device(self) -> Device:
        """The ``device`` argument where it is given, else that of the operands.

        Raises RuntimeError where operands are on several.
        """
        given = self.values[self.op.device_at] if self.op.device_at >= 0 else None
        if given is not None:
            return Device(given)
        found = [tensor.spec.device for tensor in self.tensors()]
        if isinstance(self.target, TensorBase):
            found.append(self.target.spec.device)
        elif self.form == OUT:
            found += [tensor.spec.device for tensor in self.target]
        if not found:
            return self.state.device or CPU
        for device in found[1:]:
            if device is not found[0]:
                raise self.error(
                    MixedDeviceError,
                    "Expected all tensors to be on the same device, but found at least two "
                    f"devices, {found[0]} and {device}!",
                    meeting_place(self._shown()),
                )
        return found[0]
