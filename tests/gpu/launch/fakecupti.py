"""A library with CUPTI's functions, whose records are those that the simulated driver tells of."""

from __future__ import annotations

import ctypes
import itertools
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slipstream.core.native import cupti
from slipstream.core.native.drivers import drivers
from slipstream.core.native.simulated import schedule

SOURCE = r"""
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#define SLOT 256
#define MOST (1 << 16)
typedef void (*request)(uint8_t **, size_t *, size_t *);
typedef void (*complete)(void *, uint32_t, uint8_t *, size_t, size_t);
static request ask;
static complete give;
static uint8_t kept[MOST][SLOT];
static int count, enabled[64];
/* version, subscribe, enable, a status behind the last record, dropped records */
static long long set[8] = {130001};
static uint64_t (*clock_now)(void);
void fake_set(int which, long long value) { set[which] = value; }
void fake_clock(uint64_t (*now)(void)) { clock_now = now; }
int fake_enabled(int kind) { return enabled[kind]; }
void fake_feed(const uint8_t *record, size_t n, int always) {
    uint32_t kind;
    memcpy(&kind, record, 4);
    if (count < MOST && (always || kind >= 64 || enabled[kind]))
        memcpy(kept[count++], record, n < SLOT ? n : SLOT);
}
int cuptiGetVersion(uint32_t *version) { *version = (uint32_t)set[0]; return 0; }
int cuptiGetResultString(int status, const char **text) {
    *text = status == 39 ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" : "CUPTI_ERROR_OTHER";
    return status == 77;
}
int cuptiSubscribe(void **handle, void *callback, void *data) {
    (void)data;
    *handle = callback;
    return (int)set[1];
}
int cuptiUnsubscribe(void *handle) { return handle == NULL; }
int cuptiActivityRegisterCallbacks(request first, complete second) {
    ask = first;
    give = second;
    return first == NULL || second == NULL;
}
int cuptiActivityEnable(int kind) { enabled[kind] = !set[2]; return (int)set[2]; }
int cuptiActivityDisable(int kind) { enabled[kind] = 0; return 0; }
int cuptiActivityFlushAll(uint32_t flag) {
    (void)flag;
    for (int at = 0; at < count;) {
        uint8_t *buffer = NULL;
        size_t size = 0, most = 0;
        ask(&buffer, &size, &most);
        if (buffer == NULL) {
            set[4] += count - at;
            break;
        }
        int n = (int)(size / SLOT) < count - at ? (int)(size / SLOT) : count - at;
        memcpy(buffer, kept[at], (size_t)n * SLOT);
        give(NULL, 0, buffer, size, (size_t)n * SLOT);
        at += n;
    }
    memset(kept, 0, (size_t)count * SLOT);
    count = 0;
    return 0;
}
int cuptiActivityGetNextRecord(uint8_t *buffer, size_t n, uint8_t **record) {
    uint8_t *next = *record == NULL ? buffer : *record + SLOT + set[3];
    if (next + SLOT > buffer + n)
        return 12;
    *record = next;
    return 0;
}
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped) {
    (void)context;
    (void)stream;
    *dropped = (size_t)set[4];
    return 0;
}
int cuptiGetTimestamp(uint64_t *time) {
    *time = clock_now == NULL ? 0 : clock_now();
    return 0;
}
"""
VERSION, SUBSCRIBE, ENABLE, SHIFT, DROPPED = range(5)
# How far its clock is ahead of the simulated host's.
AHEAD = 1 << 50
NOW = ctypes.CFUNCTYPE(ctypes.c_uint64)


def kernel(name: int, start: int, end: int, correlation: int, graph: int = 0) -> bytes:
    """A kernel's record; ``name``: an address."""
    return struct.pack("<I12xQQ8xI4xI40xI8xQ44xI", cupti.KERNEL, start, end, 0, 7, correlation,
                       name, graph)


def copy(nbytes: int, start: int, end: int, correlation: int) -> bytes:
    """A copy's record."""
    return struct.pack("<I4xQQQI4xII", cupti.MEMCPY, nbytes, start, end, 0, 7, correlation)


class FakeCupti:
    """The library, fed by the simulated driver's work; `play` may change each record.

    ``told``: (name, begin, end) of every kernel that ran; ``alone``: those that had a record.
    """

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.library.fake_set.argtypes = (ctypes.c_int, ctypes.c_longlong)
        self.names: dict[str, Any] = {}
        self.play: Callable[[bytes], list[bytes]] = lambda record: [record]
        self.told: list[tuple[str, int, int]] = []
        self.alone: list[tuple[str, int, int]] = []
        # Whether the work that runs was launched while kernels had records.
        self.seen = False
        self.numbers = itertools.count(100)
        self.running = 0
        self.now = NOW(lambda: AHEAD + drivers.current().host_clock().now())
        self.library.fake_clock(self.now)

    def set(self, which: int, value: int) -> None:
        """Choose how it behaves."""
        self.library.fake_set(which, value)

    def address(self, name: str) -> int:
        """Where a name lies."""
        held = self.names.setdefault(name, ctypes.create_string_buffer(name.encode()))
        return ctypes.addressof(held)

    def feed(self, record: bytes, always: bool = False) -> None:
        """Play a record; ``always``: of what was launched while its kind was on."""
        for each in self.play(record):
            self.library.fake_feed(each, len(each), int(always))

    def ran(self, action: Any, site: Any, *facts: Any) -> None:
        """A piece of the simulated driver's work ran."""
        _, begin, end, replayed = facts
        if action.kind == "kernel":
            self.told.append((action.function.name, begin, end))
            if self.seen:
                self.alone.append((action.function.name, begin, end))
                self.feed(kernel(self.address(action.function.name), begin + AHEAD, end + AHEAD,
                                 self.running, 5 if replayed else 0), True)
        elif action.kind == "copy":
            self.feed(copy(action.nbytes, begin + AHEAD, end + AHEAD, self.running))

    def watch(self, monkeypatch: Any) -> None:
        """See the driver's work, with the number of the call that submitted it."""
        for kind in (schedule.ActionWork, schedule.GraphWork):
            numbered(self, monkeypatch, kind)
        monkeypatch.setattr(type(drivers.current()), "tell_work", lambda driver, listener: False)
        drivers.current().desk.listener = self.ran


def numbered(fake: FakeCupti, monkeypatch: Any, kind: Any) -> None:
    """Number each piece of work as it is submitted, and tell the number while it runs."""
    make, step = kind.__init__, kind.step

    def making(work: Any, *arguments: Any) -> None:
        make(work, *arguments)
        work.number = next(fake.numbers)
        # What is turned on counts for what is launched from then on.
        work.seen = bool(fake.library.fake_enabled(cupti.KERNEL))

    def stepping(work: Any, desk: Any) -> bool:
        fake.running, fake.seen = work.number, work.seen
        done: bool = step(work, desk)
        return done

    monkeypatch.setattr(kind, "__init__", making)
    monkeypatch.setattr(kind, "step", stepping)
