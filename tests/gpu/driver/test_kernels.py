"""Kernels on the simulated card: the CUDA C++ that people write, with its threads and barriers."""

from __future__ import annotations

import struct
import threading

import numpy as np
import pytest

from slipstream.core.native.driver import CompileError, DriverError
from slipstream.core.native.simulated import SimulatedFault, engine, toolchain

ADD = """
extern "C" __global__ void kernel(float* out, const float* a, const float* b, long long n) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}
"""
TOTAL = """
extern "C" __global__ void kernel(float* out, const float* x, int n) {
    __shared__ float part[32];
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[i];
    for (int k = 16; k; k >>= 1) sum += __shfl_xor_sync(~0u, sum, k);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0.0f;
        for (int k = 16; k; k >>= 1) sum += __shfl_xor_sync(~0u, sum, k);
        if (threadIdx.x == 0) *out = sum;
    }
}
"""
GRID = """
extern "C" __global__ void kernel(int* out) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    int z = blockIdx.z * blockDim.z + threadIdx.z;
    int w = gridDim.x * blockDim.x, h = gridDim.y * blockDim.y;
    out[(z * h + y) * w + x] += 1 + x + 100 * y + 10000 * z;
}
"""
SCAN = """
extern "C" __global__ void kernel(int* out, const int* x) {
    extern __shared__ int line[];
    int t = threadIdx.x;
    line[t] = x[t];
    __syncthreads();
    for (int step = 1; step < blockDim.x; step *= 2) {
        int add = t >= step ? line[t - step] : 0;
        __syncthreads();
        line[t] += add;
        __syncthreads();
    }
    out[t] = line[t];
}
"""
LANES = """
extern "C" __global__ void kernel(int* out, const int* x, int n) {
    int t = threadIdx.x, v = x[t];
    out[0 * n + t] = __shfl_sync(~0u, v, 5);
    out[1 * n + t] = __shfl_up_sync(~0u, v, 3);
    out[2 * n + t] = __shfl_down_sync(~0u, v, 2, 8);
    out[3 * n + t] = __shfl_xor_sync(~0u, v, 9);
    out[4 * n + t] = (int)__ballot_sync(~0u, v % 3 == 0);
    out[5 * n + t] = __any_sync(~0u, v == 77) + 2 * __all_sync(~0u, v >= 0);
    out[6 * n + t] = (int)__match_any_sync(~0u, v % 4);
    out[7 * n + t] = __reduce_add_sync(~0u, v) + __reduce_max_sync(~0u, v);
    if (t % 2) out[8 * n + t] = __shfl_sync(0xaaaaaaaau, v, 7);
    else out[8 * n + t] = __shfl_sync(0x55555555u, v, 8);
    __syncwarp();
    out[9 * n + t] = __syncthreads_count(v % 2);
}
"""
TYPES = """
struct Pair { char tag; double value; };
extern "C" __global__ void kernel(double* out, char a, short b, double c, int d, Pair e,
                                  unsigned char f, long long g) {
    out[0] = a; out[1] = b; out[2] = c; out[3] = d; out[4] = e.tag; out[5] = e.value;
    out[6] = f; out[7] = (double)g;
}
"""
HABITS = """
template <class T, int N> __device__ T sum(const T* p, int stride) {
    T total = 0;
    for (int i = 0; i < N; i++) total += p[i * stride];
    return total;
}
template <class T> __device__ T square(T x) { T y = x * x; return y; }
__device__ const float* row_of(const float* x, int i, int width) { return x + i * width; }
extern "C" __global__ void __launch_bounds__(64) kernel(float* __restrict__ out,
                                                        const float* __restrict__ x, int width) {
    __shared__ float tile[64];
    const int r = threadIdx.x;
    const float *row = row_of(x, r, width), *end = row + width;
    float most = -1e30f;
    for (const float* p = row; p < end; ++p) most = max(most, *p);
    const float4* wide = reinterpret_cast<const float4*>(row);
    float4 first = *(const float4*)&x[r * width];
    tile[r] = wide[0].y + ((const float2*)row)[1].x;
    __syncthreads();
    out[r] = 2.75f;
    float& slot = out[r];
    auto old = out[r];
    slot = r % 2 ? out[r] : 0;
    out[r] += most + first.x + tile[63 - r] + sum<float, 4>(row, 1) + sum<float, 1>(tile, 1);
    out[r] += square(out[r]) * 0 + old;
    atomicAdd(&out[r], 1.0f);
    *(unsigned*)(out + r) |= 0u;
}
"""


