"""Numbers in the prelude: conversions of narrow floats, division, complex arithmetic."""

from __future__ import annotations

# 16-bit floats are rounded to nearest even, once.
_NARROW = r"""
#ifndef SLIP_SIMULATED
SLIP_DEVICE float slip_widen_float16(slip_float16 h) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h.bits));
    return x;
}
SLIP_DEVICE slip_float16 slip_narrow_float16_f32(float x) {
    slip_float16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h.bits) : "f"(x));
    return h;
}
SLIP_DEVICE slip_float16 slip_narrow_float16_f64(double x) {
    slip_float16 h;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(h.bits) : "d"(x));
    return h;
}
#else
SLIP_DEVICE float slip_widen_float16(slip_float16 h) {
    const uint32_t magnitude = (uint32_t)(h.bits & 0x7fffu) << 13;
    const float scaled = __uint_as_float(magnitude) * 5192296858534827628530496329220096.0f;
    const uint32_t special = magnitude >= 0x0f800000u ? 0x7f800000u : 0u;
    const uint32_t sign = (uint32_t)(h.bits & 0x8000u) << 16;
    return __uint_as_float(__float_as_uint(scaled) | special | sign);
}
SLIP_DEVICE slip_float16 slip_narrow_float16_f32(float x) {
    const uint32_t u = __float_as_uint(x), a = u & 0x7fffffffu;
    const uint32_t normal = (a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13;
    // Adding 0.5 rounds at the place of float16's subnormal unit, 2**-24.
    const uint32_t tiny = __float_as_uint(__uint_as_float(a) + 0.5f) - 0x3f000000u;
    const uint32_t special = a > 0x7f800000u ? 0x7fffu : 0x7c00u;
    const uint32_t finite = a < 0x38800000u ? tiny : normal;
    slip_float16 h;
    h.bits = (uint16_t)((a >= 0x477ff000u ? special : finite) | ((u >> 16) & 0x8000u));
    return h;
}
SLIP_DEVICE slip_float16 slip_narrow_float16_f64(double x) {
    const uint64_t u = (uint64_t)__double_as_longlong(x), a = u & 0x7fffffffffffffffull;
    const uint64_t half = 0x1ffffffffffull + ((a >> 42) & 1u);
    const uint64_t normal = (a - 0x3f00000000000000ull + half) >> 42;
    const double moved = __longlong_as_double((int64_t)a) + 268435456.0;
    const uint64_t tiny = (uint64_t)__double_as_longlong(moved) - 0x41b0000000000000ull;
    const uint64_t special = a > 0x7ff0000000000000ull ? 0x7fffu : 0x7c00u;
    const uint64_t finite = a < 0x3f10000000000000ull ? tiny : normal;
    slip_float16 h;
    h.bits = (uint16_t)((a >= 0x40effe0000000000ull ? special : finite) | ((u >> 48) & 0x8000u));
    return h;
}
#endif
SLIP_DEVICE float slip_widen_bfloat16(slip_bfloat16 h) {
    return __uint_as_float((uint32_t)h.bits << 16);
}
SLIP_DEVICE slip_bfloat16 slip_narrow_bfloat16_f32(float x) {
    slip_bfloat16 h;
#if !defined(SLIP_SIMULATED) && __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h.bits) : "f"(x));
#else
    const uint32_t u = __float_as_uint(x);
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    h.bits = (uint16_t)(x != x ? 0x7fffu : rounded);
#endif
    return h;
}
SLIP_DEVICE slip_bfloat16 slip_narrow_bfloat16_f64(double x) {
    return slip_narrow_bfloat16_f32((float)x);
}
SLIP_DEVICE float slip_as_float16_f32(float x) {
    return slip_widen_float16(slip_narrow_float16_f32(x));
}
SLIP_DEVICE float slip_as_bfloat16_f32(float x) {
    return slip_widen_bfloat16(slip_narrow_bfloat16_f32(x));
}
"""

