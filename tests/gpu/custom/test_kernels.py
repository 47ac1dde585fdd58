"""Kernels from a string: right calls give right values, wrong ones say what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slipstream as ss
from slipstream.core.api.cuda.raw import CompileError
from slipstream.core.vocab.settings import settings

AXPY = """
__global__ void axpy(const float* x, float* y, int n, float s) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += s * x[i];
}
"""
axpy = ss.cuda.kernel(AXPY)
N = 1000


def vectors(n: int = N) -> tuple[Any, Any]:
    return ss.arange(n, device="cuda").to(ss.float32), ss.ones(n, device="cuda")


@pytest.mark.parametrize("launch", [
    lambda x, y: axpy[4, 256](x, y, N, 0.5),
    lambda x, y: axpy[4](x, y, N, 0.5),
    lambda x, y: axpy[(4,), (256, 1, 1)](x, y, N, 0.5),
    lambda x, y: axpy[4, 256, 1024](x, y, N, 0.5),
    lambda x, y: axpy[lambda x, y, n, s: -(-n // 256), 256](x, y, N, 0.5),
    lambda x, y: axpy[lambda *args: (-(-args[2] // 256), 1), 256](x, y, N, 0.5),
    lambda x, y: axpy(x, y, N, 0.5, grid=4, block=256),
    lambda x, y: axpy(x, y, N, 0.5, grid=lambda x, y, n, s: -(-n // 64), block=64),
    lambda x, y: axpy(4, 256)(x, y, N, 0.5),
    lambda x, y: axpy((4,), (256,), (x, y, N, 0.5)),
    lambda x, y: axpy((4,), (256,), (x, y, N, 0.5), shared_mem=16),
    lambda x, y: axpy[np.int64(4), np.int32(256)](x, y, np.int32(N), np.float32(0.5)),
])
def test_the_ways_to_launch(launch: Any) -> None:
    x, y = vectors()
    launch(x, y)
    assert y.tolist() == [1 + 0.5 * i for i in range(N)]


def test_every_kind_of_number_arrives() -> None:
    kernel = ss.cuda.kernel("""
    __global__ void numbers(signed char a, double* out, bool b, float c, unsigned short d,
                            long long e, __half f, unsigned g, double h, __nv_bfloat16 i,
                            unsigned long long j) {
        out[0] = a; out[1] = b; out[2] = c; out[3] = d; out[4] = (double)e; out[5] = (float)f;
        out[6] = g; out[7] = h; out[8] = (float)i; out[9] = (double)(j >> 32);
    }""")
    out = ss.zeros(10, dtype=ss.float64, device="cuda")
    kernel[1, 1](-7, out, True, 0.1, 65535, -(2**40), 0.1, 2**32 - 1, 0.1, 0.1, 2**64 - 1)
    assert out.tolist() == [
        -7, 1, float(np.float32(0.1)), 65535, -(2.0**40), float(np.float16(0.1)), 2**32 - 1, 0.1,
        float(ss.tensor(0.1, dtype=ss.bfloat16).item()), 2**32 - 1]


@pytest.mark.parametrize("value", [float("inf"), float("-inf")])
def test_infinities_are_floats(value: float) -> None:
    kernel = ss.cuda.kernel(
        "__global__ void put(float* x, float a, __half b) { x[0] = a; x[1] = (float)b; }")
    x = ss.zeros(2, device="cuda")
    kernel[1, 1](x, value, value)
    assert x.tolist() == [value, value]


@pytest.mark.parametrize(("dtype", "name"), [
    (ss.float16, "__half"), (ss.bfloat16, "__nv_bfloat16"), (ss.float64, "double"),
    (ss.int32, "int"), (ss.int64, "long long"), (ss.int16, "short"), (ss.uint8, "unsigned char"),
    (ss.int8, "signed char"),
])
def test_every_dtype_is_read_and_written(dtype: ss.dtype, name: str) -> None:
    kernel = ss.cuda.kernel("""
    __global__ void twice(const T* x, T* y, int n) {
        int i = threadIdx.x;
        if (i < n) y[i] = x[i] + x[i];
    }""", options=(f"-DT={name}",))
    x = ss.arange(20).to(dtype).cuda()
    y = ss.zeros_like(x)
    kernel[1, 32](x, y, 20)
    assert ss.equal(y.cpu(), x.cpu() * 2)


def test_halves_round_as_tensors_do() -> None:
    kernel = ss.cuda.kernel("""
    #include <cuda_fp16.h>
    __global__ void products(const __half* x, const __half* y, __half* z, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) z[i] = __hmul(x[i], y[i]);
    }""")
    x, y = (ss.randn(500).to(ss.float16).cuda() for _ in range(2))
    z = ss.empty_like(x)
    kernel[2, 256](x, y, z, 500)
    assert ss.equal(z.cpu(), x.cpu() * y.cpu())


def test_vectors_take_aligned_tensors() -> None:
    kernel = ss.cuda.kernel("""
    __global__ void add4(float4* x, int n) {
        int i = threadIdx.x;
        if (i < n) { float4 v = x[i]; v.x += 1; v.w += 2; x[i] = v; }
    }""")
    x = ss.zeros(16, device="cuda")
    kernel[1, 32](x, 4)
    assert x.tolist() == [1, 0, 0, 2] * 4
    with pytest.raises(RuntimeError, match="no multiple of 16 bytes"):
        kernel[1, 32](x[1:13], 3)
    with pytest.raises(RuntimeError, match="no multiple of the vector's 4"):
        kernel[1, 32](x[:6], 1)


def test_shared_memory_and_barriers() -> None:
    kernel = ss.cuda.kernel("""
    __global__ void reversed(const int* x, int* y) {
        extern __shared__ int held[];
        held[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        y[threadIdx.x] = held[blockDim.x - 1 - threadIdx.x];
    }""")
    x = ss.arange(64, device="cuda").to(ss.int32)
    y = ss.zeros_like(x)
    kernel[1, 64, 64 * 4](x, y)
    assert y.tolist() == list(range(64))[::-1]


def test_views_start_where_they_start_and_none_is_null() -> None:
    kernel = ss.cuda.kernel("""
    __global__ void put(int* x, const int* bias) { x[0] = bias ? bias[0] : -1; }""")
    x, bias = ss.zeros(8, dtype=ss.int32, device="cuda"), ss.tensor([7]).to(ss.int32).cuda()
    kernel[1, 1](x[3:], None)
    kernel[1, 1](x[5:], bias)
    assert x.tolist() == [0, 0, 0, -1, 0, 7, 0, 0]


def test_several_kernels_of_a_source() -> None:
    text = """
    __device__ int twice(int x) { return 2 * x; }
    __global__ void first(int* x) { x[0] = twice(1); }
    __global__ void second(int* x) { x[0] = twice(2); }
    """
    x = ss.zeros(1, dtype=ss.int32, device="cuda")
    ss.cuda.kernel(text, "second")[1, 1](x)
    assert x.item() == 4
    ss.cuda.kernel(text, name="first")[1, 1](x)
    assert x.item() == 2
    with pytest.raises(ValueError, match="several kernels: first, second"):
        ss.cuda.kernel(text)
    with pytest.raises(ValueError, match="no kernel named 'third'"):
        ss.cuda.kernel(text, "third")
    with pytest.raises(ValueError, match="no kernel"):
        ss.cuda.kernel("int x;")


def test_a_grid_of_nothing_launches_nothing() -> None:
    x, y = vectors(0)
    axpy[0, 256](x, y, 0, 1.0)
    axpy[lambda x, y, n, s: -(-n // 256), 256](x, y, 0, 1.0)
    assert y.tolist() == []


# -- what goes with tensors --


def test_writes_are_counted_and_reads_are_not() -> None:
    x, y = vectors()
    before = x._version, y._version
    axpy[4, 256](x, y, N, 1.0)
    assert (x._version, y._version) == (before[0], before[1] + 1)


def test_autograd_notices_a_saved_tensor_that_was_written() -> None:
    x, y = vectors(8)
    w = ss.ones(8, device="cuda", requires_grad=True)
    product = (w * y).sum()
    axpy[1, 32](x, y, 8, 1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_a_tensor_that_requires_grad_is_read_but_not_written() -> None:
    x, y = vectors(8)
    y.requires_grad_(True)
    with pytest.raises(RuntimeError, match="requires grad and may be written"):
        axpy[1, 32](x, y, 8, 1.0)
    axpy[1, 32](y, x, 8, 1.0)
    with ss.no_grad():
        axpy[1, 32](x, y, 8, 1.0)


def test_a_function_gives_it_a_gradient() -> None:
    scale = ss.cuda.kernel("""
    __global__ void scale(const float* x, float* y, int n, float s) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = s * x[i];
    }""")

    class Scale(ss.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, s: float) -> Any:
            ctx.s = s
            y = ss.empty_like(x)
            scale[-(-x.numel() // 256), 256](x, y, x.numel(), s)
            return y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return Scale.apply(g.contiguous(), ctx.s), None

    x = ss.ones(300, device="cuda", requires_grad=True)
    Scale.apply(x, 3.0).sum().backward()
    assert x.grad.tolist() == [3.0] * 300


def test_launches_go_through_windows_with_other_ops() -> None:
    x, y = vectors()
    before = ss.cuda.launch_stats()["replayed"]
    for step in range(12):
        for _ in range(8):
            axpy[4, 256](x, y, N, 0.25 * step)
            y = y * 0.5
        assert y.shape == (N,)
        ss.cuda.synchronize()
    assert ss.cuda.launch_stats()["replayed"] > before
    plain = np.ones(N, np.float32)
    for step in range(12):
        for _ in range(8):
            plain = (plain + np.float32(0.25 * step) * np.arange(N, dtype=np.float32)) * np.float32(
                0.5)
    assert np.allclose(y.cpu().numpy(), plain)


def test_a_replay_takes_other_numbers() -> None:
    x, y = vectors(16)
    y.zero_()
    total = 0.0
    for step in range(200):
        axpy[1, 32](x, y, 16, float(step))
        total += step
    assert y.tolist() == [total * i for i in range(16)]


def test_on_another_stream() -> None:
    x, y = vectors()
    stream = ss.cuda.Stream()
    stream.wait_stream(ss.cuda.current_stream())
    axpy[4, 256, 0, stream](x, y, N, 1.0)
    with ss.cuda.stream(stream):
        axpy[4, 256](x, y, N, 1.0)
    ss.cuda.current_stream().wait_stream(stream)
    assert y.tolist() == [1.0 + 2 * i for i in range(N)]


def test_launches_are_traced() -> None:
    assert ss.cuda.driver_stats()["kernel_launches"] >= 0
    x, y = vectors()
    before = ss.cuda.launch_stats()["launches"]
    axpy[4, 256](x, y, N, 1.0)
    assert ss.cuda.launch_stats()["launches"] > before


# -- wrong calls --


def wrong(kind: type[Exception], words: str, *args: Any) -> str:
    with pytest.raises(kind) as caught:
        axpy[4, 256](*args)
    text = str(caught.value)
    assert words in text, text
    assert "in axpy(" in text
    return text


def test_wrong_count() -> None:
    x, y = vectors()
    text = wrong(TypeError, "takes 4 arguments, 3 were given", x, y, 3)
    assert "axpy(const float* x, float* y, int n, float s)" in text
    wrong(TypeError, "takes 4 arguments, 5 were given", x, y, 3, 1.0, 2)


def test_wrong_dtype_names_the_operand_the_rule_the_line_and_the_mend() -> None:
    x, y = vectors()
    text = wrong(TypeError, "x is float64, and the pointer takes float32", x.double(), y, N, 1.0)
    lines = text.split("\n")
    assert lines[1] == "  axpy.cu:2:"
    assert lines[3].index("^") == lines[2].index("const float* x")
    assert "x: float64[1000]@cuda:0" in text
    assert "mend: x.to(slipstream.float32)" in text


def test_wrong_places() -> None:
    x, y = vectors()
    assert "mend: x.cuda()" in wrong(RuntimeError, "x is on cpu", x.cpu(), y, N, 1.0)
    text = wrong(RuntimeError, "y is not contiguous", x, ss.ones(2 * N, device="cuda")[::2], N,
                 1.0)
    # y is written: what goes into a copy alone would be lost.
    assert "mend: own = y.contiguous(), pass own, and y.copy_(own) after the launch" in text
    wrong(RuntimeError, "y is not contiguous", x, ss.ones(1, device="cuda").expand(N), N, 1.0)


@pytest.mark.skipif(settings.driver != "sim", reason="needs two cards")
def test_two_cards_are_not_mixed() -> None:
    x, y = vectors()
    wrong(RuntimeError, "y is on cuda:1, and what comes before it on cuda:0", x, y.to("cuda:1"), N,
          1.0)
    x, y = x.to("cuda:1"), y.to("cuda:1")
    axpy[4, 256](x, y, N, 1.0)
    assert y.tolist() == [1.0 + i for i in range(N)]


@pytest.mark.parametrize(("value", "kind", "words"), [
    (2**31, OverflowError, "n is 2147483648"), (-(2**31) - 1, OverflowError, "n is -2147483649"),
    (3.0, TypeError, "n is of type float"), ("3", TypeError, "n is of type str"),
    (None, TypeError, "n is of type NoneType"), (1j, TypeError, "n is of type complex"),
    (np.float32(3), TypeError, "n is of type float32"),
])
def test_wrong_integers(value: Any, kind: type[Exception], words: str) -> None:
    x, y = vectors()
    wrong(kind, words, x, y, value, 1.0)


@pytest.mark.parametrize(("value", "kind"), [
    (1e39, OverflowError), (-1e39, OverflowError), ("1", TypeError), (1j, TypeError),
])
def test_wrong_floats(value: Any, kind: type[Exception]) -> None:
    x, y = vectors()
    wrong(kind, "s is ", x, y, N, value)


def test_ranges_are_looked_at_in_every_call() -> None:
    x, y = vectors()
    axpy[4, 256](x, y, N, 1.0)
    wrong(OverflowError, "n is", x, y, 2**40, 1.0)
    wrong(OverflowError, "s is", x, y, N, 1e300)


@pytest.mark.parametrize(("kind", "value"), [
    ("unsigned", -1), ("signed char", 128), ("unsigned char", 256), ("short", 40000),
    ("long long", 2**63), ("unsigned long long", 2**64), ("bool", 2), ("__half", 70000.0),
    ("__nv_bfloat16", 3.4e38), ("float", 3.5e38), ("float", 10**400), ("double", 10**400),
    ("__half", 10**400),
])
def test_what_a_type_cannot_hold(kind: str, value: Any) -> None:
    kernel = ss.cuda.kernel(f"__global__ void f({kind} a) {{}}")
    with pytest.raises(OverflowError, match="a is"):
        kernel[1, 1](value)


def test_a_tensor_is_no_number_and_a_number_no_pointer() -> None:
    x, y = vectors()
    assert "s.item()" in wrong(TypeError, "s is a tensor", x, y, N, ss.tensor(1.0).cuda())
    wrong(TypeError, "x is of type int", 140000, y, N, 1.0)
    wrong(TypeError, "x is of type ndarray", np.zeros(3, np.float32), y, N, 1.0)


def test_read_only_memory_may_be_read() -> None:
    x, y = vectors()
    x.storage.read_only = True
    axpy[4, 256](x, y, N, 1.0)
    y.storage.read_only = True
    assert "declare const float* y" in wrong(ValueError, "y is read-only memory", x, y, N, 1.0)


@pytest.mark.parametrize(("grid", "block", "kind"), [
    (1.5, 256, TypeError), ("4", 256, TypeError), (4, None, None), (4, 0, ValueError),
    (4, 2048, ValueError), (4, (32, 33), ValueError), (-1, 32, ValueError),
    ((1, 70000), 32, ValueError), ((1, 1, 1, 1), 32, ValueError), ((), 32, ValueError),
])
def test_sizes(grid: Any, block: Any, kind: Any) -> None:
    if kind is None:
        axpy[grid, block]
        return
    with pytest.raises(kind, match="axpy"):
        axpy[grid, block]


def test_launch_bounds_are_kept() -> None:
    kernel = ss.cuda.kernel(
        "__global__ void __launch_bounds__(64) f(int* x) { x[threadIdx.x] = 1; }")
    x = ss.zeros(64, dtype=ss.int32, device="cuda")
    kernel[1](x)
    assert x.sum().item() == 64
    with pytest.raises(ValueError, match="__launch_bounds__"):
        kernel[1, 128]


def test_a_call_without_a_grid() -> None:
    x, y = vectors()
    with pytest.raises(TypeError, match=r"without a grid"):
        axpy(x, y, N, 1.0)
    with pytest.raises(TypeError, match="stream"):
        axpy[4, 256, 0, 17]


# -- wrong sources --


def test_compile_errors_show_the_line_with_a_caret() -> None:
    kernel = ss.cuda.kernel("""