def test_threads_without_barriers(card):
    n = 1000
    a, b = np.arange(n, dtype=np.float32), np.ones(n, np.float32)
    out = card.room(n)
    card.launch(card.kernel(ADD), 4, 256, "QQQq", out, card.put(a), card.put(b), n)
    np.testing.assert_array_equal(card.fetch(out, n), a + b)


@pytest.mark.parametrize("threads", [32, 64, 256, 1024])
@pytest.mark.parametrize("seed", [0, 7])
def test_barriers_and_warps(make_card, threads, seed):
    card = make_card(seed=seed)
    x = np.random.default_rng(0).integers(0, 100, 3000).astype(np.float32)
    out = card.room(1)
    card.launch(card.kernel(TOTAL), 1, threads, "QQi", out, card.put(x), x.size)
    assert card.fetch(out, 1)[0] == x.sum()


def test_three_dimensions(card):
    shape = (4, 6, 10)
    out = card.put(np.zeros(shape, np.int32))
    card.launch(card.kernel(GRID), (5, 2, 2), (2, 3, 2), "Q", out)
    z, y, x = np.indices(shape)
    np.testing.assert_array_equal(card.fetch(out, 240, np.int32).reshape(shape),
                                  1 + x + 100 * y + 10000 * z)


@pytest.mark.parametrize("threads", [1, 31, 33, 100, 512])
def test_dynamic_shared_memory_and_many_barriers(card, threads):
    x = np.arange(threads, dtype=np.int32) * 7 % 11
    out = card.room(threads, np.int32)
    card.launch(card.kernel(SCAN), 1, threads, "QQ", out, card.put(x), shared=4 * threads)
    np.testing.assert_array_equal(card.fetch(out, threads, np.int32), np.cumsum(x))


@pytest.mark.parametrize("seed", range(3))
def test_warp_operations(make_card, seed):
    card, n = make_card(seed=seed), 64
    x = np.random.default_rng(seed).integers(0, 90, n).astype(np.int32)
    out = card.room(10 * n, np.int32)
    card.launch(card.kernel(LANES), 1, n, "QQi", out, card.put(x), n)
    got = card.fetch(out, 10 * n, np.int32).reshape(10, 2, 32)
    x, lane = x.reshape(2, 32), np.arange(32)

    def bits(which: np.ndarray) -> np.ndarray:
        return (which.astype(np.uint32) << lane.astype(np.uint32)).sum(-1).astype(np.uint32)

    want = np.zeros((10, 2, 32), np.int64)
    want[0] = x[:, [5]]
    want[1] = np.where(lane >= 3, x[:, (lane - 3) % 32], x)
    want[2] = np.where(lane % 8 < 6, x[:, (lane + 2) % 32], x)
    want[3] = x[:, lane ^ 9]
    want[4] = bits(x % 3 == 0)[:, None].view(np.int32)
    want[5] = (x == 77).any(1, keepdims=True) + 2
    same = x[:, :, None] % 4 == x[:, None, :] % 4
    want[6] = bits(same).view(np.int32)
    want[7] = x.sum(1, keepdims=True) + x.max(1, keepdims=True)
    want[8] = np.where(lane % 2, x[:, [7]], x[:, [8]])
    want[9] = (x % 2).sum()
    np.testing.assert_array_equal(got, want)


def test_parameters_lie_at_their_natural_alignment(card):
    out = card.room(8, np.float64)
    values = (-3, 1000, 2.5, -7, 4, 0.25, 200, -(1 << 40))
    card.launch(card.kernel(TYPES), 1, 1, "@Qbhdi4xb7xdBq", out, *values)
    np.testing.assert_array_equal(card.fetch(out, 8, np.float64), values)


def test_what_people_write_with_pointers(card):
    width = 8
    x = np.random.default_rng(1).standard_normal((64, width)).astype(np.float32)
    out = card.room(64)
    card.launch(card.kernel(HABITS), 1, 64, "QQi", out, card.put(x), width)
    tile = x[:, 1] + x[:, 2]
    kept = np.where(np.arange(64) % 2, 2.75, 0)
    want = kept + x.max(1) + x[:, 0] + tile[::-1] + x[:, :4].sum(1) + tile[0] + 2.75 + 1
    np.testing.assert_allclose(card.fetch(out, 64), want, rtol=1e-5, atol=1e-5)


