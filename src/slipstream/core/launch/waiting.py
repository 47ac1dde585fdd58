"""The one place where the host waits for a device, or reads what it wrote.

Every wait is counted under the line that asked for it, and may be refused or told of: `watching`.
That costs about a microsecond a wait and nothing where there is none.
"""

from __future__ import annotations

import functools
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

from slipstream.core.launch.advice import mend_of
from slipstream.core.launch.door import backend_of, backends, emit
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.devices import CPU, Device
from slipstream.core.vocab.errors import CaptureError, SyncError, explain, restate
from slipstream.core.vocab.modes import decode_site, modes
from slipstream.core.vocab.records import KERNEL, Plan, TensorBase
from slipstream.core.vocab.ring import WAIT, WAITING

# What becomes of a wait: nothing, a warning, an error.
DEFAULT, WARN, ERROR = range(3)


class Asking(threading.local):
    """What a thread does: ``call``, the (name, operand) of a call of the user that may wait, and
    ``mode``, the mode of the innermost `no_sync` scope."""

    call: tuple[str, Any] | None = None
    mode: int | None = None


class Tally:
    """How often something happened at one line: ``count``, ``nanoseconds`` and ``nbytes`` in all.

    ``what``: the kind of wait, or the dtype that was copied.
    """

    def __init__(self, site: tuple[Any, int], what: str, device: str) -> None:
        self.site = site
        self.what = what
        self.device = device
        self.count = 0
        self.nanoseconds = 0
        self.nbytes = 0


class Watching:
    """The waits so far, and what becomes of them; a singleton, `watching`.

    ``mode``: that of every thread outside `no_sync`; ``waits`` and ``copies`` (to a device): the
    tallies; ``widened``: calls that made float64 of narrower floats on a device, as (operands,
    result) by site; ``under_way``: when the wait began that a thread is in, ns, by thread.
    """

    def __init__(self) -> None:
        self.mode = DEFAULT
        self.waits: dict[tuple[Any, ...], Tally] = {}
        self.copies: dict[tuple[Any, ...], Tally] = {}
        self.widened: dict[tuple[Any, int], tuple[str, str]] = {}
        self.under_way: dict[int, int] = {}

    def waited(self) -> int:
        """ns that the host waited until now, waits that are under way included.

        Each is under way or counted: where another thread looks between the two, it is both for
        that look alone.
        """
        now = time.perf_counter_ns()
        counted = sum(tally.nanoseconds for tally in tuple(self.waits.values()))
        return counted + sum(now - begun for begun in tuple(self.under_way.values()))

    def count(self, table: dict[tuple[Any, ...], Tally], what: str, device: Device,
              spent: tuple[int, int]) -> None:
        """Count ``spent``, (nanoseconds, bytes), at the running thread's site."""
        state = modes.current()
        # By address: a code object's hash takes microseconds, and the tally keeps it alive.
        key = (id(state.code), state.instruction, what, id(device))
        found = table.get(key)
        if found is None:
            site = (state.code, state.instruction)
            # Of two threads the first one's tally stays.  No call comes between what follows, so
            # that no other thread does: a lock would cost more than all the rest.
            found = table.setdefault(key, Tally(site, what, str(device)))
        found.count += 1
        found.nanoseconds += spent[0]
        found.nbytes += spent[1]

    def clear(self) -> None:
        """Forget what was counted."""
        self.waits.clear()
        self.copies.clear()
        self.widened.clear()


