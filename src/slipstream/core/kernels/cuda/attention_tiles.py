"""Tiles of attention's kernels: how threads share a tile, and the two products over tiles.

Either way a thread holds OWN rows of its block's ROWS, ``slip_row(r)``, and of each of them the
columns ``slip_column(c)``; LANES neighbouring threads share a row.  What is in shared memory lies
in lines of a few elements more than there are columns, so that threads meet in no bank.
"""

from __future__ import annotations

# 16-bit floats: a thread has two columns of every eight, and two rows of a band.
HALF = r"""
#define LANES 4
#define OWN (2 * BANDS)
#define STAGED 0
#define EXP2 slip_fast_exp2
SLIP_DEVICE int slip_band(int m);
template <int N> struct slip_tile {
    enum { COUNT = N / 4 };
    float value[BANDS][N / 8][4];
    __device__ __forceinline__ float& at(int r, int c) {
        return value[r / 2][c / 2][r % 2 * 2 + c % 2];
    }
};
SLIP_DEVICE int slip_row(int r) {
    return slip_band(r / 2) + r % 2 * 8 + (int)threadIdx.x % 32 / 4;
}
SLIP_DEVICE int slip_column(int c) { return c / 2 * 8 + (int)threadIdx.x % 4 * 2 + c % 2; }
// Where an element of a tile of LINES lines lies.
template <int LINES, int LENGTH> SLIP_DEVICE int slip_tile_at(int line, int column);
// The share of a thread in the sum of products of a row of memory and one of a tile; it is summed
// in the same order where the row fits vectors and where not.
template <int LENGTH, class P, class Q>
SLIP_DEVICE float slip_dot(P x, Q tile, int row, int width, bool fits) {
    float sum = 0;
    auto add = [&](const slip_vector<item_t, 8>& a, int f) {
        const slip_vector<item_t, 8> b = slip_read<item_t, 8>(
            tile + slip_tile_at<ROWS, LENGTH>(row, f), 8, true);
#pragma unroll
        for (int e = 0; e < 8; e++) sum = FUSED(WIDEN(a.get(e)), WIDEN(b.get(e)), sum);
    };
    const int first = (int)threadIdx.x % LANES * 8;
    if (fits) {
#pragma unroll
        for (int k = 0; k < LENGTH; k += LANES * 8) {
            if (first + k < width) add(slip_read<item_t, 8>(x + (first + k), 8, true), first + k);
        }
        return sum;
    }
#pragma unroll 1
    for (int f = first; f < width; f += LANES * 8) {
        add(slip_read<item_t, 8>(x + f, width - f, false), f);
    }
    return sum;
}
template <int N, class P>
SLIP_DEVICE void slip_put(P to, int64_t step, slip_tile<N>& tile, int64_t left, int width,
                          bool fits) {
    const item_t kind = {};
#pragma unroll
    for (int r = 0; r < OWN; r++) {
        const int row = slip_row(r);
        if (row >= left) continue;
#pragma unroll
        for (int c = 0; c < N / 4; c += 2) {
            const int column = slip_column(c);
            const uint32_t word = slip_pair(tile.at(r, c), tile.at(r, c + 1), kind);
            if (fits && column < width) slip_store<uint32_t>(to + (row * step + column), word);
            if (!fits && column < width) {
                to[row * step + column] = slip_lane<item_t>::get(&word, 0);
            }
            if (!fits && column + 1 < width) {
                to[row * step + column + 1] = slip_lane<item_t>::get(&word, 1);
            }
        }
    }
}
"""

