# cython: annotation_typing=False
"""Matrix products by cuBLASLt, whose kernels are launched like ours.

The first time the library is called.  The second time the product is captured, and where the words
of the captured kernels that follow the operands' addresses are known, its kernels become launches
with those words patched in: they enter windows, are replayed and patched like any kernel, and the
library is never called again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from slipstream.core.kernels.cuda import products
from slipstream.core.kernels.cuda.aligning import Aligner
from slipstream.core.kernels.cuda.capturing import Library, LibraryCode
from slipstream.core.kernels.cuda.half_products import MOST, maker_of
from slipstream.core.kernels.cuda.tiles import Sizes
from slipstream.core.kernels.cuda.tuning import Tuner
from slipstream.core.kernels.cuda.walks import Ints, address
from slipstream.core.launch.cuda.launches import EPILOGUE, Launch
from slipstream.core.launch.cuda.templates import TemplateKernel
from slipstream.core.launch.door import backend_of
from slipstream.core.native.cublaslt import (
    ALIGNMENT,
    COMPUTE,
    COMPUTE_TF32,
    SCALES,
    TYPES,
    Addresses,
    Call,
    CublasLt,
    LibraryError,
    Matrix,
    Product,
)
from slipstream.core.vocab.records import Kernel, Plan, Spec, TensorBase
from slipstream.core.vocab.settings import settings

WORKSPACE = 32 << 20
# The capability of cards from which on they multiply a dtype.
OLDEST = {"bfloat16": (8, 0)}
# An auxiliary output's rows are so many elements or a multiple of it.
AUXILIARY = 8


class Libraries:
    """The library of each card, opened at its first use; a singleton, `libraries`."""

    def __init__(self) -> None:
        self.found: dict[int, Library] = {}
        self.tuners: dict[int, Tuner] = {}
        self.missing = ""

    def of(self, backend: Any) -> Library:
        """The library on a backend's card."""
        known = self.found.get(backend.owner)
        if known is None:
            backend.enter()
            lt = CublasLt(backend.driver.product_library(), backend.driver.counts)
            known = self.found[backend.owner] = Library(backend, lt)
            self.tuners[backend.owner] = Tuner(known)
        return known

    def tuner(self, backend: Any) -> Tuner | None:
        """What picks algorithms by time; None where nobody asked for it."""
        return self.tuners[backend.owner] if settings.tunable else None

    def refusal(self, backend: Any) -> str:
        """Why there is no library for a backend, or an empty text."""
        if not backend.driver.has_library:
            return "cuBLASLt is not simulated"
        if not self.missing:
            try:
                self.of(backend)
            except LibraryError as error:
                self.missing = str(error)
        return self.missing


libraries = Libraries()
# What stands for the kernels of a product that was not captured yet.
SINGLE, FUSED = LibraryCode(0), LibraryCode(0)
FUSED.fusion = EPILOGUE


class Remembered:
    """A call's arguments for a kernel that may be made later: specs in the tensors' place."""

    def __init__(self, call: Any) -> None:
        self.names: tuple[str, ...] = call.names
        self.values = [value.spec if isinstance(value, TensorBase) else value
                       for value in call.values]

    def __getitem__(self, name: str) -> Any:
        value = self.values[self.names.index(name)]
        return Bare(value) if isinstance(value, Spec) else value

    def spec(self, name: str) -> Spec:
        """The spec of a tensor argument."""
        spec: Spec = self.values[self.names.index(name)]
        return spec


class Bare:
    """What is remembered of a tensor."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec


class Own:
    """Our own kernel in a library's place, made when an address or a number asks for it."""

    def __init__(self, make: Callable[..., Kernel], call: Any) -> None:
        self.make = make
        self.call = Remembered(call)

    def __call__(self, plan: Plan) -> tuple[Kernel, Any]:
        """The kernel and its binding."""
        kernel = self.make(plan, self.call)
        return kernel, plan.binding