def asked(name: str, operand: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """``function(*arguments)``, whose waits are those of the user's call ``name(operand)``."""
    before = asking.call
    if before is not None:
        return function(*arguments)
    asking.call = (name, operand)
    try:
        return function(*arguments)
    except (SyncError, CaptureError) as failure:
        restate(failure, name, {} if operand is None else {"self": operand})
        raise
    finally:
        asking.call = None


def asking_as(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of an op, whose waits are those of the op ``name``: it calls others that wait."""

    @functools.wraps(function)
    def named(operand: Any, *rest: Any) -> Any:
        if not isinstance(operand, TensorBase) or operand.spec.device is CPU:
            return function(operand, *rest)
        return asked(name, operand, function, operand, *rest)

    return named


def host_waits(device: Device, reason: str, act: Callable[..., Any], *arguments: Any,
               nbytes: int = 0, bound: bool = False) -> Any:
    """``act(*arguments)``, in which the host waits for a device: there is no other way to wait.

    ``reason`` names what asked, where `asked` did not.  ``bound``: no program can do without this
    wait, or it depends on how fast the device is: it is counted, and neither refused nor told of.
    Raises SyncError where waits are refused.
    """
    state = modes.current()
    modes.note_site(state)
    name = reason if asking.call is None else asking.call[0]
    mode = watching.mode if asking.mode is None else asking.mode
    if mode and not bound:
        object_to(mode, name, device, mend_of(name, reason))
    ring = modes.ring
    layer = 0 if ring is None else ring.switch(WAITING)
    begun = 0 if ring is None else ring.now()
    thread = threading.get_ident()
    start = time.perf_counter_ns()
    # A wait within a wait, as for memory, is part of it.
    began = watching.under_way.setdefault(thread, start)
    try:
        return act(*arguments)
    finally:
        end = time.perf_counter_ns()
        watching.count(watching.waits, name, device, (end - start, nbytes))
        if began == start:
            watching.under_way.pop(thread, None)
        if ring is not None:
            ring.switch(layer)
            ring.write(WAIT | (device.index or 0) << 8, ring.name_of(name),
                       ring.site_of(state.code, state.instruction), begun, ring.now(), nbytes)
        if modes.listeners is not None:
            emit("wait", name, start, end, {"device": str(device)})


def object_to(mode: int, name: str, device: Device, mend: str) -> None:
    """Warn of a wait of the running thread, or raise SyncError."""
    state = modes.current()
    file, line = decode_site(state.code, state.instruction)
    call = asking.call
    arguments = {} if call is None or call[1] is None else {"self": call[1]}
    if mode == ERROR:
        rule = f"the host would wait for {device} at {file}:{line}, and waits are refused here"
        raise SyncError(explain(name, arguments, rule, mend))
    text = explain(name, arguments, f"the host waits for {device}", mend)
    warnings.warn_explicit(text, UserWarning, file or "<unknown>", line, registry=warned)


def may_wait(device: Device, name: str) -> None:
    """Say that the user's call ``name`` is about to wait, in ways of its own, for a device."""
    modes.note_site(modes.current())
    mode = watching.mode if asking.mode is None else asking.mode
    if mode:
        object_to(mode, name, device, mend_of(name))


def wait(device: Device, reason: str) -> None:
    """Return when all work submitted to ``device`` is done; ``reason`` names what asked."""
    backend = backends.get(device)
    if backend is None:
        return
    if not (backend.immediate or not backend.has_data):
        host_waits(device, reason, backend.wait)
        return
    if modes.listeners is not None:
        now = time.perf_counter_ns()
        emit("wait", reason, now, now, {"device": str(device)})


def read(device: Device, address: int, nbytes: int, reason: str) -> bytes:
    """Bytes of a device's memory, once the current stream has written them: a wait too."""
    data: bytes = host_waits(device, reason, backend_of(device).read_back, address, nbytes,
                             nbytes=nbytes)
    return data


def read_into(device: Device, target: int, address: int, nbytes: int, reason: str) -> None:
    """Copy bytes of a device's memory to the host's at ``target``: `read` without a copy more."""
    backend: Any = backend_of(device)
    host_waits(device, reason, backend.read_into, target, address, nbytes, nbytes=nbytes)


def note_copy(source: TensorBase, device: Device) -> None:
    """Count a copy from the host to a device."""
    watching.count(watching.copies, source.spec.dtype.name, device, (0, source.spec.nbytes))


def note_plan(values: Any, plan: Plan) -> None:
    """Note a new plan of a device whose result is float64 though a float operand is narrower."""
    result = plan.out_spec
    if plan.kind != KERNEL or result is None or result.dtype is not dtypes.float64:
        return
    if plan.backend.on_host:
        return
    specs = [each.spec for each in values if isinstance(each, TensorBase)]
    narrower = any(spec.dtype.category == 2 and spec.dtype is not result.dtype for spec in specs)
    wide = any(spec.dtype is result.dtype for spec in specs)
    if narrower and wide:
        state = modes.current()
        watching.widened[(state.code, state.instruction)] = (
            ", ".join(map(repr, specs)), repr(result))


asking = Asking()
watching = Watching()
# Python's own record of what was warned of at which line.
warned: dict[Any, Any] = {}
