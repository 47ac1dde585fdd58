"""CUDA C++ of attention by groups of warps (sm_90) that begin products before they need them.

While a group makes the weights of a step, the matrix units have its other products to do, or those
of the other group of the block, which has the same tiles: gates, unlike barriers, let the two be
out of step (J. Shah et al., "FlashAttention-3", 2024).  The order of sums is that of other blocks.
"""

from __future__ import annotations

# The products of a step are begun before those of the weights of the step before.  With more
# values there than keys, nobody has to wait until others are through with the latest.
AHEAD_FORWARD = r"""
    slip_packed<COLUMNS> packed;
    slip_gate gate;
    slip_open(gate, staged);
    bring_keys(0);
    slip_finish_copies();
    slip_publish();
    __syncthreads();
    bring_values(0);
    if (steps > 1) bring_keys(1);
    slip_products<COLUMNS, WIDTH>(weights, queries, keys);
    soften(0);
    slip_pack(packed, weights);
    slip_arrive(gate);
    for (int step = 0; step + 1 < steps; step++) {
        slip_await(gate);
        if (step + 2 < steps) bring_keys(step + 2);
        bring_values(step + 1);
        slip_begin_products<COLUMNS, WIDTH>(
            weights, queries, keys + (step + 1) % KEY_STAGES * COLUMNS * LINE(WIDTH));
        slip_begin_packed<DEPTH>(sum, packed,
                                 values + step % VALUE_STAGES * COLUMNS * LINE(DEPTH));
        slip_wait<1>();
        slip_settle(weights);
        const bool changed = soften(step + 1);
        if (VALUE_STAGES > KEY_STAGES) slip_arrive(gate);
        slip_wait<0>();
        slip_settle(sum);
        if (changed) slip_scale_rows(sum, factor);
        slip_pack(packed, weights);
        if (VALUE_STAGES == KEY_STAGES) slip_arrive(gate);
    }
    slip_await(gate);
    slip_begin_packed<DEPTH>(sum, packed,
                             values + (steps - 1) % VALUE_STAGES * COLUMNS * LINE(DEPTH));
    slip_wait<0>();
    slip_settle(sum);
"""

# Keys are there for a step more than values: until the slopes of their scores are multiplied.
AHEAD_QUERIES = r"""
    slip_packed<COLUMNS> packed;
    slip_gate gate;
    slip_open(gate, staged);
    auto multiply = [&](int step) {
        slip_begin_products<COLUMNS, WIDTH>(weights, queries,
                                            keys + step % KEY_STAGES * COLUMNS * LINE(WIDTH));
        slip_begin_products<COLUMNS, DEPTH>(slopes, grads,
                                            values + step % VALUE_STAGES * COLUMNS * LINE(DEPTH));
        slip_wait<1>();
        slip_settle(weights);
        weigh(step);
        slip_wait<0>();
        slip_settle(slopes);
    };
    auto add = [&](int step) {
        slip_begin_packed<WIDTH>(sum, packed, keys + step % KEY_STAGES * COLUMNS * LINE(WIDTH));
    };
    __syncthreads();
    if (steps > 1) bring(1);
    multiply(0);
    slip_arrive(gate);
    slope();
    slip_pack(packed, slopes);
    for (int step = 0; step + 1 < steps; step++) {
        add(step);
        slip_await(gate);
        if (step + 2 < steps) bring(step + 2);
        multiply(step + 1);
        slip_settle(sum);
        slip_arrive(gate);
        slope();
        slip_pack(packed, slopes);
    }
    add(steps - 1);
    slip_wait<0>();
    slip_settle(sum);
"""

# Of four steps that are there one is computed with, another waits for its last product, a third is
# on its way; the other group may still be at the one before.
AHEAD_KEYS = r"""
    slip_packed<COLUMNS> packed_weights, packed_slopes;
    slip_gate gate;
    slip_open(gate, staged);
    auto add_values = [&](int step) {
        slip_begin_packed<DEPTH>(value_sum, packed_weights,
                                 grads + step % STAGES * COLUMNS * LINE(DEPTH));
    };
    auto add_keys = [&](int step) {
        slip_begin_packed<WIDTH>(key_sum, packed_slopes,
                                 queries + step % STAGES * COLUMNS * LINE(WIDTH));
    };
    auto multiply = [&](int step) {
        slip_begin_products<COLUMNS, WIDTH>(weights, keys,
                                            queries + step % STAGES * COLUMNS * LINE(WIDTH));
        slip_begin_products<COLUMNS, DEPTH>(slopes, values,
                                            grads + step % STAGES * COLUMNS * LINE(DEPTH));
    };
    auto pack = [&]() {
        slip_pack(packed_slopes, slopes);
        if (DROPOUT) slip_keep_positive(weights);
        slip_pack(packed_weights, weights);
    };
    if (steps) {
        slip_finish_copies();
        slip_publish();
        __syncthreads();
        if (steps > 1) bring(1);
        multiply(0);
        slip_wait<0>();
        slip_settle(weights);
        slip_settle(slopes);
        weigh(0);
        slope(0);
        pack();
        slip_arrive(gate);
    }
    for (int step = 0; step + 1 < steps; step++) {
        add_values(step);
        slip_await(gate);
        if (step + 2 < steps) bring(step + 2);
        multiply(step + 1);
        add_keys(step);
        slip_wait<2>();
        slip_settle(weights);
        weigh(step + 1);
        slip_wait<1>();
        slip_settle(slopes);
        slip_arrive(gate);
        slope(step + 1);
        slip_wait<0>();
        slip_settle(value_sum);
        slip_settle(key_sum);
        pack();
    }
    if (steps) {
        add_values(steps - 1);
        add_keys(steps - 1);
        slip_wait<0>();
        slip_settle(value_sum);
        slip_settle(key_sum);
    }
"""
