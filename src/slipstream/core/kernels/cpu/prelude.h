/* What the printed loops stand on: types, arithmetic that C leaves out or leaves undefined, float32
   functions that the compiler can vectorise, and conversions of the stored types.

   Nothing here is undefined for any bit pattern, and no result depends on the width of vectors.
   The file is compiled once for each instruction set, so everything is static. */
#ifndef SLIP_PRELUDE_H
#define SLIP_PRELUDE_H

#include <complex.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Operands may be the very same memory, element for element, but never overlap otherwise: that is
   less than restrict promises, and all that a vectoriser needs to know. */
#if defined(__clang__)
#define SLIP_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define SLIP_INDEPENDENT _Pragma("GCC ivdep")
#else
#define SLIP_INDEPENDENT
#endif

#if defined(__GNUC__)
#define SLIP_INLINE static inline __attribute__((always_inline, unused))
#else
#define SLIP_INLINE static inline
#endif

typedef struct { float re, im; } slip_c64;
typedef struct { double re, im; } slip_c128;

/* ---- bits ---- */

SLIP_INLINE uint32_t slip_bits32(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }
SLIP_INLINE float slip_float32(uint32_t u) { float x; memcpy(&x, &u, 4); return x; }
SLIP_INLINE uint64_t slip_bits64(double x) { uint64_t u; memcpy(&u, &x, 8); return u; }
SLIP_INLINE double slip_float64(uint64_t u) { double x; memcpy(&x, &u, 8); return x; }

/* -x, which the compiler does not see through. */
SLIP_INLINE float slip_flip_f32(float x) { return slip_float32(slip_bits32(x) ^ 0x80000000u); }
SLIP_INLINE double slip_flip_f64(double x) {
    return slip_float64(slip_bits64(x) ^ 0x8000000000000000u);
}

/* ---- float32 functions: within 2 ulp; inf, nan, zeros and subnormals as in C99 ---- */

#define SLIP_SHIFTER 12582912.0f /* 1.5 * 2**23: adding it rounds to the nearest integer */
#define SLIP_LOG2E 1.44269504f
#define SLIP_LN2_HIGH 0.693145752f
#define SLIP_LN2_LOW 1.42860677e-6f

/* 2**n for -126 <= n <= 127, n held in the low bits of SLIP_SHIFTER + n. */
SLIP_INLINE float slip_power_of_two(uint32_t n) { return slip_float32((n + 127u) << 23); }

/* exp(r) - 1 - r over r * r, for |r| <= ln 2 / 2. */
SLIP_INLINE float slip_exp_tail(float r) {
    float q = fmaf(1.990162418e-4f, r, 1.399106928e-3f);
    q = fmaf(q, r, 8.333296515e-3f);
    q = fmaf(q, r, 4.166553915e-2f);
    q = fmaf(q, r, 1.666666716e-1f);
    return fmaf(q, r, 5.000000596e-1f);
}

/* exp(x) = 2**n * exp(r); the power is applied in two halves, so that one rounding is left even
   where the result is subnormal. */
SLIP_INLINE float slip_exp_f32(float x) {
    x = x > 89.0f ? 89.0f : x;
    x = x < -104.0f ? -104.0f : x;
    const float shifted = fmaf(x, SLIP_LOG2E, SLIP_SHIFTER);
    const float whole = shifted - SLIP_SHIFTER;
    float r = fmaf(whole, -SLIP_LN2_HIGH, x);
    r = fmaf(whole, -SLIP_LN2_LOW, r);
    const float p = 1.0f + fmaf(slip_exp_tail(r), r * r, r);
    const uint32_t n = slip_bits32(shifted) - slip_bits32(SLIP_SHIFTER);
    const uint32_t half = (uint32_t)((int32_t)n >> 1);
    return p * slip_power_of_two(half) * slip_power_of_two(n - half);
}

