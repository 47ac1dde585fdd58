"""Tiles of 16-bit floats for sm_90: four warps, a group, multiply 64 rows at once (wgmma).

The right side of a product, and the left one of the first, are read from shared memory by the
matrix units themselves.  There a tile of LINES lines lies in blocks of 64 columns, 128 bytes a
line; of every eight lines, line i has its eight chunks of 16 bytes at their number XOR i, so that
neither lines nor columns meet in a bank (PTX ISA, "Shared Memory Matrix Layout", 128-byte swizzle).
A thread has the rows and columns of a sum that it has with `mma.sync`.
"""

from __future__ import annotations

# Elements of a line of a block, and bytes that blocks of eight lines begin at multiples of.
BLOCK = 64
ALIGNED = 1024
# Bytes of a gate.
GATE = 16

_LAYOUT = r"""
#define LINE(columns) (columns)
#define slip_part(n) 0
SLIP_DEVICE int slip_band(int m) {
    const int warp = (int)threadIdx.x / 32;
    return (warp / 4 * BANDS + m) * 64 + warp % 4 * 16;
}
template <int LINES, int LENGTH> SLIP_DEVICE int slip_tile_at(int line, int column) {
    return (column / 64 * LINES + line) * 64 + ((column / 8 % 8) ^ (line % 8)) * 8 + column % 8;
}
// LINES lines of `width` elements, `step` apart, into shared memory; zeros beyond them.
template <int LINES, int LENGTH, class P, class Q>
SLIP_DEVICE void slip_bring(P to, Q from, int64_t step, int64_t left, int width, bool fits) {
    const int across = LENGTH / 8, down = THREADS / across;
    if (fits) {
        // Each thread has one column; eight lines on, chunks lie as they do here.
        const int own = (int)threadIdx.x / across, column = (int)threadIdx.x % across * 8;
        const int end = column < width ? (left < LINES ? (int)left : LINES) : 0;
        P into = to + slip_tile_at<LINES, LENGTH>(own, column);
        Q place = from + (own * step + column);
#pragma unroll
        for (int line = 0; line < LINES; line += down) {
            if (LINES % down && own + line >= LINES) break;
            if (down % 8) into = to + slip_tile_at<LINES, LENGTH>(own + line, column);
            slip_copy_16(into, place, own + line < end);
            into += down * 64;
            place += down * step;
        }
        return;
    }
#pragma unroll 1
    for (int i = threadIdx.x; i < LINES * LENGTH; i += THREADS) {
        const int line = i / LENGTH, column = i % LENGTH;
        item_t item = {};
        if (line < left && column < width) item = from[line * step + column];
        to[slip_tile_at<LINES, LENGTH>(line, column)] = item;
    }
}
"""

# A tile as the left side of a product, in 16-bit floats: the words of each 16 columns.
_PACKED = r"""
template <int K> struct slip_packed { uint32_t word[BANDS][K / 16][4]; };
template <int K> SLIP_DEVICE void slip_pack(slip_packed<K>& packed, slip_tile<K>& tile) {
    const item_t kind = {};
#pragma unroll
    for (int m = 0; m < BANDS; m++) {
#pragma unroll
        for (int k = 0; k < K; k += 16) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float* held = tile.value[m][k / 8 + i / 2] + i % 2 * 2;
                packed.word[m][k / 16][i] = slip_pair(held[0], held[1], kind);
            }
        }
    }
}
"""

