"""Accesses that no program should make are found, and what may be done is not reported."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from slipstream.core.native.driver import DriverError
from slipstream.core.native.simulated import SimulatedFault

COPY = """
extern "C" __global__ void kernel(float* out, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i];
}
"""
WIDE = """
extern "C" __global__ void kernel(float* out, const float* x) {
    slip_store<float4>(out + 4 * threadIdx.x, slip_load<float4>(x + 4 * threadIdx.x));
}
"""
TABLE = """
struct Tail { unsigned long long addresses[2]; };
extern "C" __global__ void kernel(float* out, const Tail tail) {
    SLIP_POINTER(const float) x = slip_pointer_at<const float>(tail.addresses[1]);
    out[threadIdx.x] = x[threadIdx.x];
}
"""


def site() -> tuple[object, int]:
    frame = sys._getframe(1)
    return frame.f_code, frame.f_lasti


class Arena:
    """Memory from which the test hands out blocks, as an allocator does."""

    def __init__(self, card: object) -> None:
        self.driver = card.driver
        self.base = card.driver.allocate(1 << 20)

    def block(self, offset: int, nbytes: int, requested: int) -> int:
        self.driver.handed_out(self.base + offset, nbytes, requested)
        return self.base + offset


@pytest.fixture
def arena(card):
    return Arena(card)


def caught_by(card) -> SimulatedFault:
    with pytest.raises(SimulatedFault) as caught:
        card.wait()
    card.wait()  # the device lives on, and the fault is told once
    return caught.value


def test_reading_past_a_block(card, arena):
    kernel, card.driver.site = card.kernel(COPY), site()
    x, out = arena.block(0, 512, 400), arena.block(512, 512, 512)
    card.launch(kernel, 1, 128, "QQi", out, x, 100)
    card.wait()
    card.launch(kernel, 1, 128, "QQi", out, x, 101)
    fault = caught_by(card)
    assert fault.kind == "OUT_OF_BOUNDS"
    assert fault.code == "ILLEGAL_ADDRESS"
    assert fault.work == "kernel kernel"
    assert fault.block == (x, 400)
    assert fault.address == x + 400
    assert "reads 4 bytes" in str(fault)
    assert "0 bytes past the end of the block of 400 bytes" in str(fault)
    assert "thread (100, 0, 0)" in str(fault)
    assert f"{__file__}:{site.__code__.co_firstlineno}" not in str(fault)
    assert str(fault).count(__file__) == 2  # where it was launched, where the block was made


def test_lanes_with_a_bad_access_read_zero_and_write_nothing(card, arena):
    x, out = arena.block(0, 512, 40), arena.block(512, 512, 80)
    card.driver.fill(out, 0x40000000, 4, 20, card.stream)
    card.driver.fill(x, 0x3F800000, 4, 10, card.stream)
    card.launch(card.kernel(COPY), 1, 32, "QQi", out, x, 15)
    fault = caught_by(card)
    assert fault.others == 4
    np.testing.assert_array_equal(card.fetch(out, 20), [1] * 10 + [0] * 5 + [2] * 5)


def test_writing_before_a_block(card, arena):
    x, out = arena.block(0, 512, 512), arena.block(512, 512, 512)
    source = COPY.replace("out[i]", "out[i - 1]")
    card.launch(card.kernel(source), 1, 8, "QQi", out, x, 8)
    fault = caught_by(card)
    assert "writes 4 bytes" in str(fault)
    assert "4 bytes before the block of 512 bytes" in str(fault)


def test_use_after_a_block_was_taken_back(card, arena):
    kernel = card.kernel(COPY)
    x, out = arena.block(0, 512, 512), arena.block(512, 512, 512)
    card.launch(kernel, 1, 8, "QQi", out, x, 8)
    card.driver.site = site()
    card.driver.taken_back(x, 512)  # in stream order: the launch above may still use it
    card.wait()
    card.launch(kernel, 1, 8, "QQi", out, x, 8)
    fault = caught_by(card)
    assert fault.kind == "USE_AFTER_FREE"
    assert "taken back at" in str(fault)
    arena.block(0, 512, 512)
    card.launch(kernel, 1, 8, "QQi", out, x, 8)
    card.wait()


def test_a_stamp_says_which_blocks_lived(card, arena):
    kernel = card.kernel(COPY)
    x, out = arena.block(0, 512, 512), arena.block(512, 512, 512)
    moment = card.driver.moment
    card.driver.taken_back(x, 512)
    arena.block(0, 256, 16)
    card.driver.stamp = moment
    card.launch(kernel, 1, 128, "QQi", out, x, 128)
    card.wait()
    card.driver.stamp = None
    card.launch(kernel, 1, 128, "QQi", out, x, 128)
    assert caught_by(card).block == (x, 16)


def test_blocks_of_long_ago_are_forgotten(card, arena):
    arena.block(1024, 512, 512)
    for _ in range(40000):
        card.driver.handed_out(arena.base, 512, 512)
        card.driver.taken_back(arena.base, 512)
    assert len(card.driver.desk.blocks) < 40000
    card.driver.taken_back(arena.base + 1024, 512)
    assert card.driver.engine.dead_count(card.driver.world) <= 8192
    with pytest.raises(DriverError, match="no block of 512 bytes lives"):
        card.driver.taken_back(arena.base, 512)


def test_fresh_blocks_are_poison(make_card):
    for poison in (True, False):
        card = make_card(poison=poison)
        arena = Arena(card)
        x = arena.block(0, 512, 512)
        card.driver.fill(x, 0, 1, 512, card.stream)
        card.wait()
        card.driver.taken_back(x, 512)
        arena.block(0, 512, 512)
        seen = card.fetch(x, 128, np.uint32)
        assert (seen == (0xFFFFFFFF if poison else 0)).all()


def test_memory_that_was_never_handed_out(card, arena):
    arena.block(0, 512, 512)
    card.launch(card.kernel(COPY), 1, 1, "QQi", arena.base, arena.base + 4096, 1)
    fault = caught_by(card)
    assert "lies in no block" in str(fault)


def test_null_and_wild_pointers(card):
    out = card.room(1)
    for address in (0, 64, 1 << 46):
        card.launch(card.kernel(COPY), 1, 1, "QQi", out, address, 1)
        assert caught_by(card).kind == "USE_AFTER_FREE"
        card.launch(card.kernel(COPY), 1, 1, "QQi", out, address, 0)
        card.wait()


def test_freed_memory(card):
    x, out = card.room(8), card.room(8)
    card.launch(card.kernel(COPY), 1, 8, "QQi", out, x, 8)
    card.driver.free(x)
    card.wait()
    card.launch(card.kernel(COPY), 1, 8, "QQi", out, x, 8)
    assert caught_by(card).kind == "USE_AFTER_FREE"


def test_misaligned_vectors(card):
    x, out = card.put(np.arange(64, dtype=np.float32)), card.room(64)
    card.launch(card.kernel(WIDE), 1, 8, "QQ", out, x)
    card.launch(card.kernel(WIDE), 1, 8, "QQ", out, x + 16)
    card.wait()
    card.launch(card.kernel(WIDE), 1, 8, "QQ", out, x + 4)
    fault = caught_by(card)
    assert fault.kind == "MISALIGNED"
    assert "reads 16 bytes" in str(fault)


def test_pointers_in_a_table_are_checked(card):
    x, out = card.put(np.arange(8, dtype=np.float32)), card.room(16)
    card.launch(card.kernel(TABLE), 1, 8, "QQQ", out, 0, x)
    np.testing.assert_array_equal(card.fetch(out, 8), np.arange(8))
    card.launch(card.kernel(TABLE), 1, 9, "QQQ", out, 0, x)
    assert caught_by(card).kind == "OUT_OF_BOUNDS"


def test_another_devices_memory(make_card):
    for peer in (False, True):
        card = make_card(peer=peer)
        out = card.room(8)
        card.driver.use(card.driver.context(1))
        x = card.driver.allocate(32)
        card.driver.use(card.driver.context(0))
        card.launch(card.kernel(COPY), 1, 8, "QQi", out, x, 8)
        card.driver.copy(out, x, 32, "within", card.stream)
        if peer:
            card.wait()
        else:
            assert "cannot reach" in str(caught_by(card))


def test_copies_and_fills_are_checked(card, arena):
    x = arena.block(0, 512, 100)
    card.driver.fill(x, 0, 1, 101, card.stream)
    assert caught_by(card).work == "fill of 101 bytes"
    host = np.zeros(101, np.uint8)
    with pytest.raises(SimulatedFault, match="copy of 101 bytes"):
        card.driver.copy(host.ctypes.data, x, 101, "to_host", card.stream)
    card.driver.copy(host.ctypes.data, x, 100, "to_host", card.stream)


def test_stand_ins_are_checked_and_their_errors_come_at_the_wait(card, arena):
    x = arena.block(0, 512, 100)
    ran = []
    card.driver.matmul_stand_in(card.stream, lambda: ran.append(1), reads=((x, 100),))
    card.wait()
    card.driver.matmul_stand_in(card.stream, lambda: ran.append(1), writes=((x, 101),))
    assert "library call" in str(caught_by(card))

    def fails() -> None:
        raise ZeroDivisionError("in the library")

    card.driver.matmul_stand_in(card.stream, fails)
    with pytest.raises(ZeroDivisionError):
        card.wait()
    assert ran == [1]


def test_host_memory_that_is_not_mapped(card):
    pinned, mapped = card.driver.allocate_host(64), card.driver.allocate_host(64, mapped=True)
    out = card.room(16)
    card.launch(card.kernel(COPY), 1, 16, "QQi", out, card.driver.device_address(mapped), 16)
    card.wait()
    card.launch(card.kernel(COPY), 1, 16, "QQi", out, pinned, 16)
    assert "cannot reach" in str(caught_by(card))
    with pytest.raises(DriverError):
        card.driver.device_address(pinned)


ARRAYS = """
extern "C" __global__ void kernel(int* out, int i, int j, int k) {
    __shared__ int tile[4][8];
    extern __shared__ int line[];
    int local[6] = {};
    tile[i][j] = 1;
    local[k] = tile[i][j];
    line[k] = local[k];
    out[0] = line[k] + local[k];
}
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs GCC's checks of indices")
@pytest.mark.parametrize(("indices", "words"), [
    ((4, 0, 0), r"index 4 of 'int \[4\]\[8\]' at kernel.cu:6"),
    ((0, -1, 0), r"index -1 of 'int \[8\]' at kernel.cu:6"),
    ((0, 0, 6), r"index 6 of 'int \[6\]' at kernel.cu:7")])
