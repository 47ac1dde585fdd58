"""CUDA C++ of the kernels that draw; the formulas are those of `kernels.cpu.philox`.

Every operation is rounded by itself, so that NumPy, C and CUDA give the same bits.
"""

from __future__ import annotations

GENERAL = r"""
SLIP_DEVICE float slip_log_of(float u) {
    const int32_t bits = __float_as_int(u), e = (bits - 0x3F3504F3) >> 23;
    const float f = __int_as_float((int32_t)((uint32_t)bits - ((uint32_t)e << 23))) - 1.0f;
    const float k = (float)e, s = f / (2.0f + f), z = s * s;
    float t = (float)(2.0 / 9);
    t = t * z + (float)(2.0 / 7);
    t = t * z + (float)(2.0 / 5);
    t = (t * z + (float)(2.0 / 3)) * z;
    return k * 0.693145751953125f + (k * (float)1.4286068203094172e-06 + (s * t + s * 2.0f));
}
SLIP_DEVICE double slip_log_of(double u) {
    const int64_t bits = __double_as_longlong(u), e = (bits - 0x3FE6A09E667F3BCDll) >> 52;
    const double f = __longlong_as_double(bits - e * 0x10000000000000ll) - 1.0, k = (double)e;
    const double s = f / (2.0 + f), z = s * s;
    double t = 2.0 / 21;
    t = t * z + 2.0 / 19;
    t = t * z + 2.0 / 17;
    t = t * z + 2.0 / 15;
    t = t * z + 2.0 / 13;
    t = t * z + 2.0 / 11;
    t = t * z + 2.0 / 9;
    t = t * z + 2.0 / 7;
    t = t * z + 2.0 / 5;
    t = (t * z + 2.0 / 3) * z;
    return k * 0.6931471803691238 + (k * 1.9082149292705877e-10 + (s * t + s * 2.0));
}
SLIP_DEVICE float slip_sine_of(float x) {
    const float z = x * x;
    float t = (float)(1.0 / 362880);
    t = t * z + (float)(-1.0 / 5040);
    t = t * z + (float)(1.0 / 120);
    t = t * z + (float)(-1.0 / 6);
    return x + x * (t * z);
}
SLIP_DEVICE float slip_cosine_of(float x) {
    const float z = x * x;
    float t = (float)(-1.0 / 3628800);
    t = t * z + (float)(1.0 / 40320);
    t = t * z + (float)(-1.0 / 720);
    t = t * z + (float)(1.0 / 24);
    t = t * z + (float)(-1.0 / 2);
    return t * z + 1.0f;
}
SLIP_DEVICE double slip_sine_of(double x) {
    const double z = x * x;
    double t = 1.0 / 355687428096000.0;
    t = t * z + -1.0 / 1307674368000.0;
    t = t * z + 1.0 / 6227020800.0;
    t = t * z + -1.0 / 39916800;
    t = t * z + 1.0 / 362880;
    t = t * z + -1.0 / 5040;
    t = t * z + 1.0 / 120;
    t = t * z + -1.0 / 6;
    return x + x * (t * z);
}
SLIP_DEVICE double slip_cosine_of(double x) {
    const double z = x * x;
    double t = 1.0 / 20922789888000.0;
    t = t * z + -1.0 / 87178291200.0;
    t = t * z + 1.0 / 479001600;
    t = t * z + -1.0 / 3628800;
    t = t * z + 1.0 / 40320;
    t = t * z + -1.0 / 720;
    t = t * z + 1.0 / 24;
    t = t * z + -1.0 / 2;
    return t * z + 1.0;
}
// 2 pi / 2**32, the second factor exactly.
#define SLIP_ANGLE (2.0 * 3.141592653589793 * 2.3283064365386963e-10)

// The 53 bits of two words; `last`: a bit that is set.
SLIP_DEVICE double slip_bits53(const uint32_t* word, uint32_t last) {
    return (double)(int32_t)(word[0] >> 5) * 67108864.0 + (double)(int32_t)(word[1] >> 6 | last);
}
SLIP_DEVICE double slip_unit53(const uint32_t* word) {
    return slip_bits53(word, 0) * 1.1102230246251565e-16;
}
SLIP_DEVICE double slip_clock53(const uint32_t* word) {
    return slip_log_of(slip_bits53(word, 1) * 1.1102230246251565e-16);
}
// Box and Muller: two words make two float32, four words two float64.
SLIP_DEVICE void slip_normal_pair(const uint32_t* word, float* value) {
    const uint32_t quadrant = (word[1] + 0x20000000u) >> 30;
    const float u = (float)(int32_t)(word[0] >> 1) * 4.656612873077393e-10f
                    + 2.3283064365386963e-10f;
    const float x = (float)(int32_t)(word[1] - (quadrant << 30)) * (float)SLIP_ANGLE;
    const float r = sqrtf(slip_log_of(u) * -2.0f), s = slip_sine_of(x), c = slip_cosine_of(x);
    const float sine = quadrant & 1 ? c : s, cosine = quadrant & 1 ? s : c;
    value[0] = r * ((quadrant + 1) & 2 ? -cosine : cosine);
    value[1] = r * (quadrant & 2 ? -sine : sine);
}
SLIP_DEVICE void slip_normal_pair(const uint32_t* word, double* value) {
    const uint32_t quadrant = (word[2] + 0x20000000u) >> 30;
    const double u = (slip_bits53(word, 0) + 0.5) * 1.1102230246251565e-16;
    const double fraction = (double)(int32_t)(word[3] >> 1) * 4.656612873077393e-10;
    const double x = ((double)(int32_t)(word[2] - (quadrant << 30)) + fraction) * SLIP_ANGLE;
    const double r = sqrt(slip_log_of(u) * -2.0), s = slip_sine_of(x), c = slip_cosine_of(x);
    const double sine = quadrant & 1 ? c : s, cosine = quadrant & 1 ? s : c;
    value[0] = r * ((quadrant + 1) & 2 ? -cosine : cosine);
    value[1] = r * (quadrant & 2 ? -sine : sine);
}
"""