# Division as Python means it, integer powers; dividing integers by zero gives 0.
_DIVISION = r"""
#define SLIP_FLOAT_DIVISION(CLS, T, FMOD, FLOOR, COPYSIGN)                                      \
    SLIP_DEVICE T slip_remainder_##CLS(T a, T b) {                                              \
        const T r = FMOD(a, b);                                                                 \
        /* A remainder of zero has the dividend's sign. */                                      \
        if (b == 0 || r == 0 || r != r) return r;                                               \
        return (r < 0) != (b < 0) ? r + b : r;                                                  \
    }                                                                                           \
    SLIP_DEVICE T slip_floor_divide_##CLS(T a, T b) {                                           \
        if (b == 0) return a / b;                                                               \
        const T r = FMOD(a, b);                                                                 \
        T q = (a - r) / b;                                                                      \
        if (r != 0 && (r < 0) != (b < 0)) q -= 1;                                               \
        if (q == 0) return COPYSIGN((T)0, a / b);                                               \
        const T whole = FLOOR(q);                                                               \
        return q - whole > (T)0.5 ? whole + 1 : whole;                                          \
    }
SLIP_FLOAT_DIVISION(f32, float, fmodf, floorf, copysignf)
SLIP_FLOAT_DIVISION(f64, double, fmod, floor, copysign)

SLIP_DEVICE int64_t slip_trunc_divide_i64(int64_t a, int64_t b) {
    return b == 0 ? 0 : (b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b);
}
SLIP_DEVICE int64_t slip_fmod_i64(int64_t a, int64_t b) {
    return b == 0 || b == -1 ? 0 : a % b;
}
SLIP_DEVICE int64_t slip_remainder_i64(int64_t a, int64_t b) {
    const int64_t r = slip_fmod_i64(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
SLIP_DEVICE int64_t slip_floor_divide_i64(int64_t a, int64_t b) {
    const int64_t q = slip_trunc_divide_i64(a, b);
    const int64_t r = slip_fmod_i64(a, b);
    return r != 0 && (r < 0) != (b < 0) ? q - 1 : q;
}
// 1 / a**n for n > 0 is 1 or -1 for a = 1 and -1, and is taken as 0 for every other a.
SLIP_DEVICE int64_t slip_pow_i64(int64_t a, int64_t n) {
    if (n < 0) return a == 1 ? 1 : (a == -1 ? ((n & 1) ? -1 : 1) : 0);
    uint64_t base = (uint64_t)a, result = 1;
    for (; n; n >>= 1) {
        result *= (n & 1) ? base : 1;
        base *= base;
    }
    return (int64_t)result;
}
"""

# A nan wins; of zeros of different sign the larger is 0, the smaller -0.
_EXTREMES = r"""
#if !defined(SLIP_SIMULATED) && __CUDA_ARCH__ >= 800
#define SLIP_EXTREME(NAME, INSTRUCTION, SIGN, JOINED)                                           \
    SLIP_DEVICE float slip_##NAME##_f32(float a, float b) {                                     \
        float x;                                                                                \
        asm(INSTRUCTION ".NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));                     \
        return x;                                                                               \
    }
#else
#define SLIP_EXTREME(NAME, INSTRUCTION, SIGN, JOINED)                                           \
    SLIP_DEVICE float slip_##NAME##_f32(float a, float b) {                                     \
        if (a != a || b != b) return NAN;                                                       \
        if (a == b) return __int_as_float(__float_as_int(a) JOINED __float_as_int(b));          \
        return a SIGN b ? a : b;                                                                \
    }
#endif
SLIP_EXTREME(maximum, "max", >, &)
SLIP_EXTREME(minimum, "min", <, |)
"""

