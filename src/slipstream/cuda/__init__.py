"""CUDA devices: cards, streams, events, memory, graphs, counts; PyTorch's names.

With ``SLIPSTREAM_DRIVER=sim`` a driver in software stands under all of it: the same programs run
without a card.  Importing this makes no context.
"""

from __future__ import annotations

from typing import Any

from slipstream.core.api.cuda.devices import (
    allow_mixed_devices,
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
from slipstream.core.api.cuda.random import (
    all_generators,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from slipstream.core.api.cuda.streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    get_stream_from_external,
    set_stream,
    stream,
)
from slipstream.core.api.waits import get_sync_debug_mode, set_sync_debug_mode
from slipstream.cuda import amp, driver, graphs, memory, nvtx, tunable
from slipstream.cuda.graphs import (
    CUDAGraph,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
    make_graphed_callables,
)
from slipstream.cuda.memory import (
    CUDAPluggableAllocator,
    MemPool,
    OutOfMemoryError,
    caching_allocator_alloc,
    caching_allocator_delete,
    caching_allocator_disabled,
    caching_allocator_enable,
    change_current_allocator,
    empty_cache,
    get_allocator_backend,
    get_per_process_memory_fraction,
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_report,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    register_free_memory_callback,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
    use_mem_pool,
)

__all__ = [
    "CUDAGraph", "CUDAPluggableAllocator", "Event", "ExternalStream", "Kernel", "MemPool",
    "OutOfMemoryError", "Stream", "StreamContext", "allow_mixed_devices", "amp",
    "caching_allocator_alloc", "caching_allocator_delete", "caching_allocator_disabled",
    "caching_allocator_enable", "can_device_access_peer", "change_current_allocator",
    "current_device", "current_stream", "default_stream", "device", "device_count", "device_of",
    "driver", "driver_stats", "empty_cache", "get_allocator_backend", "get_arch_list",
    "get_device_capability", "get_device_name", "get_device_properties",
    "get_per_process_memory_fraction", "get_rng_state", "get_rng_state_all",
    "get_stream_from_external",
    "get_sync_debug_mode", "graph", "graph_pool_handle", "graphs", "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "immediate", "init", "initial_seed",
    "is_available", "is_bf16_supported", "is_current_stream_capturing", "is_initialized", "kernel",
    "launch_stats", "make_graphed_callables", "manual_seed", "manual_seed_all",
    "max_memory_allocated", "max_memory_cached", "max_memory_reserved", "mem_get_info", "memory",
    "memory_allocated", "memory_cached", "memory_report", "memory_reserved", "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict", "memory_summary", "nvtx", "register_free_memory_callback",
    "reset_accumulated_host_memory_stats", "reset_accumulated_memory_stats",
    "reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_host_memory_stats",
    "reset_peak_memory_stats", "seed", "seed_all", "set_device", "set_per_process_memory_fraction",
    "set_rng_state", "set_rng_state_all", "set_stream", "set_sync_debug_mode", "stream",
    "synchronize", "tunable", "use_mem_pool",
]


def __getattr__(name: str) -> Any:
    if name == "default_generators":
        # The thread's own, where it has some, and as many as there are cards by now.
        return all_generators()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