FILL = r"""
struct slip_walk { int64_t counters, numel, shape[RANK], divider[RANK], strides[RANK]; };
extern "C" __global__ void slip_LAW(item_t* out UNREAD, uint64_t seed, uint64_t base, NUMBERS,
                                    const slip_walk walk) {
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= walk.counters) return;
    const slip_four four = slip_philox(base + (uint64_t)at, seed);
    const uint32_t* word = four.word;
#if defined(UNIFORM32) || defined(UNIFORM64)
    const wide_t start = (wide_t)n0, span = (wide_t)n1, last = (wide_t)n2;
#elif defined(NORMAL32) || defined(NORMAL64) || defined(EXPONENTIAL32) || defined(EXPONENTIAL64)
    const wide_t first = (wide_t)n0, second = (wide_t)n1;
#endif
#if defined(NORMAL32) || defined(NORMAL64)
    wide_t pairs[EACH];
    for (int e = 0; e < EACH; e += 2) slip_normal_pair(word + e, pairs + e);
#endif
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const int64_t place = at * EACH + e;
        if (place >= walk.numel) return;
#if defined(UNIFORM32)
        const float unit = (float)(int32_t)(word[e] >> 8) * 5.9604644775390625e-08f;
        const float spread = unit * span + start;
        const float value = spread < last ? spread : last;
#elif defined(UNIFORM64)
        const double spread = slip_unit53(word + 2 * e) * span + start;
        const double value = spread < last ? spread : last;
#elif defined(NORMAL32) || defined(NORMAL64)
        const wide_t value = pairs[e] * second + first;
#elif defined(EXPONENTIAL32)
        const float odd = (float)(int32_t)(word[e] >> 8 | 1u);
        const float value = slip_log_of(odd * 5.9604644775390625e-08f) * first;
#elif defined(EXPONENTIAL64)
        const double value = slip_clock53(word + 2 * e) * first;
#elif defined(INTEGERS32)
        // floor(x * size / 2**64); size 0 stands for 2**64.
        const uint64_t x = (uint64_t)word[2 * e] << 32 | word[2 * e + 1];
        const uint64_t value = (n1 ? __umul64hi(x, n1) : x) + n0;
#else
        const uint64_t value = (uint64_t)word[e] < n0;
#endif
        int64_t to = 0;
        place_t left = (place_t)place;
#pragma unroll
        for (int d = RANK - 1; d >= 0; d--) {
            to += (int64_t)slip_take(left, walk.shape[d], walk.divider[d]) * walk.strides[d];
        }
        out[to] = STORED(value);
    }
}
"""

BERNOULLI = r"""
struct slip_walk {
    int64_t counters, numel, slot, tag;
    int64_t shape[RANK], divider[RANK], strides[RANK], chances[RANK];
};
extern "C" __global__ void slip_bernoulli_each(item_t* out UNREAD, const chance_t* chances,
                                               uint64_t seed, uint64_t base,
                                               const slip_walk walk) {
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= walk.counters) return;
    const slip_four four = slip_philox(base + (uint64_t)at, seed);
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const int64_t place = at * EACH + e;
        if (place >= walk.numel) return;
        int64_t to = 0, from = 0;
        place_t left = (place_t)place;
#pragma unroll
        for (int d = RANK - 1; d >= 0; d--) {
            const int64_t c = slip_take(left, walk.shape[d], walk.divider[d]);
            to += c * walk.strides[d];
            from += c * walk.chances[d];
        }
        const chance_t given = chances[from];
        const double chance = WIDENED(given);
        const bool good = chance >= 0 && chance <= 1;
        if (!good) slip_index_error(walk.slot, walk.tag, place, -1, 1);
        const uint64_t value = good && (double)four.word[e] < rint(chance * 4294967296.0);
        out[to] = STORED(value);
    }
}
"""

