"""Matrix products on the device by our own kernels: any dtype, any strides, batched.

Exact: float32 is multiplied as float32, narrow floats are summed in float32 and rounded once.
"""

from __future__ import annotations

from functools import lru_cache, partial
from math import prod
from typing import Any

import cython

from slipstream.core.kernels.cuda import elements
from slipstream.core.kernels.cuda.epilogues import LEADING, lead
from slipstream.core.kernels.cuda.half_products import DTYPES, MOST, has_instruction, maker_of
from slipstream.core.kernels.cuda.small_tiles import small_tiles, suits
from slipstream.core.kernels.cuda.tiles import (
    COMPUTED_BYTES,
    DEEPEST,
    KEPT,
    MATRICES,
    SIZES,
    Product,
    Sizes,
    code_of,
    few_steps,
    tile_of,
    tiled,
)
from slipstream.core.kernels.cuda.walks import NARROW, Ints, divider, merged, place_type
from slipstream.core.launch.cuda.launches import Launch
from slipstream.core.shapes.broadcast import broadcast_strides
from slipstream.core.shapes.specs import specs
from slipstream.core.vocab.records import KERNEL, Backend, Kernel, OpBase, Plan, Spec
from slipstream.core.vocab.settings import settings

# Bytes of the elements that matrix instructions take.
HALF_BYTES = 2

_WALK = f"""
struct slip_walk {{
    {SIZES}
    int64_t shape[RANK], divider[RANK], left[RANK], right[RANK], out[RANK], added[RANK];
    int64_t left_row, left_k, right_k, right_column, out_row, out_column, added_row, added_column;
}};
"""
_LOCATE = """
    int64_t left_start = 0, right_start = 0;
    {
        place_t rest = batch;
        for (int d = RANK - 1; d >= 0; d--) {
            const int64_t c = slip_take(rest, walk.shape[d], walk.divider[d]);
            left_start += c * walk.left[d];
            right_start += c * walk.right[d];
        }
    }
"""
_PLACE = """
    int64_t out_start = 0, added_start = 0;
    {
        place_t rest = batch;
        for (int d = RANK - 1; d >= 0; d--) {
            const int64_t c = slip_take(rest, walk.shape[d], walk.divider[d]);
            out_start += c * walk.out[d];
            added_start += c * walk.added[d];
        }
    }
"""
# How far a thread's elements lie from where a slab begins is the same for all slabs.
_BEFORE = """
    far_t left_far[ROWS * DEPTH / THREADS], right_far[COLUMNS * DEPTH / THREADS];
#pragma unroll
    for (int n = 0; n < ROWS * DEPTH / THREADS; n++) {
        const int i = threadIdx.x + n * THREADS;
        left_far[n] = (far_t)(first_row + LEFT_LINE(i)) * (far_t)walk.left_row
                      + LEFT_STEP(i) * (far_t)walk.left_k;
    }
#pragma unroll
    for (int n = 0; n < COLUMNS * DEPTH / THREADS; n++) {
        const int i = threadIdx.x + n * THREADS;
        right_far[n] = (far_t)(first_column + RIGHT_LINE(i)) * (far_t)walk.right_column
                       + RIGHT_STEP(i) * (far_t)walk.right_k;
    }
"""
_EACH = """
        const item_t* left_slab = left + (left_start + (int64_t)slab * walk.left_k);
        const item_t* right_slab = right + (right_start + (int64_t)slab * walk.right_k);
"""
_LEFT = "const item_t item = left_slab[left_far[n]]; value = WIDEN(item);"
_RIGHT = "const item_t item = right_slab[right_far[n]]; value = WIDEN(item);"
# Kernels that hold several elements of a row before they store them have a KEEP of their own.
_SPOT = "out_start + row * walk.out_row + column * walk.out_column"
_KEEP = f"""
#ifndef KEEP
#define KEEP(value) out[{_SPOT}] = value
#endif
"""
_STORE = "KEEP(NARROW(total));"
_ADDEND = """const item_t addend = added[added_start + row * walk.added_row
                                        + column * walk.added_column];
            """
_STORE_SUM = """const wide_t result = PLUS(total, WIDEN(addend));
            KEEP(NARROW(result));"""
