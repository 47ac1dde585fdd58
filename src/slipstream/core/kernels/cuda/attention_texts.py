"""CUDA C++ of attention: tiles of weights are made, used and forgotten.

Forward, each block walks the keys for its queries and keeps, of every row, the largest score so far
and the sum of weights under it (M. Milakov, N. Gimelshein, "Online normalizer calculation for
softmax", 2018; T. Dao et al., "FlashAttention", 2022).  Backward makes the weights again from the
row's largest score and the logarithm of its sum, which are two numbers: in a row of scores near
-1e9 the sum of both would be the first alone.  With P the weights, dP = dO V^T and D = the row sums
of dO * O, dS = P * (dP - D); dV = P^T dO, dQ = scale dS K, dK = scale dS^T Q.  One kernel walks the
keys for blocks of queries and leaves D, the next walks the queries for blocks of keys: nothing is
added up by two blocks, so that the order of sums depends on sizes only.
"""

from __future__ import annotations

from slipstream.core.kernels.cuda.attention_ahead import AHEAD_FORWARD, AHEAD_KEYS, AHEAD_QUERIES

# Blocks of later queries, which have more keys, go first.  A bound of one block for each
# multiprocessor leaves a thread all registers: without it the compiler would rather spill.
_OWN = r"""
    const int blocks = (int)walk.blocks, heads = (int)walk.heads;
    const int pair = (int)blockIdx.x / blocks, head = pair % heads, batch = pair / heads;
    const int first = (blocks - 1 - (int)blockIdx.x % blocks) * ROWS;
    const int left = (int)walk.queries - first, all = (int)walk.keys;
    const int end = CAUSAL && first + ROWS < all ? first + ROWS : all;
    const int steps = (end + COLUMNS - 1) / COLUMNS, key_head = head / (int)walk.group;
    SLIP_POINTER(item_t) shared = slip_cast<item_t>(slip_own_shared());
    SLIP_POINTER(const item_t) own_keys = key + slip_start(walk, walk.key, batch, key_head);
    SLIP_POINTER(const item_t) own_values = value + slip_start(walk, walk.value, batch, key_head);
"""
# How a block asks for the keys and values of a step.
_BRING = r"""    auto bring_keys = [&](int step) {
        const int at = step * COLUMNS;
        slip_bring<COLUMNS, WIDTH>(keys + step % KEY_STAGES * COLUMNS * LINE(WIDTH),
                                   own_keys + at * walk.key.row, walk.key.row, all - at,
                                   OWN_WIDTH, fits);
    };
    auto bring_values = [&](int step) {
        const int at = step * COLUMNS;
        slip_bring<COLUMNS, DEPTH>(values + step % VALUE_STAGES * COLUMNS * LINE(DEPTH),
                                   own_values + at * walk.value.row, walk.value.row,
                                   all - at, OWN_DEPTH, fits);
    };
    auto bring = [&](int step) {
        bring_keys(step);
        bring_values(step);
    };
"""

# STAGES 2: while a tile is computed with, the next one comes into the other half.
_STEP = r"""
#if STAGES == 2
        slip_finish_copies();
        slip_publish();
        __syncthreads();
        if (step + 1 < steps) bring(step + 1);
#else
        __syncthreads();
        if (step) bring(step);
        slip_finish_copies();
        slip_publish();
        __syncthreads();
#endif
"""

