"""cuBLASLt through its C interface: descriptors, heuristics, the call.

The numbers are those of the library's documented enumerations.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipstream.core.vocab import optional

Pointer = ctypes.c_void_p

# cudaDataType and cublasComputeType.
TYPES = {"float16": 2, "bfloat16": 14, "float32": 0, "float64": 1, "complex64": 4,
         "complex128": 5}
COMPUTE = {"float16": 68, "bfloat16": 68, "float32": 68, "float64": 70, "complex64": 68,
           "complex128": 70}
COMPUTE_TF32 = 77
# The type of alpha and beta.
SCALES = {"float16": 0, "bfloat16": 0, "float32": 0, "float64": 1, "complex64": 4,
          "complex128": 5}
# Attributes of a product, of a matrix, of a preference.
TRANSPOSE_A, TRANSPOSE_B, EPILOGUE, BIAS_POINTER, AUX_POINTER, AUX_LD = 3, 4, 7, 8, 11, 12
BATCH_COUNT, BATCH_STRIDE = 5, 6
MAX_WORKSPACE, ALIGNMENTS = 1, (5, 6, 7, 8)
EPILOGUES = {"": 1, "relu": 2, "bias": 4, "relu_bias": 6, "gelu": 32, "gelu_bias": 36,
             "gelu_aux": 160, "gelu_aux_bias": 164}
HEURISTIC_BYTES = 96
ALGORITHM_BYTES = 64


class LibraryError(RuntimeError):
    """A call of cuBLASLt failed."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A column-major matrix: rows, columns, distance of columns, and of matrices of a batch."""

    dtype: str
    rows: int
    columns: int
    stride: int
    batch: int = 1
    batch_stride: int = 0


@dataclass(frozen=True, slots=True)
class Product:
    """d = epilogue(alpha * op(a) @ op(b) + beta * d), all column-major."""

    a: Matrix
    b: Matrix
    d: Matrix
    transpose_a: bool
    transpose_b: bool
    compute: int
    scale: int
    epilogue: str = ""


def candidates() -> Iterator[str]:
    """Where the library may be: beside the bindings, in the system's paths."""
    for folder in sys.path:
        found = Path(folder) / "nvidia"
        yield from map(str, found.glob("*/lib/libcublasLt.so.*"))
    yield "libcublasLt.so.13"
    yield "libcublasLt.so.12"


class CublasLt:
    """The library on one card: its handle, and the algorithm kept for each product.

    ``asked`` counts the questions to its heuristics, which cost 0.3 to 0.5 ms each.
    """

    def __init__(self) -> None:
        self.library = open_library()
        self.handle = Pointer()
        self.asked = 0
        self.classes: dict[Any, SizeClass] = {}
        self.check("cublasLtCreate", ctypes.byref(self.handle))

    def version(self) -> int:
        """The library's version, such as 130100."""
        self.library.cublasLtGetVersion.restype = ctypes.c_size_t
        found: int = self.library.cublasLtGetVersion()
        return found

    def check(self, name: str, *arguments: Any) -> None:
        """Call a function; raises LibraryError where it fails."""
        status = getattr(self.library, name)(*arguments)
        if status:
            raise LibraryError(f"{name} failed with status {status}")

    def attribute(self, kind: str, descriptor: Pointer, which: int, value: Any) -> None:
        """Set an attribute of a descriptor."""
        self.check(f"cublasLt{kind}SetAttribute", descriptor, which, ctypes.byref(value),
                   ctypes.c_size_t(ctypes.sizeof(value)))

    def layout(self, matrix: Matrix) -> Pointer:
        """The descriptor of a matrix."""
        made = Pointer()
        self.check("cublasLtMatrixLayoutCreate", ctypes.byref(made), TYPES[matrix.dtype],
                   ctypes.c_uint64(matrix.rows), ctypes.c_uint64(matrix.columns),
                   ctypes.c_int64(matrix.stride))
        if matrix.batch > 1:
            self.attribute("MatrixLayout", made, BATCH_COUNT, ctypes.c_int32(matrix.batch))
            self.attribute("MatrixLayout", made, BATCH_STRIDE,
                           ctypes.c_int64(matrix.batch_stride))
        return made

    def descriptor(self, product: Product) -> Pointer:
        """The descriptor of a product."""
        made = Pointer()
        self.check("cublasLtMatmulDescCreate", ctypes.byref(made), product.compute,
                   product.scale)
        for which, wanted in ((TRANSPOSE_A, product.transpose_a),
                              (TRANSPOSE_B, product.transpose_b)):
            self.attribute("MatmulDesc", made, which, ctypes.c_int32(int(wanted)))
        self.attribute("MatmulDesc", made, EPILOGUE, ctypes.c_int32(EPILOGUES[product.epilogue]))
        return made