def test_local_pointers_stay_checked(card):
    x = card.put(np.zeros((64, 8), np.float32))
    card.launch(card.kernel(HABITS), 1, 64, "QQi", card.room(64), x, 12)
    with pytest.raises(SimulatedFault, match="past the end of the block of 2048 bytes"):
        card.wait()


def test_threads_that_leave_early_are_not_waited_for(card):
    source = """
    extern "C" __global__ void kernel(int* out) {
        if (threadIdx.x % 3 == 0) return;
        __syncthreads();
        int n = __syncthreads_count(1);
        if (threadIdx.x % 3 == 1) return;
        out[threadIdx.x] = n + __reduce_add_sync(~0u, 1);
    }
    """
    out = card.put(np.zeros(64, np.int32))
    card.launch(card.kernel(source), 1, 64, "Q", out)
    got, thread = card.fetch(out, 64, np.int32), np.arange(64)
    lanes = [sum(t % 3 == 2 for t in range(32)), sum(t % 3 == 2 for t in range(32, 64))]
    want = np.where(thread % 3 == 2, 42 + np.repeat(lanes, 32), 0)
    np.testing.assert_array_equal(got, want)


def test_the_order_of_threads_and_blocks_follows_the_seed(make_card):
    source = """
    extern "C" __global__ void kernel(int* out, int* next) {
        int mine = blockIdx.x * blockDim.x + threadIdx.x;
        out[*next] = mine;
        *next = *next + 1;
    }
    """

    def order(seed: int) -> tuple[int, ...]:
        card = make_card(seed=seed)
        out, count = card.room(96, np.int32), card.put(np.zeros(1, np.int32))
        card.launch(card.kernel(source), 4, 24, "QQ", out, count)
        return tuple(card.fetch(out, 96, np.int32))

    orders = {order(seed) for seed in range(6)}
    assert len(orders) == 6
    assert all(sorted(each) == list(range(96)) for each in orders)
    assert order(3) == order(3)


def test_a_missing_barrier_shows_in_some_seed(make_card):
    source = """
    extern "C" __global__ void kernel(int* out) {
        __shared__ int line[64];
        line[threadIdx.x] = threadIdx.x;
        out[threadIdx.x] = line[63 - threadIdx.x];
    }
    """
    mended = source.replace("out[", "__syncthreads(); out[")
    for name, text in (("bare", source), ("mended", mended)):
        right = 0
        for seed in range(4):
            card = make_card(seed=seed)
            out = card.room(64, np.int32)
            card.launch(card.kernel(text), 1, 64, "Q", out)
            right += (card.fetch(out, 64, np.int32) == np.arange(64)[::-1]).all()
        assert right == (4 if name == "mended" else 0)


def test_threads_that_wait_for_each_other_for_ever_are_reported(card):
    source = """
    extern "C" __global__ void kernel(int* out) {
        if (threadIdx.x == 0) __shfl_sync(3u, 1, 0);
        else __syncthreads();
    }
    """
    card.launch(card.kernel(source), 1, 2, "Q", card.room(1))
    with pytest.raises(SimulatedFault, match="wait for each other") as caught:
        card.wait()
    assert caught.value.kind == "DEADLOCK"
    test_threads_without_barriers(card)


def test_assert_and_trap(card):
    source = 'extern "C" __global__ void kernel(int n) { assert(threadIdx.x < n); }'
    card.launch(card.kernel(source), 1, 32, "i", 31)
    with pytest.raises(SimulatedFault, match=r"assert\(threadIdx.x < n\).*thread \(31, 0, 0\)"):
        card.wait()


def test_atomics(card):
    source = """
    extern "C" __global__ void kernel(int* count, float* sum, unsigned* most,
                                      unsigned long long* all) {
        int t = blockIdx.x * blockDim.x + threadIdx.x;
        atomicAdd(count, 1);
        atomicAdd(&sum[0], 0.5f);
        atomicMax(most, (unsigned)t);
        __shared__ int local;
        if (threadIdx.x == 0) local = 0;
        __syncthreads();
        atomicAdd(&local, 2);
        __syncthreads();
        if (threadIdx.x == 0) atomicAdd(all, (unsigned long long)local);
        while (atomicCAS(count + 1, t, t + 1) == -1) {}
    }
    """
    count, sums = card.put(np.zeros(2, np.int32)), card.put(np.zeros(1, np.float32))
    most, everything = card.put(np.zeros(1, np.uint32)), card.put(np.zeros(1, np.uint64))
    card.launch(card.kernel(source), 8, 64, "QQQQ", count, sums, most, everything)
    assert card.fetch(count, 2, np.int32)[0] == 512
    assert card.fetch(sums, 1)[0] == 256
    assert card.fetch(most, 1, np.uint32)[0] == 511
    assert card.fetch(everything, 1, np.uint64)[0] == 1024