# Matrix instructions of a warp, which has 16 * BANDS rows; BESIDE warps have the same ones: each of
# them a part of the columns.
HALF_TILES = r"""
#define LINE(columns) ((columns) + 8)
// The first row of a warp's band; the first of its columns where it has n of them.
SLIP_DEVICE int slip_band(int m) {
    return ((int)threadIdx.x / 32 / BESIDE * BANDS + m) * 16;
}
SLIP_DEVICE int slip_part(int n) { return (int)threadIdx.x / 32 % BESIDE * n; }
template <int LINES, int LENGTH> SLIP_DEVICE int slip_tile_at(int line, int column) {
    return line * LINE(LENGTH) + column;
}
#define slip_publish()
// sum[row, column] = the sum over k of left[row, k] * right[column, k].
template <int N, int K, class P>
SLIP_DEVICE void slip_products(slip_tile<N>& sum, P left, P right) {
    const item_t kind = {};
    slip_clear(sum);
#pragma unroll
    for (int k = 0; k < K; k += 16) {
        uint32_t a[BANDS][4];
#pragma unroll
        for (int m = 0; m < BANDS; m++) {
            slip_left(a[m], left + (slip_band(m) * LINE(K) + k), LINE(K));
        }
#pragma unroll
        for (int n = 0; n < N; n += 16) {
            uint32_t b[4];
            slip_right<false>(b, right + (n * LINE(K) + k), LINE(K));
#pragma unroll
            for (int m = 0; m < BANDS; m++) {
                slip_multiply(sum.value[m][n / 8], a[m], b[0], b[1], kind);
                slip_multiply(sum.value[m][n / 8 + 1], a[m], b[2], b[3], kind);
            }
        }
    }
}
// sum[row, column] += the sum over k of weights[row, k] * right[k, column].
template <int N, int K, class P>
SLIP_DEVICE void slip_weighted(slip_tile<N>& sum, slip_tile<K>& weights, P right, P) {
    const item_t kind = {};
#pragma unroll
    for (int k = 0; k < K; k += 16) {
        uint32_t a[BANDS][4];
#pragma unroll
        for (int m = 0; m < BANDS; m++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float* held = weights.value[m][k / 8 + i / 2] + i % 2 * 2;
                a[m][i] = slip_pair(held[0], held[1], kind);
            }
        }
#pragma unroll
        for (int n = 0; n < N; n += 16) {
            uint32_t b[4];
            slip_right<true>(b, right + (k * LINE(N) + n), LINE(N));
#pragma unroll
            for (int m = 0; m < BANDS; m++) {
                slip_multiply(sum.value[m][n / 8], a[m], b[0], b[1], kind);
                slip_multiply(sum.value[m][n / 8 + 1], a[m], b[2], b[3], kind);
            }
        }
    }
}
#if BESIDE > 1
// Weights as 16-bit floats in shared memory, for the warps beside this one.
template <int N, int K, class P> SLIP_DEVICE void slip_lay(P to, slip_tile<N>& tile) {
    const item_t kind = {};
    P own = to + (slip_row(0) * LINE(K) + slip_part(N) + slip_column(0));
#pragma unroll
    for (int r = 0; r < OWN; r++) {
#pragma unroll
        for (int c = 0; c < N / 4; c += 2) {
            slip_store<uint32_t>(own + ((r / 2 * 16 + r % 2 * 8) * LINE(K) + c * 4),
                                 slip_pair(tile.at(r, c), tile.at(r, c + 1), kind));
        }
    }
}
// sum[row, column] += the sum over k of left[row, k] * right[k, column].
template <int N, int K, int LENGTH, class P>
SLIP_DEVICE void slip_laid_products(slip_tile<N>& sum, P left, P right) {
    const item_t kind = {};
#pragma unroll
    for (int k = 0; k < K; k += 16) {
        uint32_t a[BANDS][4];
#pragma unroll
        for (int m = 0; m < BANDS; m++) {
            slip_left(a[m], left + (slip_band(m) * LINE(K) + k), LINE(K));
        }
#pragma unroll
        for (int n = 0; n < N; n += 16) {
            uint32_t b[4];
            slip_right<true>(b, right + (k * LINE(LENGTH) + n), LINE(LENGTH));
#pragma unroll
            for (int m = 0; m < BANDS; m++) {
                slip_multiply(sum.value[m][n / 8], a[m], b[0], b[1], kind);
                slip_multiply(sum.value[m][n / 8 + 1], a[m], b[2], b[3], kind);
            }
        }
    }
}
#endif
// LINES lines of `width` elements, `step` apart, into shared memory; zeros beyond them.
template <int LINES, int LENGTH, class P, class Q>
SLIP_DEVICE void slip_bring(P to, Q from, int64_t step, int64_t left, int width, bool fits) {
    const int across = LENGTH / 8, down = THREADS / across < 1 ? 1 : THREADS / across;
    if (fits && THREADS % across == 0 && LINES % down == 0) {
        // Each thread has one column.  What is not good is not read, wherever it points to.
        const int own = threadIdx.x / across, column = (int)threadIdx.x % across * 8;
        const int end = column < width ? (left < LINES ? (int)left : LINES) : 0;
        P into = to + (own * LINE(LENGTH) + column);
        Q place = from + (own * step + column);
#pragma unroll
        for (int line = 0; line < LINES; line += down) {
            slip_copy_16(into + line * LINE(LENGTH), place, own + line < end);
            place += down * step;
        }
        return;
    }
    if (fits) {
#pragma unroll 2
        for (int i = threadIdx.x; i < LINES * across; i += THREADS) {
            const int line = i / across, column = i % across * 8;
            const bool good = line < left && column < width;
            slip_copy_16(to + (line * LINE(LENGTH) + column), from + (line * step + column), good);
        }
        return;
    }
#pragma unroll 1
    for (int i = threadIdx.x; i < LINES * LENGTH; i += THREADS) {
        const int line = i / LENGTH, column = i % LENGTH;
        item_t item = {};
        if (line < left && column < width) item = from[line * step + column];
        to[line * LINE(LENGTH) + column] = item;
    }
}
"""