# Scores become weights under the largest of their rows so far; `factor` is what weights under the
# one before are multiplied by.  Whether that is not 1 for a row of the warp.
_SOFTEN = r"""
template <int N>
SLIP_DEVICE bool slip_soften(slip_tile<N>& weights, wide_t (&largest)[OWN], wide_t (&total)[OWN],
                             wide_t (&factor)[OWN], wide_t scale) {
    wide_t lead[OWN], shift[OWN];
    bool changed = false, far = false;
#pragma unroll
    for (int r = 0; r < OWN; r++) {
        wide_t found = weights.at(r, 0);
#pragma unroll
        for (int c = 1; c < slip_tile<N>::COUNT; c++) {
            found = LARGER(found, weights.at(r, c));
        }
        found = LARGER(largest[r], slip_row_largest(found));
        // Where no score counts yet, any finite number will do.
        lead[r] = found == -INFINITY ? (wide_t)0 : found;
        factor[r] = EXP2((largest[r] - lead[r]) * scale);
        changed = changed || found != largest[r];
        far = far || slip_is_far(lead[r], scale);
        largest[r] = found;
        shift[r] = lead[r] * scale;
    }
    if (!HALF || __any_sync(0xffffffffu, far)) {
#pragma unroll
        for (int r = 0; r < OWN; r++) {
            const bool own = slip_is_far(lead[r], scale);
            slip_less(weights, r, own ? lead[r] : (wide_t)0);
            shift[r] = own ? (wide_t)0 : shift[r];
        }
    }
#pragma unroll
    for (int r = 0; r < OWN; r++) {
        wide_t more = 0;
#pragma unroll
        for (int c = 0; c < slip_tile<N>::COUNT; c++) {
            weights.at(r, c) = EXP2(FUSED(weights.at(r, c), scale, -shift[r]));
            more += weights.at(r, c);
        }
        total[r] = total[r] * factor[r] + more;
    }
    return __any_sync(0xffffffffu, changed);
}
template <int N> SLIP_DEVICE void slip_scale_rows(slip_tile<N>& tile, wide_t (&factor)[OWN]) {
#pragma unroll
    for (int r = 0; r < OWN; r++) {
#pragma unroll
        for (int c = 0; c < slip_tile<N>::COUNT; c++) tile.at(r, c) *= factor[r];
    }
}
"""

FORWARD = _SOFTEN + r"""
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
slip_attention(item_t* out, wide_t* rows, const item_t* query, const item_t* key,
               const item_t* value MASKED, uint64_t seed, uint64_t base, const slip_walk walk) {
""" + _OWN + r"""
    SLIP_POINTER(const item_t) own = query + (slip_start(walk, walk.query, batch, head)
                                              + first * walk.query.row);
    const bool fits = walk.fits && slip_aligned<item_t>(query, 16)
                      && slip_aligned<item_t>(key, 16) && slip_aligned<item_t>(value, 16);
#if MASK
    SLIP_POINTER(const mask_t) own_mask = mask + slip_start(walk, walk.mask, batch, head);
#else
    SLIP_POINTER(const item_t) own_mask = query;
#endif
    SLIP_POINTER(item_t) queries = shared;
    SLIP_POINTER(item_t) keys = queries + ROWS * LINE(WIDTH);
    SLIP_POINTER(item_t) values = keys + KEY_STAGES * COLUMNS * LINE(WIDTH);
    SLIP_POINTER(item_t) staged = values + VALUE_STAGES * COLUMNS * LINE(DEPTH);
""" + _BRING + r"""    slip_bring<ROWS, WIDTH>(queries, own, walk.query.row, left, OWN_WIDTH, fits);
#if !AHEAD
    bring(0);
#endif
    slip_tile<DEPTH> sum;
    slip_clear(sum);
    const wide_t scale = slip_factor(walk);
    wide_t largest[OWN], total[OWN];
#pragma unroll
    for (int r = 0; r < OWN; r++) {
        largest[r] = -INFINITY;
        total[r] = 0;
    }
    slip_tile<COLUMNS> weights;
    wide_t factor[OWN];
    auto soften = [&](int step) {
        const int column = step * COLUMNS;
        const bool edge = column + COLUMNS > all
                          || (CAUSAL && column + COLUMNS > first + 1);
        slip_scores<false>(weights, walk, own_mask, walk.mask.row, first, column, edge);
        const bool changed = slip_soften(weights, largest, total, factor, scale);
#if DROPOUT
        slip_drop<false>(weights, walk, (uint64_t)pair * walk.queries * walk.keys, first, column,
                         seed, base);
        slip_keep_positive(weights);
#endif
        return changed;
    };
#if AHEAD
""" + AHEAD_FORWARD + r"""
#else
    for (int step = 0; step < steps; step++) {
""" + _STEP + r"""
        const int turn = step % STAGES;
        slip_products<COLUMNS, WIDTH>(weights, queries, keys + turn * COLUMNS * LINE(WIDTH));
        if (soften(step)) slip_scale_rows(sum, factor);
        slip_weighted<DEPTH, COLUMNS>(sum, weights, values + turn * COLUMNS * LINE(DEPTH), staged);
    }
#endif
#pragma unroll
    for (int r = 0; r < OWN; r++) {
        total[r] = slip_row_sum(total[r]);
        // Rows without a key are zeros, and their weights when they are made again.
        const wide_t share = total[r] == 0 ? (wide_t)0 : (wide_t)walk.spread / total[r];
#pragma unroll
        for (int c = 0; c < slip_tile<DEPTH>::COUNT; c++) sum.at(r, c) *= share;
        if (threadIdx.x % LANES == 0 && slip_row(r) < left) {
            const int64_t at = (int64_t)pair * walk.queries + first + slip_row(r);
            rows[2 * at] = total[r] == 0 ? (wide_t)0 : largest[r];
            rows[2 * at + 1] = total[r] == 0 ? (wide_t)INFINITY : LOG2(total[r]);
        }
    }
    slip_put<DEPTH>(out + (slip_start(walk, walk.out, batch, head) + first * walk.out.row),
                    walk.out.row, sum, left, OWN_DEPTH, walk.fits && slip_aligned<item_t>(out, 16));
}
"""