# beta * added + alpha * total; what is added is not read where beta is 0.
_STORE_SCALED = """wide_t result = total;
            const wide_t alpha_value = ALPHA, beta_value = BETA;
            if (!IS_ONE(alpha_value)) result = TIMES(total, alpha_value);
            if (!IS_ZERO(beta_value)) {
                const item_t addend = added[added_start + row * walk.added_row
                                            + column * walk.added_column];
                const wide_t more = WIDEN(addend);
                const wide_t scaled = IS_ONE(beta_value) ? more : TIMES(more, beta_value);
                result = PLUS(result, scaled);
            }
            KEEP(NARROW(result));"""

# An activation of total + added, in one rounding; AUX stores what it is taken of.
_STORE_ACTIVATED = """const wide_t sum = PLUS(total, WIDEN(addend));
            AUX
            ACTIVATION
            KEEP(NARROW(result));"""
_RELU = "const wide_t result = sum > 0 || sum != sum ? sum : 0;"
# As the formula of gelu says, operation by operation.
_GELU = """const wide_t cube = (wide_t)0.044715 * sum * sum * sum;
            const wide_t inner = (wide_t)0.7978845608028654 * (sum + cube);
            const wide_t result = (wide_t)0.5 * sum * (1 + TANH(inner));"""


# One matrix is a batch of one, through which no operand moves.
ALONE: Ints = (1,)
NOWHERE: Ints = (0,)


class Factor:
    """Strides of one operand: over the batch dims, and over its two dims of the product."""

    batch: Ints
    first: int
    second: int

    def __init__(self, batch: Ints, first: int, second: int) -> None:
        self.batch = batch
        self.first = first
        self.second = second


class Geometry:
    """Batch dims, rows, steps and columns, and how the operands lie."""

    batch: Ints
    rows: int
    depth: int
    columns: int
    left: Factor
    right: Factor
    out: Factor
    added: Factor

    def __init__(self, sizes: tuple[Ints, int, int, int],
                 factors: tuple[Factor, Factor, Factor, Factor]) -> None:
        self.batch, self.rows, self.depth, self.columns = sizes
        self.left, self.right, self.out, self.added = factors

    def folded(self) -> Geometry:
        """The same with as few batch dims as can be; rows of batches that share the right side

        are one matrix where they lie so.
        """
        if not self.batch:
            return self._with((1,), [(0,)] * 4, self.rows,
                              (self.left.first, self.out.first, self.added.first))
        every = [self.left, self.right, self.out, self.added]
        if any(self.right.batch):
            shape, walks = merged(self.batch, [each.batch for each in every])
            return self._with(shape, walks, self.rows,
                              (self.left.first, self.out.first, self.added.first))
        steps = (self.left.first, 0, self.out.first, self.added.first)
        shape, walks = merged((*self.batch, self.rows), [
            (*each.batch, step) for each, step in zip(every, steps, strict=True)])
        last = [walk[-1] for walk in walks]
        return self._with(shape[:-1] or (1,), [walk[:-1] or (0,) for walk in walks], shape[-1],
                          (last[0], last[2], last[3]))

    def _with(self, batch: Ints, walks: list[Ints], rows: int, steps: Ints) -> Geometry:
        left, right, out, added = walks
        return Geometry((batch, rows, self.depth, self.columns), (
            Factor(left, steps[0], self.left.second),
            Factor(right, self.right.first, self.right.second),
            Factor(out, steps[1], self.out.second), Factor(added, steps[2], self.added.second)))

    def words(self) -> list[int]:
        """The tail after the sizes."""
        return [*self.batch, *map(divider, self.batch), *self.left.batch, *self.right.batch,
                *self.out.batch, *self.added.batch, self.left.first, self.left.second,
                self.right.first, self.right.second, self.out.first, self.out.second,
                self.added.first, self.added.second]