/* exp(x) - 1 = 2**n * (exp(r) - 1) + (2**n - 1), the first term kept as head + tail. */
SLIP_INLINE float slip_expm1_f32(float x) {
    const float limited = x > 89.0f ? 89.0f : (x < -20.0f ? -20.0f : x);
    const float shifted = fmaf(limited, SLIP_LOG2E, SLIP_SHIFTER);
    const float whole = shifted - SLIP_SHIFTER;
    const float high = fmaf(whole, -SLIP_LN2_HIGH, limited);
    const float r = fmaf(whole, -SLIP_LN2_LOW, high);
    const float lost = fmaf(whole, -SLIP_LN2_LOW, high - r);
    const float tail = fmaf(slip_exp_tail(r), r * r, lost);
    const uint32_t n = slip_bits32(shifted) - slip_bits32(SLIP_SHIFTER);
    const uint32_t half = (uint32_t)((int32_t)n >> 1);
    const float a = slip_power_of_two(half), b = slip_power_of_two(n - half);
    const float offset = a - 1.0f / b; /* (2**n - 1) / b */
    const float head = fmaf(a, r, offset);
    const float error = fmaf(a, r, offset - head);
    const float y = (head + fmaf(a, tail, error)) * b;
    return x == 0.0f || shifted == SLIP_SHIFTER ? (x == 0.0f ? x : r + tail) : y;
}

/* log(1 + f) + e * ln 2 for sqrt(1/2) - 1 <= f <= sqrt(2) - 1. */
SLIP_INLINE float slip_log_parts(float f, float e) {
    float p = fmaf(6.832298636e-2f, f, -1.263918579e-1f);
    p = fmaf(p, f, 1.236412898e-1f);
    p = fmaf(p, f, -1.226802394e-1f);
    p = fmaf(p, f, 1.413574219e-1f);
    p = fmaf(p, f, -1.667349637e-1f);
    p = fmaf(p, f, 2.000654340e-1f);
    p = fmaf(p, f, -2.499995381e-1f);
    p = fmaf(p, f, 3.333324492e-1f);
    const float square = f * f;
    float y = fmaf(p, f * square, e * SLIP_LN2_LOW);
    y = fmaf(-0.5f, square, y);
    return fmaf(e, SLIP_LN2_HIGH, f + y);
}

/* u = m * 2**e with m between sqrt(1/2) and sqrt(2); returns m and gives e. */
SLIP_INLINE float slip_split(float u, float *e) {
    const uint32_t moved = slip_bits32(u) - 0x3f3504f3u;
    *e = (float)((int32_t)moved >> 23);
    return slip_float32((moved & 0x007fffffu) + 0x3f3504f3u);
}

/* The result y where 0 < x < inf, else what log gives. */
SLIP_INLINE float slip_log_edges(float x, float y) {
    y = x == INFINITY ? x : y;
    y = x == 0.0f ? -INFINITY : y;
    return x >= 0.0f ? y : NAN;
}

SLIP_INLINE float slip_log_f32(float x) {
    const bool small = x < FLT_MIN;
    float e;
    const float m = slip_split(small ? x * 8388608.0f : x, &e);
    return slip_log_edges(x, slip_log_parts(m - 1.0f, small ? e - 23.0f : e));
}

/* log(1 + x): what 1 + x loses is put back, scaled like the mantissa. */
SLIP_INLINE float slip_log1p_f32(float x) {
    const float u = 1.0f + x;
    const float virtual_x = u - 1.0f;
    const float lost = (1.0f - (u - virtual_x)) + (x - virtual_x);
    float e;
    const float m = slip_split(u, &e);
    const float ratio = e > 60.0f ? 0.0f : m / u;
    const float y = slip_log_edges(u, slip_log_parts(fmaf(lost, ratio, m - 1.0f), e));
    return fabsf(x) < 1e-20f ? x : y;
}

/* tanh(x) = 1 - 2 / (exp(2x) + 1), and an odd polynomial where that would cancel. */
SLIP_INLINE float slip_tanh_f32(float x) {
    const float a = fabsf(x), s = x * x;
    float p = fmaf(2.130901907e-3f, s, -8.165032603e-3f);
    p = fmaf(p, s, 2.169607021e-2f);
    p = fmaf(p, s, -5.394599214e-2f);
    p = fmaf(p, s, 1.333319992e-1f);
    p = fmaf(p, s, -3.333333135e-1f);
    const float small = fmaf(p, s * x, x);
    const float large = 1.0f - 2.0f / (slip_exp_f32(2.0f * a) + 1.0f);
    /* A product of zeros would lose the sign of -0. */
    return copysignf(a < 0.6f ? small : large, x);
}

