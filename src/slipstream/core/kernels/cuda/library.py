"""Matrix products by cuBLASLt, whose kernels are launched like ours.

A product is captured twice with different addresses.  Where the captured kernels differ only in
words that follow the operands' addresses, they become launches with those words patched in: they
enter windows, are replayed and patched like any kernel, and the library is never called again.
"""

from __future__ import annotations

from typing import Any

from slipstream.core.kernels.cuda import products
from slipstream.core.launch.cuda.launches import Launch
from slipstream.core.launch.cuda.templates import TemplateKernel
from slipstream.core.launch.door import backend_of
from slipstream.core.native.cublaslt import (
    COMPUTE,
    COMPUTE_TF32,
    SCALES,
    TYPES,
    Call,
    CublasLt,
    LibraryError,
    Matrix,
    Product,
)
from slipstream.core.native.driver import DriverError
from slipstream.core.vocab.records import Kernel, Plan
from slipstream.core.vocab.settings import settings

WORKSPACE = 32 << 20
# Operands that do not start at a multiple of this go to our own kernel.
ALIGNMENT = 16
# Addresses that are never read: two for each operand, at different distances.
FIRST = [0x7000_0000_0000 + (place << 38) for place in range(5)]
SECOND = [address + ((place + 1) << 33) for place, address in enumerate(FIRST)]

# Which of these the argument words are: a, b, d, the bias where there is one, the workspace.
USED = {False: (0, 1, 2, 4), True: (0, 1, 2, 3, 4)}


class Libraries:
    """The library of each card, opened at its first use; a singleton, `libraries`."""

    def __init__(self) -> None:
        self.found: dict[int, CublasLt] = {}
        self.missing = ""
        self.streams: dict[int, int] = {}

    def of(self, backend: Any) -> CublasLt:
        """The library on a backend's card."""
        if backend.ordinal not in self.found:
            backend.enter()
            self.found[backend.ordinal] = CublasLt()
            self.streams[backend.ordinal] = backend.driver.create_stream()
        return self.found[backend.ordinal]

    def refusal(self, backend: Any) -> str:
        """Why there is no library for a backend, or an empty text."""
        if backend.driver.name != "real":
            return "cuBLASLt is not simulated"
        if not self.missing:
            try:
                self.of(backend)
            except LibraryError as error:
                self.missing = str(error)
        return self.missing


libraries = Libraries()


