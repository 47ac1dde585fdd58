"""A library of products beside the simulated driver, with the functions that we use of cuBLASLt.

It is stood in for by one plain kernel, which knows every dtype, layout and epilogue: what is
simulated is how the library is asked, called and captured.  Its algorithms differ in the shape of
a block, so that grids differ as the library's do; algorithm 0 wants leading dimensions that are
multiples of 8, as kernels that load in vectors do.
"""

from __future__ import annotations

import struct
from typing import Any

from slipstream.core.native.driver import Driver

SUCCESS, NOT_SUPPORTED, INVALID_VALUE = 0, 15, 7
# (rows, columns) of the tile that a block of each algorithm makes; 256 threads at most.
TILES = ((16, 16), (16, 8), (8, 16), (8, 8), (32, 8), (8, 32), (4, 16), (16, 4))
VECTOR = 8
NAME = "slip_library_product"
# The library's numbers of dtypes, attributes and epilogues, and ours for the kernel.
DTYPES = {0: 0, 14: 1, 2: 2}
ROWS, COLUMNS, STRIDE = 2, 3, 4
TRANSPOSE_A, TRANSPOSE_B, EPILOGUE, BIAS, AUX, AUX_STRIDE = 3, 4, 7, 8, 11, 12
ACTIVATIONS = {1: 0, 4: 0, 6: 1, 36: 2, 164: 2}
PLAIN, AUXILIARY = 1, 164
HEURISTIC_BYTES, ALGORITHM_BYTES = 96, 64

SOURCE = """
struct slip_sizes {
    long long m, n, k, a, b, d, aux;
    int turned_a, turned_b, dtype, activation;
};
typedef unsigned char byte_t;
typedef unsigned short half_t;
static __device__ float slip_load(const byte_t* data, long long at, int dtype) {
    if (dtype == 0) return ((const float*)data)[at];
    const unsigned bits = ((const half_t*)data)[at];
    if (dtype == 1) return __uint_as_float(bits << 16);
    const float sign = bits & 0x8000 ? -1.0f : 1.0f;
    const int exponent = (bits >> 10) & 31;
    const float mantissa = (float)(bits & 1023);
    if (exponent == 0) return sign * ldexpf(mantissa, -24);
    if (exponent == 31 && mantissa != 0) return __uint_as_float(0x7fc00000);
    if (exponent == 31) return sign * __uint_as_float(0x7f800000);
    return sign * ldexpf(1024.0f + mantissa, exponent - 25);
}
static __device__ half_t slip_half(float value) {
    const unsigned bits = __float_as_uint(value);
    const unsigned sign = (bits >> 16) & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) return sign | 0x7e00;
    if (rest >= 0x477ff000) return sign | 0x7c00;
    if (rest < 0x38800000) return sign | (unsigned)rintf(ldexpf(__uint_as_float(rest), 24));
    return sign | ((rest - 0x38000000 + 0xfff + ((rest >> 13) & 1)) >> 13);
}
static __device__ void slip_store(byte_t* data, long long at, int dtype, float value) {
    if (dtype == 0) {
        ((float*)data)[at] = value;
        return;
    }
    const unsigned bits = __float_as_uint(value);
    const unsigned near = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const unsigned rounded = value != value ? 0x7fc0 : near;
    ((half_t*)data)[at] = dtype == 1 ? (half_t)rounded : slip_half(value);
}
extern "C" __global__ void slip_library_product(
        const byte_t* a, const byte_t* b, byte_t* d, const byte_t* bias, byte_t* aux,
        byte_t* space, const slip_sizes size) {
    const long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const long long column = (long long)blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= size.m || column >= size.n) return;
    float sum = 0.0f;
    for (long long k = 0; k < size.k; k++) {
        const long long left = size.turned_a ? row * size.a + k : k * size.a + row;
        const long long right = size.turned_b ? k * size.b + column : column * size.b + k;
        sum = fmaf(slip_load(a, left, size.dtype), slip_load(b, right, size.dtype), sum);
    }
    // As kernels that split a sum do, it uses the workspace: two streams may not share one.
    if (row == 0 && column == 0) slip_store(space, 0, 0, sum);
    if (bias) sum = sum + slip_load(bias, row, size.dtype);
    if (aux) slip_store(aux, column * size.aux + row, size.dtype, sum);
    if (size.activation == 1) sum = sum > 0 || sum != sum ? sum : 0.0f;
    if (size.activation == 2) {
        const float inner = 0.7978845608028654f * (sum + 0.044715f * sum * sum * sum);
        sum = 0.5f * sum * (1.0f + tanhf(inner));
    }
    slip_store(d, column * size.d + row, size.dtype, sum);
}
"""


def value_of(reference: Any) -> Any:
    """What a pointer of ctypes points to."""
    held = reference._obj
    return getattr(held, "value", held)


