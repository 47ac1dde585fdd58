"""PyTorch-style extensions, unchanged; and what is outside the subset."""

from __future__ import annotations

from typing import Any

import pytest

import slipstream as ss
from slipstream.core.api.cuda.raw import CompileError
from slipstream.core.vocab.settings import settings
from slipstream.utils.cpp_extension import load_inline
from slipstream.utils.cpp_extension.texts import parts_of

CUDA = """
#include <torch/extension.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <vector>

#define CHECK_CUDA(x) TORCH_CHECK(x.device().is_cuda(), #x " must be a CUDA tensor")
#define CHECK_INPUT(x) CHECK_CUDA(x); TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")

__device__ __forceinline__ float sum(float a, float b) { return a + b; }

__global__ void vector_add_kernel(const float* __restrict__ a, const float* __restrict__ b,
                                  float* __restrict__ c, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = sum(a[i], b[i]);
}

torch::Tensor vector_add(torch::Tensor a, torch::Tensor b) {
    CHECK_INPUT(a);
    CHECK_INPUT(b);
    auto c = torch::zeros_like(a);
    const int n = a.numel();
    const int threads = 256;
    const dim3 blocks((n + threads - 1) / threads);
    vector_add_kernel<<<blocks, threads>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), n);
    return c;
}
"""
CPP = "torch::Tensor vector_add(torch::Tensor a, torch::Tensor b);"


@pytest.fixture(scope="module")
def vector_add() -> Any:
    return load_inline(name="vector_add", cpp_sources=[CPP], cuda_sources=[CUDA],
                       functions=["vector_add"], verbose=True).vector_add


def pair(n: int = 1000) -> tuple[Any, Any]:
    return ss.randn(n, device="cuda"), ss.randn(n, device="cuda")


def test_a_vector_add_runs_unchanged(vector_add: Any) -> None:
    a, b = pair()
    c = vector_add(a, b)
    assert ss.equal(c.cpu(), a.cpu() + b.cpu())
    assert vector_add.__name__ == "vector_add"


def test_nothing_is_held_after_a_call(vector_add: Any) -> None:
    a, b = pair()
    vector_add(a, b)
    assert vector_add.bridge.held == {}
    with pytest.raises(RuntimeError):
        vector_add(a.cpu(), b)
    assert vector_add.bridge.held == {}


def test_launches_stay_in_order_and_in_windows(vector_add: Any) -> None:
    a = ss.zeros(100, device="cuda")
    one = ss.ones(100, device="cuda")
    for _ in range(60):
        a = vector_add(a, one) * 1
    assert a.tolist() == [60.0] * 100


def test_checks_of_the_source_become_errors(vector_add: Any) -> None:
    a, b = pair()
    with pytest.raises(RuntimeError, match="a must be a CUDA tensor"):
        vector_add(a.cpu(), b)
    with pytest.raises(RuntimeError, match="b must be contiguous"):
        vector_add(a[:500], b[::2])
    with pytest.raises(RuntimeError, match="expected scalar type Float but found Double"):
        vector_add(a.double(), b)


def test_wrong_arguments(vector_add: Any) -> None:
    a, _ = pair()
    with pytest.raises(TypeError, match="takes 2 arguments, 1 were given"):
        vector_add(a)
    with pytest.raises(TypeError, match="argument 2 has to be a Tensor"):
        vector_add(a, 3)
    with pytest.raises(TypeError, match="dict"):
        vector_add(a, {})


EVERYTHING = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <string>

template <typename T> T doubled(T x) { return x + x; }

__global__ void fill_kernel(long long* x, int rows, int columns, long long value, float scale) {
    extern __shared__ int held[];
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (column < columns && row < rows) x[row * columns + column] = value * (long long)scale + row;
}