class FirstUse:
    """What a product's kernel does before its launches are known.

    A length that came once may never come again, and a capture costs as much as several calls: the
    first time the library is called, the second time it is captured.  ``code``: what is told of
    its kernels until then; ``refused``: they cannot be patched, so that it is called each time.
    """

    def __init__(self, library: Library, call: Call) -> None:
        self.library = library
        self.call = call
        self.code = FUSED if call.product.epilogue else SINGLE
        self.called = False
        self.refused = False

    def __call__(self, kernel: TemplateKernel, plan: Plan, operands: tuple[Any, ...]) -> bool:
        """Call the library on the current stream, or give the kernel its launches.

        Whether the library was called.  While a user captures, it is captured at once.
        """
        backend: Any = plan.backend
        if not self.refused and (self.called or backend.queue().capture is not None):
            launches = self.launches()
            if launches is not None:
                kernel.launches = launches
                kernel.first = None
                return False
            self.refused = True
        self.call_library(kernel, plan, operands)
        self.called = True
        return True

    def launches(self) -> list[Launch] | None:
        """The launches of the captured call; None where they cannot be patched."""
        found = self.library.launches(self.call)
        if self.call.product.epilogue:
            for each in found or ():
                each.code.fusion = EPILOGUE
        return found

    def call_library(self, kernel: TemplateKernel, plan: Plan, operands: tuple[Any, ...]) -> None:
        """Call the library on the current stream."""
        backend: Any = plan.backend
        moved = kernel.aligner.bring(plan, operands, ALIGNMENT)
        given = [address(moved[place]) for place in kernel.order]
        product = self.call.product
        # In the order of the words: a, b, d, then what the epilogue takes.
        for place, taken in ((3, product.biased), (4, product.auxiliary)):
            if not taken:
                given.insert(place, 0)
        at = Addresses._make([*given, backend.workspace()])
        backend.call_alone(LibraryCode.name, partial(self.call.run, at),
                           "not capturable" if self.refused else "first sight")
        if moved is not operands:
            kernel.aligner.give_back(plan, operands, moved)


# -- which products the library takes ------------------------------------------------------------
STEPS = "an operand has no step of 1"


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


def product_of(a: Any, b: Any, epilogue: str, dtype: str) -> Product | None:
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
                   epilogue)


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
    return product_of(left, right, "", a.dtype.name) or STEPS


def _rows_product(call: Any) -> Product | str:
    a, b = products.rows_of(call.spec("self"), call.spec("other"))
    return product_of((*a.shape, *a.strides), (*b.shape, *b.strides), "", a.dtype.name) or STEPS


def _linear_product(call: Any) -> Product | str:
    a, weight = call.spec("input"), call.spec("weight")
    bias = call["bias"]
    if bias is not None and (bias.spec.ndim != 1 or bias.spec.strides[0] != 1):
        return "the bias is not contiguous"
    left = folded(a)
    if left is None or weight.ndim != 2:
        return "the first operand's leading dims are not one"
    right = (weight.shape[1], weight.shape[0], weight.strides[1], weight.strides[0])
    return product_of(left, right, "" if bias is None else "bias", a.dtype.name) or STEPS


def _addmm_product(call: Any, activation: str = "") -> Product | str:
    bias, a, b = call.spec("self"), call.spec("mat1"), call.spec("mat2")
    if bias.shape != (b.shape[1],) or bias.strides[0] != 1:
        return "what is added is no contiguous row"
    left, right = (*a.shape, *a.strides), (*b.shape, *b.strides)
    return product_of(left, right, activation + "bias", a.dtype.name) or STEPS


def _activated_product(call: Any) -> Product | str:
    if not call["use_gelu"]:
        return _addmm_product(call, "relu_")
    if not call["keep"]:
        return _addmm_product(call, "gelu_")
    if call.spec("mat2").shape[1] % AUXILIARY:
        return f"the auxiliary output's rows are no multiple of {AUXILIARY} elements"
    return _addmm_product(call, "gelu_aux_")


