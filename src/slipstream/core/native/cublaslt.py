# cython: annotation_typing=False
"""cuBLASLt through its C interface: descriptors, heuristics, the call.

The numbers are those of the library's documented enumerations.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

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
ROWS, COLUMNS, STRIDE, BATCH_COUNT, BATCH_STRIDE = 2, 3, 4, 5, 6
MAX_WORKSPACE, ALIGNMENTS = 1, (5, 6, 7, 8)
EPILOGUES = {"": 1, "bias": 4, "relu_bias": 6, "gelu_bias": 36, "gelu_aux_bias": 164}
HEURISTIC_BYTES = 96
ALGORITHM_BYTES = 64
# How many algorithms the library is asked for.
CANDIDATES = 8
# Operands start at multiples of so many bytes.
ALIGNMENT = 16
# An address that is never read: the library looks at its alignment when it is asked.
NOWHERE = 0x7000_0000_0000


class LibraryError(RuntimeError):
    """A call of cuBLASLt failed."""


class Matrix(NamedTuple):
    """A column-major matrix: rows, columns, distance of columns, and of matrices of a batch."""

    dtype: str
    rows: int
    columns: int
    stride: int
    batch: int = 1
    batch_stride: int = 0

    @property
    def elements(self) -> int:
        """How many elements it spans."""
        return self.stride * self.columns + (self.batch - 1) * self.batch_stride


class Product(NamedTuple):
    """d = epilogue(alpha * op(a) @ op(b) + beta * d), all column-major.

    The epilogue adds a bias of one element a row of d; ``gelu`` is x Phi(x) with Phi by a tanh,
    ``aux`` stores what it is taken of, laid out as d.
    """

    a: Matrix
    b: Matrix
    d: Matrix
    transpose_a: bool
    transpose_b: bool
    compute: int
    scale: int
    epilogue: str = ""

    @property
    def biased(self) -> bool:
        """Whether there is a bias."""
        return "bias" in self.epilogue

    @property
    def text(self) -> str:
        """Its sizes as rows x columns x steps of the row-major product, dtype and epilogue."""
        depth = self.a.rows if self.transpose_a else self.a.columns
        extra = f" {self.epilogue}" if self.epilogue else ""
        return f"{self.d.columns} x {self.d.rows} x {depth} {self.d.dtype}{extra}"

    @property
    def auxiliary(self) -> bool:
        """Whether what the activation is taken of is stored too."""
        return "aux" in self.epilogue


class Addresses(NamedTuple):
    """Where the operands of a call lie; 0 where there is none."""

    a: int
    b: int
    d: int
    bias: int
    aux: int
    space: int


@dataclass(slots=True)
class SizeClass:
    """The algorithms of products whose sizes round up to the same powers of two.

    The first that the library can run on a product's sizes is taken.  ``missing``: why there is
    none; then nobody asks again.
    """

    algorithms: list[Any] = field(default_factory=list)
    missing: str = ""


def candidates() -> Iterator[str]:
    """Where the library may be: beside the bindings, in the system's paths."""
    for folder in sys.path:
        found = Path(folder) / "nvidia"
        yield from map(str, found.glob("*/lib/libcublasLt.so.*"))
    yield "libcublasLt.so.13"
    yield "libcublasLt.so.12"


def open_library() -> ctypes.CDLL:
    """The library; raises LibraryError with the mend where it is not found."""
    for name in candidates():
        try:
            found = ctypes.CDLL(name)
        except OSError:
            continue
        found.cublasLtGetVersion.restype = ctypes.c_size_t
        return found
    raise LibraryError(f"cuBLASLt is not found: {optional.install_command('cuda')}")


class CublasLt:
    """The library on one card: its handle, and the algorithms kept for each size class.

    ``counts`` takes the number of questions to its heuristics, which cost 0.3 to 0.5 ms each.
    """

    def __init__(self, library: Any, counts: Counter[str]) -> None:
        self.library = open_library() if library is None else library
        self.counts = counts
        self.handle = Pointer()
        self.classes: dict[Any, SizeClass] = {}
        self.kinds: dict[Any, Kind] = {}
        # Descriptors are shared by all products of a kind: one thread at a time sets them.
        self.lock = threading.RLock()
        self.check("cublasLtCreate", ctypes.byref(self.handle))

    def version(self) -> int:
        """The library's version, such as 130100."""
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

    def kind_of(self, product: Product) -> Kind:
        """The descriptors of a product, with its sizes; hold the lock while they are used."""
        key = (product.a.dtype, *product[3:])
        kind = self.kinds.get(key)
        if kind is None:
            kind = self.kinds[key] = Kind(self, product)
        kind.fit(product)
        return kind


