/* What goes before a kernel from a string, in place of CUDA's and C's headers. */
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef float2 cuComplex;
typedef float2 cuFloatComplex;
typedef double2 cuDoubleComplex;

#undef NAN
#undef INFINITY
#define NAN __int_as_float(0x7fffffff)
#define INFINITY __int_as_float(0x7f800000)
#define CUDART_INF_F INFINITY
#define CUDART_NAN_F NAN
#define CUDART_PI_F 3.14159265358979323846f
#ifndef M_PI
#define M_PI 3.14159265358979323846
#endif
#ifndef FLT_MAX
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define DBL_MAX 1.7976931348623158e+308
#define DBL_MIN 2.2250738585072014e-308
#define DBL_EPSILON 2.2204460492503131e-16
#endif
#ifndef INT_MAX
#define CHAR_BIT 8
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define LLONG_MAX 9223372036854775807ll
#define LLONG_MIN (-9223372036854775807ll - 1)
#define ULLONG_MAX 18446744073709551615ull
#endif
#ifndef INT64_MAX
#define INT32_MAX INT_MAX
#define INT32_MIN INT_MIN
#define UINT32_MAX UINT_MAX
#define INT64_MAX LLONG_MAX
#define INT64_MIN LLONG_MIN
#define UINT64_MAX ULLONG_MAX
#endif

/* 16-bit floats: kept in their bits, computed in float, rounded to nearest even at each step. */
#define SLIP_FN static __device__ __forceinline__
SLIP_FN float slip_of_half(unsigned short bits) {
#ifndef SLIP_SIMULATED
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
#else
    const unsigned magnitude = (bits & 0x7fffu) << 13;
    const float scaled = __uint_as_float(magnitude) * 5192296858534827628530496329220096.0f;
    const unsigned special = magnitude >= 0x0f800000u ? 0x7f800000u : 0u;
    return __uint_as_float(__float_as_uint(scaled) | special | (bits & 0x8000u) << 16);
#endif
}
SLIP_FN unsigned short slip_to_half(float x) {
#ifndef SLIP_SIMULATED
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
#else
    const unsigned u = __float_as_uint(x), a = u & 0x7fffffffu;
    const unsigned normal = (a - 0x38000000u + 0xfffu + (a >> 13 & 1u)) >> 13;
    /* Adding 0.5 rounds at the place of the subnormal unit, 2**-24. */
    const unsigned tiny = __float_as_uint(__uint_as_float(a) + 0.5f) - 0x3f000000u;
    const unsigned special = a > 0x7f800000u ? 0x7fffu : 0x7c00u;
    const unsigned finite = a < 0x38800000u ? tiny : normal;
    return (unsigned short)((a >= 0x477ff000u ? special : finite) | (u >> 16 & 0x8000u));
#endif
}
SLIP_FN float slip_of_bfloat16(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }
SLIP_FN unsigned short slip_to_bfloat16(float x) {
    const unsigned u = __float_as_uint(x);
    return (unsigned short)(x != x ? 0x7fffu : (u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

#define SLIP_HALF_COMPARE(T, sign) \
    SLIP_FN bool operator sign(T a, T b) { return (float)a sign (float)b; }
#define SLIP_HALF_STEP(T, sign) \
    SLIP_FN T operator sign(T a, T b) { return T((float)a sign (float)b); } \
    SLIP_FN T& operator sign##=(T& a, T b) { return a = a sign b; }
#define SLIP_HALF(T, pair, word, from, to) \
    struct __align__(2) T { \
        unsigned short word; \
        T() = default; \
        __device__ __forceinline__ T(float x) : word(to(x)) {} \
        __device__ __forceinline__ T(double x) : word(to((float)x)) {} \
        __device__ __forceinline__ T(int x) : word(to((float)x)) {} \
        __device__ __forceinline__ operator float() const { return from(word); } \
    }; \
    struct __align__(4) pair { T x, y; }; \
    SLIP_HALF_STEP(T, +) SLIP_HALF_STEP(T, -) SLIP_HALF_STEP(T, *) SLIP_HALF_STEP(T, /) \
    SLIP_HALF_COMPARE(T, ==) SLIP_HALF_COMPARE(T, !=) SLIP_HALF_COMPARE(T, <) \
    SLIP_HALF_COMPARE(T, <=) SLIP_HALF_COMPARE(T, >) SLIP_HALF_COMPARE(T, >=) \
    SLIP_FN T operator-(T a) { return T(-(float)a); } \
    SLIP_FN T __hadd(T a, T b) { return a + b; } \
    SLIP_FN T __hsub(T a, T b) { return a - b; } \
    SLIP_FN T __hmul(T a, T b) { return a * b; } \
    SLIP_FN T __hdiv(T a, T b) { return a / b; } \
    SLIP_FN T __hfma(T a, T b, T c) { return T(fmaf((float)a, (float)b, (float)c)); }
SLIP_HALF(__half, __half2, __x, slip_of_half, slip_to_half)
SLIP_HALF(__nv_bfloat16, __nv_bfloat162, __x, slip_of_bfloat16, slip_to_bfloat16)
typedef __half half;
typedef __half2 half2;
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
SLIP_FN float __half2float(__half a) { return (float)a; }
SLIP_FN __half __float2half(float x) { return __half(x); }
SLIP_FN __half __float2half_rn(float x) { return __half(x); }
SLIP_FN float __bfloat162float(__nv_bfloat16 a) { return (float)a; }
SLIP_FN __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
SLIP_FN __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
SLIP_FN __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
SLIP_FN float2 __half22float2(__half2 a) { return make_float2((float)a.x, (float)a.y); }
