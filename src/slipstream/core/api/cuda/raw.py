"""The driver's calls for those who want to stand on the metal: thin, checked, with names of ours.

Addresses and handles are ints.  A stream is a `Stream`, a handle that `stream_create` made, or
None: the thread's current stream, whose pending launches are sent first, so that raw calls and
tensors' ops stay in order.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from slipstream.core.api.cuda.devices import backend
from slipstream.core.launch.cuda.launches import three
from slipstream.core.launch.waiting import host_waits
from slipstream.core.native.driver import TO_DEVICE, TO_HOST, WITHIN, CompileError, DriverError

__all__ = [
    "CompileError", "DriverError", "compile", "driver_version", "event_create", "event_destroy",
    "event_elapsed", "event_query", "event_record", "event_synchronize", "get_function", "launch",
    "mem_alloc", "mem_free", "mem_get_info", "memcpy_dtod", "memcpy_dtoh", "memcpy_htod",
    "memset", "module_load", "module_unload", "pack", "stream_create", "stream_destroy",
    "stream_query", "stream_synchronize", "stream_wait_event", "synchronize",
]

Call = TypeVar("Call", bound=Callable[..., Any])
# Live allocations of `mem_alloc`: address -> bytes.
allocations: dict[int, int] = {}
# Streams of `stream_create` that were not given back.
created: set[int] = set()


def named(call: Call) -> Call:
    """Errors of the driver carry the name of the call that the user wrote."""
    name = call.__name__

    @functools.wraps(call)
    def named_call(*args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except DriverError as error:
            if error.call == name or type(error) is not DriverError:
                raise
            text = str(error).partition(f"failed with {error.code}")[2].removeprefix(": ")
            raise DriverError(name, error.code, text) from error

    return named_call  # type: ignore[return-value]


def _driver() -> Any:
    """The driver, with the current card's context on this thread."""
    found = backend(None)
    found.enter()
    return found.driver


def _wait(name: str, act: Any, *arguments: Any) -> None:
    """Wait for the current card, as every wait does, in one place."""
    host_waits(backend(None).device, name, act, *arguments)


def _stream(stream: Any) -> int:
    found = backend(None)
    if isinstance(stream, int):
        for queue in tuple(found.queues):
            if queue.stream == stream:
                found.forbid_capture(queue, "a raw driver call runs at once")
        return stream
    queue = found.queue() if stream is None else stream.queue
    queue.owner.forbid_capture(queue, "a raw driver call runs at once")
    queue.send("raw driver call")
    handle: int = queue.stream
    return handle


def _whole(what: str, value: Any) -> int:
    if isinstance(value, (int, np.integer)) and value >= 0:
        return int(value)
    raise TypeError(f"{what} has to be a whole number that is not negative, not {value!r}")


@named
def driver_version() -> int:
    """The CUDA version that the driver supports, such as 13000."""
    version: int = _driver().version()
    return version


# -- memory --


@named
def mem_alloc(nbytes: int) -> int:
    """The address of fresh memory of the current card, aligned to 256 bytes; `mem_free` it."""
    if _whole("nbytes", nbytes) == 0:
        raise DriverError("mem_alloc", "INVALID_VALUE", "no bytes were asked for")
    address: int = _driver().allocate(int(nbytes))
    allocations[address] = int(nbytes)
    return address


@named
def mem_free(address: int) -> None:
    """Give back what `mem_alloc` made; waits for the work that may use it."""
    if address not in allocations:
        raise DriverError("mem_free", "INVALID_VALUE", f"{address!r} is no address of mem_alloc")
    driver = _driver()
    _wait("mem_free", backend(None).wait)
    driver.free(address)
    del allocations[address]


@named
def mem_get_info() -> tuple[int, int]:
    """(free, total) bytes of the current card."""
    free, total = _driver().memory_info()
    return free, total


def _host(data: Any, writable: bool) -> np.ndarray:
    """The bytes of a buffer of the host; raises TypeError for what is none."""
    array = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    if not array.flags.c_contiguous or (writable and not array.flags.writeable):
        raise TypeError("the host's side has to be a contiguous"
                        f"{' writable' if writable else ''} buffer")
    return array.reshape(-1).view(np.uint8)


@named
def memcpy_htod(address: int, data: Any, stream: Any = None) -> None:
    """Copy a buffer of the host (bytes, an array) to the card; returns when it was read."""
    source = _host(data, False)
    if source.size:
        handle = _stream(stream)
        driver = _driver()
        driver.copy(_whole("address", address), source.ctypes.data, source.size, TO_DEVICE, handle)
        _wait("memcpy_htod", driver.wait_stream, handle)


@named
def memcpy_dtoh(data: Any, address: int, stream: Any = None) -> None:
    """Fill a writable buffer of the host from the card; returns when it is filled."""
    target = _host(data, True)
    if target.size:
        handle = _stream(stream)
        driver = _driver()
        driver.copy(target.ctypes.data, _whole("address", address), target.size, TO_HOST, handle)
        _wait("memcpy_dtoh", driver.wait_stream, handle)


@named
def memcpy_dtod(target: int, source: int, nbytes: int, stream: Any = None) -> None:
    """Copy within the card, in stream order."""
    if _whole("nbytes", nbytes):
        _driver().copy(_whole("target", target), _whole("source", source), nbytes, WITHIN,
                       _stream(stream))