/* erf(x) = 1 - exp(-u(|x|)), and an odd polynomial below 0.9. */
SLIP_INLINE float slip_erf_f32(float x) {
    const float a = fabsf(x), s = x * x;
    float p = fmaf(8.513102512e-5f, s, -8.175639086e-4f);
    p = fmaf(p, s, 5.203858949e-3f);
    p = fmaf(p, s, -2.686050907e-2f);
    p = fmaf(p, s, 1.128371507e-1f);
    p = fmaf(p, s, -3.761263490e-1f);
    p = fmaf(p, s, 1.283791661e-1f);
    const float small = fmaf(p, x, x);
    const float b = a > 4.0f ? 4.0f : a;
    float u = fmaf(2.082861829e-5f, b, -4.313935642e-4f);
    u = fmaf(u, b, 4.156254698e-3f);
    u = fmaf(u, b, -2.508061565e-2f);
    u = fmaf(u, b, 1.082203835e-1f);
    u = fmaf(u, b, 6.334008574e-1f);
    u = fmaf(u, b, 1.129488349e+0f);
    u = fmaf(u, b, -1.692051301e-4f);
    const float large = copysignf(1.0f - slip_exp_f32(-u), x);
    return a < 0.9f ? small : (x == x ? large : x);
}

/* The names that the table of primitives uses now mean ours. */
#define expf slip_exp_f32
#define expm1f slip_expm1_f32
#define logf slip_log_f32
#define log1pf slip_log1p_f32
#define tanhf slip_tanh_f32
#define erff slip_erf_f32

/* ---- division as Python means it, and integer powers ---- */

#define SLIP_FLOAT_DIVISION(CLS, T, FMOD, FLOOR, COPYSIGN)                                      \
    SLIP_INLINE T slip_remainder_##CLS(T a, T b) {                                              \
        const T r = FMOD(a, b);                                                                 \
        /* A remainder of zero has the dividend's sign. */                                      \
        if (b == 0 || r == 0 || r != r) return r;                                               \
        return (r < 0) != (b < 0) ? r + b : r;                                                  \
    }                                                                                           \
    SLIP_INLINE T slip_floor_divide_##CLS(T a, T b) {                                           \
        if (b == 0) return a / b;                                                               \
        const T r = FMOD(a, b);                                                                 \
        T q = (a - r) / b; /* a whole number but for rounding */                                \
        if (r != 0 && (r < 0) != (b < 0)) q -= 1;                                               \
        if (q == 0) return COPYSIGN((T)0, a / b);                                               \
        const T whole = FLOOR(q);                                                               \
        return q - whole > (T)0.5 ? whole + 1 : whole;                                          \
    }
SLIP_FLOAT_DIVISION(f32, float, fmodf, floorf, copysignf)
SLIP_FLOAT_DIVISION(f64, double, fmod, floor, copysign)

SLIP_INLINE int64_t slip_negate(int64_t a) { return (int64_t)(0 - (uint64_t)a); }

SLIP_INLINE int64_t slip_trunc_divide_i64(int64_t a, int64_t b) {
    return b == 0 ? 0 : (b == -1 ? slip_negate(a) : a / b);
}

SLIP_INLINE int64_t slip_fmod_i64(int64_t a, int64_t b) {
    return b == 0 || b == -1 ? 0 : a % b;
}