@dataclass(slots=True)
class SizeClass:
    """What is known of products whose sizes round up to the same powers of two.

    ``algorithm`` is the first one's; ``layout`` is for whoever patches its kernels.
    """

    algorithm: Any
    layout: Any = None


def class_of(product: Product) -> tuple[Any, ...]:
    """The key of a product's size class."""
    sizes = [(each.rows - 1).bit_length() for each in (product.a, product.b, product.d)]
    sizes += [(each.columns - 1).bit_length() for each in (product.a, product.b, product.d)]
    # The alignment of a leading dimension decides which kernels can load it.
    steps = [each.stride & -each.stride & 15 for each in (product.a, product.b, product.d)]
    return (*sizes, *steps, product.a.dtype, product.transpose_a, product.transpose_b,
            product.compute, product.epilogue, (product.d.batch - 1).bit_length())


class Call:
    """A product that the library computes, with its algorithm; ready to be called.

    A product takes its size class's algorithm where the library can run it on these sizes, and
    asks its heuristics otherwise.
    """

    def __init__(self, library: CublasLt, product: Product, workspace: int,
                 alignment: int) -> None:
        self.library = library
        self.product = product
        self.descriptor = library.descriptor(product)
        self.layouts = tuple(map(library.layout, (product.a, product.b, product.d)))
        kind = ctypes.c_double if product.scale in (1, 5) else ctypes.c_float
        self.alpha, self.beta = (kind * 2)(1, 0), (kind * 2)(0, 0)
        self.workspace = workspace
        key = class_of(product)
        known = library.classes.get(key)
        if known is None or not self._can_run(known.algorithm):
            known = SizeClass(self._ask(workspace, alignment)[0])
            library.classes.setdefault(key, known)
        self.size_class = known
        self.algorithm = known.algorithm

    def set_scales(self, alpha: complex, beta: complex) -> None:
        """Set alpha and beta, which are read when the call is made."""
        for target, value in ((self.alpha, alpha), (self.beta, beta)):
            target[0], target[1] = complex(value).real, complex(value).imag

    def _can_run(self, algorithm: Any) -> bool:
        """Whether the library can run an algorithm on these sizes within the workspace."""
        library = self.library
        result = (ctypes.c_uint8 * HEURISTIC_BYTES)()
        a, b, d = self.layouts
        status = library.library.cublasLtMatmulAlgoCheck(
            library.handle, self.descriptor, a, b, d, d, algorithm, result)
        needs = int.from_bytes(bytes(result)[ALGORITHM_BYTES:ALGORITHM_BYTES + 8], "little")
        return status == 0 and needs <= self.workspace

    def _ask(self, workspace: int, alignment: int) -> list[Any]:
        """The library's best algorithms, best first; raises LibraryError where it has none."""
        library = self.library
        library.asked += 1
        wanted = Pointer()
        library.check("cublasLtMatmulPreferenceCreate", ctypes.byref(wanted))
        try:
            library.attribute("MatmulPreference", wanted, MAX_WORKSPACE,
                              ctypes.c_uint64(workspace))
            for which in ALIGNMENTS:
                library.attribute("MatmulPreference", wanted, which, ctypes.c_uint32(alignment))
            count = ctypes.c_int()
            found = (ctypes.c_uint8 * (8 * HEURISTIC_BYTES))()
            a, b, d = self.layouts
            library.check("cublasLtMatmulAlgoGetHeuristic", library.handle, self.descriptor, a, b,
                          d, d, wanted, 8, found, ctypes.byref(count))
        finally:
            library.check("cublasLtMatmulPreferenceDestroy", wanted)
        if not count.value:
            raise LibraryError("cuBLASLt has no algorithm for this product")
        raw = bytes(found)
        starts = range(0, count.value * HEURISTIC_BYTES, HEURISTIC_BYTES)
        return [(ctypes.c_uint8 * ALGORITHM_BYTES)(*raw[at:at + ALGORITHM_BYTES])
                for at in starts]

    def run(self, addresses: tuple[int, int, int], bias: int, space: int, stream: int) -> None:
        """Call the library: ``addresses`` of a, b and d, of the bias (0: none), workspace."""
        library = self.library
        if bias:
            library.attribute("MatmulDesc", self.descriptor, BIAS_POINTER, Pointer(bias))
        a, b, d = addresses
        layout_a, layout_b, layout_d = self.layouts
        library.check(
            "cublasLtMatmul", library.handle, self.descriptor, ctypes.byref(self.alpha),
            Pointer(a), layout_a, Pointer(b), layout_b, ctypes.byref(self.beta), Pointer(d),
            layout_d, Pointer(d), layout_d, self.algorithm, Pointer(space),
            ctypes.c_size_t(self.workspace), Pointer(stream))


def open_library() -> ctypes.CDLL:
    """The library; raises LibraryError with the mend where it is not found."""
    for name in candidates():
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise LibraryError(f"cuBLASLt is not found: {optional.install_command('cuda')}")
