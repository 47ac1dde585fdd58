"""The driver by documented names: memory, copies, modules, launches, streams, events.

Thin, checked calls for the current card, beside the tensors; addresses and handles are ints::

    image = driver.compile(source)            # CUDA C++ with extern "C" kernels
    function = driver.get_function(driver.module_load(image), "scale")
    x = driver.mem_alloc(4 * n)
    driver.memcpy_htod(x, array)
    driver.launch(function, -(-n // 256), 256, (x, np.int32(n), np.float32(2)))
    driver.memcpy_dtoh(array, x)

A call that fails raises `DriverError`, whose ``call`` is the name used here and whose ``code`` is
the driver's word, such as OUT_OF_MEMORY.
"""

from __future__ import annotations

from slipstream.core.api.cuda.raw import (
    CompileError,
    DriverError,
    compile,
    driver_version,
    event_create,
    event_destroy,
    event_elapsed,
    event_query,
    event_record,
    event_synchronize,
    get_function,
    launch,
    mem_alloc,
    mem_free,
    mem_get_info,
    memcpy_dtod,
    memcpy_dtoh,
    memcpy_htod,
    memset,
    module_load,
    module_unload,
    pack,
    stream_create,
    stream_destroy,
    stream_query,
    stream_synchronize,
    stream_wait_event,
    synchronize,
)

__all__ = [
    "CompileError", "DriverError", "compile", "driver_version", "event_create", "event_destroy",
    "event_elapsed", "event_query", "event_record", "event_synchronize", "get_function", "launch",
    "mem_alloc", "mem_free", "mem_get_info", "memcpy_dtod", "memcpy_dtoh", "memcpy_htod",
    "memset", "module_load", "module_unload", "pack", "stream_create", "stream_destroy",
    "stream_query", "stream_synchronize", "stream_wait_event", "synchronize",
]