class Layout:
    """The descriptor of a matrix, whose sizes are set anew for each product."""

    def __init__(self, library: CublasLt, matrix: Matrix) -> None:
        self.library = library
        self.pointer = Pointer()
        library.check("cublasLtMatrixLayoutCreate", ctypes.byref(self.pointer),
                      TYPES[matrix.dtype], ctypes.c_uint64(matrix.rows),
                      ctypes.c_uint64(matrix.columns), ctypes.c_int64(matrix.stride))
        self.now = Matrix(matrix.dtype, matrix.rows, matrix.columns, matrix.stride)
        # What a call is made of, made once: these calls are most of what a product costs.
        self.set = library.library.cublasLtMatrixLayoutSetAttribute
        self.values: list[Any] = [kind() for _, kind in _SIZES]
        self.fields = [(which, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))
                       for (which, _), value in zip(_SIZES, self.values, strict=True)]

    def fit(self, matrix: Matrix) -> None:
        """Take a matrix's sizes."""
        now = self.now
        if matrix == now:
            return
        for place, value in enumerate(self.values, 1):
            if matrix[place] == now[place]:
                continue
            value.value = matrix[place]
            which, reference, nbytes = self.fields[place - 1]
            status = self.set(self.pointer, which, reference, nbytes)
            if status:
                raise LibraryError(f"cublasLtMatrixLayoutSetAttribute failed with status {status}")
        self.now = matrix


_SIZES = ((ROWS, ctypes.c_uint64), (COLUMNS, ctypes.c_uint64), (STRIDE, ctypes.c_int64),
          (BATCH_COUNT, ctypes.c_int32), (BATCH_STRIDE, ctypes.c_int64))


class Kind:
    """What all products of one kind share: everything but their sizes, numbers and addresses."""

    def __init__(self, library: CublasLt, product: Product) -> None:
        self.library = library
        self.descriptor = Pointer()
        library.check("cublasLtMatmulDescCreate", ctypes.byref(self.descriptor), product.compute,
                      product.scale)
        for which, value in ((TRANSPOSE_A, product.transpose_a),
                             (TRANSPOSE_B, product.transpose_b),
                             (EPILOGUE, EPILOGUES[product.epilogue])):
            self.set(which, ctypes.c_int32(int(value)))
        if product.biased:
            self.set(BIAS_POINTER, Pointer(NOWHERE))
        self.stride = 0
        self.layouts = tuple([Layout(library, each) for each in product[:3]])
        number = ctypes.c_double if product.scale in (1, 5) else ctypes.c_float
        self.alpha, self.beta = (number * 2)(1, 0), (number * 2)(0, 0)
        # The arguments that are others at each call, and the library's answer to a check.
        self.places = tuple([Pointer() for _ in range(5)])
        self.result = (ctypes.c_uint8 * HEURISTIC_BYTES)()
        self.needs = ctypes.c_uint64.from_buffer(self.result, ALGORITHM_BYTES)

    def set(self, which: int, value: Any) -> None:
        """Set an attribute of the product."""
        self.library.attribute("MatmulDesc", self.descriptor, which, value)

    def fit(self, product: Product) -> None:
        """Take a product's sizes."""
        for layout, matrix in zip(self.layouts, product[:3], strict=True):
            layout.fit(matrix)
        if product.auxiliary and product.d.stride != self.stride:
            self.set(AUX_POINTER, Pointer(NOWHERE))
            self.set(AUX_LD, ctypes.c_int64(product.d.stride))
            self.stride = product.d.stride

    @property
    def four(self) -> tuple[Pointer, ...]:
        """The layouts of a, b, c and d; c is d."""
        a, b, d = self.layouts
        return a.pointer, b.pointer, d.pointer, d.pointer

    def can_run(self, algorithm: Any, workspace: int) -> bool:
        """Whether the library can run an algorithm on these sizes within the workspace."""
        library = self.library
        status: int = library.library.cublasLtMatmulAlgoCheck(
            library.handle, self.descriptor, *self.four, algorithm, self.result)
        return status == 0 and self.needs.value <= workspace

    def ask(self, workspace: int) -> list[Any]:
        """The library's best algorithms, best first; raises LibraryError where it has none."""
        library = self.library
        library.counts["library_questions"] += 1
        wanted = Pointer()
        library.check("cublasLtMatmulPreferenceCreate", ctypes.byref(wanted))
        try:
            library.attribute("MatmulPreference", wanted, MAX_WORKSPACE,
                              ctypes.c_uint64(workspace))
            for which in ALIGNMENTS:
                library.attribute("MatmulPreference", wanted, which, ctypes.c_uint32(ALIGNMENT))
            count = ctypes.c_int()
            found = (ctypes.c_uint8 * (CANDIDATES * HEURISTIC_BYTES))()
            library.check("cublasLtMatmulAlgoGetHeuristic", library.handle, self.descriptor,
                          *self.four, wanted, CANDIDATES, found, ctypes.byref(count))
        finally:
            library.check("cublasLtMatmulPreferenceDestroy", wanted)
        if not count.value:
            raise LibraryError("cuBLASLt has no algorithm for this product")
        starts = range(0, count.value * HEURISTIC_BYTES, HEURISTIC_BYTES)
        return [algorithm_of(bytes(found)[at:at + ALGORITHM_BYTES]) for at in starts]

    def run(self, algorithm: Any, at: Addresses, workspace: int, stream: int) -> None:
        """Call the library."""
        library = self.library
        if at.bias:
            self.set(BIAS_POINTER, Pointer(at.bias))
        if at.aux:
            self.set(AUX_POINTER, Pointer(at.aux))
        a, b, d, space, on = self.places
        a.value, b.value, d.value, space.value, on.value = at.a, at.b, at.d, at.space, stream
        left, right, out = self.layouts
        library.check(
            "cublasLtMatmul", library.handle, self.descriptor, self.alpha, a, left.pointer,
            b, right.pointer, self.beta, d, out.pointer, d, out.pointer, algorithm, space,
            ctypes.c_size_t(workspace), on)