SLIP_INLINE int64_t slip_remainder_i64(int64_t a, int64_t b) {
    const int64_t r = slip_fmod_i64(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

SLIP_INLINE int64_t slip_floor_divide_i64(int64_t a, int64_t b) {
    const int64_t q = slip_trunc_divide_i64(a, b);
    const int64_t r = slip_fmod_i64(a, b);
    return r != 0 && (r < 0) != (b < 0) ? q - 1 : q;
}

/* 1 / a**n for n > 0 is 1 or -1 for a = 1 and -1, and is taken as 0 for every other a. */
SLIP_INLINE int64_t slip_pow_i64(int64_t a, int64_t n) {
    if (n < 0) return a == 1 ? 1 : (a == -1 ? ((n & 1) ? -1 : 1) : 0);
    uint64_t base = (uint64_t)a, result = 1;
    for (; n; n >>= 1) {
        result *= (n & 1) ? base : 1;
        base *= base;
    }
    return (int64_t)result;
}

/* ---- complex numbers; the functions compute in double ---- */

#define SLIP_COMPLEX(CLS, T, R, REAL, HYPOT, FABS)                                              \
    SLIP_INLINE T slip_make_##CLS(R re, R im) { T z; z.re = re; z.im = im; return z; }          \
    SLIP_INLINE T slip_add_##CLS(T a, T b) { return slip_make_##CLS(a.re + b.re, a.im + b.im); } \
    SLIP_INLINE T slip_sub_##CLS(T a, T b) { return slip_make_##CLS(a.re - b.re, a.im - b.im); } \
    /* Both parts are differences: GCC 12 contracts a sum beside a difference, asked or not. */  \
    SLIP_INLINE T slip_mul_##CLS(T a, T b) {                                                    \
        const R flipped = slip_flip_##REAL(a.im);                                               \
        return slip_make_##CLS(a.re * b.re - a.im * b.im, a.re * b.im - flipped * b.re);        \
    }                                                                                           \
    /* Smith's division: scaled by the larger part of b, so that b * conj(b) cannot overflow. */ \
    SLIP_INLINE T slip_div_##CLS(T a, T b) {                                                    \
        if (b.re == 0 && b.im == 0) return slip_make_##CLS(a.re / FABS(b.re), a.im / FABS(b.re)); \
        if (FABS(b.re) >= FABS(b.im)) {                                                         \
            const R ratio = b.im / b.re, scale = (R)1 / (b.re + b.im * ratio);                  \
            return slip_make_##CLS((a.re - slip_flip_##REAL(a.im) * ratio) * scale,             \
                                   (a.im - a.re * ratio) * scale);                              \
        }                                                                                       \
        const R ratio = b.re / b.im, scale = (R)1 / (b.re * ratio + b.im);                      \
        return slip_make_##CLS((a.re * ratio - slip_flip_##REAL(a.im)) * scale,                 \
                               (a.im * ratio - a.re) * scale);                                  \
    }                                                                                           \
    SLIP_INLINE T slip_neg_##CLS(T a) { return slip_make_##CLS(-a.re, -a.im); }                 \
    SLIP_INLINE T slip_conj_##CLS(T a) { return slip_make_##CLS(a.re, -a.im); }                 \
    SLIP_INLINE R slip_real_##CLS(T a) { return a.re; }                                         \
    SLIP_INLINE R slip_imag_##CLS(T a) { return a.im; }                                         \
    SLIP_INLINE R slip_abs_##CLS(T a) { return HYPOT(a.re, a.im); }                             \
    SLIP_INLINE bool slip_eq_##CLS(T a, T b) { return (a.re == b.re) & (a.im == b.im); }        \
    SLIP_INLINE bool slip_ne_##CLS(T a, T b) { return (a.re != b.re) | (a.im != b.im); }        \
    SLIP_INLINE bool slip_isnan_##CLS(T a) { return (a.re != a.re) | (a.im != a.im); }          \
    SLIP_INLINE bool slip_isinf_##CLS(T a) { return isinf(a.re) || isinf(a.im); }               \
    SLIP_INLINE bool slip_isfinite_##CLS(T a) { return isfinite(a.re) && isfinite(a.im); }      \
    SLIP_INLINE bool slip_cast_b1_##CLS(T a) { return (a.re != 0) | (a.im != 0); }              \
    SLIP_INLINE float slip_cast_f32_##CLS(T a) { return (float)a.re; }                          \
    SLIP_INLINE double slip_cast_f64_##CLS(T a) { return (double)a.re; }                        \
    SLIP_INLINE T slip_cast_##CLS##_b1(bool a) { return slip_make_##CLS((R)a, 0); }             \
    SLIP_INLINE T slip_cast_##CLS##_i64(int64_t a) { return slip_make_##CLS((R)a, 0); }         \
    SLIP_INLINE T slip_cast_##CLS##_f32(float a) { return slip_make_##CLS((R)a, 0); }           \
    SLIP_INLINE T slip_cast_##CLS##_f64(double a) { return slip_make_##CLS((R)a, 0); }
SLIP_COMPLEX(c64, slip_c64, float, f32, hypotf, fabsf)
SLIP_COMPLEX(c128, slip_c128, double, f64, hypot, fabs)