def geometry(out: Any, left: Any, right: Any, turned: bool = False,
             added: Any = None) -> Geometry:
    """How out = left @ right (``turned``: right^T) + added walks its operands."""
    if left.ndim == 2 == right.ndim and (added is None or added.ndim == 1):
        return _matrices(out, left, right, turned, added)
    vector, column = left.ndim == 1, right.ndim == 1
    kept = int(not vector) + int(not column)
    batch = out.shape[:out.ndim - kept]
    rows = 1 if vector else left.shape[-2]
    right_steps = right.strides[-2:]
    columns = 1
    if column:
        right_steps = (right.strides[0], 0)
    else:
        columns = right.shape[-2] if turned else right.shape[-1]
        right_steps = right_steps[::-1] if turned else right_steps
    lead = () if column else right.shape[:-2]
    along = broadcast_strides(lead, () if column else right.strides[:-2], batch)
    own = broadcast_strides(left.shape[:-2] if not vector else (),
                            left.strides[:-2] if not vector else (), batch)
    return Geometry((batch, rows, left.shape[-1], columns), (
        Factor(own, 0 if vector else left.strides[-2], left.strides[-1]),
        Factor(along, *right_steps), _result(out.strides, len(batch), vector, column),
        _result((0,) * out.ndim if added is None else broadcast_strides(
            added.shape, added.strides, out.shape), len(batch), vector, column))).folded()


def _matrices(out: Spec, left: Spec, right: Spec, turned: bool, added: Spec | None) -> Geometry:
    """The same for two matrices, which have no batch dims to fold, and a row that is added."""
    rows, depth = left.shape
    first, second = right.strides
    columns = right.shape[1]
    if turned:
        first, second, columns = second, first, right.shape[0]
    step = 0 if added is None or added.shape[0] != columns else added.strides[0]
    return Geometry((ALONE, rows, depth, columns), (
        Factor(NOWHERE, left.strides[0], left.strides[1]), Factor(NOWHERE, first, second),
        Factor(NOWHERE, out.strides[0], out.strides[1]), Factor(NOWHERE, 0, step)))


def _result(strides: Ints, lead: int, vector: bool, column: bool) -> Factor:
    """The strides of the result, or of what is added to it."""
    rest = list(strides[lead:])
    first = 0 if vector else rest.pop(0)
    return Factor(strides[:lead], first, 0 if column else rest.pop(0))


def _reach(found: Geometry) -> tuple[bool, bool]:
    """Whether positions fit 32 bits, and how far the elements of a tile lie apart too."""
    left, right = found.left, found.right
    largest = max(found.rows, found.columns, found.depth) * 2
    count = max(largest, found.rows * found.columns * prod(found.batch))
    reach = max(found.rows * abs(left.first) + DEEPEST * abs(left.second),
                found.columns * abs(right.second) + DEEPEST * abs(right.first))
    return count < NARROW, reach < NARROW


@lru_cache(maxsize=KEPT)
def _head_text(dtype: Any, narrow: bool, near: bool, rank: int) -> str:
    """The types; ``narrow`` and ``near`` as `_reach` finds them."""
    far = "int32_t" if near else "int64_t"
    return (f"{elements.typed(dtype)}{place_type(0 if narrow else NARROW)}typedef {far} far_t;\n"
            f"#define RANK {rank}\n{_WALK}{_KEEP}")


# What differs from the plain product's text, as (word, text): a row is added; the lines of the left
# side are summed.
_ADDED = (("extra", ", const item_t* added"), ("ahead", _ADDEND), ("store", _STORE_SUM))
_SUMMED = (("out", "item_t* out, item_t* sums"), ("head", "#define LINE_SUMS\n"))


@lru_cache(maxsize=KEPT)
def _product(text: tuple[tuple[str, Any], ...], dtype: Any, *facts: Any) -> Product:
    """The text of products that have these facts in common, whatever their sizes.

    ``facts``: those of `_reach`, the rank of the batch, and along which dim each side is loaded.
    """
    narrow, near, rank, left_along_k, right_along_k = facts
    parts: dict[str, Any] = {
        "out": "item_t* out", "sides": "const item_t* left, const item_t* right", "store": _STORE,
        "head": "", **dict(text)}
    parts["head"] = _head_text(dtype, narrow, near, rank) + parts["head"]
    return Product(
        name=MATRICES, left=_LEFT, right=_RIGHT, locate=_LOCATE, place=_PLACE, before=_BEFORE,
        each=_EACH, left_along_k=left_along_k, right_along_k=right_along_k, **parts)