def test_arithmetic(card):
    source = """
    extern "C" __global__ void kernel(double* out, const double* x) {
        double v = x[threadIdx.x];
        double* row = out + 12 * threadIdx.x;
        row[0] = erfinv(v); row[1] = normcdf(v); row[2] = rsqrt(v + 2); row[3] = fmod(v, 0.3);
        row[4] = __float2int_rn((float)(v * 10)); row[5] = __popc(__float_as_uint((float)v));
        row[6] = __brev(1u + threadIdx.x); row[7] = __umulhi(0xdeadbeefu, 0x12345678u);
        row[8] = __clz(1 + threadIdx.x); row[9] = max(v, 0.25); row[10] = copysign(2.0, v);
        row[11] = __byte_perm(0x03020100u, 0x07060504u, 0x5140u);
    }
    """
    x = np.array([-0.99, -0.5, -1e-9, 0.0, 0.3, 0.75, 0.999999])
    out = card.room(12 * x.size, np.float64)
    card.launch(card.kernel(source), 1, x.size, "QQ", out, card.put(x))
    got = card.fetch(out, 12 * x.size, np.float64).reshape(-1, 12)
    special = pytest.importorskip("scipy.special")
    thread = np.arange(x.size)
    np.testing.assert_allclose(got[:, 0], special.erfinv(x), rtol=1e-13)
    np.testing.assert_allclose(got[:, 1], special.ndtr(x), rtol=1e-14)
    np.testing.assert_allclose(got[:, 2], 1 / np.sqrt(x + 2), rtol=1e-15)
    np.testing.assert_allclose(got[:, 3], np.fmod(x, 0.3), rtol=1e-15)
    np.testing.assert_array_equal(got[:, 4], np.rint((x * 10).astype(np.float32)))
    np.testing.assert_array_equal(
        got[:, 5], [v.bit_count() for v in x.astype(np.float32).view(np.uint32).tolist()])
    np.testing.assert_array_equal(
        got[:, 6], [int(f"{t + 1:032b}"[::-1], 2) for t in thread])
    assert (got[:, 7] == (0xDEADBEEF * 0x12345678) >> 32).all()
    np.testing.assert_array_equal(got[:, 8], [32 - int(t + 1).bit_length() for t in thread])
    np.testing.assert_array_equal(got[:, 9], np.maximum(x, 0.25))
    np.testing.assert_array_equal(got[:, 10], np.copysign(2.0, x))
    assert (got[:, 11] == 0x05010400).all()


def test_shared_memory_begins_as_poison(make_card):
    source = """
    extern "C" __global__ void kernel(unsigned* out) {
        __shared__ unsigned held[4];
        out[threadIdx.x] = held[threadIdx.x];
        held[threadIdx.x] = 1;
    }
    """
    card = make_card(seed=1)
    out = card.room(4, np.uint32)
    card.launch(card.kernel(source), 3, 4, "Q", out)
    assert (card.fetch(out, 4, np.uint32) == 0xFFFFFFFF).all()


def test_zero_cost_counts_but_does_not_run(make_card):
    card = make_card(zero_cost=True)
    out = card.put(np.zeros(1, np.float32))
    card.launch(card.kernel(TOTAL), 1, 32, "QQi", out, out, 1)
    assert card.fetch(out, 1)[0] == 0
    assert card.driver.statistics()["kernel_launches"] == 1


def test_compile_errors_name_the_line(card):
    words = r"kernel bad does not compile:\n(.|\n)*bad.cu:3:"
    with pytest.raises(CompileError, match=words) as caught:
        card.driver.compile("\n\n__global__ void bad(int n) { oops(n); }", "bad", (), "sm_90")
    assert "oops" in caught.value.log


def test_options_and_architecture_reach_the_source(card):
    source = """
    extern "C" __global__ void kernel(int* out) { out[0] = WIDTH; out[1] = __CUDA_ARCH__; }
    """
    image = card.driver.compile(source, "kernel", ("-DWIDTH=7", "-fmad=false"), "sm_75")
    function = card.driver.function(card.driver.load_module(image), "kernel")
    out = card.room(2, np.int32)
    card.launch(function, 1, 1, "Q", out)
    assert card.fetch(out, 2, np.int32).tolist() == [7, 750]