# float32 and float64: fused multiply-adds, each rounded once, in the order of k.
WHOLE_TILES = r"""
#define LANES 16
#define OWN (ROWS / 16)
#define slip_part(n) 0
#define slip_publish()
#define LINE(columns) ((columns) + 1)
#define STAGED (ROWS * LINE(COLUMNS))
template <int N> struct slip_tile {
    enum { COUNT = N / 16 };
    wide_t value[OWN][N / 16];
    __device__ __forceinline__ wide_t& at(int r, int c) { return value[r][c]; }
};
SLIP_DEVICE int slip_row(int r) { return (int)threadIdx.x / 16 + 16 * r; }
SLIP_DEVICE int slip_column(int c) { return (int)threadIdx.x % 16 + 16 * c; }
template <int N, int K, class P>
SLIP_DEVICE void slip_products(slip_tile<N>& sum, P left, P right) {
    slip_clear(sum);
#pragma unroll 4
    for (int k = 0; k < K; k++) {
        wide_t a[OWN], b[N / 16];
#pragma unroll
        for (int r = 0; r < OWN; r++) a[r] = left[slip_row(r) * LINE(K) + k];
#pragma unroll
        for (int c = 0; c < N / 16; c++) b[c] = right[slip_column(c) * LINE(K) + k];
#pragma unroll
        for (int r = 0; r < OWN; r++) {
#pragma unroll
            for (int c = 0; c < N / 16; c++) sum.at(r, c) = FUSED(a[r], b[c], sum.at(r, c));
        }
    }
}
// The weights go through shared memory: the threads that share a row are of one warp.
template <int N, int K, class P>
SLIP_DEVICE void slip_weighted(slip_tile<N>& sum, slip_tile<K>& weights, P right, P staged) {
#pragma unroll
    for (int r = 0; r < OWN; r++) {
#pragma unroll
        for (int c = 0; c < K / 16; c++) {
            staged[slip_row(r) * LINE(K) + slip_column(c)] = weights.at(r, c);
        }
    }
    __syncwarp();
#pragma unroll 4
    for (int k = 0; k < K; k++) {
        wide_t a[OWN], b[N / 16];
#pragma unroll
        for (int r = 0; r < OWN; r++) a[r] = staged[slip_row(r) * LINE(K) + k];
#pragma unroll
        for (int c = 0; c < N / 16; c++) b[c] = right[k * LINE(N) + slip_column(c)];
#pragma unroll
        for (int r = 0; r < OWN; r++) {
#pragma unroll
            for (int c = 0; c < N / 16; c++) sum.at(r, c) = FUSED(a[r], b[c], sum.at(r, c));
        }
    }
    __syncwarp();
}
template <class P, class Q> SLIP_DEVICE void slip_copy_word(P to, Q from, bool good) {
    wide_t word = 0;
    if (good) word = *from;
    *to = word;
}
template <int LENGTH, class P, class Q>
SLIP_DEVICE wide_t slip_dot(P x, Q tile, int row, int width, bool fits) {
    wide_t sum = 0;
    for (int f = threadIdx.x % LANES; f < width; f += LANES) {
        const wide_t a = x[f], b = tile[row * LINE(LENGTH) + f];
        sum = FUSED(a, b, sum);
    }
    return sum;
}
template <int LINES, int LENGTH, class P, class Q>
SLIP_DEVICE void slip_bring(P to, Q from, int64_t step, int64_t left, int width, bool fits) {
#pragma unroll 4
    for (int i = threadIdx.x; i < LINES * LENGTH; i += THREADS) {
        const int line = i / LENGTH, column = i % LENGTH;
        item_t item = 0;
        if (line < left && column < width) item = from[line * step + column];
        to[line * LINE(LENGTH) + column] = item;
    }
}
SLIP_DEVICE void slip_finish_copies() {}
template <int N, class P>
SLIP_DEVICE void slip_put(P to, int64_t step, slip_tile<N>& tile, int64_t left, int width,
                          bool fits) {
#pragma unroll
    for (int r = 0; r < OWN; r++) {
#pragma unroll
        for (int c = 0; c < N / 16; c++) {
            const int row = slip_row(r), column = slip_column(c);
            if (row < left && column < width) to[row * step + column] = tile.at(r, c);
        }
    }
}
"""