def algorithm_of(data: bytes) -> Any:
    """An algorithm as the library takes it."""
    return (ctypes.c_uint8 * ALGORITHM_BYTES)(*data)


def class_of(product: Product) -> tuple[Any, ...]:
    """The key of a product's size class."""
    sides = product[:3]
    sizes = [(size - 1).bit_length() for each in sides for size in (each.rows, each.columns)]
    # The alignment of a leading dimension decides which kernels can load it.
    steps = [each.stride & -each.stride & 15 for each in sides]
    return (*sizes, *steps, product.a.dtype, *product[3:], (product.d.batch - 1).bit_length())


class Call:
    """A product that the library computes, with its algorithm; ready to be called.

    A product takes an algorithm of its size class where the library can run it on these sizes,
    and asks its heuristics otherwise; ``choose(call)`` picks an algorithm in their place.
    """

    def __init__(self, library: CublasLt, product: Product, workspace: int,
                 choose: Callable[[Call], Any] | None = None) -> None:
        self.library = library
        self.product = product
        self.workspace = workspace
        key = (class_of(product), choose is not None)
        with library.lock:
            kind = library.kind_of(product)
            known = library.classes.setdefault(key, SizeClass())
            for algorithm in known.algorithms:
                if kind.can_run(algorithm, workspace):
                    self.algorithm = algorithm
                    return
            if known.missing:
                raise LibraryError(known.missing)
            try:
                self.algorithm = kind.ask(workspace)[0] if choose is None else choose(self)
            except LibraryError as error:
                known.missing = "" if known.algorithms else str(error)
                raise
            known.algorithms.append(self.algorithm)

    def candidates(self) -> list[Any]:
        """The library's best algorithms, best first."""
        with self.library.lock:
            return self.library.kind_of(self.product).ask(self.workspace)

    def can_run(self, algorithm: Any) -> bool:
        """Whether the library can run an algorithm on the product's sizes."""
        with self.library.lock:
            return self.library.kind_of(self.product).can_run(algorithm, self.workspace)

    def run(self, at: Addresses, stream: int, algorithm: Any = None) -> None:
        """Call the library on operands at addresses."""
        with self.library.lock:
            kind = self.library.kind_of(self.product)
            kind.run(algorithm or self.algorithm, at, self.workspace, stream)


def version_of(library: ctypes.CDLL) -> str:
    """The library's version, such as 13.1.0; needs no card."""
    library.cublasLtGetVersion.restype = ctypes.c_size_t
    found: int = library.cublasLtGetVersion()
    return f"{found // 10000}.{found % 10000 // 100}.{found % 100}"
