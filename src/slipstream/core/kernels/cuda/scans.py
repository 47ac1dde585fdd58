"""Scans on the device: running sums, products and extrema along one axis, always in one order.

Short lines, and many lines whose neighbours lie together, have a thread each.  Others are cut into
tiles: a block joins the elements of a tile by doubling, and tiles follow each other, one block
walking through its line; where lines are few and long the tiles' totals are found first, joined,
and each tile then begins with the total of those before it.  No order depends on which block is
done first.  Floats are joined in float64.
"""

from __future__ import annotations

from math import prod
from typing import Any

from slipstream.core.kernels.cuda import elements
from slipstream.core.kernels.cuda.walks import (
    THREADS,
    address,
    blocks,
    divider,
    launch,
    merged,
    place_type,
)
from slipstream.core.launch.cuda.launches import KernelCode, Launch, LaunchKernel, make_launch
from slipstream.core.shapes.views import normalize_dim
from slipstream.core.vocab.records import Kernel, Plan

# Elements of a thread: a tile's states fit into 48 KiB of shared memory.
EACH, EACH_WIDE = 8, 4
# Lines up to this length have a thread each, and so have this many lines side by side.
SHORT, MANY = 64, 8192
# Lines from which each is one block's work, whatever its length.
FILLING = 256