class SimulatedLibrary:
    """The library's functions, as ctypes would call them; a status is returned."""

    def __init__(self, driver: Driver, arch: str) -> None:
        self.driver = driver
        self.arch = arch
        self.objects: dict[int, dict[int, int]] = {}
        self.function = self.kernel()
        # Which algorithms are refused where they are checked, beside what their tile says.
        self.refused: set[int] = set()

    def make(self, reference: Any, **attributes: int) -> int:
        """A descriptor."""
        handle = len(self.objects) + 1
        self.objects[handle] = {int(name[1:]): value for name, value in attributes.items()}
        reference._obj.value = handle
        return SUCCESS

    def put(self, descriptor: Any, which: int, reference: Any, nbytes: Any) -> int:
        """Set an attribute."""
        self.objects[descriptor.value][which] = value_of(reference) or 0
        return SUCCESS

    def algorithms(self, a: Any, b: Any, d: Any) -> list[int]:
        """Those that run on these layouts, best first."""
        strides = [self.objects[each.value][STRIDE] for each in (a, b, d)]
        whole = all(stride % VECTOR == 0 for stride in strides)
        return [each for each in range(len(TILES))
                if (each or whole) and each not in self.refused]

    # -- the library's names --

    def cublasLtCreate(self, handle: Any) -> int:  # noqa: N802
        """Make a handle."""
        return self.make(handle)

    def cublasLtMatrixLayoutCreate(self, made: Any, dtype: int, rows: Any,  # noqa: N802
                                   columns: Any, stride: Any) -> int:
        """Make a matrix's descriptor."""
        return self.make(made, _0=dtype, _2=rows.value, _3=columns.value, _4=stride.value)

    def cublasLtMatmulDescCreate(self, made: Any, compute: int, scale: int) -> int:  # noqa: N802
        """Make a product's descriptor."""
        return self.make(made, _0=compute, _1=scale)

    def cublasLtMatmulPreferenceCreate(self, made: Any) -> int:  # noqa: N802
        """Make a question's descriptor."""
        return self.make(made)

    def cublasLtMatmulPreferenceDestroy(self, made: Any) -> int:  # noqa: N802
        """Give it back."""
        return SUCCESS

    cublasLtMatrixLayoutSetAttribute = put  # noqa: N815
    cublasLtMatmulDescSetAttribute = put  # noqa: N815
    cublasLtMatmulPreferenceSetAttribute = put  # noqa: N815

    def cublasLtGetVersion(self) -> int:  # noqa: N802
        """The version."""
        return 0

    def cublasLtMatmulAlgoGetHeuristic(self, *given: Any) -> int:  # noqa: N802
        """The algorithms for a product, best first."""
        _, product, a, b, _, d, _, most, found, count = given
        if self.objects[a.value][0] not in DTYPES:
            return NOT_SUPPORTED
        if self.objects[product.value][EPILOGUE] not in ACTIVATIONS:
            return INVALID_VALUE
        names = self.algorithms(a, b, d)[:most]
        for place, name in enumerate(names):
            found[place * HEURISTIC_BYTES] = name
        count._obj.value = len(names)
        return SUCCESS

    def cublasLtMatmulAlgoCheck(self, *given: Any) -> int:  # noqa: N802
        """Whether an algorithm runs on a product's sizes."""
        _, _, a, b, _, d, algorithm, _ = given
        return SUCCESS if algorithm[0] in self.algorithms(a, b, d) else NOT_SUPPORTED

    def cublasLtMatmul(self, *given: Any) -> int:  # noqa: N802
        """Launch a product's kernel."""
        (_, product, _, a, a_layout, b, b_layout, _, _, _, d, d_layout, algorithm, space, _,
         stream) = given
        if algorithm[0] not in self.algorithms(a_layout, b_layout, d_layout):
            return NOT_SUPPORTED
        wanted = self.objects[product.value]
        left, right, out = [self.objects[each.value] for each in (a_layout, b_layout, d_layout)]
        depth = left[ROWS] if wanted[TRANSPOSE_A] else left[COLUMNS]
        block = struct.pack(
            "<6Q7q4i", a.value, b.value, d.value,
            wanted[BIAS] if wanted[EPILOGUE] != PLAIN else 0,
            wanted[AUX] if wanted[EPILOGUE] == AUXILIARY else 0,
            space.value or 0, out[ROWS], out[COLUMNS], depth, left[STRIDE], right[STRIDE],
            out[STRIDE], wanted.get(AUX_STRIDE, 0), wanted[TRANSPOSE_A], wanted[TRANSPOSE_B],
            DTYPES[left[0]], ACTIVATIONS[wanted[EPILOGUE]])
        rows, columns = TILES[algorithm[0]]
        grid = (-(-out[ROWS] // rows), -(-out[COLUMNS] // columns), 1)
        self.driver.launch(self.function, grid, (rows, columns, 1), 0, stream.value, block)
        return SUCCESS

    def kernel(self) -> int:
        """The kernel's handle; its image is made once in a process."""
        key = (self.arch, self.driver.compiler_version())
        if key not in images:
            images[key] = self.driver.compile(SOURCE, NAME, (), self.arch)
        return self.driver.function(self.driver.load_module(images[key]), NAME)


images: dict[tuple[str, str], bytes] = {}