# The scalar bodies of products and gates, for the simulated driver.
_SIMULATED = r"""
#ifdef SLIP_SIMULATED
SLIP_DEVICE void slip_publish() {}
struct slip_gate { SLIP_POINTER(uint32_t) state; uint32_t phase; };
template <class P> SLIP_DEVICE void slip_open(slip_gate& gate, P place) {
    gate.state = slip_cast<uint32_t>(place);
    gate.phase = 0;
    if (threadIdx.x == 0) gate.state[0] = gate.state[1] = 0;
}
SLIP_DEVICE void slip_arrive(slip_gate& gate) {
    const uint32_t arrived = gate.state[0] + 1;
    if (arrived == THREADS) gate.state[1] = gate.state[1] ^ 1;
    gate.state[0] = arrived % THREADS;
}
SLIP_DEVICE void slip_await(slip_gate& gate) {
    while (!__all_sync(0xffffffffu, gate.state[1] != gate.phase)) {}
    gate.phase ^= 1;
}
template <int LEFT> SLIP_DEVICE void slip_wait() {}
template <int N> SLIP_DEVICE void slip_settle(slip_tile<N>&) {}
template <int N, int K, class P>
SLIP_DEVICE void slip_begin_products(slip_tile<N>& sum, P left, P right) {
    for (int r = 0; r < OWN; r++) {
        for (int c = 0; c < N / 4; c++) {
            sum.at(r, c) = 0;
            for (int k = 0; k < K; k++) {
                const item_t a = left[slip_tile_at<ROWS, K>(slip_row(r), k)];
                const item_t b = right[slip_tile_at<N, K>(slip_column(c), k)];
                sum.at(r, c) += WIDEN(a) * WIDEN(b);
            }
        }
    }
}
template <int N, int K, class P>
SLIP_DEVICE void slip_begin_packed(slip_tile<N>& sum, slip_packed<K>& weights, P right) {
    const item_t kind = {};
    for (int r = 0; r < OWN; r++) {
        for (int k = 0; k < K; k++) {
            // The thread among those of a row that has column k.
            const int holder = ((int)threadIdx.x % 32 & ~3) | k % 8 / 2;
            const uint32_t own = weights.word[r / 2][k / 16][r % 2 + k / 8 % 2 * 2];
            const float a = slip_half_of(__shfl_sync(0xffffffffu, own, holder), k % 2, kind);
            for (int c = 0; c < N / 4; c++) {
                const item_t b = right[slip_tile_at<K, N>(k, slip_column(c))];
                sum.at(r, c) += a * WIDEN(b);
            }
        }
    }
}
#else
"""

_REAL = r"""
// What was written to shared memory before is seen by the matrix units after the next barrier.
SLIP_DEVICE void slip_publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// A gate opens when all threads of the block arrived, and is as new then.  What is there when a
// thread arrives (its copies, what it read) is so for all who await the gate: unlike at a barrier,
// they may do other work in between, and groups of warps stay out of step.
struct slip_gate { uint32_t place, phase; };
template <class P> SLIP_DEVICE void slip_open(slip_gate& gate, P place) {
    gate.place = slip_shared_address(place);
    gate.phase = 0;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                     :: "r"(gate.place), "r"(THREADS) : "memory");
    }
}
SLIP_DEVICE void slip_arrive(slip_gate& gate) {
    slip_finish_copies();
    slip_publish();
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}"
                 :: "r"(gate.place) : "memory");
}
SLIP_DEVICE void slip_await(slip_gate& gate) {
    asm volatile("{\n.reg .pred open;\nagain:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 open, [%0], %1;\n"
                 "@!open bra again;\n}" :: "r"(gate.place), "r"(gate.phase) : "memory");
    gate.phase ^= 1;
    __syncwarp();
}
// A tile's place for the matrix units: its address, how far blocks of 64 columns and groups of
// eight lines are apart, in 16 bytes each, and which of the layouts it has.  The first word alone
// depends on the place, and grows with it.
template <class P> SLIP_DEVICE uint32_t slip_described(P tile, int blocks_apart) {
    return (slip_shared_address(tile) & 0x3ffff) >> 4 | (uint32_t)(blocks_apart >> 4) << 16;
}
SLIP_DEVICE uint64_t slip_further(uint32_t described, int elements) {
    return (uint64_t)(1024 >> 4 | 1 << 30) << 32 | (described + elements / 8);
}
// Between a product and other work on its registers.
template <int N> SLIP_DEVICE void slip_settle(slip_tile<N>& tile) {
#pragma unroll
    for (int m = 0; m < BANDS; m++) {
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) asm volatile("" : "+f"(tile.value[m][n][e]) :: "memory");
        }
    }
}
SLIP_DEVICE void slip_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
SLIP_DEVICE void slip_send() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until at most the LEFT products that were begun last are under way.
template <int LEFT> SLIP_DEVICE void slip_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(LEFT) : "memory");
}
// sum[row, column] = the sum over k of left[row, k] * right[column, k].  Until a wait and
// `slip_settle` the sum is not there.
template <int N, int K, class P>
SLIP_DEVICE void slip_begin_products(slip_tile<N>& sum, P left, P right) {
    // All threads of a warp have the same, which the compiler has to be told.
    const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0) * BANDS;
    const uint32_t own = slip_described(left + group * 64 * 64, 0);
    const uint32_t all = slip_described(right, 0);
    slip_begin();
#pragma unroll
    for (int k = 0; k < K; k += 16) {
        const uint64_t b = slip_further(all, k / 64 * N * 64 + k % 64);
#pragma unroll
        for (int m = 0; m < BANDS; m++) {
            const uint64_t a = slip_further(own, (k / 64 * ROWS + m * 64) * 64 + k % 64);
            if (k == 0) slip_group<N>::first(sum.value[m], a, b);
            else slip_group<N>::laid(sum.value[m], a, b);
        }
    }
    slip_send();
}
// sum[row, column] += the sum over k of weights[row, k] * right[k, column], likewise.
template <int N, int K, class P>
SLIP_DEVICE void slip_begin_packed(slip_tile<N>& sum, slip_packed<K>& weights, P right) {
    slip_settle(sum);
    const uint32_t all = slip_described(right, K * 128);
    slip_begin();
#pragma unroll
    for (int k = 0; k < K; k += 16) {
        const uint64_t b = slip_further(all, k * 64);
#pragma unroll
        for (int m = 0; m < BANDS; m++) {
            slip_group<N>::held(sum.value[m], weights.word[m][k / 16], b);
        }
    }
    slip_send();
}
#endif
template <int N, int K, class P>
SLIP_DEVICE void slip_begin_weighted(slip_tile<N>& sum, slip_tile<K>& weights, P right) {
    slip_packed<K> packed;
    slip_pack(packed, weights);
    slip_begin_packed<N>(sum, packed, right);
}
template <int N, int K, class P>
SLIP_DEVICE void slip_products(slip_tile<N>& sum, P left, P right) {
    slip_begin_products<N, K>(sum, left, right);
    slip_wait<0>();
    slip_settle(sum);
}
template <int N, int K, class P>
SLIP_DEVICE void slip_weighted(slip_tile<N>& sum, slip_tile<K>& weights, P right, P) {
    slip_begin_weighted<N, K>(sum, weights, right);
    slip_wait<0>();
    slip_settle(sum);
}
"""


