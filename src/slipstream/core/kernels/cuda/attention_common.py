"""CUDA C++ that attention's kernels share: where heads lie, scores, weights, slopes."""

from __future__ import annotations

# MASK is 0, 1 (bool), 2 (added).  FOLDED: a score lacks its scale until it becomes an exponent.
COMMON = r"""
#define LOG2_E 1.4426950408889634
struct slip_side { int64_t head, row, batch[RANK]; };
struct slip_walk {
    int64_t queries, keys, heads, group, blocks, fits, threshold, mask_column;
    double scale, spread;
    int64_t shape[RANK];
    slip_side query, key, value, mask, out, grad, query_grad, key_grad, value_grad;
};
// Where a block's shared memory begins.
SLIP_DEVICE auto slip_own_shared() {
#if GROUPED && !defined(SLIP_SIMULATED)
    unsigned char* start = slip_dynamic_shared();
    return start + (1024 - slip_shared_address(start) % 1024) % 1024;
#else
    return slip_dynamic_shared();
#endif
}
// Where the rows of a head begin.
SLIP_DEVICE int64_t slip_start(const slip_walk& walk, const slip_side& side, int batch, int head) {
    int64_t start = head * side.head;
#pragma unroll
    for (int d = RANK - 1; d > 0; d--) {
        start += batch % (int)walk.shape[d] * side.batch[d];
        batch /= (int)walk.shape[d];
    }
    return start + batch * side.batch[0];
}
// Memory is read before this or after it, as it is written.
SLIP_DEVICE void slip_in_turn() {
#ifndef SLIP_SIMULATED
    asm volatile("" ::: "memory");
#endif
}
// A number that the compiler must take as new: what is made of it is not kept from step to step.
SLIP_DEVICE int slip_anew(int x) {
#ifndef SLIP_SIMULATED
    asm volatile("" : "+r"(x));
#endif
    return x;
}
#if !GROUPED
// Groups of warps go on while the matrix units multiply; others wait.
#define slip_begin_products slip_products
template <int LEFT> SLIP_DEVICE void slip_wait() {}
template <int N> SLIP_DEVICE void slip_settle(slip_tile<N>&) {}
#endif
template <int N> SLIP_DEVICE void slip_clear(slip_tile<N>& tile) {
#pragma unroll
    for (int r = 0; r < OWN; r++) {
#pragma unroll
        for (int c = 0; c < slip_tile<N>::COUNT; c++) tile.at(r, c) = 0;
    }
}
template <int N> SLIP_DEVICE void slip_scale(slip_tile<N>& tile, wide_t factor) {
#pragma unroll
    for (int r = 0; r < OWN; r++) {
#pragma unroll
        for (int c = 0; c < slip_tile<N>::COUNT; c++) tile.at(r, c) *= factor;
    }
}
// Over the threads that share a row; all of them get it.
SLIP_DEVICE wide_t slip_row_sum(wide_t x) {
#pragma unroll
    for (int half = LANES / 2; half; half /= 2) x += __shfl_xor_sync(0xffffffffu, x, half);
    return x;
}
SLIP_DEVICE wide_t slip_row_largest(wide_t x) {
#pragma unroll
    for (int half = LANES / 2; half; half /= 2) {
        x = LARGER(x, __shfl_xor_sync(0xffffffffu, x, half));
    }
    return x;
}
// What scores are multiplied by when they become exponents of 2.
SLIP_DEVICE wide_t slip_factor(const slip_walk& walk) {
    return (wide_t)(FOLDED ? walk.scale * LOG2_E : LOG2_E);
}
// A weight is 2 to the score * factor - largest * factor.  Where the last product is far from 0, it
// is rounded to more than a weight may differ by: there the largest score is taken off the others
// before they are multiplied.
#define NEAR_ZERO 64
SLIP_DEVICE bool slip_is_far(wide_t largest, wide_t factor) {
    return !HALF || fabs(largest * factor) >= NEAR_ZERO;
}
// Products as scores.  Rows and columns begin at `row` and `column`; BY_KEY: rows are keys.  Only
// tiles at an edge have scores that do not count.
template <bool BY_KEY, int N, class P>
SLIP_DEVICE void slip_scores(slip_tile<N>& tile, const slip_walk& walk, P mask, int64_t mask_row,
                             int row, int column, bool edge) {
    if (!FOLDED && MASK < 2) slip_scale(tile, (wide_t)walk.scale);
    if (!MASK && !edge) return;
    const int keys = (int)walk.keys, queries = (int)walk.queries;
    if (MASK) {
        row = slip_anew(row);
        column = slip_anew(column);
    }
#pragma unroll
    for (int r = 0; r < OWN; r++) {
        const int first = row + slip_row(r);
        const int least = BY_KEY && CAUSAL ? first : 0;
        const int end = BY_KEY ? queries : CAUSAL && first < keys ? first + 1 : keys;
#pragma unroll
        for (int c = 0; c < slip_tile<N>::COUNT; c++) {
            const int second = column + slip_column(c);
            bool counts = second >= least && second < end;
#if MASK
            counts = counts && first < (BY_KEY ? keys : queries);
            const int64_t at = (BY_KEY ? second : first) * mask_row
                               + (BY_KEY ? first : second) * walk.mask_column;
#endif
#if MASK == 1
            if (counts) counts = mask[at] != 0;
#elif MASK == 2
            if (counts) {
                const mask_t added = mask[at];
                tile.at(r, c) = FUSED(tile.at(r, c), (wide_t)walk.scale,
                                      (wide_t)MASK_WIDEN(added));
            }
#endif
            if (!counts) tile.at(r, c) = -INFINITY;
        }
        // What is asked of the mask at once has to fit the registers.
        if (MASK) slip_in_turn();
    }
}
template <int N> SLIP_DEVICE void slip_less(slip_tile<N>& tile, int r, wide_t base) {
#pragma unroll
    for (int c = 0; c < slip_tile<N>::COUNT; c++) tile.at(r, c) -= base;
}
// The same of columns, where not all bases are 0.
template <int N, class P> SLIP_DEVICE void slip_less_each(slip_tile<N>& tile, P bases) {
    bool far = false;
#pragma unroll
    for (int i = threadIdx.x % 32; i < N; i += 32) far = far || bases[i] != 0;
    if (!__any_sync(0xffffffffu, far)) return;
#pragma unroll
    for (int c = 0; c < slip_tile<N>::COUNT; c++) {
        const wide_t base = bases[slip_column(c)];
#pragma unroll
        for (int r = 0; r < OWN; r++) tile.at(r, c) -= base;
    }
}
template <int N> SLIP_DEVICE void slip_keep_positive(slip_tile<N>& tile) {
#pragma unroll
    for (int r = 0; r < OWN; r++) {
#pragma unroll
        for (int c = 0; c < slip_tile<N>::COUNT; c++) {
            tile.at(r, c) = tile.at(r, c) < 0 ? (wide_t)0 : tile.at(r, c);
        }
    }
}
// The gradients of the scores, from the weights and dP, in its place.
SLIP_DEVICE wide_t slip_slope(wide_t weight, wide_t slope, wide_t sum, wide_t spread) {
#if DROPOUT
    return fabs(weight) * ((weight < 0 ? (wide_t)0 : slope * spread) - sum);
#else
    return weight * (slope - sum);
#endif
}
"""
