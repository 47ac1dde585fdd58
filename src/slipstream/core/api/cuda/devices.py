"""Cards: which there are, which is current, what they offer, waiting for them."""

from __future__ import annotations

from typing import Any

from slipstream.core.dispatch.mixing import mixing, scopes
from slipstream.core.launch.door import backend_of, backends
from slipstream.core.launch.waiting import wait
from slipstream.core.native.driver import DeviceProperties
from slipstream.core.native.drivers import drivers
from slipstream.core.vocab.devices import Device, current


def is_available() -> bool:
    """Whether there is a CUDA driver, real or simulated, with a card; makes no context."""
    return drivers.available()


def device_count() -> int:
    """How many cards there are; makes no context."""
    return drivers.current().device_count() if drivers.available() else 0


def is_initialized() -> bool:
    """Whether this process has made a context on any card."""
    return any(device.type == "cuda" for device in backends)


def init() -> None:
    """Make the current device's context now rather than at its first use."""
    backend(None)


def current_device() -> int:
    """The index of the thread's current card."""
    return current.index


def index_of(device: Any) -> int:
    """The card that an argument ``device`` means: None, an index, a string or a device.

    Raises ValueError for a device of another type.
    """
    if device is None:
        return current.index
    if isinstance(device, int):
        return device if device >= 0 else current.index
    found = Device(device)
    if found.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {found}")
    return found.index or 0


def _is_negative(device: Any) -> bool:
    return isinstance(device, int) and device < 0


def existing(device: Any) -> int:
    """The card that an argument ``device`` means; RuntimeError where there is none such, as of a
    negative number, which means the current card for scopes and streams alone.

    Where there is no card at all, nothing was done on the one that is current.
    """
    count = device_count()
    if _is_negative(device):
        raise RuntimeError(f"Invalid device argument {device}: there are {count} CUDA devices")
    index = index_of(device)
    if index >= max(count, 1):
        raise RuntimeError(f"invalid device cuda:{index}: there are {count} CUDA devices")
    return index


def backend(device: Any) -> Any:
    """The backend of a card, made at its first use."""
    return backend_of(Device("cuda", index_of(device)))


def set_device(device: Any) -> None:
    """Make a card the thread's current one; a negative index changes nothing."""
    index = index_of(device)
    if index >= device_count():
        raise RuntimeError(f"invalid device ordinal {index}: there are {device_count()} "
                           "CUDA devices")
    current.index = index


class device:  # noqa: N801
    """A scope in which another card is the thread's current one."""

    def __init__(self, device: Any) -> None:
        self.index = -1 if device is None else index_of(device)
        self.before = -1

    def __enter__(self) -> None:
        self.before = current.index
        set_device(self.index)

    def __exit__(self, *failure: Any) -> None:
        set_device(self.before)


class device_of(device):  # noqa: N801
    """A scope in which a tensor's card is the current one; nothing for a tensor elsewhere."""

    def __init__(self, tensor: Any) -> None:
        super().__init__(tensor.get_device() if tensor.is_cuda else None)


def get_device_properties(device: Any = None) -> DeviceProperties:
    """What a card offers: name, total_memory, major, minor, multi_processor_count and more."""
    index = device if _is_negative(device) else index_of(device)
    if not 0 <= index < device_count():
        raise AssertionError(f"Invalid device id {index}: there are {device_count()}")
    return drivers.current().properties(index)


def get_device_name(device: Any = None) -> str:
    """A card's name."""
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """A card's compute capability, (major, minor)."""
    found = get_device_properties(device)
    return found.major, found.minor


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether kernels of one card can read another's memory."""
    for word, given in (("", device), ("peer ", peer_device)):
        if _is_negative(given):
            raise AssertionError(f"Invalid {word}device id {given}: there are {device_count()}")
    return drivers.current().can_access_peer(existing(device), existing(peer_device))


def get_arch_list() -> list[str]:
    """The architectures that kernels are made for: the cards' own, at run time."""
    found = [get_device_capability(index) for index in range(device_count())]
    return sorted({f"sm_{major}{minor}" for major, minor in found})


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether bfloat16 can be computed: on every card, by arithmetic in float32 where need be.

    False where there is no card.
    """
    return is_available() and (including_emulation or get_device_capability()[0] >= 8)


def synchronize(device: Any = None) -> None:
    """Wait until all work of a card is done."""
    index = index_of(device)
    backend(index)
    wait(Device("cuda", index), "synchronize")


def driver_stats(device: Any = None) -> dict[str, int]:
    """The driver's own counts since start.

    kernel_launches, graph_launches, graph_kernel_nodes (kernels inside launched graphs),
    node_updates, captures, copies, allocations, synchronizations, compilations,
    library_questions (to cuBLASLt's heuristics) and others.
    """
    counts = drivers.current().statistics()
    for each in backends.values():
        hot = getattr(each, "hot", None)
        if hot is not None:
            for name in ("kernel_launches", "graph_launches", "graph_kernel_nodes",
                         "node_updates", "event_records"):
                counts[name] = counts.get(name, 0) + getattr(hot, name)
    return counts


def launch_stats(device: Any = None) -> dict[str, Any]:
    """How launches went out since start.

    ``launches`` (all submitted), ``replayed`` (those inside a replayed graph), ``patched`` nodes,
    ``captured`` graphs, ``windows``, ``single`` (one by one: reason, then kernel, then count),
    ``graphs`` alive and ``graph_bytes``.
    """
    found = backend(device)
    found.drain_all()
    report: dict[str, Any] = found.counts.report()
    report["graphs"] = sum(queue.memo.count for queue in found.queues)
    report["graph_bytes"] = sum(queue.memo.nbytes for queue in found.queues)
    return report


def mixed_devices_allowed() -> bool:
    """Whether this thread is within a scope of allow_mixed_devices."""
    return mixing.allowed


class allow_mixed_devices:  # noqa: N801
    """A scope in which operands on other devices are copied to where the call runs.

    ``copies`` maps a line, (file, number), to [how often, bytes]; a report of it is the scope's
    text.  Outside the scope such calls are refused, but for 0-dim tensors of the CPU.
    """

    def __init__(self) -> None:
        self.before: tuple[bool, Any] = (False, {})
        self.copies: dict[tuple[str, int], list[int]] = {}

    def __enter__(self) -> allow_mixed_devices:
        self.before = (mixing.allowed, mixing.copies)
        mixing.allowed, mixing.copies = True, self.copies
        scopes.change(1)
        return self

    def __exit__(self, *failure: Any) -> None:
        mixing.allowed, mixing.copies = self.before
        scopes.change(-1)

    def __str__(self) -> str:
        lines = [f"{file}:{line}: {count} {'copy' if count == 1 else 'copies'} between devices, "
                 f"{nbytes:,} bytes" for (file, line), (count, nbytes) in self.copies.items()]
        return "\n".join(lines) or "no copies between devices"


class immediate:  # noqa: N801
    """A scope in which every launch goes out by itself: no windows, no graphs, the same bits."""

    def __init__(self, device: Any = None) -> None:
        self.backend = backend(device)
        self.before = True

    def __enter__(self) -> None:
        self.backend.send_all("drained")
        self.before = self.backend.memo
        self.backend.set_memo(False)

    def __exit__(self, *failure: Any) -> None:
        self.backend.set_memo(self.before)