std::vector<torch::Tensor> fill(const torch::Tensor& like, int64_t value, double scale,
                                bool twice) {
    TORCH_CHECK(like.dim() == 2, "expected 2 dims, got ", like.dim());
    auto options = torch::TensorOptions().dtype(torch::kInt64).device(like.device());
    torch::Tensor x = torch::empty({like.size(0), like.size(-1)}, options);
    dim3 block(32);
    dim3 grid((x.size(1) + block.x - 1) / block.x, x.size(0));
    cudaStream_t stream = at::cuda::getCurrentCUDAStream();
    fill_kernel<<<grid, block, 16 * sizeof(int), stream>>>(
        x.data_ptr<int64_t>(), x.size(0), x.size(1), twice ? doubled(value) : value, scale);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {x, x.reshape({-1})};
}

std::tuple<int64_t, double, bool> facts(torch::Tensor x, std::vector<int64_t> sizes,
                                        c10::optional<torch::Tensor> other, std::string word) {
    TORCH_CHECK(x.scalar_type() == torch::kFloat32 && x.dtype() == torch::kFloat, "float wanted");
    TORCH_CHECK(!other.has_value() || other->sizes() == x.sizes());
    return {x.numel() + sizes.at(0) + (int64_t)word.size(), x.stride(0) * 0.5, x.is_cuda()};
}