SLIP_INLINE slip_c128 slip_cast_c128_c64(slip_c64 a) { return slip_make_c128(a.re, a.im); }
SLIP_INLINE slip_c64 slip_cast_c64_c128(slip_c128 a) {
    return slip_make_c64((float)a.re, (float)a.im);
}

/* C99's own complex type, only for calls of the library. */
SLIP_INLINE double _Complex slip_to_library(slip_c128 a) {
    double _Complex z;
    memcpy(&z, &a, sizeof z);
    return z;
}
SLIP_INLINE slip_c128 slip_from_library(double _Complex z) {
    slip_c128 a;
    memcpy(&a, &z, sizeof a);
    return a;
}

#define SLIP_COMPLEX_FUNCTION(NAME, CALL)                                                       \
    SLIP_INLINE slip_c128 slip_##NAME##_c128(slip_c128 a) {                                     \
        return slip_from_library(CALL(slip_to_library(a)));                                     \
    }                                                                                           \
    SLIP_INLINE slip_c64 slip_##NAME##_c64(slip_c64 a) {                                        \
        return slip_cast_c64_c128(slip_##NAME##_c128(slip_cast_c128_c64(a)));                   \
    }
SLIP_COMPLEX_FUNCTION(exp, cexp)
SLIP_COMPLEX_FUNCTION(log, clog)
SLIP_COMPLEX_FUNCTION(sqrt, csqrt)
SLIP_COMPLEX_FUNCTION(sin, csin)
SLIP_COMPLEX_FUNCTION(cos, ccos)
SLIP_COMPLEX_FUNCTION(tan, ctan)
SLIP_COMPLEX_FUNCTION(tanh, ctanh)

SLIP_INLINE slip_c128 slip_whole_power_c128(slip_c128 a, int n) {
    slip_c128 result = slip_make_c128(1, 0);
    for (unsigned left = (unsigned)(n < 0 ? -n : n); left; left >>= 1) {
        result = left & 1 ? slip_mul_c128(result, a) : result;
        a = slip_mul_c128(a, a);
    }
    return n < 0 ? slip_div_c128(slip_make_c128(1, 0), result) : result;
}

/* Small whole exponents multiply: exact where the parts are whole numbers. */
SLIP_INLINE slip_c128 slip_pow_c128(slip_c128 a, slip_c128 b) {
    if (b.re == 0 && b.im == 0) return slip_make_c128(1, 0);
    if (a.re == 0 && a.im == 0) {
        return b.re > 0 && b.im == 0 ? slip_make_c128(0, 0) : slip_make_c128(NAN, NAN);
    }
    if (b.im == 0 && fabs(b.re) < 100 && b.re == trunc(b.re)) {
        return slip_whole_power_c128(a, (int)b.re);
    }
    return slip_from_library(cpow(slip_to_library(a), slip_to_library(b)));
}
SLIP_INLINE slip_c64 slip_pow_c64(slip_c64 a, slip_c64 b) {
    return slip_cast_c64_c128(slip_pow_c128(slip_cast_c128_c64(a), slip_cast_c128_c64(b)));
}

/* ---- sums that carry what every addition loses (Knuth's two-sum) ---- */

SLIP_INLINE void slip_carry_f64(double *sum, double *lost, double x) {
    const double s = *sum, t = s + x, z = t - s;
    *lost += (s - (t - z)) + (x - z);
    *sum = t;
}
/* An infinite or nan sum has lost nan: then the sum alone is right. */
SLIP_INLINE double slip_settle_f64(double sum, double lost) {
    return isfinite(lost) ? sum + lost : sum;
}
/* What is lost of a part is joined to that of others where the part's sum is finite. */
SLIP_INLINE double slip_finite_f64(double lost) { return isfinite(lost) ? lost : 0.0; }
SLIP_INLINE slip_c128 slip_finite_c128(slip_c128 lost) {
    return slip_make_c128(slip_finite_f64(lost.re), slip_finite_f64(lost.im));
}
SLIP_INLINE void slip_carry_c128(slip_c128 *sum, slip_c128 *lost, slip_c128 x) {
    slip_carry_f64(&sum->re, &lost->re, x.re);
    slip_carry_f64(&sum->im, &lost->im, x.im);
}
SLIP_INLINE slip_c128 slip_settle_c128(slip_c128 sum, slip_c128 lost) {
    return slip_make_c128(slip_settle_f64(sum.re, lost.re), slip_settle_f64(sum.im, lost.im));
}

