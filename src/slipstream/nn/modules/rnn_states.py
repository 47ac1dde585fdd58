"""What the states given to recurrent layers and cells have to be like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import slipstream as ss
from slipstream.core.api.cuda.devices import mixed_devices_allowed
from slipstream.core.vocab.errors import MixedDeviceError


def _name(place: int, count: int) -> str:
    return f"hx[{place}]" if count > 1 else "hx"


def check_parts(module: Any, given: tuple[Any, ...]) -> None:
    """TypeError unless a state has one part, or that of an LSTM two."""
    if len(given) != module.states:
        wanted = "one tensor" if module.states == 1 else "a tuple (h, c) of two tensors"
        raise TypeError(f"{type(module).__name__}: the state has to be {wanted}, got {len(given)}")


def check_devices(module: Any, input: ss.Tensor, given: tuple[ss.Tensor, ...]) -> None:
    """MixedDeviceError, which names the part, for a state that lies elsewhere than the input."""
    for place, part in enumerate(given):
        if part.device != input.device and not mixed_devices_allowed():
            name = _name(place, len(given))
            raise MixedDeviceError(
                f"{type(module).__name__}: Input and hidden tensors are not at the same device, "
                f"found input tensor at {input.device} and {name} at {part.device}\n"
                f"  mend: move {name} to {input.device}, for example "
                f"{name}.to('{input.device}')")


def check_ranks(given: tuple[ss.Tensor, ...], rank: int) -> None:
    """RuntimeError unless the state of a layer has as many dims as its input."""
    if any(part.ndim != rank for part in given):
        kind = "unbatched 2-D" if rank == 2 else "batched 3-D"
        found = " and ".join(f"{part.ndim}-D" for part in given)
        raise RuntimeError(f"For {kind} input, hx should also be {rank}-D but got {found}")


def check_shapes(given: tuple[ss.Tensor, ...], wanted: Sequence[tuple[int, ...]]) -> None:
    """RuntimeError unless each part of a layer's state has its shape."""
    for place, (part, shape) in enumerate(zip(given, wanted, strict=True)):
        if tuple(part.shape) != shape:
            name = _name(place, len(given)).replace("hx", "hidden")
            raise RuntimeError(f"Expected {name} size {shape}, got {list(part.shape)}")


def check_cell(module: Any, input: ss.Tensor, given: tuple[ss.Tensor, ...]) -> None:
    """Raise unless a cell's input (N, in) or (in), and state (N, hidden) or (hidden), fit."""
    if input.shape[-1] != module.input_size:
        raise RuntimeError(f"input has inconsistent input_size: got {input.shape[-1]}, expected "
                           f"{module.input_size}")
    for place, part in enumerate(given):
        name = _name(place, len(given))
        if part.ndim not in (1, 2):
            raise ValueError(f"{type(module).__name__}: Expected {name} to be 1D or 2D, got "
                             f"{part.ndim}D instead")
        if part.ndim != input.ndim:
            raise RuntimeError(f"For {input.ndim}-D input, {name} should also be {input.ndim}-D "
                               f"but got {part.ndim}-D")
        if part.shape[:-1] != input.shape[:-1]:
            raise RuntimeError(f"Input batch size {input.shape[0]} doesn't match {name} batch "
                               f"size {part.shape[0]}")
        if part.shape[-1] != module.hidden_size:
            raise RuntimeError(f"{name} has inconsistent hidden_size: got {part.shape[-1]}, "
                               f"expected {module.hidden_size}")
