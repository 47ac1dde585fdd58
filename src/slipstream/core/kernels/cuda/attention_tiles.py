"""Tiles of attention's kernels: how threads share a tile, and the two products over tiles.

Either way a thread holds OWN rows of its block's ROWS, ``slip_row(r)``, and of each of them the
columns ``slip_column(c)``; LANES neighbouring threads share a row.  What is in shared memory lies in
lines of a few elements more than there are columns, so that threads meet in no bank.
"""

from __future__ import annotations

# 16-bit floats: matrix instructions; a warp has 16 * BANDS rows.
HALF_TILES = r"""
#define LANES 4
#define ROWS (16 * BANDS * WARPS)
#define OWN (2 * BANDS)
#define LINE(columns) ((columns) + 8)
#define STAGED 0
#define EXP2 slip_fast_exp2
template <int N> struct slip_tile {
    enum { COUNT = N / 4 };
    float value[BANDS][N / 8][4];
    __device__ __forceinline__ float& at(int r, int c) {
        return value[r / 2][c / 2][r % 2 * 2 + c % 2];
    }
};
SLIP_DEVICE int slip_row(int r) {
    return ((int)threadIdx.x / 32 * BANDS + r / 2) * 16 + r % 2 * 8 + (int)threadIdx.x % 32 / 4;
}
SLIP_DEVICE int slip_column(int c) { return c / 2 * 8 + (int)threadIdx.x % 4 * 2 + c % 2; }
// sum[row, column] += the sum over k of left[row, k] * right[column, k].
template <int N, int K, class P>
SLIP_DEVICE void slip_products(slip_tile<N>& sum, P left, P right) {
    const int first = (int)threadIdx.x / 32 * BANDS * 16;
    const item_t kind = {};
#pragma unroll
    for (int k = 0; k < K; k += 16) {
        uint32_t a[BANDS][4];
#pragma unroll
        for (int m = 0; m < BANDS; m++) {
            slip_left(a[m], left + ((first + 16 * m) * LINE(K) + k), LINE(K));
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
// LINES lines of `width` elements, `step` apart, into shared memory; zeros beyond them.
template <int LINES, int LENGTH, class P, class Q>
SLIP_DEVICE void slip_bring(P to, Q from, int64_t step, int64_t left, int width, bool fits) {
    if (fits) {
#pragma unroll
        for (int i = threadIdx.x; i < LINES * LENGTH / 8; i += THREADS) {
            const int line = i / (LENGTH / 8), column = i % (LENGTH / 8) * 8;
            const bool good = line < left && column < width;
            slip_copy_16(to + (line * LINE(LENGTH) + column),
                         from + (good ? line * step + column : 0), good);
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

# float32 and float64: fused multiply-adds, each rounded once, in the order of k.
WHOLE_TILES = r"""
#define LANES 16
#define OWN (ROWS / 16)
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