__global__ void bad(float* x, int n) {
    int i = threadIdx.x;
    if (i < n) x[i] = undefined_name * 2;
}""")
    with pytest.raises(CompileError) as caught:
        kernel.compile()
    lines = str(caught.value).split("\n")
    assert lines[0] == "kernel bad does not compile:"
    assert "undefined_name" in lines[1]
    assert lines[2] == "  bad.cu:4:"
    assert lines[4].index("^") == lines[3].index("undefined_name")
    with pytest.raises(CompileError):
        kernel[1, 32](ss.zeros(3, device="cuda"), 3)


def test_headers_that_are_not_there() -> None:
    with pytest.raises(ValueError, match=r"no header cub/cub.cuh") as caught:
        ss.cuda.kernel("#include <cuda_runtime.h>\n#include <cub/cub.cuh>\n__global__ void f() {}")
    assert "line 2" in str(caught.value)


def test_headers_that_the_prelude_stands_for() -> None:
    kernel = ss.cuda.kernel("""
    #include <stdint.h>
    #include <math.h>
    #include <float.h>
    __global__ void f(float* x, uint32_t n) { x[0] = fmaxf(-INFINITY, FLT_MAX) > n ? 1 : 0; }
    """)
    x = ss.zeros(1, device="cuda")
    kernel[1, 1](x, 3)
    assert x.item() == 1


def test_compiled_ahead_and_asked() -> None:
    assert axpy.compile() is axpy
    assert axpy.attributes()["max_threads"] >= 256
    assert repr(axpy) == ("<slipstream.cuda kernel axpy(const float* x, float* y, int n, float s)>")


@pytest.mark.skipif(settings.driver != "sim", reason="the card does not look")
def test_the_simulated_driver_finds_what_a_kernel_does_wrong() -> None:
    kernel = ss.cuda.kernel("__global__ void f(float* x) { x[threadIdx.x] = 1; }")
    x = ss.zeros(200, device="cuda")
    kernel[1, 256](x)
    with pytest.raises(RuntimeError, match=r"kernel f at .*test_kernels.py:\d+ writes 4 bytes"):
        ss.cuda.synchronize()