def _kernel(plan: Any, found: Geometry, text: tuple[tuple[str, Any], ...] = (),
            numbers: tuple[str, ...] = (), leads: bool = True) -> Kernel:
    """The kernel of a product; ``text``: what differs from the plain one.

    ``leads``: it may take what follows it into its kernel.
    """
    left, right = found.left, found.right
    out: Spec = plan.out_specs[0]
    product = _product(text, out.dtype, *_reach(found), len(found.batch),
                       left.second == 1 or left.first != 1, right.second != 1 and right.first == 1)
    sizes = Sizes(found.rows, found.columns, found.depth, prod(found.batch))
    made = None
    # Without results there is nothing to launch, which `tiled` knows.
    if out.itemsize == HALF_BYTES and sizes.rows * sizes.columns * sizes.batches:
        made = maker_of(sizes, out, ((left.second, left.first), (right.first, right.second)),
                        (*left.batch, *right.batch))
    words = found.words()
    if made is not None:
        kernel: Kernel = made(plan, product, sizes, words, numbers)
        return kernel
    if _shares_steps(out.dtype, sizes, words[-8:-4]):
        return small_tiles(plan, product, sizes, words, numbers, leads)
    kernel = tiled(plan, product, sizes, words, numbers)
    tile = tile_of(sizes, COMPUTED_BYTES[out.dtype.compute])
    launch = plan.binding
    # Others keep several elements a thread until their sums are whole.
    if leads and tile.groups > 1 and not numbers and isinstance(launch, Launch):
        lead(out, product, partial(code_of, tile=tile, parts=False), launch, (sizes, words[-8:]))
    return kernel


def plain(plan: Any, left: Any, right: Any, turned: bool = False, added: Any = None,
          leads: bool = True) -> Kernel:
    """out = left @ right (``turned``: right^T) + added, of operands with these specs."""
    return _kernel(plan, geometry(plan.out_spec, left, right, turned, added),
                   () if added is None else _ADDED, leads=leads)


def matmul(plan: Any, call: Any) -> Kernel:
    """self @ other; operands: out, self, other."""
    return plain(plan, call.spec("self"), call.spec("other"))


def rows_of(a: Spec, b: Spec) -> tuple[Spec, Spec]:
    """The specs of a^T and b, both with their leading dims as one."""
    n, m, rows = a.shape[-1], b.shape[-1], prod(a.shape[:-1])
    return (specs.intern(a.device, a.dtype, (n, rows), (1, n)),
            specs.contiguous(b.device, b.dtype, (rows, m)))


def rows_product(plan: Any, call: Any) -> Kernel:
    """self^T @ other over all rows; operands: out, self, other."""
    rows = rows_of(call.spec("self"), call.spec("other"))
    return _kernel(plan, geometry(plan.out_spec, *rows), ())


def sums_rows(a: Any, b: Any) -> bool:
    """Whether `rows_product_sums` takes two tensors with these specs."""
    left: Spec = a
    right: Spec = b
    if (left.dtype is not right.dtype or not left.numel or not right.numel
            or not (left.contiguous and right.contiguous) or left.device.type != "cuda"):
        return False
    rows: cython.Py_ssize_t = left.shape[-1]
    columns: cython.Py_ssize_t = right.shape[-1]
    if left.itemsize != HALF_BYTES:
        depth: cython.Py_ssize_t = left.numel // rows
        return is_small(left.dtype, rows, columns, depth) and _shares_steps(
            left.dtype, Sizes(rows, columns, depth), [1, rows, columns, 1])
    return (columns % 8 == 0 == rows % 8 and left.numel * columns <= MOST
            and left.dtype.name in DTYPES and has_instruction(left.device.index or 0))


def _shares_steps(dtype: Any, sizes: Sizes, steps: list[int]) -> bool:
    """Whether the warps of small tiles make a product; ``steps`` as `suits` has them."""
    tile = tile_of(sizes, COMPUTED_BYTES[dtype.compute])
    return tile.groups > 1 and suits(dtype, sizes, steps)


def rows_product_sums_refuses(call: Any) -> str:
    """Why `rows_product_sums` does not take two tensors, or an empty text."""
    if sums_rows(call.spec("self"), call.spec("other")):
        return ""
    return "they are no rows of 16-bit floats or of few float32, or too many for one kernel"