# Many quotients by one divisor.  With r = 1 / d and q = a r, each rounded, and q + r (a - d q)
# taken twice by fma, the result is the correctly rounded a / d (P. Markstein, "Computation of
# elementary functions on the IBM RISC System/6000 processor", 1990) if nothing is out of range.
_QUOTIENTS = r"""
struct slip_divisor { float value, inverse; bool tame; };
SLIP_DEVICE bool slip_is_tame(float x) {
    return fabsf(x) >= 8.6736173798840355e-19f && fabsf(x) <= 1.152921504606846976e18f;
}
SLIP_DEVICE slip_divisor slip_make_divisor(float x) {
    slip_divisor d;
    d.value = x;
    d.inverse = 1.0f / x;
    d.tame = slip_is_tame(x);
    return d;
}
SLIP_DEVICE float slip_quotient(float a, slip_divisor d) {
    float q = a * d.inverse;
    q = fmaf(fmaf(-d.value, q, a), d.inverse, q);
    return fmaf(fmaf(-d.value, q, a), d.inverse, q);
}
static __device__ __noinline__ float slip_plain_quotient(float a, float b) { return a / b; }
template <int N> SLIP_DEVICE bool slip_any_wild(const float (&a)[N]) {
    bool wild = false;
#pragma unroll
    for (int e = 0; e < N; e++) {
        // A zero stays a zero, but for the sign of -0.
        wild |= !(slip_is_tame(a[e]) || __float_as_uint(a[e]) == 0);
    }
    return wild;
}
template <int N>
SLIP_DEVICE void slip_divide(float (&q)[N], const float (&a)[N], const slip_divisor& d) {
#pragma unroll
    for (int e = 0; e < N; e++) q[e] = slip_quotient(a[e], d);
    if (d.tame && !slip_any_wild(a)) return;
#pragma unroll
    for (int e = 0; e < N; e++) q[e] = slip_plain_quotient(a[e], d.value);
}
template <int N>
SLIP_DEVICE void slip_divide(float (&q)[N], const float (&a)[N], const slip_divisor (&d)[N]) {
    bool wild = slip_any_wild(a);
#pragma unroll
    for (int e = 0; e < N; e++) {
        q[e] = slip_quotient(a[e], d[e]);
        wild |= !d[e].tame;
    }
    if (!wild) return;
#pragma unroll
    for (int e = 0; e < N; e++) q[e] = slip_plain_quotient(a[e], d[e].value);
}
"""

# The share of a normal distribution below x, as near as 16-bit floats tell apart.  Above t >= 0
# lies 2**-q(t), where q is nearly a polynomial; the relative error of 2**-q is 2.2e-5 up to t = 5
# and 3e-4 up to 6, while rounding to float16 alone changes a number by up to 4.9e-4.
_NORMAL = r"""
SLIP_DEVICE float slip_exp2_near(float x) {
#ifndef SLIP_SIMULATED
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}
// The exponent is off by up to 2**-17 where e**x is near the ends of float32, else by less.
SLIP_DEVICE float slip_exp16_f32(float x) { return slip_exp2_near(x * 1.44269504f); }
SLIP_DEVICE float slip_ndtr16_f32(float x) {
    const float t = fabsf(x);
    float q = fmaf(1.091688432e-06f, t, -4.540674854e-05f);
    q = fmaf(q, t, 7.927822880e-04f);
    q = fmaf(q, t, -7.928480394e-03f);
    q = fmaf(q, t, 5.270748213e-02f);
    q = fmaf(q, t, 4.597635269e-01f);
    q = fmaf(q, t, 1.150734901f);
    q = fmaf(q, t, 1.000031233f);
    const float above = slip_exp2_near(-q);
    return x < 0.0f ? above : 1.0f - above;
}
"""

