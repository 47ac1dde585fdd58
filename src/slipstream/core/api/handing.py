"""Handing out: other code gets an address of ours, and may read and write there at any time.

A storage is marked exported until its last consumer lets go; for good where a bare address left.
A launch that touches such memory is sent at once, and a copy into it that the host would not wait
for is waited for.
"""

from __future__ import annotations

from typing import Any

from slipstream.core.engine.tape import tape
from slipstream.core.launch.door import backend_of, door
from slipstream.core.launch.waiting import wait
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.dtypes import DType
from slipstream.core.vocab.modes import modes
from slipstream.core.vocab.records import FOR_GOOD, Storage
from slipstream.core.vocab.ring import note_export

# The legacy default stream, by the number that the interfaces and the driver have for it.
LEGACY = 1


class Lease:
    """One consumer of a storage; it keeps the storage, and lets go when it is released."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        storage.exported += 1

    def __del__(self) -> None:
        self.storage.exported -= 1


def send(storage: Storage) -> None:
    """Let what is recorded so far go out, where the storage's device gathers launches."""
    state = modes.current()
    modes.note_site(state)
    note_export(storage.address, storage.nbytes, state.code, state.instruction)
    send_all = getattr(backend_of(storage.device), "send_all", None)
    if send_all is not None:
        send_all("exported storage")


def export(storage: Storage) -> int:
    """The storage's address, which may be used from now on."""
    if storage.exported < FOR_GOOD:
        storage.exported += FOR_GOOD
    if backend_of(storage.device).on_host:
        wait(storage.device, "data_ptr")
        door.settle_storage(storage)
    else:
        send(storage)
    return storage.address


def address_of(self: Any) -> int:
    """The address of the first element, 0 for none.

    On the CPU its elements are there; on a card, work on the current stream comes after what wrote
    them.
    """
    if not self.spec.numel:
        return 0
    return export(self.storage) + self.offset * self.spec.itemsize


def typestr(dtype: DType) -> str:
    """A dtype in the language of the array interfaces."""
    return "<V2" if dtype is dtypes.bfloat16 else dtype.numpy.str


def cuda_array_interface(self: Any) -> dict[str, Any]:
    """What Numba, CuPy and others take a CUDA tensor by: version 3 of the interface.

    What was recorded so far comes before later work of the legacy default stream, which is the
    ``stream`` that it names.  Raises AttributeError for a tensor that is not on a card,
    RuntimeError for one that requires grad.
    """
    device = self.spec.device
    if device.type != "cuda":
        raise AttributeError(f"Can't get __cuda_array_interface__ on non-CUDA tensor type: "
                             f"{self.spec!r}; use tensor.cuda() first")
    if tape.requires_grad(self):
        raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad. "
                           "If gradients aren't required, use var.detach() to get Variable "
                           "that doesn't require grad.")
    backend: Any = backend_of(device)
    address = address_of(self)
    spec = self.spec
    stream = backend.edges.let_follow(LEGACY) if address else None
    strides = None if spec.contiguous else tuple(step * spec.itemsize for step in spec.strides)
    return {"shape": spec.shape, "typestr": typestr(spec.dtype), "strides": strides,
            "data": (address, bool(self.storage.read_only)), "version": 3, "stream": stream}
