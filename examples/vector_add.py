"""The same vector add at three levels: the driver, a kernel from a string, a PyTorch extension.

Runs on a card, or without one: SLIPSTREAM_DRIVER=sim python examples/vector_add.py
"""

from __future__ import annotations

import numpy as np

import slipstream as ss
from slipstream.cuda import driver
from slipstream.utils.cpp_extension import load_inline

N = 100_000
THREADS = 256
BLOCKS = -(-N // THREADS)

KERNEL = """
extern "C" __global__ void vector_add(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
"""

EXTENSION = """
#include <torch/extension.h>

__global__ void vector_add_kernel(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

torch::Tensor vector_add(torch::Tensor a, torch::Tensor b) {
    TORCH_CHECK(a.sizes() == b.sizes(), "a and b differ in shape");
    auto c = torch::empty_like(a);
    const int n = a.numel();
    const int threads = 256;
    const dim3 blocks((n + threads - 1) / threads);
    vector_add_kernel<<<blocks, threads>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), n);
    return c;
}
"""


def with_driver(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """On the metal: addresses, a module, a parameter block; nothing checks the arguments."""
    function = driver.get_function(driver.module_load(driver.compile(KERNEL)), "vector_add")
    places = [driver.mem_alloc(a.nbytes) for _ in range(3)]
    driver.memcpy_htod(places[0], a)
    driver.memcpy_htod(places[1], b)
    driver.launch(function, BLOCKS, THREADS, (*places, np.int32(N)))
    c = np.empty_like(a)
    driver.memcpy_dtoh(c, places[2])
    for place in places:
        driver.mem_free(place)
    return c


def with_kernel(a: ss.Tensor, b: ss.Tensor) -> ss.Tensor:
    """A kernel from a string: arguments are checked, launches go with those of other ops."""
    vector_add = ss.cuda.kernel(KERNEL)
    c = ss.empty_like(a)
    vector_add[BLOCKS, THREADS](a, b, c, N)
    return c


def with_extension(a: ss.Tensor, b: ss.Tensor) -> ss.Tensor:
    """A PyTorch-style extension, unchanged; needs a C++ compiler for the host's part."""
    module = load_inline("vector_add", "torch::Tensor vector_add(torch::Tensor, torch::Tensor);",
                         EXTENSION, functions=["vector_add"])
    return module.vector_add(a, b)


def main() -> None:
    ss.manual_seed(0)
    a, b = ss.randn(N), ss.randn(N)
    expected = a + b
    made = {
        "driver": ss.from_numpy(with_driver(a.numpy(), b.numpy())),
        "kernel": with_kernel(a.cuda(), b.cuda()).cpu(),
        "load_inline": with_extension(a.cuda(), b.cuda()).cpu(),
    }
    for name, result in made.items():
        assert ss.equal(result, expected), name
        print(f"{name}: {N} sums, all equal to the CPU's")


if __name__ == "__main__":
    main()
