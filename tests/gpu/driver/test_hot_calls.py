"""The driver's calls through its function pointers: what reaches the function that is called."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slipstream.core.launch.cuda.words import Words
from slipstream.core.native import hot
from slipstream.core.native.driver import DriverError
from slipstream.core.native.hot import HotCalls

SHAPE = ((3, 2, 1), (64, 4, 2), 48)

KEEPING = """
#include <string.h>
unsigned shape[7]; char block[8192]; size_t nbytes; int status, launches;
int launch(void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g,
           unsigned h, void *stream, void **parameters, void **extra) {
    unsigned given[7] = {a, b, c, d, e, g, h};
    memcpy(shape, given, sizeof shape);
    nbytes = *(size_t *)extra[3];
    memcpy(block, extra[1], nbytes);
    launches++;
    return status;
}
typedef struct {
    void *function;
    unsigned x, y, z, u, v, w, shared;
    void **parameters, **extra;
    void *kernel, *context;
} node;
void *after;
int add(void **made, void *graph, void **before, size_t count, const node *given) {
    after = count ? before[0] : NULL;
    launch(given->function, given->x, given->y, given->z, given->u, given->v, given->w,
           given->shared, graph, given->parameters, given->extra);
    *made = (char *)graph + launches;
    return status;
}
void *handles[2];
int record(void *event, void *stream) {
    handles[0] = event;
    handles[1] = stream;
    return status;
}
int query(void *event) { handles[0] = event; return status; }
int elapsed(float *spent, void *start, void *end) {
    handles[0] = start;
    handles[1] = end;
    *spent = 1.5f;
    return status;
}
"""


@pytest.fixture
def library(tmp_path: Path) -> Any:
    """The function, compiled."""
    compiler = shutil.which("cc")
    if compiler is None or not hot.__file__.endswith(".so"):
        pytest.skip("needs a C compiler and the compiled core")
    source, target = tmp_path / "keeping.c", tmp_path / "keeping.so"
    source.write_text("#include <stddef.h>\n" + KEEPING)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", target, source], check=True)
    return ctypes.CDLL(str(target))


def kept(library: Any) -> tuple[list[int], bytes]:
    """The shape and the parameter block of the last launch."""
    count = ctypes.c_size_t.in_dll(library, "nbytes").value
    return (list((ctypes.c_uint * 7).in_dll(library, "shape")),
            bytes((ctypes.c_char * 8192).in_dll(library, "block"))[:count])


def calls(library: Any) -> HotCalls:
    """The hot calls of a driver that names the function."""
    pointer, adder, *events = (ctypes.cast(getattr(library, name), ctypes.c_void_p).value
                               for name in ("launch", "add", "record", "query", "elapsed"))
    driver: Any = SimpleNamespace(launcher=pointer, graph_launcher=0, node_setter=0,
                                  node_adder=adder,
                                  event_calls=tuple(events),
                                  status_name=lambda status: f"ERROR_{status}")
    return HotCalls(driver)


def four_words() -> Words:
    """A word that is not handed over, and four that are."""
    words = Words()
    words.append(1)
    words.append(1 << 63)
    words.append_number("i64", -9)
    words.append_number("f64", 2.5)
    words.append_number("f32", 0.5)
    return words


@pytest.mark.parametrize("tail", [b"", b"12345678", bytes(range(256)) * 15 + b"end."])
def test_words_and_tail_are_one_block(library: Any, tail: bytes) -> None:
    hot_calls, words = calls(library), four_words()
    assert hot_calls.launch_words(77, SHAPE, 5, words.address(1), 32, tail)
    shape, block = kept(library)
    assert shape == [3, 2, 1, 64, 4, 2, 48]
    assert block == struct.pack("<Qqdfi", 1 << 63, -9, 2.5, 0.5, 0) + tail
    # The same as the block that is made of them where it has to be bytes.
    assert block == words.block(1, 4, tail)
    assert hot_calls.kernel_launches == 1


def test_a_block_that_is_too_large_goes_the_other_way(library: Any) -> None:
    hot_calls, words = calls(library), four_words()
    assert not hot_calls.launch_words(77, SHAPE, 5, words.address(1), 32, bytes(4096))
    assert ctypes.c_int.in_dll(library, "launches").value == 0


def test_a_status_is_an_error(library: Any) -> None:
    hot_calls, words = calls(library), four_words()
    ctypes.c_int.in_dll(library, "status").value = 7
    with pytest.raises(DriverError, match="cuLaunchKernel"):
        hot_calls.launch_words(77, SHAPE, 5, words.address(1), 32, b"")


def test_events_go_to_their_functions(library: Any) -> None:
    hot_calls = calls(library)
    handles = (ctypes.c_size_t * 2).in_dll(library, "handles")
    status = ctypes.c_int.in_dll(library, "status")
    hot_calls.record_event(1 << 40, 9)
    assert (list(handles), hot_calls.event_records) == ([1 << 40, 9], 1)
    assert hot_calls.elapsed(11, 12) == 1.5
    assert list(handles) == [11, 12]
    assert hot_calls.query_event(13)
    status.value = hot.NOT_READY
    assert not hot_calls.query_event(13)
    assert handles[0] == 13
    for call in (lambda: hot_calls.record_event(1, 2), lambda: hot_calls.query_event(1),
                 lambda: hot_calls.elapsed(1, 2)):
        status.value = 7
        with pytest.raises(DriverError, match=r"cuEvent.*ERROR_7"):
            call()


@pytest.mark.parametrize("value", [0, 1, -1, 2**62 - 1, 2**62, -(2**62), 2**63 - 1, -(2**63),
                                   2**64 - 1, True])
def test_whole_numbers_are_their_low_64_bits(value: int) -> None:
    words = Words()
    words.append_number("i64", value)
    assert words.take(0, 1) == (value % 2**64,)


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 10**30])
def test_whole_numbers_of_more_bits_are_refused(value: int) -> None:
    with pytest.raises(OverflowError):
        Words().append_number("i64", value)


def test_kernel_nodes_are_added_after_the_one_before(library: Any) -> None:
    hot_calls = calls(library)
    first = hot_calls.add_kernel_node(4096, 0, 7, SHAPE, b"abc")
    assert first == 4097
    assert ctypes.c_void_p.in_dll(library, "after").value is None
    assert kept(library) == ([3, 2, 1, 64, 4, 2, 48], b"abc")
    second = hot_calls.add_kernel_node(4096, first, 7, SHAPE, bytes(5000))
    assert (second, ctypes.c_void_p.in_dll(library, "after").value) == (4098, first)
    assert kept(library)[1] == bytes(5000)
    ctypes.c_int.in_dll(library, "status").value = 1
    with pytest.raises(DriverError, match="cuGraphAddKernelNode"):
        hot_calls.add_kernel_node(4096, second, 7, SHAPE, b"abc")


class Contexts:
    """A driver that notes which contexts it was told to use, by thread; ``launcher``: see Driver.
    """

    graph_launcher = node_setter = node_adder = 0
    event_calls = (0, 0, 0)

    def __init__(self, launcher: int) -> None:
        self.launcher = launcher
        self.used: list[tuple[int, int]] = []

    def use(self, context: int) -> None:
        if context == 999:
            raise DriverError("cuCtxSetCurrent", "INVALID_CONTEXT", "")
        self.used.append((threading.get_ident(), context))


def test_a_thread_is_given_a_context_where_it_has_another():
    driver: Any = Contexts(launcher=1)
    calls = HotCalls(driver)
    here = threading.get_ident()

    def use(*contexts: int) -> list[int]:
        driver.used.clear()
        for context in contexts:
            calls.use(context)
        return [context for _, context in driver.used]

    # Another test may have left any context.
    use(101)
    compiled = hot.__file__.endswith(".so")
    assert use(101, 101) == ([] if compiled else [101, 101])
    assert use(102, 102, 101) == ([102, 101] if compiled else [102, 102, 101])
    # What the memory or the modules of another card made current is known.
    hot.use_context(driver, 102)
    assert use(101) == [101]
    # A call that failed changed nothing.
    with pytest.raises(DriverError):
        calls.use(999)
    assert use(101) == ([] if compiled else [101])
    # Another thread has none yet.
    driver.used.clear()
    other = threading.Thread(target=calls.use, args=(101,))
    other.start()
    other.join()
    assert [context for _, context in driver.used] == [101]
    assert driver.used[0][0] != here


def test_a_driver_without_pointers_sees_every_use():
    driver: Any = Contexts(launcher=0)
    calls = HotCalls(driver)
    calls.use(7)
    calls.use(7)
    assert [context for _, context in driver.used] == [7, 7]