def _instruction(name: str, columns: int, kind: str) -> str:
    """One wgmma over ``columns``: `held` has the left side in registers, `laid` in shared memory as
    the right side is, `first` begins a sum.

    After the operands come: whether to add to the sum, signs (1, 1), and which sides lie with their
    columns together where the sum over k goes down the lines.
    """
    count, held = columns // 2, name == "held"
    sums = ", ".join(f"%{i}" for i in range(count))
    if held:
        left = "{" + ", ".join(f"%{count + i}" for i in range(4)) + "}"
        right, turned, taken = f"%{count + 4}", "1", "const uint32_t (&a)[4]"
        inputs = ", ".join(f'"r"(a[{i}])' for i in range(4))
    else:
        left, right, turned, taken, inputs = (f"%{count}", f"%{count + 1}", "0, 0", "uint64_t a",
                                              '"l"(a)')
    sign, adds = ("=", "ne") if name == "first" else ("+", "eq")
    outputs = ",\n              ".join(
        ", ".join(f'"{sign}f"(d[{n}][{e}])' for e in range(4)) for n in range(columns // 8))
    return (f"    static __device__ __forceinline__ void {name}(float (&d)[{columns // 8}][4],"
            f" {taken}, uint64_t b) {{\n"
            f'        asm volatile("{{\\n.reg .pred add;\\nsetp.{adds}.b32 add, 0, 0;\\n"\n'
            f'            "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}.{kind} "\n'
            f'            "{{{sums}}}, {left}, {right}, add, 1, 1, {turned};\\n}}"\n'
            f"            : {outputs}\n"
            f'            : {inputs}, "l"(b));\n    }}\n')


def group_tiles(kind: str, widths: set[int]) -> str:
    """The text of the tiles; ``kind``: bf16 or f16, ``widths``: columns that products have."""
    structures = "".join(
        f"template <> struct slip_group<{columns}> {{\n"
        + "".join(_instruction(name, columns, kind) for name in ("first", "laid", "held"))
        + "};\n" for columns in sorted(widths))
    return (f"{_LAYOUT}{_PACKED}{_SIMULATED}template <int N> struct slip_group;\n{structures}"
            f"{_REAL.lstrip()}")