_HEAD = """
#define THREADS 256
#define TILE (EACH * THREADS)
// Where an element of the tile lies: apart, so that threads meet in no bank of shared memory.
#define AT(i) ((i) + (i) / EACH)
struct slip_walk {
    int64_t lines, length, parts;
    int64_t step[3];
    int64_t shape[RANK], divider[RANK], strides[3][RANK];
};
// Where a line begins in an operand: the first result, the second, the source (and factors).
SLIP_DEVICE int64_t slip_line(const slip_walk& walk, int64_t line, int operand) {
    place_t left = (place_t)line;
    int64_t offset = 0;
#pragma unroll
    for (int d = RANK - 1; d >= 0; d--)
        offset += slip_take(left, walk.shape[d], walk.divider[d]) * walk.strides[operand][d];
    return offset;
}
// The place of the i-th element: a recurrence runs from the end.
SLIP_DEVICE int64_t slip_nth(const slip_walk& walk, int64_t i) {
    return BACKWARDS ? walk.length - 1 - i : i;
}
"""
# A state is what is known of a run of elements; JOIN is associative, EMPTY its neutral element.
_SIMPLE = """
typedef {0} state_t;
SLIP_DEVICE state_t slip_empty() {{ return {1}; }}
SLIP_DEVICE state_t slip_join(state_t p, state_t q) {{ return {2}; }}
template <class P> SLIP_DEVICE state_t slip_load(P in, int64_t at) {{
    const source_t given = in[at];
    return LOADED;
}}
template <class P> SLIP_DEVICE void slip_keep(P out, int64_t at, state_t sum) {{
    out[at] = STORED;
}}
#define LOAD(i) slip_load(in, from + slip_nth(walk, i) * walk.step[2])
#define KEEP(i, sum) slip_keep(out, to + (i) * walk.step[0], sum)
#define SECOND
"""
_LOGARITHM = """
SLIP_DEVICE double slip_log_sum(double p, double q) {
    if (p == q) return p + 0.693147180559945309417232121458176568;
    const double apart = p - q;
    if (apart > 0) return p + log1p(exp(-apart));
    if (apart <= 0) return q + log1p(exp(apart));
    return apart;
}
"""
# The last of equals; nan stays.
_EXTREME = """
struct state_t { wide_t value; int64_t place; };
SLIP_DEVICE state_t slip_empty() {
    state_t none;
    none.place = -1;
    none.value = wide_t();
    return none;
}
SLIP_DEVICE state_t slip_join(const state_t& p, const state_t& q) {
    if (q.place < 0) return p;
    if (p.place < 0) return q;
    return BEATS(q.value, p.value) || q.value != q.value ? q : p;
}
template <class P> SLIP_DEVICE state_t slip_load(P in, int64_t at, int64_t place) {
    state_t own;
    const item_t given = in[at];
    own.value = LOADED;
    own.place = place;
    return own;
}
#define LOAD(i) slip_load(in, from + (i) * walk.step[2], i)
#define KEEP(i, sum) do { out[to + (i) * walk.step[0]] = (sum).place; \\
                          second[beside + (i) * walk.step[1]] = STORED((sum).value); } while (0)
#define SECOND const int64_t beside = slip_line(walk, line, 1);
"""
# y = terms + factor * (what comes after).
_RECURRENCE = """
struct state_t { wide_t terms, factor; };
SLIP_DEVICE state_t slip_empty() {
    state_t none;
    none.terms = FROM_REAL(0.0);
    none.factor = FROM_REAL(1.0);
    return none;
}
SLIP_DEVICE state_t slip_join(const state_t& p, const state_t& q) {
    state_t both;
    both.terms = PLUS(q.terms, TIMES(q.factor, p.terms));
    both.factor = TIMES(q.factor, p.factor);
    return both;
}
template <class P> SLIP_DEVICE state_t slip_load(P in, P factors, int64_t at, int64_t beside) {
    state_t own;
    {
        const source_t given = in[at];
        own.terms = LOADED;
    }
    const source_t given = factors[beside];
    own.factor = LOADED;
    return own;
}
template <class P> SLIP_DEVICE void slip_keep(P out, int64_t at, wide_t sum) { out[at] = STORED; }
#define LOAD(i) slip_load(in, factors, from + slip_nth(walk, i) * walk.step[2], \\
                          beside + slip_nth(walk, i) * walk.step[1])
#define KEEP(i, sum) slip_keep(out, to + slip_nth(walk, i) * walk.step[0], (sum).terms)
#define SECOND const int64_t beside = slip_line(walk, line, 1);
"""
_COLUMNS = """
extern "C" __global__ void slip_scan_columns(PARAMETERS ARGUMENTS const slip_walk walk) {
    const int64_t line = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (line >= walk.lines) return;
    const int64_t to = slip_line(walk, line, 0), from = slip_line(walk, line, 2);
    SECOND
    state_t sum = LOAD(0);
    KEEP(0, sum);
#pragma unroll 4
    for (int64_t i = 1; i < walk.length; i++) {
        sum = slip_join(sum, LOAD(i));
        KEEP(i, sum);
    }
}
"""
# The join of all earlier threads' states, and of all.
_BLOCK = """
SLIP_DEVICE state_t slip_before(state_t own, state_t& total, state_t (&sums)[THREADS]) {
    sums[threadIdx.x] = own;
    __syncthreads();
    for (int step = 1; step < THREADS; step *= 2) {
        state_t before = slip_empty();
        if (threadIdx.x >= step) before = sums[threadIdx.x - step];
        __syncthreads();
        if (threadIdx.x >= step) {
            own = slip_join(before, own);
            sums[threadIdx.x] = own;
        }
        __syncthreads();
    }
    total = sums[THREADS - 1];
    state_t before = slip_empty();
    if (threadIdx.x > 0) before = sums[threadIdx.x - 1];
    __syncthreads();
    return before;
}
"""
_TILES = _BLOCK + """
extern "C" __global__ void slip_scan_tiles(PARAMETERS ARGUMENTS const state_t* starts,
                                           const slip_walk walk) {
    __shared__ state_t tile[TILE + THREADS], sums[THREADS];
    const int64_t line = blockIdx.x / walk.parts, part = blockIdx.x % walk.parts;
    const int64_t to = slip_line(walk, line, 0), from = slip_line(walk, line, 2);
    SECOND
    const int mine = threadIdx.x * (EACH + 1);
    state_t carry = walk.parts > 1 ? starts[blockIdx.x] : slip_empty();
    const int64_t end = walk.parts > 1 ? slip_least((part + 1) * TILE, walk.length) : walk.length;
    for (int64_t start = part * TILE; start < end; start += TILE) {
        for (int i = threadIdx.x; i < TILE; i += THREADS)
            tile[AT(i)] = start + i < end ? LOAD(start + i) : slip_empty();
        __syncthreads();
        state_t own = tile[mine];
        for (int j = 1; j < EACH; j++) tile[mine + j] = own = slip_join(own, tile[mine + j]);
        state_t total;
        const state_t before = slip_join(carry, slip_before(own, total, sums));
        for (int j = 0; j < EACH; j++) tile[mine + j] = slip_join(before, tile[mine + j]);
        carry = slip_join(carry, total);
        __syncthreads();
        for (int i = threadIdx.x; i < TILE; i += THREADS)
            if (start + i < end) KEEP(start + i, tile[AT(i)]);
        __syncthreads();
    }
}
"""
_TOTALS = _BLOCK + """
extern "C" __global__ void slip_scan_totals(state_t* totals, ARGUMENTS const slip_walk walk) {
    __shared__ state_t tile[TILE + THREADS], sums[THREADS];
    const int64_t line = blockIdx.x / walk.parts, part = blockIdx.x % walk.parts;
    const int64_t from = slip_line(walk, line, 2), start = part * TILE;
    SECOND
    for (int i = threadIdx.x; i < TILE; i += THREADS)
        tile[AT(i)] = start + i < walk.length ? LOAD(start + i) : slip_empty();
    __syncthreads();
    const int mine = threadIdx.x * (EACH + 1);
    state_t own = tile[mine];
    for (int j = 1; j < EACH; j++) own = slip_join(own, tile[mine + j]);
    state_t total;
    slip_before(own, total, sums);
    if (threadIdx.x == 0) totals[blockIdx.x] = total;
}
"""
# starts[tile] = the join of all totals before it; one block a line.
_STARTS = _BLOCK + """
extern "C" __global__ void slip_scan_starts(state_t* totals, const slip_walk walk) {
    __shared__ state_t sums[THREADS];
    const int64_t first = blockIdx.x * walk.parts;
    state_t carry = slip_empty();
    for (int64_t start = 0; start < walk.parts; start += THREADS) {
        const int64_t at = start + threadIdx.x;
        const state_t given = at < walk.parts ? totals[first + at] : slip_empty();
        state_t total;
        const state_t before = slip_before(given, total, sums);
        if (at < walk.parts) totals[first + at] = slip_join(carry, before);
        carry = slip_join(carry, total);
    }
}
"""
# The parameters of results, and of operands.
_PARAMETERS = {
    "joined": ("result_t* out,", "const source_t* in,"),
    "extreme": ("int64_t* out, item_t* second,", "const item_t* in,"),
    "recurrence": ("result_t* out,", "const source_t* in, const source_t* factors,"),
}
# The class that a scan of results of a class joins in.
_WIDER = {"f32": "f64", "c64": "c128"}
_ZERO = {"b1": "false", "i64": "0", "f64": "-0.0", "c128": "slip_make_c128(-0.0, -0.0)"}
_ONE = {"b1": "true", "i64": "1", "f64": "1.0", "c128": "slip_make_c128(1.0, 0.0)"}
_SUM = {"b1": "p || q", "c128": "slip_add_c128(p, q)"}
_PRODUCT = {"b1": "p && q", "c128": "slip_mul_c128(p, q)"}


