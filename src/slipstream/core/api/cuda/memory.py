"""The memory of cards: what is in use, how much there may be, pools, what was recorded."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from slipstream.core.api.cuda.devices import backend, existing, index_of
from slipstream.core.api.cuda.streams import ExternalStream, Stream
from slipstream.core.launch.door import backends
from slipstream.core.launch.waiting import may_wait
from slipstream.core.memory import history, pools, statistics
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.errors import NotSupported, OutOfMemoryError

__all__ = ["OutOfMemoryError"]

# What callers of `caching_allocator_alloc` hold: address -> (card, bytes, stream's number).
held: dict[int, tuple[int, int, int]] = {}
# Settings of PyTorch's allocator that have nothing to steer here.
WITHOUT_EFFECT = (
    "expandable_segments", "max_split_size_mb", "roundup_power2_divisions", "backend",
    "max_non_split_rounding_mb", "pinned_use_cuda_host_register", "pinned_num_register_threads",
    "pinned_use_background_threads", "release_lock_on_cudamalloc", "per_process_memory_fraction",
)


def known(device: Any) -> Any:
    """The allocator of a card, or None where nothing was done on it yet."""
    found = backends.get(Device("cuda", existing(device)))
    return None if found is None else found.memory


def allocator(device: Any) -> Any:
    """The allocator of a card."""
    return backend(existing(device)).memory


def all_allocators() -> list[Any]:
    """The allocators of the cards on which something was done, by index."""
    found = [each for each in tuple(backends.items()) if each[0].type == "cuda"]
    return [each.memory for _, each in sorted(found, key=lambda pair: pair[0].index or 0)]


# -- counts --


def memory_stats(device: Any = None) -> dict[str, Any]:
    """All counts of a card's allocator under PyTorch's flat keys; empty before its first use.

    ``allocated_bytes.all.current`` and its like: ``allocated_bytes``, ``requested_bytes``,
    ``reserved_bytes``, ``active_bytes`` and ``allocation``, ``segment``, ``active``; of ``all``,
    ``large_pool``, ``small_pool``; ``current``, ``peak``, ``allocated``, ``freed``.  Peaks that
    would cost something at every request are not kept, and their keys are not there.
    """
    found = known(device)
    if found is None:
        return {}
    stats = statistics.memory_stats(found)
    for pool in ("all", "large_pool", "small_pool"):
        # What is reserved and not in use, as PyTorch counts the free parts of segments.
        free = stats[f"reserved_bytes.{pool}.current"] - stats[f"allocated_bytes.{pool}.current"]
        stats[f"inactive_split_bytes.{pool}.current"] = free
    return stats


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    """Dotted keys as dictionaries in dictionaries."""
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *path, last = key.split(".")
        place = tree
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return tree


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """`memory_stats` with its keys taken apart."""
    return nested(memory_stats(device))


def count(name: str, device: Any) -> int:
    """One count; 0 before a card's first use."""
    value: int = memory_stats(device).get(name, 0)
    return value


def memory_allocated(device: Any = None) -> int:
    """Bytes in blocks that are in use."""
    return count("allocated_bytes.all.current", device)


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes in use at once since start, or since `reset_peak_memory_stats`."""
    return count("allocated_bytes.all.peak", device)


def memory_reserved(device: Any = None) -> int:
    """Bytes taken from the card, in use or kept for the next request."""
    return count("reserved_bytes.all.current", device)


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes taken from the card at once."""
    return count("reserved_bytes.all.peak", device)


def reset_peak_memory_stats(device: Any = None) -> None:
    """Let every peak begin again at what is in use now."""
    found = known(device)
    if found is not None:
        statistics.reset_peak(found)


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Forget how much was allocated and freed so far."""
    found = known(device)
    if found is not None:
        statistics.reset_totals(found)


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The counts as a table; the lines that hold memory too unless ``abbreviated``."""
    found = known(device)
    if found is None:
        return "no memory of this card was used"
    text = statistics.memory_summary(found)
    lines = [] if abbreviated else [f"  {holder}" for holder in found.holders()]
    return "\n".join([text, *(["in use by line:"] if lines else []), *lines])


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes of a card, as its driver says; other processes count too."""
    found: tuple[int, int] = allocator(device).memory.info()
    return found


# -- limits --


def empty_cache() -> None:
    """Send what is recorded, wait for it, and give the cards all memory that is not in use."""
    for each in all_allocators():
        may_wait(Device("cuda", each.ordinal), "empty_cache")
        pools.routes_of(each).finish()
        each.empty_cache()


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Take at most this part of a card's memory; more is an OutOfMemoryError."""
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    found = allocator(device)
    found.set_limit(0 if fraction == 1 else max(1, int(fraction * found.memory.total)))