QUERIES = r"""
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
slip_attention_queries(item_t* result, wide_t* sums, const item_t* grad, const item_t* query,
                       const item_t* key, const item_t* value MASKED, const item_t* out,
                       const wide_t* rows, uint64_t seed, uint64_t base, const slip_walk walk) {
""" + _OWN + r"""
    SLIP_POINTER(const item_t) own = query + (slip_start(walk, walk.query, batch, head)
                                              + first * walk.query.row);
    SLIP_POINTER(const item_t) own_grad = grad + (slip_start(walk, walk.grad, batch, head)
                                                  + first * walk.grad.row);
    SLIP_POINTER(const item_t) own_out = out + (slip_start(walk, walk.out, batch, head)
                                                + first * walk.out.row);
    const bool fits = walk.fits && slip_aligned<item_t>(query, 16)
                      && slip_aligned<item_t>(key, 16) && slip_aligned<item_t>(value, 16)
                      && slip_aligned<item_t>(grad, 16);
#if MASK
    SLIP_POINTER(const mask_t) own_mask = mask + slip_start(walk, walk.mask, batch, head);
#else
    SLIP_POINTER(const item_t) own_mask = query;
#endif
    SLIP_POINTER(item_t) queries = shared;
    SLIP_POINTER(item_t) grads = queries + ROWS * LINE(WIDTH);
    SLIP_POINTER(item_t) keys = grads + ROWS * LINE(DEPTH);
    SLIP_POINTER(item_t) values = keys + KEY_STAGES * COLUMNS * LINE(WIDTH);
    SLIP_POINTER(item_t) staged = values + VALUE_STAGES * COLUMNS * LINE(DEPTH);
""" + _BRING + r"""    slip_bring<ROWS, WIDTH>(queries, own, walk.query.row, left, OWN_WIDTH, fits);
    slip_bring<ROWS, DEPTH>(grads, own_grad, walk.grad.row, left, OWN_DEPTH, fits);
    bring(0);
    // D, what comes off the exponents, and off the scores: the other kernel wants them too.
    slip_finish_copies();
    slip_publish();
    __syncthreads();
    const wide_t scale = slip_factor(walk);
    SLIP_POINTER(wide_t) own_sums = sums + 3 * pair * walk.queries + first;
    wide_t own_sum[OWN], own_shift[OWN];
    bool far = false;
#pragma unroll
    for (int r = 0; r < OWN; r++) {
        const int row = slip_row(r);
        const int64_t at = (int64_t)pair * walk.queries + first + row;
        wide_t found = 0;
        if (row < left) {
            found = slip_dot<DEPTH>(own_out + row * walk.out.row, grads, row, OWN_DEPTH,
                                    fits && slip_aligned<item_t>(out, 16));
        }
        found = slip_row_sum(found);
        own_sum[r] = found;
        own_shift[r] = INFINITY;
        if (row < left) {
            const wide_t largest = rows[2 * at];
            const bool away = slip_is_far(largest, scale);
            far = far || away;
            own_shift[r] = (away ? (wide_t)0 : largest * scale) + rows[2 * at + 1];
            if (threadIdx.x % LANES == 0) {
                own_sums[row] = found;
                own_sums[walk.queries + row] = own_shift[r];
                own_sums[2 * walk.queries + row] = away ? largest : (wide_t)0;
            }
        }
    }
    __syncwarp();
    far = !HALF || __any_sync(0xffffffffu, far);
    slip_tile<WIDTH> sum;
    slip_clear(sum);
    slip_tile<COLUMNS> weights, slopes;
    auto weigh = [&](int step) {
        const int column = step * COLUMNS;
        const bool edge = column + COLUMNS > all
                          || (CAUSAL && column + COLUMNS > first + 1);
        slip_scores<false>(weights, walk, own_mask, walk.mask.row, first, column, edge);
        if (far) {
#pragma unroll
            for (int r = 0; r < OWN; r++) {
                const int row = slip_row(r);
                slip_less(weights, r, row < left ? own_sums[2 * walk.queries + row] : (wide_t)0);
            }
        }
#pragma unroll
        for (int r = 0; r < OWN; r++) {
#pragma unroll
            for (int c = 0; c < slip_tile<COLUMNS>::COUNT; c++) {
                weights.at(r, c) = EXP2(FUSED(weights.at(r, c), scale, -own_shift[r]));
            }
        }
#if DROPOUT
        slip_drop<false>(weights, walk, (uint64_t)pair * walk.queries * walk.keys, first, column,
                         seed, base);
#endif
    };
    auto slope = [&]() {
#pragma unroll
        for (int r = 0; r < OWN; r++) {
#pragma unroll
            for (int c = 0; c < slip_tile<COLUMNS>::COUNT; c++) {
                slopes.at(r, c) = slip_slope(weights.at(r, c), slopes.at(r, c), own_sum[r],
                                             (wide_t)walk.spread);
            }
        }
    };
#if AHEAD
""" + AHEAD_QUERIES + r"""
#else
    for (int step = 0; step < steps; step++) {
""" + _STEP + r"""
        const int turn = step % STAGES;
        slip_products<COLUMNS, WIDTH>(weights, queries, keys + turn * COLUMNS * LINE(WIDTH));
        weigh(step);
        slip_products<COLUMNS, DEPTH>(slopes, grads, values + turn * COLUMNS * LINE(DEPTH));
        slope();
        slip_weighted<WIDTH, COLUMNS>(sum, slopes, keys + turn * COLUMNS * LINE(WIDTH), staged);
    }
#endif
    slip_scale(sum, (wide_t)walk.scale);
    slip_put<WIDTH>(result + (slip_start(walk, walk.query_grad, batch, head)
                              + first * walk.query_grad.row),
                    walk.query_grad.row, sum, left, OWN_WIDTH,
                    walk.fits && slip_aligned<item_t>(result, 16));
}
"""