def _conversions(source: Any, out: Any) -> tuple[str, str]:
    """The lines that say how elements are loaded and stored, and the class between."""
    cls = _WIDER.get(out.compute, out.compute)
    loaded = elements.converted(cls, source.compute, elements.widened(source, "given"))
    lines = (f"typedef {elements.STORED[source.name]} source_t;\n"
             f"typedef {elements.STORED[out.name]} result_t;\n"
             f"#define LOADED ({loaded})\n#define STORED ({elements.stored(out, cls, 'sum')})\n")
    return lines, cls


def _joined(name: str, source: Any, out: Any) -> str:
    """The state of sums, products and logarithms of sums."""
    lines, cls = _conversions(source, out)
    if name == "logcumsumexp":
        return lines + _LOGARITHM + _SIMPLE.format("double", "-INFINITY", "slip_log_sum(p, q)")
    empty, join = (_ZERO, _SUM) if name == "cumsum" else (_ONE, _PRODUCT)
    sign = "+" if name == "cumsum" else "*"
    return lines + _SIMPLE.format(elements.COMPUTED[cls], empty[cls],
                                  join.get(cls, f"p {sign} q"))


def _extreme(name: str, source: Any) -> str:
    """The state of running extrema."""
    beats = ">=" if name.startswith("cummax") else "<="
    kind = "int64_t" if source.compute == "i64" else elements.COMPUTED[source.compute]
    return (f"typedef {elements.STORED[source.name]} item_t;\ntypedef {kind} wide_t;\n"
            f"#define LOADED (({kind})({elements.widened(source, 'given')}))\n"
            f"#define STORED(x) ({elements.stored(source, source.compute, '(x)')})\n"
            f"#define BEATS(q, p) ((q) {beats} (p))\n{_EXTREME}")


def _recurrence(source: Any) -> str:
    """The state of a linear recurrence."""
    lines, cls = _conversions(source, source)
    if cls == "f64":
        operations = ("((a) + (b))", "((a) * (b))", "(x)")
    else:
        operations = ("slip_add_c128(a, b)", "slip_mul_c128(a, b)", "slip_make_c128(x, 0.0)")
    plus, times, real = operations
    return (f"{lines}typedef {elements.COMPUTED[cls]} wide_t;\n#define PLUS(a, b) {plus}\n"
            f"#define TIMES(a, b) {times}\n#define FROM_REAL(x) {real}\n{_RECURRENCE}")


def _apart(spec: Any, dim: int) -> tuple[int, tuple[int, ...]]:
    """The step along a dim, and the other strides."""
    if not spec.ndim:
        return 0, ()
    return spec.strides[dim], spec.strides[:dim] + spec.strides[dim + 1:]