def test_an_instance_of_a_template(card):
    source = "template <class T> __global__ void twice(T* x) { x[threadIdx.x] *= 2; }"
    x = card.put(np.arange(4, dtype=np.float64))
    card.launch(card.kernel(source, "twice<double>"), 1, 4, "Q", x)
    assert card.fetch(x, 4, np.float64).tolist() == [0, 2, 4, 6]


def test_launches_that_cannot_be(card):
    launch, function = card.driver.launch, card.kernel(ADD)
    good = struct.pack("QQQq", 0, 0, 0, 0)
    bad = [
        (function, (0, 1, 1), (1, 1, 1), 0, card.stream, good),
        (function, (1, 1, 1), (2048, 1, 1), 0, card.stream, good),
        (function, (1, 1, 1), (1, 1, 128), 0, card.stream, good),
        (function, (1, 70000, 1), (1, 1, 1), 0, card.stream, good),
        (function, (-1, 1, 1), (1, 1, 1), 0, card.stream, good),
        (function, (1, 1, 1), (1, 1, 1), 50000, card.stream, good),
        (function, (1, 1, 1), (1, 1, 1), 0, card.stream, good[:-8]),
        (function + 1, (1, 1, 1), (1, 1, 1), 0, card.stream, good),
        (function, (1, 1, 1), (1, 1, 1), 0, 0, good),
        (function, (1, 1, 1), (1, 1, 1), 0, function, good),
    ]
    for arguments in bad:
        with pytest.raises(DriverError):
            launch(*arguments)
    bounded = card.kernel(HABITS)
    with pytest.raises(DriverError, match="__launch_bounds__ says 64"):
        launch(bounded, (1, 1, 1), (65, 1, 1), 0, card.stream, bytes(24))
    assert card.driver.function_attributes(bounded)["max_threads"] == 64
    card.driver.set_dynamic_shared(function, 100 << 10)
    launch(function, (1, 1, 1), (1, 1, 1), 100 << 10, card.stream, good)
    with pytest.raises(DriverError):
        card.driver.set_dynamic_shared(function, 300 << 10)
    card.wait()


def test_what_is_no_image(card):
    for content in (b"", b"nonsense", b"\x7fELF" + bytes(100)):
        with pytest.raises(DriverError, match="INVALID_IMAGE"):
            card.driver.load_module(content)
    module = card.driver.load_module(card.driver.compile(ADD, "kernel", (), "sm_90"))
    with pytest.raises(DriverError, match="no kernel other; there are kernel"):
        card.driver.function(module, "other")
    card.driver.unload_module(module)
    with pytest.raises(DriverError, match="INVALID_HANDLE"):
        card.driver.function(module, "kernel")


def test_modules_have_their_own_variables(card):
    source = """
    __device__ int held = 5;
    extern "C" __global__ void kernel(int* out) { out[0] = held++; }
    """
    first, second, out = card.kernel(source), card.kernel(source), card.room(1, np.int32)
    seen = []
    for function in (first, first, second):
        card.launch(function, 1, 1, "Q", out)
        seen.append(int(card.fetch(out, 1, np.int32)[0]))
    assert seen == [5, 6, 5]


def test_the_portable_switch_of_stacks(make_card, monkeypatch, tmp_path):
    monkeypatch.setattr(toolchain, "ENGINE", (*toolchain.ENGINE, "-DSLIP_PORTABLE"))
    monkeypatch.setattr(toolchain.settings, "cache", str(tmp_path))
    monkeypatch.setattr(engine, "loaded", {})
    test_barriers_and_warps(make_card, 256, 3)
    test_warp_operations(make_card, 2)
    test_threads_that_wait_for_each_other_for_ever_are_reported(make_card(seed=2))


def test_many_python_threads(make_card):
    card, failures = make_card(seed=3), []
    kernel = card.kernel(TOTAL)

    def work(number: int) -> None:
        driver = card.driver
        driver.use(driver.context(0))
        stream = driver.create_stream()
        x = np.full(500, number, np.float32)
        there, out = card.put(x, stream), card.room(1)
        for _ in range(10):
            card.launch(kernel, 1, 64, "QQi", out, there, x.size, stream=stream)
            if card.fetch(out, 1, stream=stream)[0] != x.sum():
                failures.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
