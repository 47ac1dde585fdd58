"""Matrix instructions, and copies into shared memory that do not wait, for the kernels that ask.

m16n8k16 of 16-bit floats with sums in float32 (PTX ISA, "Warp-level matrix instructions"): lane l
of a warp holds of the left side (16 x 16) rows l / 4 and l / 4 + 8, of the right side (16 x 8)
column l / 4, of the result rows l / 4 and l / 4 + 8 and columns 2 (l % 4) and the next.  Simulated,
the lanes lay their words before each other and sum in the order of k; a card sums in an order of
its own.
"""

from __future__ import annotations

MATRIX = r"""
#ifndef SLIP_SIMULATED
SLIP_DEVICE uint32_t slip_shared_address(const void* p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}
#define SLIP_MULTIPLY(TYPE, NAME)                                                               \
    SLIP_DEVICE void slip_multiply(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0,        \
                                   uint32_t b1, TYPE) {                                         \
        asm("mma.sync.aligned.m16n8k16.row.col.f32." NAME "." NAME ".f32 "                      \
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                   \
            : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])                            \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                    \
    }
SLIP_MULTIPLY(slip_bfloat16, "bf16")
SLIP_MULTIPLY(slip_float16, "f16")
SLIP_DEVICE uint32_t slip_pair(float low, float high, slip_bfloat16) {
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}
SLIP_DEVICE uint32_t slip_pair(float low, float high, slip_float16) {
    uint32_t word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}
#define SLIP_MATRICES(NAME, TURN)                                                               \
    SLIP_DEVICE void NAME(uint32_t (&word)[4], const void* row) {                               \
        asm volatile("ldmatrix.sync.aligned.m8n8.x4" TURN ".shared.b16 {%0, %1, %2, %3}, [%4];" \
                     : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])               \
                     : "r"(slip_shared_address(row)));                                          \
    }
SLIP_MATRICES(slip_matrices, "")
SLIP_MATRICES(slip_turned_matrices, ".trans")
// The left side from rows of a tile whose lines are `step` elements apart.
template <class P> SLIP_DEVICE void slip_left(uint32_t (&word)[4], P tile, int step) {
    const int lane = threadIdx.x % 32;
    slip_matrices(word, tile + (lane % 16 * step + lane / 16 * 8));
}
// Two right sides, of columns 0 to 7 and 8 to 15.  A line of the tile is a column of them, or,
// where they lie TURNED, a row.
template <bool TURNED, class P> SLIP_DEVICE void slip_right(uint32_t (&word)[4], P tile, int step) {
    const int lane = threadIdx.x % 32, low = lane % 8, middle = lane / 8 % 2 * 8;
    const int high = lane / 16 * 8;
    if (TURNED) slip_turned_matrices(word, tile + ((low + middle) * step + high));
    else slip_matrices(word, tile + ((low + high) * step + middle));
}
// The left side where a line of the tile is a column of it.
template <class P> SLIP_DEVICE void slip_turned_left(uint32_t (&word)[4], P tile, int step) {
    const int lane = threadIdx.x % 32;
    slip_turned_matrices(word, tile + ((lane % 8 + lane / 16 * 8) * step + lane / 8 % 2 * 8));
}
// 16 bytes into shared memory, or zeros; and a word.
template <class T> SLIP_DEVICE void slip_copy_16(T* to, const T* from, bool good) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(slip_shared_address(to)), "l"(from), "r"(good ? 16 : 0) : "memory");
}
SLIP_DEVICE void slip_copy_word(float* to, const float* from, bool good) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :: "r"(slip_shared_address(to)), "l"(from), "r"(good ? 4 : 0) : "memory");
}
SLIP_DEVICE void slip_finish_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
// The copies since the last mark are a group; wait until at most so many groups are under way.
SLIP_DEVICE void slip_mark_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int GROUPS> SLIP_DEVICE void slip_wait_copies() {
    asm volatile("cp.async.wait_group %0;" :: "n"(GROUPS) : "memory");
}
// 2 to the x, within two units of the last place; what is below the least normal number is 0.
SLIP_DEVICE float slip_fast_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#else
SLIP_DEVICE float slip_half_of(uint32_t word, int e, slip_bfloat16) {
    return slip_widen_bfloat16(slip_lane<slip_bfloat16>::get(&word, e));
}
SLIP_DEVICE float slip_half_of(uint32_t word, int e, slip_float16) {
    return slip_widen_float16(slip_lane<slip_float16>::get(&word, e));
}
static uint32_t slip_laid[32][32][6];
template <class T>
SLIP_DEVICE void slip_multiply(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                               T kind) {
    const int lane = threadIdx.x % 32;
    uint32_t (&laid)[32][6] = slip_laid[threadIdx.x / 32];
    for (int i = 0; i < 4; i++) laid[lane][i] = a[i];
    laid[lane][4] = b0;
    laid[lane][5] = b1;
    __syncwarp();
    for (int e = 0; e < 4; e++) {
        const int row = lane / 4, column = lane % 4 * 2 + e % 2;
        for (int k = 0; k < 16; k++) {
            const int own = k % 8 / 2, half = k / 8;
            sum[e] += slip_half_of(laid[row * 4 + own][e / 2 + half * 2], k % 2, kind)
                      * slip_half_of(laid[column * 4 + own][4 + half], k % 2, kind);
        }
    }
    __syncwarp();
}
SLIP_DEVICE uint32_t slip_pair(float low, float high, slip_bfloat16) {
    return slip_narrow_bfloat16_f32(low).bits
           | (uint32_t)slip_narrow_bfloat16_f32(high).bits << 16;
}
SLIP_DEVICE uint32_t slip_pair(float low, float high, slip_float16) {
    return slip_narrow_float16_f32(low).bits | (uint32_t)slip_narrow_float16_f32(high).bits << 16;
}
template <class P> SLIP_DEVICE uint32_t slip_two(P first, P second) {
    return slip_load<uint16_t>(first) | (uint32_t)slip_load<uint16_t>(second) << 16;
}
template <class P> SLIP_DEVICE void slip_left(uint32_t (&word)[4], P tile, int step) {
    const int lane = threadIdx.x % 32;
    for (int i = 0; i < 4; i++) {
        const int row = lane / 4 + i % 2 * 8, k = lane % 4 * 2 + i / 2 * 8;
        word[i] = slip_two(tile + (row * step + k), tile + (row * step + k + 1));
    }
}
template <class P> SLIP_DEVICE void slip_turned_left(uint32_t (&word)[4], P tile, int step) {
    const int lane = threadIdx.x % 32;
    for (int i = 0; i < 4; i++) {
        const int row = lane / 4 + i % 2 * 8, k = lane % 4 * 2 + i / 2 * 8;
        word[i] = slip_two(tile + (k * step + row), tile + ((k + 1) * step + row));
    }
}
template <bool TURNED, class P> SLIP_DEVICE void slip_right(uint32_t (&word)[4], P tile, int step) {
    const int lane = threadIdx.x % 32;
    for (int i = 0; i < 4; i++) {
        const int column = lane / 4 + i / 2 * 8, k = lane % 4 * 2 + i % 2 * 8;
        word[i] = TURNED ? slip_two(tile + (k * step + column), tile + ((k + 1) * step + column))
                         : slip_two(tile + (column * step + k), tile + (column * step + k + 1));
    }
}
template <class P, class Q> SLIP_DEVICE void slip_copy_16(P to, Q from, bool good) {
    slip_chunk<16> chunk = {};
    if (good) chunk = slip_load<slip_chunk<16> >(from);
    slip_store<slip_chunk<16> >(to, chunk);
}
template <class P, class Q> SLIP_DEVICE void slip_copy_word(P to, Q from, bool good) {
    float word = 0;
    if (good) word = slip_load<float>(from);
    slip_store<float>(to, word);
}
SLIP_DEVICE void slip_finish_copies() {}
SLIP_DEVICE void slip_mark_copies() {}
template <int GROUPS> SLIP_DEVICE void slip_wait_copies() {}
SLIP_DEVICE float slip_fast_exp2(float x) { return exp2f(x); }
#endif
"""