class CalledKernel(Kernel):
    """A product whose captured kernels cannot be patched: the library is called each time."""

    def __init__(self, call: Call, order: tuple[int, ...], own: Kernel, binding: Any) -> None:
        self.name = "cuBLASLt call"
        self.call = call
        self.order = order
        self.own = own
        self.own_binding = binding

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Call the library on the current stream, or launch ours where an address does not fit."""
        backend: Any = plan.backend
        every = [tensor.storage.address + tensor.offset * tensor.spec.itemsize
                 for tensor in operands]
        if any(address % ALIGNMENT for address in every) or any(n != 1 for n in numbers):
            plan.binding = self.own_binding
            self.own.run(plan, operands, numbers)
            return
        addresses = [every[place] for place in self.order]
        bias = addresses[3] if len(addresses) > 3 else 0
        space = backend.workspace()
        backend.call_alone("cublasLtMatmul", lambda stream: self.call.run(
            (addresses[0], addresses[1], addresses[2]), bias, space, stream))


def captured(backend: Any, call: Call, biased: bool) -> list[Launch] | None:
    """The launches of a library call; None where they cannot be patched.

    One capture is enough where a product of the same size class showed which words of the same
    kernels follow the operands.
    """
    first = capture(backend, call, FIRST, biased)
    if first is None:
        return None
    found = known_places(first, call.size_class.layout, biased)
    if found is None:
        second = capture(backend, call, SECOND, biased)
        found = compared(first, second, biased) if second is not None else None
        if found is None:
            return None
        call.size_class.layout = [(function, len(block), places) for (function, _, block), places
                                  in zip(first, found, strict=True)]
    return [library_launch(function, shape, block, places)
            for (function, shape, block), places in zip(first, found, strict=True)]


def known_places(first: Any, layout: Any, biased: bool) -> list[Any] | None:
    """The places of a size class, where these kernels have the operands there too; or None."""
    if layout is None or len(layout) != len(first):
        return None
    used = USED[biased]
    for (function, _, block), (known, nbytes, places) in zip(first, layout, strict=True):
        if function != known or len(block) != nbytes:
            return None
        for word, place, more in places:
            if int.from_bytes(block[place:place + 8], "little") != FIRST[used[word]] + more:
                return None
    return [places for _, _, places in layout]


def compared(first: Any, second: Any, biased: bool) -> list[Any] | None:
    """The places of each kernel, found by comparing two captures; None where there are none."""
    if len(first) != len(second):
        return None
    found = []
    for (function, _, block), (other, _, changed) in zip(first, second, strict=True):
        places = patchable(block, changed, biased) if function == other else None
        if places is None:
            return None
        found.append(places)
    return found


def capture(backend: Any, call: Call, addresses: list[int], biased: bool) -> Any:
    """The kernels of a call with the given addresses of a, b, d, bias and workspace."""
    driver = backend.driver
    stream = libraries.streams[backend.ordinal]
    backend.enter()
    driver.begin_capture(stream)
    try:
        call.run((addresses[0], addresses[1], addresses[2]), addresses[3] if biased else 0,
                 addresses[4], stream)
    finally:
        graph = driver.end_capture(stream)
    try:
        return driver.captured_kernels(graph)
    except DriverError:
        return None


def patchable(block: bytes, changed: bytes, biased: bool) -> Any:
    """(word, place, addend) of each word that follows an operand; None where another differs."""
    places = []
    used = USED[biased]
    for place in range(0, len(block) - 7, 8):
        if block[place:place + 8] == changed[place:place + 8]:
            continue
        before = int.from_bytes(block[place:place + 8], "little")
        after = int.from_bytes(changed[place:place + 8], "little")
        follows = [(word, before - FIRST[operand]) for word, operand in enumerate(used)
                   if before - FIRST[operand] == after - SECOND[operand]
                   and 0 <= before - FIRST[operand] < 1 << 32]
        if len(follows) != 1:
            return None
        places.append((follows[0][0], place, follows[0][1]))
    return tuple(places)


class LibraryCode:
    """What stands for the source of a library's kernel."""

    def __init__(self, name: str, mark: int) -> None:
        self.name = name
        self.mark = mark
        self.source = ""


def library_launch(function: int, shape: Any, block: bytes, places: Any) -> Launch:
    """A library's kernel as a launch."""
    grid, threads, shared = shape
    # The function's handle differs from process to process: the sizes do not.
    mark = hash((grid, threads, shared, len(block))) & 0xFFFFFFFF
    launch = Launch(LibraryCode("cublasLt kernel", mark), function, (grid, threads, shared), (),
                    block)
    launch.places = places
    return launch


# -- which products the library takes ------------------------------------------------------------
def operand(rows: int, columns: int, row_step: int, column_step: int) -> tuple[bool, int] | None:
    """Whether a matrix is stored transposed for a column-major library, and its ld.

    A matrix of ``rows`` x ``columns``: stored by columns (step of rows 1) it is taken as it is,
    stored by rows it is taken transposed; None where neither step is 1.
    """
    if rows == 1 or row_step == 1:
        if columns == 1:
            return False, max(rows, 1)
        if column_step >= rows:
            return False, column_step
    if columns == 1 or column_step == 1:
        if rows == 1:
            return True, max(columns, 1)
        if row_step >= columns:
            return True, row_step
    return None


def folded(spec: Any) -> tuple[int, int, int, int] | None:
    """(rows, columns, row step, column step) of a tensor whose leading dims are one; or None."""
    if spec.ndim == 1:
        return 1, spec.shape[0], spec.shape[0], spec.strides[0]
    *leading, columns = spec.shape
    *steps, column_step = spec.strides
    rows, step = leading[-1], steps[-1]
    for size, own in zip(reversed(leading[:-1]), reversed(steps[:-1]), strict=True):
        if size != 1 and own != rows * step:
            return None
        rows *= size
    return rows, columns, step, column_step


