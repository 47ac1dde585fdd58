"""The driver by documented names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slipstream as ss
from slipstream.cuda import driver

SOURCE = """
extern "C" __global__ void scale(float* x, int n, float s) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= s;
}
"""


@pytest.fixture(scope="module")
def scale() -> int:
    return driver.get_function(driver.module_load(driver.compile(SOURCE)), "scale")


@pytest.fixture
def memory() -> Any:
    address = driver.mem_alloc(400)
    yield address
    driver.mem_free(address)


def test_there_and_back(scale: int, memory: int) -> None:
    host = np.arange(100, dtype=np.float32)
    driver.memcpy_htod(memory, host)
    driver.launch(scale, 1, 128, (memory, np.int32(100), np.float32(2)))
    back = np.empty_like(host)
    driver.memcpy_dtoh(back, memory)
    assert (back == 2 * host).all()


def test_copies_and_fills(memory: int) -> None:
    driver.memcpy_htod(memory, bytes(range(200)))
    driver.memcpy_dtod(memory + 200, memory, 200)
    driver.memset(memory, 7, 50)
    driver.memset(memory + 52, 0x01020304, 3, width=4)
    back = bytearray(400)
    driver.memcpy_dtoh(back, memory)
    assert back[:50] == bytes([7] * 50)
    assert back[52:64] == bytes([4, 3, 2, 1] * 3)
    assert back[64:200] == bytes(range(64, 200))
    assert back[200:] == bytes(range(200))


def test_streams_and_events(scale: int, memory: int) -> None:
    host = np.ones(100, np.float32)
    first, second = driver.stream_create(), driver.stream_create(-1)
    start, end = driver.event_create(), driver.event_create()
    driver.memcpy_htod(memory, host, first)
    driver.event_record(start, first)
    driver.launch(scale, 1, 128, (memory, np.int32(100), np.float32(3)), stream=first)
    driver.event_record(end, first)
    driver.stream_wait_event(second, end)
    driver.launch(scale, 1, 128, (memory, np.int32(100), np.float32(5)), stream=second)
    driver.memcpy_dtoh(host, memory, second)
    assert (host == 15).all()
    assert driver.event_query(end)
    assert driver.stream_query(first)
    driver.event_synchronize(end)
    driver.stream_synchronize(first)
    assert driver.event_elapsed(start, end) >= 0
    for event in (start, end):
        driver.event_destroy(event)
    for stream in (first, second):
        driver.stream_destroy(stream)


def test_only_streams_of_stream_create_are_destroyed() -> None:
    made = driver.stream_create()
    driver.stream_destroy(made)
    for wrong in (ss.cuda.current_stream(), ss.cuda.Stream(), made, 12345, None):
        with pytest.raises(driver.DriverError) as caught:
            driver.stream_destroy(wrong)  # type: ignore[arg-type]
        assert caught.value.code == "INVALID_VALUE"
        assert str(caught.value).endswith(f"{wrong!r} is no stream of stream_create")


def test_raw_calls_stay_in_order_with_tensors(scale: int) -> None:
    x = ss.ones(100, device="cuda")
    x = x * 3
    driver.launch(scale, 1, 128, (x.data_ptr(), np.int32(100), np.float32(2)))
    assert (x + 1).tolist() == [7.0] * 100


def test_parameter_blocks() -> None:
    block = driver.pack(16, np.int8(1), np.float32(0), np.int8(2), np.float64(0), np.bool_(True))
    assert len(block) == 33
    assert block[:8] == (16).to_bytes(8, "little")
    assert (block[8], block[16], block[32]) == (1, 2, 1)
    with pytest.raises(TypeError, match=r"np.float32"):
        driver.pack(1.0)


@pytest.mark.parametrize(("call", "name", "code"), [
    (lambda scale: driver.mem_alloc(0), "mem_alloc", "INVALID_VALUE"),
    (lambda scale: driver.mem_alloc(1 << 50), "mem_alloc", "OUT_OF_MEMORY"),
    (lambda scale: driver.mem_free(12345), "mem_free", "INVALID_VALUE"),
    (lambda scale: driver.module_load(b"no image"), "module_load", "INVALID_IMAGE"),
    (lambda scale: driver.launch(scale, 0, 32, (0, np.int32(0), np.float32(0))), "launch",
     "INVALID_VALUE"),
    (lambda scale: driver.launch(scale, 1, 4096, (0, np.int32(0), np.float32(0))), "launch",
     "INVALID_VALUE"),
])
def test_errors_name_the_call(scale: int, call: Any, name: str, code: str) -> None:
    with pytest.raises(driver.DriverError) as caught:
        call(scale)
    assert (caught.value.call, caught.value.code) == (name, code)
    assert str(caught.value).startswith(f"CUDA driver: {name} failed with {code}")
    assert ss.ones(3, device="cuda").sum().item() == 3


def test_a_buffer_has_to_be_one(memory: int) -> None:
    with pytest.raises(TypeError, match="contiguous"):
        driver.memcpy_htod(memory, np.ones((4, 4))[:, ::2])
    with pytest.raises(TypeError, match="writable"):
        driver.memcpy_dtoh(b"12345678", memory)
    with pytest.raises(TypeError, match="whole number"):
        driver.mem_alloc(-1)


def test_a_source_that_does_not_compile() -> None:
    with pytest.raises(driver.CompileError, match="nothing"):
        driver.compile('extern "C" __global__ void f() { nothing(); }')