def test_indices_of_shared_and_local_arrays(card, indices, words):
    out = card.room(1)
    card.launch(card.kernel(ARRAYS), 1, 1, "Qiii", out, 3, 7, 5, shared=24)
    card.wait()
    card.launch(card.kernel(ARRAYS), 1, 1, "Qiii", out, *indices, shared=24)
    with pytest.raises(SimulatedFault, match=words):
        card.wait()


def test_the_checks_of_indices_can_be_left_out(make_card):
    driver = make_card(arrays=False).driver
    assert "-fsanitize" not in driver.compiler_version()
    checked = make_card().driver.compiler_version()
    assert ("-fsanitize=bounds" in checked) == (sys.platform == "linux")


def test_dynamic_shared_memory_has_a_size(card):
    card.launch(card.kernel(ARRAYS), 1, 1, "Qiii", card.room(1), 3, 7, 5, shared=20)
    assert "past the end of the block of 20 bytes" in str(caught_by(card))


CRASHES = """
extern "C" __global__ void kernel(int* out, int which, int zero) {
    if (threadIdx.x == 3) {
        volatile int deep[which == 2 ? 1 << 20 : 1];
        if (which == 0) out[0] = 7 / zero;
        if (which == 1) *(volatile int*)(long long)(8 + zero) = 1;
        if (which == 2) for (int i = (1 << 20) - 1; i >= 0; i -= 512) deep[i] = i;
    }
    __syncthreads();
}
"""


@pytest.mark.parametrize(("which", "words"), [
    (0, "divides an integer by zero"), (1, "touches memory that is not there"),
    (2, "touches memory that is not there")])
def test_what_the_processor_refuses_does_not_end_the_process(card, which, words):
    out, kernel = card.room(1), card.kernel(CRASHES)
    for _ in range(3):
        card.launch(kernel, 2, 64, "Qii", out, which, 0)
        fault = caught_by(card)
        assert fault.kind == "CRASH"
        assert words in str(fault)
        assert "thread (3, 0, 0)" in str(fault)
    card.launch(kernel, 2, 64, "Qii", out, 3, 1)
    card.wait()