def rows_product_sums(plan: Any, call: Any) -> Kernel:
    """`rows_product`, and self summed over all rows; operands: out, sums, self, other."""
    return _summed(plan, call.spec("self"), call.spec("other"))


def _summed(plan: Any, left: Spec, right: Spec) -> Kernel:
    """The kernel of `rows_product_sums` for operands with these specs."""
    rows = rows_of(left, right)
    return _kernel(plan, geometry(plan.out_specs[0], *rows), _SUMMED, leads=False)


def linear(plan: Any, call: Any) -> Kernel:
    """input @ weight^T + bias; operands: out, input, weight, bias."""
    bias = call["bias"]
    return plain(plan, call.spec("input"), call.spec("weight"), True,
                 None if bias is None else bias.spec)


class ProductSizes:
    """Binds plain calls of a product to sizes that were not met before.

    What rules and errors depend on (dtypes, ranks, which operands there are) was looked at when the
    first plan was made.  ``places``: the arguments that are the sides and what is added (-1: none);
    ``rules``: the gradients' by what wants one; ``bound``: how many sizes were bound.
    """

    op: OpBase
    recipe: Any
    backend: Backend
    operands: tuple[int, ...]
    left: int
    right: int
    added: int
    turned: bool
    bounded: bool
    bound: int
    rules: dict[int, Any]

    def __init__(self, plan: Plan, places: tuple[int, int, int], turned: bool) -> None:
        self.op = plan.op
        self.recipe = plan.recipe
        self.backend = plan.backend
        self.operands = plan.operands
        self.left, self.right, self.added = places
        self.turned = turned
        # Whether from some size on the library may take it.
        driver: Any = plan.backend.driver  # type: ignore[attr-defined]  # it is a card's
        self.bounded = driver.has_library and plan.out_spec.ndim < 3
        self.bound = 0
        self.rules = {}

    def bind(self, values: Any, flags: int) -> Plan | None:
        """The plan; None where the long way has to say what is wrong, or who takes the product."""
        left: Spec = values[self.left].spec
        right: Spec = values[self.right].spec
        added: Spec | None = None if self.added < 0 else values[self.added].spec
        shape: tuple | None = self._shape(left, right, added)
        if shape is None:
            return None
        depth: cython.Py_ssize_t = left.shape[-1]
        if self.bounded and not is_small(left.dtype, left.numel // depth, shape[-1], depth):
            return None
        plan = _plan_like(self, specs.contiguous(left.device, left.dtype, shape))
        self.bound += 1
        plan.kernel = plain(plan, left, right, self.turned, added, self.bound <= LEADING)
        plan.rule = self.rules[flags]
        return plan

    def _shape(self, left: Spec, right: Spec, added: Spec | None) -> tuple[int, ...] | None:
        """The result's shape where sizes agree without broadcasting, and there are elements."""
        if left.ndim < 2 or not left.numel or not right.numel:
            return None
        if right.ndim != 2 and (right.ndim != left.ndim or left.shape[:-2] != right.shape[:-2]):
            return None
        columns, depth = right.shape[-1], right.shape[-2]
        if self.turned:
            columns, depth = depth, columns
        if left.shape[-1] != depth or (added is not None and added.shape != (columns,)):
            return None
        return (*left.shape[:-1], columns)


def _sizes_of(plan: Any, places: tuple[int, int, int], turned: bool) -> ProductSizes | None:
    """What binds a product's plan to other sizes, if that can be said from dtypes and ranks."""
    if plan.out_spec.dtype.name in DTYPES:
        # Which kernel takes them depends on how they lie.
        return None
    return ProductSizes(plan, places, turned)


def matmul_sizes(plan: Any, call: Any) -> ProductSizes | None:
    """What binds a plan of `matmul` to other sizes."""
    return _sizes_of(plan, (0, 1, -1), False)


def linear_sizes(plan: Any, call: Any) -> ProductSizes | None:
    """What binds a plan of `linear` to other sizes."""
    return _sizes_of(plan, (0, 1, -1 if call["bias"] is None else 2), True)


class RowsSizes:
    """Binds a plan of `rows_product_sums` to sizes that were not met before (`ProductSizes`)."""

    op: OpBase
    recipe: Any
    backend: Backend
    operands: tuple[int, ...]
    rules: dict[int, Any]

    def __init__(self, plan: Plan) -> None:
        self.op = plan.op
        self.recipe = plan.recipe
        self.backend = plan.backend
        self.operands = plan.operands
        self.rules = {}

    def bind(self, values: Any, flags: int) -> Plan | None:
        """The plan; None where the long way has to say what is wrong, or who takes the product."""
        left: Spec = values[0].spec
        right: Spec = values[1].spec
        if left.shape[:-1] != right.shape[:-1] or not sums_rows(left, right):
            return None
        rows, columns = left.shape[-1], right.shape[-1]
        plan = _plan_like(self, *[specs.contiguous(left.device, left.dtype, shape)
                                  for shape in ((rows, columns), (rows,))])
        plan.kernel = _summed(plan, left, right)
        plan.rule = self.rules[flags]
        return plan


def _plan_like(sizes: Any, *out_specs: Spec) -> Plan:
    """A plan of the op that ``sizes`` binds, without its kernel and rule."""
    plan = Plan(sizes.op, sizes.recipe, KERNEL)
    plan.out_specs = out_specs
    plan.out_spec = out_specs[0]
    plan.outputs = len(out_specs)
    plan.backend = sizes.backend
    plan.operands = sizes.operands
    return plan


def rows_product_sums_sizes(plan: Any, call: Any) -> RowsSizes | None:
    """What binds a plan of `rows_product_sums` to other sizes."""
    return None if plan.out_spec.dtype.name in DTYPES else RowsSizes(plan)


def is_small(dtype: Any, rows: int, columns: int, depth: int) -> bool:
    """Whether our kernel makes a product of exact float32 in one launch before the library has

    made it in two; its sizes are never asked about.
    """
    return (dtype.name == "float32" and not settings.allow_tf32
            and few_steps(rows, columns, depth))


def addmm(plan: Any, call: Any) -> Kernel:
    """beta * self + alpha * (mat1 @ mat2); operands: out, self, mat1, mat2."""
    return _scaled(plan, call, call.spec("mat1"), call.spec("mat2"))


def addmm_activated(plan: Any, call: Any) -> Kernel:
    """act(self + mat1 @ mat2); operands: (what it is taken of,) out, self, mat1, mat2."""
    keeps = len(plan.out_specs) == 2
    store = _STORE_ACTIVATED.replace("AUX", f"aux[{_SPOT}] = NARROW(sum);" if keeps else "")
    found = geometry(plan.out_spec, call.spec("mat1"), call.spec("mat2"), False,
                     call.spec("self"))
    return _kernel(plan, found, (
        ("out", f"{'item_t* aux, ' if keeps else ''}item_t* out, const item_t* added"),
        ("head", f"#define TANH {'tanh' if plan.out_spec.dtype.compute == 'f64' else 'tanhf'}\n"),
        ("ahead", _ADDEND), ("aside", keeps),
        ("store", store.replace("ACTIVATION", _GELU if call["use_gelu"] else _RELU))))


def baddbmm(plan: Any, call: Any) -> Kernel:
    """beta * self + alpha * (batch1 @ batch2); operands: out, self, batch1, batch2."""
    return _scaled(plan, call, call.spec("batch1"), call.spec("batch2"))


def _scaled(plan: Any, call: Any, left: Any, right: Any) -> Kernel:
    """A product with beta and alpha, which are run-time numbers."""
    compute = plan.out_spec.dtype.compute
    classes = tuple(elements.number_class(call[each]) for each in ("beta", "alpha"))
    beta, beta_value = elements.number("beta", classes[0], compute)
    alpha, alpha_value = elements.number("alpha", classes[1], compute)
    complex_ = compute in ("c64", "c128")
    equals = "((x).re == {0} && (x).im == 0)" if complex_ else "((x) == {0})"
    head = (f"#define BETA {beta_value}\n#define ALPHA {alpha_value}\n"
            f"#define IS_ONE(x) {equals.format(1)}\n#define IS_ZERO(x) {equals.format(0)}\n")
    found = geometry(plan.out_spec, left, right, False, call.spec("self"))
    return _kernel(plan, found, (
        ("out", "item_t* out, const item_t* added"), ("store", _STORE_SCALED), ("head", head),
        ("numbers", f", {beta}, {alpha}")), classes)