@named
def memset(address: int, value: int, count: int, width: int = 1, stream: Any = None) -> None:
    """Write ``count`` values of ``width`` (1, 2 or 4) bytes, in stream order."""
    if _whole("count", count):
        _driver().fill(_whole("address", address), value, width, count, _stream(stream))


# -- kernels --


@named
def compile(source: str, name: str = "kernel", options: Sequence[str] = ()) -> bytes:
    """An image of CUDA C++ for the current card; the kernels in it are ``extern "C"``.

    Nothing is put before the source.  Raises CompileError.
    """
    found = backend(None)
    properties = found.driver.properties(found.ordinal)
    image: bytes = found.driver.compile(source, name, tuple(options),
                                        f"sm_{properties.major}{properties.minor}")
    return image


@named
def module_load(image: bytes) -> int:
    """Load an image into the current card's context."""
    module: int = _driver().load_module(image)
    return module


@named
def module_unload(module: int) -> None:
    """Unload a module, once the work that may use it is done."""
    driver = _driver()
    _wait("module_unload", backend(None).wait)
    driver.unload_module(module)


@named
def get_function(module: int, name: str) -> int:
    """A kernel of a module."""
    function: int = _driver().function(module, name)
    return function


def pack(*values: Any) -> bytes:
    """A parameter block: each value at a multiple of its size, as a kernel reads them.

    An int is an address or another number of 8 bytes; numbers of other types are NumPy scalars
    (``np.int32(n)``, ``np.float32(x)``) or ctypes objects.  Raises TypeError for anything else: a
    Python float may be meant as float or as double.
    """
    block = bytearray()
    for value in values:
        data, alignment = _packed(value)
        block += bytes(-len(block) % alignment) + data
    return bytes(block)


def _packed(value: Any) -> tuple[bytes, int]:
    if isinstance(value, np.generic):
        return value.tobytes(), value.dtype.alignment
    if isinstance(value, (ctypes._SimpleCData, ctypes.Structure)):
        return bytes(value), ctypes.alignment(type(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return (value % (1 << 64)).to_bytes(8, "little"), 8
    raise TypeError(f"{value!r} of type {type(value).__name__} has no size of its own: write "
                    "np.float32(x), np.float64(x), np.int32(n) or np.bool_(x)")


@named
def launch(function: int, grid: Any, block: Any, parameters: Any = b"", shared: int = 0,
           stream: Any = None) -> None:
    """Launch a kernel; ``parameters``: a block of bytes, or values for `pack`.

    ``grid`` and ``block``: a number or up to three; ``shared``: bytes of dynamic shared memory.
    The block's size is checked where the driver knows the kernel's.
    """
    data = parameters if isinstance(parameters, bytes) else pack(*parameters)
    handle = _stream(stream)
    driver = _driver()
    if shared > 48 << 10:
        driver.set_dynamic_shared(function, shared)
    driver.launch(function, three(grid), three(block), shared, handle, data)


# -- streams and events --


@named
def stream_create(priority: int = 0) -> int:
    """A stream of the current card; smaller priorities go first."""
    stream: int = _driver().create_stream(priority)
    created.add(stream)
    return stream


@named
def stream_destroy(stream: int) -> None:
    """Give back a stream of `stream_create`; its work still finishes."""
    # A `Stream` gives itself back, and one that was given back is no stream any more.
    if not isinstance(stream, int) or stream not in created:
        raise DriverError("stream_destroy", "INVALID_VALUE",
                          f"{stream!r} is no stream of stream_create")
    # Before: the driver may give the number to another thread at once.
    created.discard(stream)
    try:
        _driver().destroy_stream(stream)
    except DriverError:
        created.add(stream)
        raise


@named
def stream_query(stream: Any = None) -> bool:
    """Whether a stream's work is done."""
    handle = _stream(stream)
    done: bool = _driver().query_stream(handle)
    return done


@named
def stream_synchronize(stream: Any = None) -> None:
    """Wait until a stream's work is done."""
    handle = _stream(stream)
    _wait("stream_synchronize", _driver().wait_stream, handle)


@named
def stream_wait_event(stream: Any, event: int) -> None:
    """Let later work of a stream start only after an event."""
    handle = _stream(stream)
    _driver().stream_wait_event(handle, event)


@named
def event_create(timing: bool = True) -> int:
    """An event; with ``timing``, `event_elapsed` can be asked."""
    event: int = _driver().create_event(timing, False)
    return event


@named
def event_destroy(event: int) -> None:
    """Give back an event."""
    _driver().destroy_event(event)


@named
def event_record(event: int, stream: Any = None) -> None:
    """Let an event stand for what a stream holds now."""
    handle = _stream(stream)
    _driver().record_event(event, handle)


@named
def event_query(event: int) -> bool:
    """Whether the work before an event is done."""
    done: bool = _driver().query_event(event)
    return done


@named
def event_synchronize(event: int) -> None:
    """Wait for an event."""
    _wait("event_synchronize", _driver().wait_event, event)


@named
def event_elapsed(start: int, end: int) -> float:
    """Milliseconds between two events."""
    milliseconds: float = _driver().elapsed(start, end)
    return milliseconds


@named
def synchronize() -> None:
    """Wait until all work of the current card is done, raw and tensors' alike."""
    found = backend(None)
    _wait("synchronize", found.wait)
    found.driver.synchronize()