class Lines:
    """The lines of a scan: how many, how long, where they begin in each operand."""

    def __init__(self, specs: list[Any], dim: int) -> None:
        source = specs[-1]
        self.length = source.shape[dim] if source.ndim else 1
        outer = source.shape[:dim] + source.shape[dim + 1:]
        steps, walks = zip(*[_apart(spec, dim) for spec in specs], strict=True)
        self.steps = list(steps)
        self.sizes, self.strides = merged(outer, list(walks), True)
        self.count = prod(self.sizes)

    @property
    def alone(self) -> bool:
        """Whether each line is one thread's work."""
        beside = 0 < abs(self.strides[-1][-1]) < abs(self.steps[-1])
        return self.length <= SHORT or (beside and self.count >= MANY)

    def parts(self, tile: int) -> int:
        """Tiles of a line that have a block of their own; 1: the line has one block."""
        return 1 if self.count >= FILLING else blocks(self.length, tile)

    def words(self, parts: int) -> list[int]:
        """The tail of a launch."""
        found = [self.count, self.length, parts, *self.steps, *self.sizes]
        found += map(divider, self.sizes)
        return found + [step for walk in self.strides for step in walk]


class TileKernel(Kernel):
    """The scan of each tile, where lines are cut after the totals of the tiles before it."""

    def __init__(self, name: str, tiles: Launch, totals: tuple[Launch, Launch] | None,
                 nbytes: int) -> None:
        self.name = name
        self.tiles = tiles
        self.totals = totals
        self.nbytes = nbytes

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Operands: results, the source, a recurrence's factors."""
        backend: Any = plan.backend
        places = [address(tensor) for tensor in operands]
        if self.totals is None:
            backend.record(self.tiles, (*places, places[0]), ())
            return
        first, second = self.totals
        starts = backend.scratch(self.nbytes)
        given = places[len(plan.out_specs):]
        backend.record(first, (starts.address, *given), ())
        backend.record(second, (starts.address,), ())
        backend.record(self.tiles, (*places, starts.address), ())


class Texts:
    """The kernels of one scan: what comes before them, and their parameters."""

    def __init__(self, name: str, source: Any, out: Any, lines: Lines) -> None:
        kind = "joined"
        if name.startswith(("cummax", "cummin")):
            kind, state = "extreme", _extreme(name, source)
        elif name == "linear_recurrence":
            kind, state = "recurrence", _recurrence(source)
        else:
            state = _joined(name, source, out)
        self.parameters = _PARAMETERS[kind]
        wide = kind == "recurrence" and out.is_complex
        self.each = EACH_WIDE if wide else EACH
        self.head = (f"{place_type(lines.count)}#define RANK {len(lines.sizes)}\n"
                     f"#define BACKWARDS {int(kind == 'recurrence')}\n"
                     f"#define EACH {self.each}\n{_HEAD}{state}")

    def code(self, name: str, text: str) -> KernelCode:
        """One of the kernels."""
        results, operands = self.parameters
        text = text.replace("PARAMETERS", results).replace("ARGUMENTS", operands)
        return KernelCode(name, self.head + text)


def scan(plan: Any, call: Any) -> Kernel:
    """cumsum, cumprod, logcumsumexp, running extrema with their places, linear recurrences."""
    name, spec = call.op.name, call.spec("self")
    title = f"cuda {name}"
    outs = plan.out_specs
    if not spec.numel:
        return LaunchKernel(title)
    # Operands of a walk: the first result, the second or the factors, the source.
    second = outs[1] if len(outs) > 1 else outs[0]
    if name == "linear_recurrence":
        second = call.spec("factors")
    lines = Lines([outs[0], second, spec], normalize_dim(call["dim"], max(spec.ndim, 1)))
    texts = Texts(name, spec.dtype, outs[0].dtype, lines)
    device = outs[0].device
    if lines.alone:
        plan.binding = launch(texts.code("slip_scan_columns", _COLUMNS), device, lines.count,
                              lines.words(1))
        return LaunchKernel(title)
    return TileKernel(title, *_tiled(texts, lines, device))


def _tiled(texts: Texts, lines: Lines, device: Any) -> tuple[Any, ...]:
    """The launches over tiles, and the bytes of the totals."""
    parts = lines.parts(texts.each * THREADS)
    tail = lines.words(parts)
    grid = lines.count * parts
    tiles = make_launch(texts.code("slip_scan_tiles", _TILES), device, grid, THREADS, tail=tail)
    if parts == 1:
        return tiles, None, 0
    totals = make_launch(texts.code("slip_scan_totals", _TOTALS), device, grid, THREADS, tail=tail)
    starts = make_launch(texts.code("slip_scan_starts", _STARTS), device, lines.count, THREADS,
                         tail=tail)
    # No state takes more than 32 bytes.
    return tiles, (totals, starts), 32 * grid
