"""CUDA devices: cards, streams, events, memory, graphs, counts; PyTorch's names.

With ``SLIPSTREAM_DRIVER=sim`` a driver in software stands under all of it: the same programs run
without a card.  Importing this makes no context.
"""

from __future__ import annotations

from slipstream.core.api.cuda.devices import (
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    driver_stats,
    get_arch_list,
    get_device_capability,
    get_device_name,
    get_device_properties,
    immediate,
    init,
    is_available,
    is_bf16_supported,
    is_initialized,
    launch_stats,
    set_device,
    synchronize,
)
from slipstream.core.api.cuda.kernels import Kernel, kernel
from slipstream.core.api.cuda.streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
)
from slipstream.cuda import driver

__all__ = [
    "Event", "ExternalStream", "Kernel", "Stream", "StreamContext", "can_device_access_peer",
    "current_device", "current_stream", "default_stream", "device", "device_count", "device_of",
    "driver", "driver_stats", "get_arch_list", "get_device_capability", "get_device_name",
    "get_device_properties", "immediate", "init", "is_available", "is_bf16_supported",
    "is_initialized", "kernel", "launch_stats", "set_device", "set_stream", "stream", "synchronize",
]