# Which weights stay, for both kinds of tiles; four neighbouring keys share a counter.
DROP = r"""
#if DROPOUT
// Which of the four weights of a counter stay: as bernoulli_mask has it.
SLIP_DEVICE uint32_t slip_stays(const slip_walk& walk, uint64_t counter, uint64_t seed) {
    const slip_four four = slip_philox(counter, seed);
    uint32_t bits = 0;
#pragma unroll
    for (int e = 0; e < 4; e++) {
        bits |= (uint64_t)four.word[e] < (uint64_t)walk.threshold ? 1u << e : 0u;
    }
    return bits;
}
// Weights that are dropped become negative.  `start`: the number of the head's first weight.
template <bool BY_KEY, int N>
SLIP_DEVICE void slip_drop_each(slip_tile<N>& tile, const slip_walk& walk, uint64_t start, int row,
                                int column, uint64_t seed, uint64_t base) {
#pragma unroll 1
    for (int r = 0; r < OWN; r++) {
#pragma unroll 1
        for (int c = 0; c < slip_tile<N>::COUNT; c++) {
            const int first = row + slip_row(r), second = column + slip_column(c);
            const int i = BY_KEY ? second : first, j = BY_KEY ? first : second;
            const uint64_t at = start + (uint64_t)i * (uint64_t)walk.keys + (uint64_t)j;
            const bool stays = slip_stays(walk, base + at / 4, seed) >> (at % 4) & 1;
            // An index that is not known here would keep the tile out of registers.
#pragma unroll
            for (int k = 0; k < OWN; k++) {
#pragma unroll
                for (int n = 0; n < slip_tile<N>::COUNT; n++) {
                    if (k == r && n == c && !stays) tile.at(k, n) = -tile.at(k, n);
                }
            }
        }
    }
}
#if !HALF
#define slip_drop slip_drop_each
#else
// Where the keys are a multiple of four, the threads that hold weights of one counter share it.
template <bool BY_KEY, int N>
SLIP_DEVICE void slip_drop(slip_tile<N>& tile, const slip_walk& walk, uint64_t start, int row,
                           int column, uint64_t seed, uint64_t base) {
    if (walk.keys % 4) {
        slip_drop_each<BY_KEY>(tile, walk, start, row, column, seed, base);
        return;
    }
    const int lane = threadIdx.x % 32, line = lane / 4, odd = lane % 2, own = line % 4;
    // Two threads share counters by a row each, four by a row and a column each.
    const int high = BY_KEY ? own / 2 : odd, right = BY_KEY ? own % 2 : 0;
#pragma unroll
    for (int m = 0; m < BANDS; m++) {
        const int first = row + slip_band(m) + high * 8 + line;
        uint32_t bits = 0;
#pragma unroll 2
        for (int n = 0; n < N / 8; n++) {
            const int second = column + n * 8 + lane % 4 * 2 + right;
            const int i = BY_KEY ? second : first, j = BY_KEY ? first : second;
            const uint64_t at = start + (uint64_t)i * (uint64_t)walk.keys + (uint64_t)j;
            bits |= slip_stays(walk, base + at / 4, seed) << (4 * n);
        }
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int from = BY_KEY ? (lane & ~12) | e << 2 : (lane & ~1) | e / 2;
            const uint32_t found = __shfl_sync(0xffffffffu, bits, from);
            const int bit = BY_KEY ? own : odd * 2 + e % 2;
#pragma unroll
            for (int n = 0; n < N / 8; n++) {
                float& weight = tile.value[m][n][e];
                if (!(found >> (4 * n + bit) & 1)) weight = -weight;
            }
        }
    }
}
#endif
#endif
"""