void nothing() {}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("fill", &fill, "Fills a matrix");
    m.def("facts", &facts);
    m.def("nothing", &nothing);
}
"""


@pytest.fixture(scope="module")
def everything() -> Any:
    return load_inline("everything", "", EVERYTHING)


def test_grids_numbers_streams_and_options(everything: Any) -> None:
    like = ss.zeros(3, 40, device="cuda")
    x, flat = everything.fill(like, 5, 2.0, True)
    assert x.dtype is ss.int64
    assert x.tolist() == [[20 + row] * 40 for row in range(3)]
    assert flat.shape == (120,)
    with pytest.raises(RuntimeError, match="expected 2 dims, got 1"):
        everything.fill(like[0], 5, 2.0, True)


def test_values_go_in_and_out(everything: Any) -> None:
    x = ss.zeros(4, 6, device="cuda")
    assert everything.facts(x, [10], None, "abc") == (37, 3.0, True)
    assert everything.facts(x.cpu(), (10, 11), x.cpu(), "") == (34, 3.0, False)
    assert everything.nothing() is None
    with pytest.raises(RuntimeError, match="to be true, but got false"):
        everything.facts(x, [1], x[0], "")
    with pytest.raises(TypeError, match="argument 2 has to be a list"):
        everything.facts(x, 1, None, "")


def test_kernel_arguments_are_checked() -> None:
    text = CUDA.replace("const int n = a.numel();", "const int64_t n = a.numel() << 40;")
    text = text.replace("const dim3 blocks((n + threads - 1) / threads);", "const dim3 blocks(1);")
    module = load_inline("wide", CPP, text, ["vector_add"])
    with pytest.raises(OverflowError, match="n is"):
        module.vector_add(*pair())


def test_a_pointer_to_nowhere_is_refused() -> None:
    text = CUDA.replace("b.data_ptr<float>(), c", "(float*)64, c")
    module = load_inline("nowhere", CPP, text, ["vector_add"])
    with pytest.raises(ValueError, match="argument 2 of vector_add_kernel points into no tensor"):
        module.vector_add(*pair())


def test_functions_of_the_host_alone() -> None:
    module = load_inline("host", """
    torch::Tensor count(int64_t n) {
        auto x = torch::zeros({n}, torch::dtype(torch::kFloat64));
        for (int64_t i = 0; i < n; i++) x.data_ptr<double>()[i] = i;
        return x;
    }""", functions={"count": "Counts."})
    assert module.count(4).tolist() == [0, 1, 2, 3]
    assert module.count.__doc__ == "Counts."


@pytest.mark.parametrize(("line", "what"), [
    ("auto d = torch::mm(a, b);", "torch::mm"), ("auto d = a.softmax(0);", "Tensor::softmax"),
    ("cudaMalloc(nullptr, 8);", "cudaMalloc"),
    ('AT_DISPATCH_FLOATING_TYPES(a.scalar_type(), "f", [&] {});', "AT_DISPATCH_FLOATING_TYPES"),
    ("auto p = a.packed_accessor32<float, 1>();", "packed_accessor32"),
    ("thrust::sort(nullptr, nullptr);", "thrust"),
])
def test_what_is_outside_the_subset_says_so(line: str, what: str) -> None:
    text = CUDA.replace("const int n = a.numel();", f"const int n = a.numel(); {line}")
    with pytest.raises(ValueError, match=f"{what} is outside the subset of load_inline") as caught:
        load_inline("outside", CPP, text, ["vector_add"])
    assert line in str(caught.value)
    assert "docs/custom_kernels.md" in str(caught.value)


@pytest.mark.parametrize(("line", "what"), [
    ('m.def("f", &vector_add, "doc", py::arg("a"), py::arg("b") = 2);', "py::arg"),
    ('m.def("f", [](torch::Tensor a) { return a; });', "a binding of anything but a function"),
    ('py::class_<int>(m, "Number");', "py::class_"), ('m.attr("x") = 3;', "attr"),
    ("m.def();", "a binding of anything but a function"),
])
def test_what_a_binding_says_beyond_a_function_is_outside(line: str, what: str) -> None:
    text = f"{CUDA}\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{\n    {line}\n}}\n"
    with pytest.raises(ValueError, match=f"{what} is outside the subset of load_inline") as caught:
        load_inline("outside", CPP, text)
    assert line in str(caught.value)


def test_other_headers_and_libraries_are_outside() -> None:
    with pytest.raises(ValueError, match=r"the header cub/cub.cuh is outside"):
        load_inline("outside", CPP, "#include <cub/cub.cuh>\n" + CUDA, ["vector_add"])
    with pytest.raises(ValueError, match="no libraries"):
        load_inline("outside", CPP, CUDA, ["vector_add"], extra_ldflags=["-lcublas"])


def test_compile_errors_show_the_line() -> None:
    with pytest.raises(CompileError) as caught:
        load_inline("bad", CPP, CUDA.replace("const int n = a.numel();", "const int n = oops;"),
                    ["vector_add"])
    lines = str(caught.value).split("\n")
    caret = next(place for place, line in enumerate(lines) if line.strip() == "^")
    assert lines[caret].index("^") == lines[caret - 1].index("oops")


def test_a_function_that_is_nowhere() -> None:
    with pytest.raises(ValueError, match="no function missing"):
        load_inline("nowhere", CPP, CUDA, ["missing"])


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings.simulated, "compiler", "no-such-compiler")
    with pytest.raises(RuntimeError, match=r"apt install g\+\+"):
        load_inline("none", CPP, CUDA, ["vector_add"])


def test_a_source_is_split_by_what_runs_where() -> None:
    parts = parts_of(CUDA)
    assert parts.host.count("\n") == parts.device.count("\n") == CUDA.count("\n")
    assert "__global__" not in parts.host
    assert "<<<" not in parts.host
    assert 'slip::launcher("vector_add_kernel", blocks, threads)(' in parts.host
    assert "torch::Tensor" not in parts.device
    assert "__global__" in parts.device


def test_kernels_of_a_source_share_its_variables() -> None:
    module = load_inline("shared", "void run(torch::Tensor out);", """
        __device__ int counter = 0;
        __global__ void put(int value) { counter = value; }
        __global__ void get(int* out) { out[0] = counter; }
        void run(torch::Tensor out) { put<<<1, 1>>>(7); get<<<1, 1>>>(out.data_ptr<int>()); }
        """, functions=["run"])
    out = ss.zeros(1, dtype=ss.int32, device="cuda")
    module.run(out)
    assert out.item() == 7