_COMPLEX = r"""
#define SLIP_COMPLEX(CLS, T, R, HYPOT, FABS)                                                    \
    SLIP_DEVICE T slip_make_##CLS(R re, R im) { T z; z.re = re; z.im = im; return z; }          \
    SLIP_DEVICE T slip_add_##CLS(T a, T b) { return slip_make_##CLS(a.re + b.re, a.im + b.im); } \
    SLIP_DEVICE T slip_sub_##CLS(T a, T b) { return slip_make_##CLS(a.re - b.re, a.im - b.im); } \
    SLIP_DEVICE T slip_mul_##CLS(T a, T b) {                                                    \
        return slip_make_##CLS(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);           \
    }                                                                                           \
    /* Smith's division: scaled by the larger part of b, so that b * conj(b) cannot overflow. */ \
    SLIP_DEVICE T slip_div_##CLS(T a, T b) {                                                    \
        if (b.re == 0 && b.im == 0) return slip_make_##CLS(a.re / FABS(b.re), a.im / FABS(b.re)); \
        if (FABS(b.re) >= FABS(b.im)) {                                                         \
            const R ratio = b.im / b.re, scale = (R)1 / (b.re + b.im * ratio);                  \
            return slip_make_##CLS((a.re + a.im * ratio) * scale,                               \
                                   (a.im - a.re * ratio) * scale);                              \
        }                                                                                       \
        const R ratio = b.re / b.im, scale = (R)1 / (b.re * ratio + b.im);                      \
        return slip_make_##CLS((a.re * ratio + a.im) * scale, (a.im * ratio - a.re) * scale);   \
    }                                                                                           \
    SLIP_DEVICE T slip_neg_##CLS(T a) { return slip_make_##CLS(-a.re, -a.im); }                 \
    SLIP_DEVICE T slip_conj_##CLS(T a) { return slip_make_##CLS(a.re, -a.im); }                 \
    SLIP_DEVICE R slip_real_##CLS(T a) { return a.re; }                                         \
    SLIP_DEVICE R slip_imag_##CLS(T a) { return a.im; }                                         \
    SLIP_DEVICE R slip_abs_##CLS(T a) { return HYPOT(a.re, a.im); }                             \
    SLIP_DEVICE bool slip_eq_##CLS(T a, T b) { return (a.re == b.re) & (a.im == b.im); }        \
    SLIP_DEVICE bool slip_ne_##CLS(T a, T b) { return (a.re != b.re) | (a.im != b.im); }        \
    SLIP_DEVICE bool slip_isnan_##CLS(T a) { return (a.re != a.re) | (a.im != a.im); }          \
    SLIP_DEVICE bool slip_isinf_##CLS(T a) { return isinf(a.re) || isinf(a.im); }               \
    SLIP_DEVICE bool slip_isfinite_##CLS(T a) { return isfinite(a.re) && isfinite(a.im); }      \
    SLIP_DEVICE bool slip_cast_b1_##CLS(T a) { return (a.re != 0) | (a.im != 0); }              \
    SLIP_DEVICE float slip_cast_f32_##CLS(T a) { return (float)a.re; }                          \
    SLIP_DEVICE double slip_cast_f64_##CLS(T a) { return (double)a.re; }                        \
    SLIP_DEVICE T slip_cast_##CLS##_b1(bool a) { return slip_make_##CLS((R)a, 0); }             \
    SLIP_DEVICE T slip_cast_##CLS##_i64(int64_t a) { return slip_make_##CLS((R)a, 0); }         \
    SLIP_DEVICE T slip_cast_##CLS##_f32(float a) { return slip_make_##CLS((R)a, 0); }           \
    SLIP_DEVICE T slip_cast_##CLS##_f64(double a) { return slip_make_##CLS((R)a, 0); }
SLIP_COMPLEX(c64, slip_c64, float, hypotf, fabsf)
SLIP_COMPLEX(c128, slip_c128, double, hypot, fabs)

SLIP_DEVICE slip_c128 slip_cast_c128_c64(slip_c64 a) { return slip_make_c128(a.re, a.im); }
SLIP_DEVICE slip_c64 slip_cast_c64_c128(slip_c128 a) {
    return slip_make_c64((float)a.re, (float)a.im);
}
// Outside the range of int64, and for nan: -2**63.
SLIP_DEVICE int64_t slip_cast_i64_f64(double x) {
    const bool fits = (x >= -9223372036854775808.0) & (x < 9223372036854775808.0);
    return fits ? (int64_t)(fits ? x : 0.0) : INT64_MIN;
}
SLIP_DEVICE int64_t slip_cast_i64_f32(float x) { return slip_cast_i64_f64((double)x); }
SLIP_DEVICE int64_t slip_cast_i64_c64(slip_c64 a) { return slip_cast_i64_f64((double)a.re); }
SLIP_DEVICE int64_t slip_cast_i64_c128(slip_c128 a) { return slip_cast_i64_f64(a.re); }
"""