def get_per_process_memory_fraction(device: Any = None) -> float:
    """The part of a card's memory that may be taken."""
    found = allocator(device)
    limit: int = found.pieces.limit
    return limit / found.memory.total if limit else 1.0


class CallbackHandle:
    """Stands for a registered function; `remove` ends its registration."""

    def __init__(self, callbacks: list[Callable[[int], Any]], callback: Callable[[int], Any]):
        self.callbacks = callbacks
        self.callback = callback

    def remove(self) -> None:
        """Call the function no more."""
        if self.callback in self.callbacks:
            self.callbacks.remove(self.callback)


def register_free_memory_callback(callback: Callable[[int], Any],
                                  device: Any = None) -> CallbackHandle:
    """Call ``callback(nbytes)`` before a card is asked for more memory.

    It may let go of tensors; blocks that fit are used before the card is asked.  What it allocates
    itself calls no function.
    """
    callbacks = allocator(device).callbacks
    callbacks.append(callback)
    return CallbackHandle(callbacks, callback)


def _set_allocator_settings(env: str) -> None:
    """Settings as in PyTorch's ``PYTORCH_CUDA_ALLOC_CONF``: ``garbage_collection_threshold``.

    Others that PyTorch knows have nothing to steer here; RuntimeError for what it does not know.
    """
    for item in filter(None, env.replace(" ", "").split(",")):
        name, _, value = item.partition(":")
        if name == "garbage_collection_threshold":
            for each in all_allocators() or [allocator(None)]:
                each.collect_above = int(float(value) * (each.pieces.limit or each.memory.total))
        elif name not in WITHOUT_EFFECT:
            raise RuntimeError(f"Unrecognized CachingAllocator option: {name}")


# -- bare blocks --


def stream_number(stream: Any, device: Any) -> int:
    """The number of a stream given as a Stream or by its handle; None is the current one."""
    found = backend(device)
    number: int
    if stream is None:
        number = found.current_number()
    elif isinstance(stream, Stream):
        number = stream.queue.number
    elif stream == 0:
        number = found.default.number
    elif isinstance(stream, int):
        numbers = [queue.number for queue in found.queues if queue.stream == stream]
        number = numbers[0] if numbers else ExternalStream(stream, device).queue.number
    else:
        raise TypeError("Invalid type for stream argument, must be `cuda.Stream` or `int` "
                        "representing a pointer to a existing stream")
    return number


def caching_allocator_alloc(size: int, device: Any = None, stream: Any = None) -> int:
    """The address of a block for a stream: memory for other libraries.

    ``stream``: a Stream, its handle as a number, or None for the current one.
    """
    number = stream_number(stream, device)
    address: int = allocator(device).allocate_for(size, number)
    if address:
        held[address] = index_of(device), size, number
    return address


def caching_allocator_delete(mem_ptr: int) -> None:
    """Give back a block that `caching_allocator_alloc` gave; work in order may still use it."""
    if mem_ptr == 0:
        return
    found = held.pop(mem_ptr, None)
    if found is None:
        raise RuntimeError(f"no block was given out at {mem_ptr:#x}")
    index, size, number = found
    memory = allocator(index)
    if memory.uses is not None:
        # Other code may have launched what nobody counted: count one launch, after which it was.
        queue = backend(index).queues[number]
        queue.sequence += 1
        memory.used(mem_ptr, number, queue.sequence)
    memory.free(mem_ptr, size)


def caching_allocator_enable(value: bool = True) -> None:
    """Whether blocks are kept for the next request; False asks the driver for each."""
    for each in all_allocators() or [allocator(None)]:
        pools.set_caching(each, value)


@contextmanager
def caching_allocator_disabled() -> Iterator[None]:
    """A scope in which the driver is asked for each block."""
    caching_allocator_enable(False)
    try:
        yield
    finally:
        caching_allocator_enable(True)


# -- memory that a user brings --


class CUDAPluggableAllocator:
    """A user's library with two C functions that allocate and free device memory.

    ``void* allocate(ssize_t size, int device, cudaStream_t stream)`` and
    ``void release(void* pointer, ssize_t size, int device, cudaStream_t stream)``.
    """

    def __init__(self, path_to_so_file: str, alloc_fn_name: str, free_fn_name: str) -> None:
        self.functions = pools.UserFunctions(path_to_so_file, alloc_fn_name, free_fn_name)

    def allocator(self) -> pools.UserFunctions:
        """What `MemPool` takes."""
        return self.functions