def _refusal(call: Any, product: Any) -> str:
    """Why there is no library product; ``product(call)`` gives the reason or the product."""
    if call.target is not None and not call.target.spec.contiguous:
        return "the target is not contiguous"
    specs = [tensor.spec for tensor in call.tensors()]
    backend: Any = backend_of(specs[0].device)
    missing = libraries.refusal(backend)
    if missing:
        return missing
    dtype = specs[0].dtype
    for spec in specs:
        if spec.dtype is not dtype or dtype.name not in TYPES:
            return "the library has no product of these dtypes"
        if not spec.numel:
            return "there is nothing to multiply"
    capability = libraries.of(backend).capability
    if capability < OLDEST.get(dtype.name, capability):
        return f"cards of capability {'.'.join(map(str, capability))} multiply no {dtype.name}"
    # The kernel is made of it next.
    call.product = product(call)
    if isinstance(call.product, str):
        return call.product
    return ours_is_faster(call.product, specs[0])


def ours_is_faster(product: Product, spec: Any) -> str:
    """Why our own kernel takes less time than the library's, or an empty text.

    Small exact float32 products are one launch where the library makes two; few rows of 16-bit
    floats are read at the speed of memory, and larger products of them are patched and replayed.
    None of them asks the library about a new size.
    """
    depth = product.a.rows if product.transpose_a else product.a.columns
    sizes = Sizes(product.d.columns, product.d.rows, depth)
    if products.is_small(spec.dtype, sizes.rows, sizes.columns, depth):
        return "it is a small product of float32"
    left = (product.b.stride, 1) if product.transpose_b else (1, product.b.stride)
    right = (1, product.a.stride) if product.transpose_a else (product.a.stride, 1)
    if (sizes.rows * sizes.columns * depth <= MOST
            and maker_of(sizes, spec, (left, right)) is not None):
        return "it is a product of 16-bit floats that our own kernel makes without a call"
    return ""


def _kernel(plan: Any, call: Any, order: tuple[int, ...], own: Any) -> Kernel:
    """The kernel of the product that was found when the call was looked at."""
    backend, product = plan.backend, call.product
    library = libraries.of(backend)
    try:
        ready = Call(library.lt, product, WORKSPACE, libraries.tuner(backend))
    except LibraryError:
        # The library knows no algorithm for these dtypes and this epilogue.
        kernel: Kernel = own(plan, call)
        return kernel
    return TemplateKernel("cuBLASLt", FirstUse(library, ready), order, Own(own, call),
                          Aligner(len(plan.out_specs)))


def matmul_refuses(call: Any) -> str:
    """Why the library does not take a product, or an empty text."""
    return _refusal(call, _matmul_product)


def matmul(plan: Any, call: Any) -> Kernel:
    """self @ other; operands come as out, self, other."""
    return _kernel(plan, call, (2, 1, 0), products.matmul)


def rows_product_refuses(call: Any) -> str:
    """Why the library does not take a product of rows, or an empty text."""
    return _refusal(call, _rows_product)


def rows_product(plan: Any, call: Any) -> Kernel:
    """self^T @ other over all rows; operands come as out, self, other."""
    return _kernel(plan, call, (2, 1, 0), products.rows_product)


def linear_refuses(call: Any) -> str:
    """Why the library does not take a linear layer, or an empty text."""
    return _refusal(call, _linear_product)


def linear(plan: Any, call: Any) -> Kernel:
    """input @ weight^T + bias; operands come as out, input, weight, bias."""
    order: Ints = (2, 1, 0, 3)
    if call["bias"] is None:
        order = (2, 1, 0)
    return _kernel(plan, call, order, products.linear)


def addmm_refuses(call: Any) -> str:
    """Why the library does not take a sum with a product, or an empty text."""
    return _refusal(call, _addmm_product)


def addmm(plan: Any, call: Any) -> Kernel:
    """self + mat1 @ mat2; operands come as out, self, mat1, mat2; other numbers go to ours."""
    return _kernel(plan, call, (3, 2, 0, 1), products.addmm)


def addmm_activated_refuses(call: Any) -> str:
    """Why the library does not take an activated sum, or an empty text."""
    return _refusal(call, _activated_product)


def addmm_activated(plan: Any, call: Any) -> Kernel:
    """The activation of self + mat1 @ mat2; operands: (what it is taken of,) out, and these."""
    order: Ints = (3, 2, 0, 1)
    if len(plan.out_specs) == 2:
        order = (4, 3, 1, 2, 0)
    return _kernel(plan, call, order, products.addmm_activated)