# Functions of complex numbers, computed in double; special values as in C99's annex G.
_COMPLEX_FUNCTIONS = r"""
static __device__ slip_c128 slip_exp_c128(slip_c128 z) {
    if (z.im == 0) return slip_make_c128(exp(z.re), z.im);
    if (isinf(z.re) && z.re < 0 && !isfinite(z.im)) return slip_make_c128(0, 0);
    // In two factors: exp(z.re) may overflow where the product does not.
    const double scale = exp(z.re * 0.5);
    return slip_make_c128(scale * cos(z.im) * scale, scale * sin(z.im) * scale);
}
static __device__ slip_c128 slip_log_c128(slip_c128 z) {
    const double x = fabs(z.re), y = fabs(z.im);
    const double big = x > y ? x : y, small = x > y ? y : x;
    double size = log(hypot(x, y));
    // Near the unit circle: (big - 1)(big + 1) + small**2 is |z|**2 - 1 without its rounding.
    if (big > 0.5 && big < 2 && small < 2) {
        size = 0.5 * log1p((big - 1) * (big + 1) + small * small);
    }
    return slip_make_c128(size, atan2(z.im, z.re));
}
static __device__ slip_c128 slip_sqrt_c128(slip_c128 z) {
    if (z.re == 0 && z.im == 0) return slip_make_c128(0, z.im);
    if (isinf(z.im)) return slip_make_c128(INFINITY, z.im);
    if (isinf(z.re)) {
        const double other = isnan(z.im) ? z.im : 0.0;
        return z.re > 0 ? slip_make_c128(z.re, copysign(other, z.im))
                        : slip_make_c128(fabs(other), copysign((double)INFINITY, z.im));
    }
    const double root = sqrt(0.5 * fabs(z.re) + 0.5 * hypot(z.re, z.im));
    const double other = z.im / (2 * root);
    return z.re >= 0 ? slip_make_c128(root, other)
                     : slip_make_c128(fabs(other), copysign(root, z.im));
}
static __device__ slip_c128 slip_sin_c128(slip_c128 z) {
    const double re = z.re == 0 ? z.re : sin(z.re) * cosh(z.im);
    return slip_make_c128(re, z.im == 0 ? z.im : cos(z.re) * sinh(z.im));
}
static __device__ slip_c128 slip_cos_c128(slip_c128 z) {
    const double im = z.re == 0 || z.im == 0 ? -z.re * z.im : -sin(z.re) * sinh(z.im);
    return slip_make_c128(cos(z.re) * cosh(z.im), im);
}
// W. Kahan's formula: t = tan(im), s = sinh(re).
static __device__ slip_c128 slip_tanh_c128(slip_c128 z) {
    if (fabs(z.re) > 22) {
        const double im = isfinite(z.im) ? 4 * sin(z.im) * cos(z.im) * exp(-2 * fabs(z.re)) : 0;
        return slip_make_c128(copysign(1.0, z.re), im);
    }
    if (z.im == 0) return slip_make_c128(tanh(z.re), z.im);
    const double t = tan(z.im), s = sinh(z.re);
    const double beta = 1 + t * t, rho = sqrt(1 + s * s), scale = 1 + beta * s * s;
    return slip_make_c128(beta * rho * s / scale, t / scale);
}
static __device__ slip_c128 slip_tan_c128(slip_c128 z) {
    const slip_c128 turned = slip_tanh_c128(slip_make_c128(-z.im, z.re));
    return slip_make_c128(turned.im, -turned.re);
}
static __device__ slip_c128 slip_whole_power_c128(slip_c128 a, int n) {
    slip_c128 result = slip_make_c128(1, 0);
    for (unsigned left = (unsigned)(n < 0 ? -n : n); left; left >>= 1) {
        result = left & 1 ? slip_mul_c128(result, a) : result;
        a = slip_mul_c128(a, a);
    }
    return n < 0 ? slip_div_c128(slip_make_c128(1, 0), result) : result;
}
// Small whole exponents multiply: exact where the parts are whole numbers.
static __device__ slip_c128 slip_pow_c128(slip_c128 a, slip_c128 b) {
    if (b.re == 0 && b.im == 0) return slip_make_c128(1, 0);
    if (a.re == 0 && a.im == 0) {
        return b.re > 0 && b.im == 0 ? slip_make_c128(0, 0) : slip_make_c128(NAN, NAN);
    }
    if (b.im == 0 && fabs(b.re) < 100 && b.re == trunc(b.re)) {
        return slip_whole_power_c128(a, (int)b.re);
    }
    return slip_exp_c128(slip_mul_c128(b, slip_log_c128(a)));
}
#define SLIP_SINGLE(NAME)                                                                       \
    static __device__ slip_c64 slip_##NAME##_c64(slip_c64 a) {                                  \
        return slip_cast_c64_c128(slip_##NAME##_c128(slip_cast_c128_c64(a)));                   \
    }
SLIP_SINGLE(exp)
SLIP_SINGLE(log)
SLIP_SINGLE(sqrt)
SLIP_SINGLE(sin)
SLIP_SINGLE(cos)
SLIP_SINGLE(tan)
SLIP_SINGLE(tanh)
static __device__ slip_c64 slip_pow_c64(slip_c64 a, slip_c64 b) {
    return slip_cast_c64_c128(slip_pow_c128(slip_cast_c128_c64(a), slip_cast_c128_c64(b)));
}
"""

NUMBERS = _NARROW + _EXTREMES + _QUOTIENTS + _NORMAL + _DIVISION + _COMPLEX + _COMPLEX_FUNCTIONS