def change_current_allocator(allocator: CUDAPluggableAllocator) -> None:
    """Let a user's functions serve every card; only before a card's first use."""
    if all_allocators():
        raise RuntimeError("Can't swap an already initialized allocator")
    pools.replace_all(allocator.functions)


def get_allocator_backend() -> str:
    """``native``, or ``pluggable`` after `change_current_allocator`."""
    return "native" if pools.plugged.make is None else "pluggable"


class MemPool:
    """Memory apart from the rest, for what is asked for inside `use_mem_pool`.

    ``allocator``: a `CUDAPluggableAllocator`'s functions that it comes from, None for the card.
    """

    def __init__(self, allocator: Any = None, use_on_oom: bool = False,
                 no_split: bool = False) -> None:
        if use_on_oom or no_split:
            raise NotSupported("MemPool: use_on_oom and no_split do not exist here")
        functions = allocator
        if isinstance(allocator, CUDAPluggableAllocator):
            functions = allocator.functions
        self.pool = pools.Pool(functions)

    @property
    def id(self) -> tuple[int, int]:
        """What names the pool in a snapshot."""
        return 0, self.pool.number

    @property
    def allocator(self) -> Any:
        """The functions that its memory comes from, or None."""
        return self.pool.functions

    def use_count(self) -> int:
        """How many hold the pool: the object itself and every scope."""
        return 1 + self.pool.scopes

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        """The pool's segments."""
        return [segment for memory in self.pool.allocators.values()
                for segment in history.Map(memory, self.id).segments()]


@contextmanager
def use_mem_pool(pool: MemPool, device: Any = None) -> Iterator[None]:
    """A scope in which this thread's requests on a card go to a pool."""
    if not isinstance(pool, MemPool):
        raise TypeError(f"use_mem_pool(): expected a cuda.MemPool, not {type(pool).__name__}")
    routes = pools.routes_of(allocator(device))
    entered = routes.enter(pool.pool)
    try:
        yield
    finally:
        routes.leave(entered)


# -- maps and histories --


def _record_memory_history(enabled: Any = "all", context: Any = "all", stacks: str = "all",
                           max_entries: int = sys.maxsize, *, clear_history: bool = False,
                           **more: Any) -> None:
    """Record every request and return of memory, with the lines, on all cards.

    ``enabled``: None or False ends it, "state" keeps what belongs to live blocks only, "all" the
    events too; ``context``: None keeps no stacks; ``max_entries``: how many events are kept.
    """
    if clear_history:
        history.recorder.clear()
    if not enabled:
        history.recorder.stop()
        return
    if enabled not in (True, "state", "all") or context not in (None, "state", "alloc", "all"):
        raise ValueError(f"not known: enabled={enabled!r}, context={context!r}")
    history.recorder.start(max_entries, enabled != "state", context is not None)
    for each in all_allocators():
        history.recorder.attach(each)


def _snapshot(device: Any = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """The memory of all cards, block by block, and the recorded events.

    In the form that ``python -m torch.cuda._memory_viz`` reads.
    """
    return history.snapshot(all_allocators())


def memory_snapshot(mempool_id: Any = None, include_traces: bool = True) -> list[dict[str, Any]]:
    """Every segment of memory with its blocks, of one pool where ``mempool_id`` names one."""
    segments: list[dict[str, Any]] = _snapshot()["segments"]
    wanted = None if mempool_id is None else tuple(mempool_id)
    return [each for each in segments if wanted in (None, each["segment_pool_id"])]


def _dump_snapshot(filename: str = "dump_snapshot.pickle",
                   augment_with_fx_traces: bool = False) -> None:
    """Write `_snapshot` to a file."""
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(), file)


# -- pinned host memory --


def host_memory_stats() -> dict[str, Any]:
    """The counts of pinned host memory under PyTorch's flat keys."""
    found = pinned_allocators()
    return statistics.memory_stats(found[0]) if found else {}


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """`host_memory_stats` with its keys taken apart."""
    return nested(host_memory_stats())


def pinned_allocators() -> list[Any]:
    """The allocators of pinned memory that were used."""
    found = [getattr(each, "pinned", None) for each in tuple(backends.values())]
    return [each for each in found if each is not None]


def reset_peak_host_memory_stats() -> None:
    """Let the peaks of pinned memory begin again at what is in use now."""
    for each in pinned_allocators():
        statistics.reset_peak(each)


def reset_accumulated_host_memory_stats() -> None:
    """Forget how much pinned memory was allocated and freed so far."""
    for each in pinned_allocators():
        statistics.reset_totals(each)