def product_of(a: Any, b: Any, bias: bool, dtype: str) -> Product | None:
    """The library's product for row-major out = a @ b, a's leading dims folded into its rows.

    Column-major, it is d^T = b^T @ a^T: the library's first operand is our second.
    """
    m, k, a_row, a_column = a
    k2, n, b_row, b_column = b
    first = operand(n, k, b_column, b_row)
    second = operand(k, m, a_column, a_row)
    if first is None or second is None or k != k2:
        return None
    x = Matrix(dtype, k if first[0] else n, n if first[0] else k, first[1])
    y = Matrix(dtype, m if second[0] else k, k if second[0] else m, second[1])
    compute = COMPUTE_TF32 if dtype == "float32" and settings.allow_tf32 else COMPUTE[dtype]
    return Product(x, y, Matrix(dtype, n, m, n), first[0], second[0], compute, SCALES[dtype],
                   "bias" if bias else "")


def _matmul_product(call: Any) -> Product | str:
    a, b = call.spec("self"), call.spec("other")
    if b.ndim > 2:
        return "batches of matrices go to our own kernel"
    left = folded(a)
    if left is None:
        return "the first operand's leading dims are not one"
    if b.ndim == 1:
        right = (b.shape[0], 1, b.strides[0], 1)
    else:
        right = (*b.shape, *b.strides)
    found = product_of(left, right, False, a.dtype.name)
    return found or "an operand has no step of 1"


def _linear_product(call: Any) -> Product | str:
    a, weight = call.spec("input"), call.spec("weight")
    bias = call["bias"]
    if bias is not None and (bias.spec.ndim != 1 or bias.spec.strides[0] != 1):
        return "the bias is not contiguous"
    left = folded(a)
    if left is None or weight.ndim != 2:
        return "the first operand's leading dims are not one"
    right = (weight.shape[1], weight.shape[0], weight.strides[1], weight.strides[0])
    found = product_of(left, right, bias is not None, a.dtype.name)
    return found or "an operand has no step of 1"


def _refusal(call: Any, product: Any) -> str:
    if call.target is not None and not call.target.spec.contiguous:
        return "the target is not contiguous"
    missing = libraries.refusal(backend_of(call.device()))
    if missing:
        return missing
    dtypes = {tensor.spec.dtype for tensor in call.tensors()}
    if len(dtypes) != 1 or next(iter(dtypes)).name not in TYPES:
        return "the library has no product of these dtypes"
    if any(not tensor.spec.numel for tensor in call.tensors()):
        return "there is nothing to multiply"
    found = product(call)
    return found if isinstance(found, str) else ""


def _kernel(plan: Any, call: Any, product: Any, order: tuple[int, ...],
            own: Any) -> Kernel:
    backend = backend_of(call.device())
    fallback = own(plan, call)
    try:
        ready = Call(libraries.of(backend), product, WORKSPACE, ALIGNMENT)
    except LibraryError:
        # The library knows no algorithm for these dtypes and this epilogue.
        return fallback
    binding, plan.binding = plan.binding, None
    launches = captured(backend, ready, len(order) > 3)
    if launches is None:
        return CalledKernel(ready, order, fallback, binding)
    return TemplateKernel("cuBLASLt", launches, order, (fallback, binding))


def matmul_refuses(call: Any) -> str:
    """Why the library does not take a product, or an empty text."""
    return _refusal(call, _matmul_product)


def matmul(plan: Any, call: Any) -> Kernel:
    """self @ other; operands come as out, self, other."""
    return _kernel(plan, call, _matmul_product(call), (2, 1, 0), products.matmul)


def linear_refuses(call: Any) -> str:
    """Why the library does not take a linear layer, or an empty text."""
    return _refusal(call, _linear_product)


def linear(plan: Any, call: Any) -> Kernel:
    """input @ weight^T + bias; operands come as out, input, weight, bias."""
    order = (2, 1, 0) if call["bias"] is None else (2, 1, 0, 3)
    return _kernel(plan, call, _linear_product(call), order, products.linear)