/* ---- casts between classes ---- */

/* Outside the range of int64, and for nan: -2**63. */
SLIP_INLINE int64_t slip_cast_i64_f64(double x) {
    const bool fits = (x >= -9223372036854775808.0) & (x < 9223372036854775808.0);
    return fits ? (int64_t)(fits ? x : 0.0) : INT64_MIN;
}
SLIP_INLINE int64_t slip_cast_i64_f32(float x) { return slip_cast_i64_f64((double)x); }
SLIP_INLINE int64_t slip_cast_i64_c64(slip_c64 a) { return slip_cast_i64_f64((double)a.re); }
SLIP_INLINE int64_t slip_cast_i64_c128(slip_c128 a) { return slip_cast_i64_f64(a.re); }

/* ---- stored types that are not computed in: 16-bit floats, rounded to nearest even ---- */

typedef struct { uint16_t bits; } slip_float16;
typedef struct { uint16_t bits; } slip_bfloat16;

SLIP_INLINE float slip_widen_float16(slip_float16 h) {
    /* The exponent is moved by a multiplication, which subnormals survive. */
    const uint32_t magnitude = (uint32_t)(h.bits & 0x7fffu) << 13;
    const float scaled = slip_float32(magnitude) * 0x1p112f;
    const uint32_t special = magnitude >= 0x0f800000u ? 0x7f800000u : 0u;
    return slip_float32(slip_bits32(scaled) | special | ((uint32_t)(h.bits & 0x8000u) << 16));
}

SLIP_INLINE slip_float16 slip_narrow_float16_f32(float x) {
    const uint32_t u = slip_bits32(x), a = u & 0x7fffffffu;
    const uint32_t normal = (a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13;
    const uint32_t tiny = slip_bits32(slip_float32(a) + 0.5f) - 0x3f000000u;
    const uint32_t special = a > 0x7f800000u ? 0x7e00u | ((a >> 13) & 0x3ffu) : 0x7c00u;
    const uint32_t finite = a < 0x38800000u ? tiny : normal;
    slip_float16 h;
    h.bits = (uint16_t)((a >= 0x477ff000u ? special : finite) | ((u >> 16) & 0x8000u));
    return h;
}

SLIP_INLINE slip_float16 slip_narrow_float16_f64(double x) {
    const uint64_t u = slip_bits64(x), a = u & 0x7fffffffffffffffu;
    const uint64_t half = 0x1ffffffffffu + ((a >> 42) & 1u);
    const uint64_t normal = (a - 0x3f00000000000000u + half) >> 42;
    const uint64_t tiny = slip_bits64(slip_float64(a) + 0x1p28) - 0x41b0000000000000u;
    const uint64_t special = a > 0x7ff0000000000000u ? 0x7e00u : 0x7c00u;
    const uint64_t finite = a < 0x3f10000000000000u ? tiny : normal;
    slip_float16 h;
    h.bits = (uint16_t)((a >= 0x40effe0000000000u ? special : finite) | ((u >> 48) & 0x8000u));
    return h;
}

SLIP_INLINE float slip_widen_bfloat16(slip_bfloat16 h) {
    return slip_float32((uint32_t)h.bits << 16);
}

SLIP_INLINE slip_bfloat16 slip_narrow_bfloat16_f32(float x) {
    const uint32_t u = slip_bits32(x);
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    slip_bfloat16 h;
    h.bits = (uint16_t)(x != x ? ((u >> 16) & 0x8000u) | 0x7fc0u : rounded);
    return h;
}

SLIP_INLINE slip_bfloat16 slip_narrow_bfloat16_f64(double x) {
    return slip_narrow_bfloat16_f32((float)x);
}

/* As a float of 16 bits holds it. */
SLIP_INLINE float slip_as_float16_f32(float x) {
    return slip_widen_float16(slip_narrow_float16_f32(x));
}

SLIP_INLINE float slip_as_bfloat16_f32(float x) {
    return slip_widen_bfloat16(slip_narrow_bfloat16_f32(x));
}

#endif