# Rows are keys, columns queries: of each head of the group in turn, from the first that counts.
KEYS = r"""
#define PART (COLUMNS / BESIDE)
template <bool OF_KEY, bool OF_VALUE>
SLIP_DEVICE void slip_key_grads(SLIP_POINTER(item_t) key_grad, SLIP_POINTER(item_t) value_grad,
                                SLIP_POINTER(const item_t) grad, SLIP_POINTER(const item_t) query,
                                SLIP_POINTER(const item_t) key, SLIP_POINTER(const item_t) value,
                                SLIP_POINTER(const mask_t) mask,
                                SLIP_POINTER(const wide_t) sums, uint64_t seed, uint64_t base,
                                const slip_walk& walk) {
    const int blocks = (int)walk.blocks, heads = (int)walk.heads, group = (int)walk.group;
    const int pair = (int)blockIdx.x / blocks, key_heads = heads / group;
    const int head = pair % key_heads, batch = pair / key_heads;
    const int first = (int)blockIdx.x % blocks * ROWS;
    const int left = (int)walk.keys - first, all = (int)walk.queries;
    const int begin = CAUSAL ? first / COLUMNS * COLUMNS : 0;
    const int steps = begin < all ? (all - begin + COLUMNS - 1) / COLUMNS * group : 0;
    const bool fits = walk.fits && slip_aligned<item_t>(query, 16)
                      && slip_aligned<item_t>(key, 16) && slip_aligned<item_t>(value, 16)
                      && slip_aligned<item_t>(grad, 16);
    SLIP_POINTER(wide_t) all_sums = slip_cast<wide_t>(slip_own_shared());
    SLIP_POINTER(item_t) keys = slip_cast<item_t>(all_sums + SUMS);
    SLIP_POINTER(item_t) values = keys + ROWS * LINE(WIDTH);
    SLIP_POINTER(item_t) queries = values + ROWS * LINE(DEPTH);
    SLIP_POINTER(item_t) grads = queries + STAGES * COLUMNS * LINE(WIDTH);
    SLIP_POINTER(item_t) staged = grads + STAGES * COLUMNS * LINE(DEPTH);
    const int part = slip_part(PART);
    // The queries that come next: where they begin, and whose they are.
    int next = begin, next_head = head * group;
    auto bring = [&](int step) {
        const int at = next, rest = all - at, other = next_head, turn = step % STAGES;
        next += COLUMNS;
        if (next >= all) {
            next = begin;
            next_head++;
        }
        slip_bring<COLUMNS, WIDTH>(queries + turn * COLUMNS * LINE(WIDTH),
                                   query + (slip_start(walk, walk.query, batch, other)
                                            + at * walk.query.row),
                                   walk.query.row, rest, OWN_WIDTH, fits);
        slip_bring<COLUMNS, DEPTH>(grads + turn * COLUMNS * LINE(DEPTH),
                                   grad + (slip_start(walk, walk.grad, batch, other)
                                           + at * walk.grad.row),
                                   walk.grad.row, rest, OWN_DEPTH, fits);
        const int64_t place = (int64_t)(batch * heads + other) * 3 * walk.queries + at;
        if (threadIdx.x < COLUMNS) {
            // Queries beyond the last have no weights, as `slip_scores` sees to.
            const int i = threadIdx.x;
#pragma unroll
            for (int of = 0; of < 3; of++) {
                slip_copy_word(all_sums + ((3 * turn + of) * COLUMNS + i),
                               sums + (place + of * walk.queries + i), i < rest);
            }
        }
    };
    slip_bring<ROWS, WIDTH>(keys, key + (slip_start(walk, walk.key, batch, head)
                                         + first * walk.key.row),
                            walk.key.row, left, OWN_WIDTH, fits);
    slip_bring<ROWS, DEPTH>(values, value + (slip_start(walk, walk.value, batch, head)
                                             + first * walk.value.row),
                            walk.value.row, left, OWN_DEPTH, fits);
    if (steps) bring(0);
    const wide_t scale = slip_factor(walk);
    slip_tile<WIDTH / BESIDE> key_sum;
    slip_tile<DEPTH / BESIDE> value_sum;
    if (OF_KEY) slip_clear(key_sum);
    if (OF_VALUE) slip_clear(value_sum);
    slip_tile<PART> weights, slopes;
    int column = begin, other = head * group;
    auto weigh = [&](int step) {
        const bool edge = column + COLUMNS > all || (CAUSAL && first + ROWS > column + 1);
        slip_scores<true>(weights, walk, mask + (MASK ? slip_start(walk, walk.mask, batch, other)
                                                      : 0),
                          walk.mask.row, first, column + part, edge);
        SLIP_POINTER(wide_t) shifts = all_sums + ((3 * (step % STAGES) + 1) * COLUMNS + part);
        slip_less_each(weights, shifts + COLUMNS);
#pragma unroll
        for (int c = 0; c < slip_tile<PART>::COUNT; c++) {
            const wide_t shift = shifts[slip_column(c)];
#pragma unroll
            for (int r = 0; r < OWN; r++) {
                weights.at(r, c) = EXP2(FUSED(weights.at(r, c), scale, -shift));
            }
        }
#if DROPOUT
        slip_drop<true>(weights, walk, (uint64_t)(batch * heads + other) * walk.queries
                                       * walk.keys, first, column + part, seed, base);
#endif
        column += COLUMNS;
        if (column >= all) {
            column = begin;
            other++;
        }
    };
    auto slope = [&](int step) {
        SLIP_POINTER(wide_t) now_sums = all_sums + (3 * (step % STAGES) * COLUMNS + part);
#pragma unroll
        for (int c = 0; c < slip_tile<PART>::COUNT; c++) {
            const wide_t sum = now_sums[slip_column(c)];
#pragma unroll
            for (int r = 0; r < OWN; r++) {
                slopes.at(r, c) = slip_slope(weights.at(r, c), slopes.at(r, c), sum,
                                             (wide_t)walk.spread);
            }
        }
    };
#if AHEAD
""" + AHEAD_KEYS + r"""
#else
    for (int step = 0; step < steps; step++) {
""" + _STEP + r"""
        const int turn = step % STAGES;
        SLIP_POINTER(item_t) now_queries = queries + turn * COLUMNS * LINE(WIDTH);
        SLIP_POINTER(item_t) now_grads = grads + turn * COLUMNS * LINE(DEPTH);
        slip_begin_products<PART, WIDTH>(weights, keys, now_queries + part * LINE(WIDTH));
#if GROUPED
        slip_begin_products<PART, DEPTH>(slopes, values, now_grads + part * LINE(DEPTH));
#endif
        slip_wait<1>();
        slip_settle(weights);
        weigh(step);
        if (OF_VALUE) {
            slip_tile<PART> used = weights;
            if (DROPOUT) slip_keep_positive(used);
#if BESIDE > 1
            slip_lay<PART, COLUMNS>(staged, used);
#elif GROUPED
            slip_begin_weighted<DEPTH, COLUMNS>(value_sum, used, now_grads);
#else
            slip_weighted<DEPTH, COLUMNS>(value_sum, used, now_grads, staged);
#endif
        }
        if (OF_KEY) {
#if GROUPED
            slip_wait<1>();
            slip_settle(slopes);
#else
            slip_products<PART, DEPTH>(slopes, values, now_grads + part * LINE(DEPTH));
#endif
            slope(step);
#if BESIDE == 1
            slip_weighted<WIDTH, COLUMNS>(key_sum, slopes, now_queries, staged);
            slip_settle(value_sum);
#endif
        }
#if BESIDE > 1
        // Each warp has a part of the columns of the weights, and then one of those of the sums.
        SLIP_POINTER(item_t) other_staged = staged + ROWS * LINE(COLUMNS);
        slip_lay<PART, COLUMNS>(other_staged, slopes);
        __syncthreads();
        slip_laid_products<DEPTH / BESIDE, COLUMNS, DEPTH>(
            value_sum, staged, now_grads + slip_part(DEPTH / BESIDE));
        slip_laid_products<WIDTH / BESIDE, COLUMNS, WIDTH>(
            key_sum, other_staged, now_queries + slip_part(WIDTH / BESIDE));
#endif
    }
#endif
    if (OF_KEY) {
        slip_scale(key_sum, (wide_t)walk.scale);
        const int from = slip_part(WIDTH / BESIDE);
        slip_put<WIDTH / BESIDE>(key_grad + (slip_start(walk, walk.key_grad, batch, head)
                                             + first * walk.key_grad.row + from),
                                 walk.key_grad.row, key_sum, left, OWN_WIDTH - from,
                                 walk.fits && slip_aligned<item_t>(key_grad, 16));
    }
    if (OF_VALUE) {
        slip_scale(value_sum, (wide_t)walk.spread);
        const int from = slip_part(DEPTH / BESIDE);
        slip_put<DEPTH / BESIDE>(value_grad + (slip_start(walk, walk.value_grad, batch, head)
                                               + first * walk.value_grad.row + from),
                                 walk.value_grad.row, value_sum, left, OWN_DEPTH - from,
                                 walk.fits && slip_aligned<item_t>(value_grad, 16));
    }
}
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
slip_attention_keys(item_t* key_grad, item_t* value_grad, const item_t* grad, const item_t* query,
                    const item_t* key, const item_t* value MASKED, const wide_t* sums,
                    uint64_t seed, uint64_t base, const slip_walk walk) {
#if !MASK
    SLIP_POINTER(const mask_t) mask = slip_cast<const mask_t>(query);
#endif
#if APART
    // The sums of both would not fit the registers.
    if (blockIdx.y) {
        slip_key_grads<true, false>(key_grad, value_grad, grad, query, key, value, mask, sums,
                                    seed, base, walk);
    } else {
        slip_key_grads<false, true>(key_grad, value_grad, grad, query, key, value, mask, sums,
                                    seed, base, walk);
    }
#else
    slip_key_grads<true, true>(key_grad, value_grad, grad, query, key, value, mask, sums, seed,
                               base, walk);
#endif
}
"""
