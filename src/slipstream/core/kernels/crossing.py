"""Copies between the host and devices whose memory it cannot reach."""

from __future__ import annotations

from typing import Any

from slipstream.core.kernels.cpu.arrays import array_of
from slipstream.core.launch.door import backend_of, door
from slipstream.core.launch.waiting import note_copy, read, read_into
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.records import Kernel, Plan, Storage, TensorBase


class CrossingKernel(Kernel):
    """Moves the bytes of a dense tensor to another device; both sides have the same strides."""

    def __init__(self) -> None:
        self.name = "copy between devices"

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Copy; the host waits where the bytes come to it."""
        target, source = operands
        nbytes = source.spec.nbytes
        if not nbytes:
            return
        if is_pinned(source.storage, target.spec.device):
            backend: Any = backend_of(target.spec.device)
            note_copy(source, target.spec.device)
            backend.pins().to_device(address_of(target), source.storage, address_of(source),
                                     nbytes)
            return
        if backend_of(source.spec.device).on_host:
            note_copy(source, target.spec.device)
            door.settle_storage(source.storage)
            data: Any = array_of(address_of(source), (nbytes,), (1,), dtypes.uint8.numpy)
        elif backend_of(target.spec.device).on_host:
            read_into(source.spec.device, address_of(target), address_of(source), nbytes, "to")
            return
        else:
            come_after(source.spec.device, target.spec.device)
            data = read(source.spec.device, address_of(source), nbytes, "to")
        backend_of(target.spec.device).write(address_of(target), data)


def come_after(device: Device, other: Device) -> None:
    """Let a card's current stream come after another's: what it copies may have been waited for
    there, and what it overwrites may be in use."""
    later: Any = backend_of(device)
    earlier: Any = backend_of(other)
    last = earlier.queue()
    if last.capture is not None or later.queue().capture is not None:
        return  # The copy itself is refused.
    handle, place = earlier.edges.mark(last, 0, False, False)
    try:
        later.edges.order_after(later.queue(), handle, place, ours=False)
    finally:
        earlier.driver.destroy_event(handle)


def is_pinned(storage: Storage, device: Device) -> bool:
    """Whether a storage of the host is pinned memory of a CUDA device."""
    backend: Any = backend_of(device)
    pinning = getattr(backend, "pinning", None)
    return pinning is not None and storage.owner == pinning.owner


def address_of(tensor: TensorBase) -> int:
    """Where a tensor's first element lies."""
    return tensor.storage.address + tensor.offset * tensor.spec.itemsize


def refuses_hosts(call: Any) -> str:
    """Between devices whose memory is the host's there is nothing to cross."""
    devices = (call.spec("self").device, call.device())
    return "both sides are the host's memory" if all(
        backend_of(device).on_host for device in devices) else ""


crossing_kernel = CrossingKernel()