KEYS = r"""
struct slip_span { int64_t counters, numel; };
extern "C" __global__ void slip_random_keys(uint64_t* keys, uint64_t seed, uint64_t base,
                                            const slip_span span) {
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= span.counters) return;
    const slip_four four = slip_philox(base + (uint64_t)at, seed);
    keys[2 * at] = (uint64_t)four.word[0] << 32 | four.word[1];
    if (2 * at + 1 < span.numel) keys[2 * at + 1] = (uint64_t)four.word[2] << 32 | four.word[3];
}
"""

_WEIGHTS = r"""
struct slip_rows {
    int64_t numel, slot, tag, rows, classes, drawn, row, column, out_row, out_column;
};
"""

# The sums of each row's weights up to each class, one after another; a thread a row.
SUMS = _WEIGHTS + r"""
extern "C" __global__ void slip_weight_sums(double* sums, const item_t* weights, uint64_t seed,
                                            uint64_t base, const slip_rows rows) {
    const int64_t r = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows.numel) return;
    double sum = 0;
    bool good = true;
    for (int64_t c = 0; c < rows.classes; c++) {
        const item_t given = weights[r * rows.row + c * rows.column];
        const double weight = WIDENED(given);
        good = good && weight >= 0 && isfinite(weight);
        sum = c ? sum + weight : weight;
        sums[r * rows.classes + c] = sum;
    }
    if (!good || !(sum > 0) || isinf(sum)) {
        const int fault = !good ? -1 : sum > 0 ? -4 : -2;
        slip_index_error(rows.slot, rows.tag, r, fault, rows.classes);
    }
}
"""
# The first class whose sum is above a uniform share of the row's sum; a thread two draws.
PICK = _WEIGHTS + r"""
extern "C" __global__ void slip_pick(int64_t* out, const double* sums, uint64_t seed,
                                     uint64_t base, const slip_rows rows) {
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= rows.numel) return;
    const slip_four four = slip_philox(base + (uint64_t)at, seed);
    for (int e = 0; e < 2; e++) {
        const int64_t place = 2 * at + e, r = place / rows.drawn, c = place % rows.drawn;
        if (r >= rows.rows) return;
        const double total = sums[r * rows.classes + rows.classes - 1];
        const double share = slip_unit53(four.word + 2 * e) * total;
        int64_t low = 0, high = rows.classes;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            const double sum = sums[r * rows.classes + middle];
            // A share that is rounded up to the sum falls to the first class that reaches it.
            if (share < total ? sum <= share : sum < total) low = middle + 1;
            else high = middle;
        }
        out[r * rows.out_row + c * rows.out_column] = low < rows.classes ? low : 0;
    }
}
"""
# An exponential clock for each class, whose rate is its weight; a thread two classes.
CLOCKS = _WEIGHTS + r"""
extern "C" __global__ void slip_clocks(double* times, const item_t* weights, uint64_t seed,
                                       uint64_t base, const slip_rows rows) {
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= rows.numel) return;
    const slip_four four = slip_philox(base + (uint64_t)at, seed);
    for (int e = 0; e < 2; e++) {
        const int64_t place = 2 * at + e, r = place / rows.classes, c = place % rows.classes;
        if (r >= rows.rows) return;
        const item_t given = weights[r * rows.row + c * rows.column];
        const double weight = WIDENED(given);
        const bool good = weight >= 0 && isfinite(weight);
        if (!good) slip_index_error(rows.slot, rows.tag, r, -1, rows.classes);
        const double clock = slip_clock53(four.word + 2 * e) * -1.0;
#if LOGARITHMS
        const double time = log(clock) - log(weight);
#else
        const double time = clock / weight;
#endif
        times[place] = good && weight > 0 ? time : (double)INFINITY;
    }
}
"""
# The classes whose clocks ring first; of equal times the first class.
FINISH = _WEIGHTS + r"""
extern "C" __global__ void slip_first_clocks(int64_t* out, const double* times, uint64_t seed,
                                             uint64_t base, const slip_rows rows) {
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= rows.numel) return;
    const int64_t r = at / rows.classes, c = at % rows.classes;
    const double own = times[at];
    int64_t rank = 0;
    for (int64_t j = 0; j < rows.classes && rank < rows.drawn; j++) {
        const double other = times[r * rows.classes + j];
        rank += other < own || (other == own && j < c);
    }
    if (rank >= rows.drawn) return;
    // A class of weight 0 never rings: there were too few to draw from.
    if (isinf(own)) slip_index_error(rows.slot, rows.tag, r, -3, rows.classes);
    out[r * rows.out_row + rank * rows.out_column] = c;
}
"""
