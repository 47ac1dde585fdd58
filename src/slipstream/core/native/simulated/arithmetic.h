/* Arithmetic of CUDA C++ by the compiler's builtins: no header of the host is read. */
/* What a function of one argument gives (float for float, else double), and what a sum gives. */
template <class T> struct slip_real { typedef double type; };
template <> struct slip_real<float> { typedef float type; };
template <class T> struct slip_real<slip_element<T>> { typedef typename slip_real<T>::type type; };
template <class T> struct slip_value_of { typedef T type; };
template <class T> struct slip_value_of<slip_element<T>> { typedef T type; };
template <class A, class B> struct slip_sum {
    typedef decltype(typename slip_value_of<A>::type() + typename slip_value_of<B>::type()) type;
};

/* Templates are read fast, and only those that a kernel calls are compiled. */
#define SLIP_ONE(name) \
    inline float name##f(float x) { return __builtin_##name##f(x); } \
    template <class T> inline typename slip_real<T>::type name(T x) { \
        if constexpr (sizeof(typename slip_real<T>::type) == 4) return __builtin_##name##f(x); \
        else return __builtin_##name(x); \
    }
#define SLIP_TWO(name) \
    inline float name##f(float x, float y) { return __builtin_##name##f(x, y); } \
    template <class A, class B> \
    inline typename slip_real<typename slip_sum<A, B>::type>::type name(A x, B y) { \
        if constexpr (sizeof(typename slip_real<typename slip_sum<A, B>::type>::type) == 4) \
            return __builtin_##name##f(x, y); \
        else return __builtin_##name(x, y); \
    }
SLIP_ONE(sqrt) SLIP_ONE(cbrt) SLIP_ONE(exp) SLIP_ONE(exp2) SLIP_ONE(expm1) SLIP_ONE(log)
SLIP_ONE(log2) SLIP_ONE(log10) SLIP_ONE(log1p) SLIP_ONE(logb) SLIP_ONE(sin) SLIP_ONE(cos)
SLIP_ONE(tan) SLIP_ONE(asin) SLIP_ONE(acos) SLIP_ONE(atan) SLIP_ONE(sinh) SLIP_ONE(cosh)
SLIP_ONE(tanh) SLIP_ONE(asinh) SLIP_ONE(acosh) SLIP_ONE(atanh) SLIP_ONE(floor) SLIP_ONE(ceil)
SLIP_ONE(trunc) SLIP_ONE(round) SLIP_ONE(rint) SLIP_ONE(nearbyint) SLIP_ONE(erf) SLIP_ONE(erfc)
SLIP_ONE(lgamma) SLIP_ONE(tgamma) SLIP_ONE(fabs) SLIP_ONE(j0) SLIP_ONE(j1)
SLIP_TWO(pow) SLIP_TWO(fmod) SLIP_TWO(atan2) SLIP_TWO(hypot) SLIP_TWO(copysign) SLIP_TWO(fmin)
SLIP_TWO(fmax) SLIP_TWO(fdim) SLIP_TWO(remainder) SLIP_TWO(nextafter)
#undef SLIP_ONE
#undef SLIP_TWO

#define SLIP_TEST(name, call) \
    inline bool name(float x) { return call; } \
    inline bool name(double x) { return call; }
SLIP_TEST(isnan, x != x)
SLIP_TEST(isinf, __builtin_isinf(x) != 0)
SLIP_TEST(isfinite, __builtin_isfinite(x) != 0)
SLIP_TEST(signbit, __builtin_signbit(x) != 0)
#undef SLIP_TEST
inline int finite(double x) { return __builtin_isfinite(x); }

inline float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
inline float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline float rsqrtf(float x) { return (float)(1.0 / __builtin_sqrt((double)x)); }
inline double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float rcbrtf(float x) { return 1.0f / __builtin_cbrtf(x); }
inline double rcbrt(double x) { return 1.0 / __builtin_cbrt(x); }
inline float exp10f(float x) { return (float)__builtin_pow(10.0, (double)x); }
inline double exp10(double x) { return __builtin_pow(10.0, x); }
inline float fdividef(float x, float y) { return x / y; }
inline float ldexpf(float x, int n) { return __builtin_ldexpf(x, n); }
inline double ldexp(double x, int n) { return __builtin_ldexp(x, n); }
inline float ldexp(float x, int n) { return __builtin_ldexpf(x, n); }
inline float scalbnf(float x, int n) { return __builtin_ldexpf(x, n); }
inline double scalbn(double x, int n) { return __builtin_ldexp(x, n); }
inline float frexpf(float x, int *n) { return __builtin_frexpf(x, n); }
inline double frexp(double x, int *n) { return __builtin_frexp(x, n); }
inline float frexp(float x, int *n) { return __builtin_frexpf(x, n); }
inline float modff(float x, float *n) { return __builtin_modff(x, n); }
inline double modf(double x, double *n) { return __builtin_modf(x, n); }
inline int ilogbf(float x) { return __builtin_ilogbf(x); }
inline int ilogb(double x) { return __builtin_ilogb(x); }
inline float nanf(const char *) { return __builtin_nanf(""); }
inline double nan(const char *) { return __builtin_nan(""); }
inline float powif(float x, int n) { return __builtin_powif(x, n); }
inline void sincosf(float x, float *s, float *c) {
    *s = __builtin_sinf(x);
    *c = __builtin_cosf(x);
}
inline void sincos(double x, double *s, double *c) {
    *s = __builtin_sin(x);
    *c = __builtin_cos(x);
}
inline void sincos(float x, float *s, float *c) { sincosf(x, s, c); }
#define SLIP_PI 3.14159265358979323846
inline double sinpi(double x) { return __builtin_sin(SLIP_PI * __builtin_fmod(x, 2.0)); }
inline double cospi(double x) { return __builtin_cos(SLIP_PI * __builtin_fmod(x, 2.0)); }
inline float sinpif(float x) { return (float)sinpi((double)x); }
inline float cospif(float x) { return (float)cospi((double)x); }
inline float normf(int n, const float *v) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)v[i] * v[i];
    return (float)__builtin_sqrt(sum);
}

/* The inverse of erf: Halley's steps for erf(y) = x from a start that is right to 0.2 %. */
inline double erfinv(double x) {
    if (x < 0) return -erfinv(-x);
    if (!(x < 1)) return x == 1 ? __builtin_inf() : __builtin_nan("");
    if (x == 0) return x;
    const double a = 0.147, l = __builtin_log1p(-x * x), t = 2 / (SLIP_PI * a) + l / 2;
    double y = __builtin_sqrt(__builtin_sqrt(t * t - l / a) - t);
    for (int i = 0; i < 3; i++) {
        double error = x < 0.5 ? __builtin_erf(y) - x : (1 - x) - __builtin_erfc(y);
        double step = error / (2 / __builtin_sqrt(SLIP_PI) * __builtin_exp(-y * y));
        y -= step / (1 + y * step);
    }
    return y;
}
inline float erfinvf(float x) { return (float)erfinv((double)x); }
inline double erfcinv(double x) { return erfinv(1 - x); }
inline float erfcinvf(float x) { return (float)erfinv(1 - (double)x); }
inline double normcdf(double x) { return __builtin_erfc(-x * 0.70710678118654752440) / 2; }
inline float normcdff(float x) { return (float)normcdf((double)x); }
inline double normcdfinv(double p) { return 1.41421356237309504880 * erfinv(2 * p - 1); }
inline float normcdfinvf(float p) { return (float)normcdfinv((double)p); }

template <class T> inline auto abs(T x) -> typename slip_sum<T, T>::type {
    typedef typename slip_sum<T, T>::type number;
    number y = x;
    if constexpr (number(1) / 2 == 0) return y < 0 ? -y : y; /* -fwrapv: the least stays */
    else if constexpr (sizeof(number) == 4) return __builtin_fabsf(y);
    else return __builtin_fabs(y);
}
inline long labs(long x) { return abs(x); }
inline long long llabs(long long x) { return abs(x); }
#define SLIP_EXTREMUM(name, sign) \
    template <class A, class B> inline typename slip_sum<A, B>::type name(A x, B y) { \
        typedef typename slip_sum<A, B>::type number; \
        number a = x, b = y; \
        if constexpr (number(1) / 2 == 0) return b sign a ? b : a; \
        else if constexpr (sizeof(number) == 4) return __builtin_f##name##f(a, b); \
        else return __builtin_f##name(a, b); \
    }
SLIP_EXTREMUM(min, <)
SLIP_EXTREMUM(max, >)
#undef SLIP_EXTREMUM

/* -- bits -- */

template <class To, class From> inline To slip_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "bits of another size");
    To to;
    __builtin_memcpy(&to, &from, sizeof(To));
    return to;
}
inline int __float_as_int(float x) { return slip_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return slip_bits<unsigned>(x); }
inline float __int_as_float(int x) { return slip_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return slip_bits<float>(x); }
inline long long __double_as_longlong(double x) { return slip_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return slip_bits<double>(x); }
inline int __double2hiint(double x) { return (int)(slip_bits<unsigned long long>(x) >> 32); }
inline int __double2loint(double x) { return (int)slip_bits<unsigned long long>(x); }
inline double __hiloint2double(int high, int low) {
    return slip_bits<double>((unsigned long long)(unsigned)high << 32 | (unsigned)low);
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
    unsigned y = 0;
    for (int i = 0; i < 32; i++) y |= (x >> i & 1u) << (31 - i);
    return y;
}
inline unsigned long long __brevll(unsigned long long x) {
    return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}
inline unsigned __umulhi(unsigned x, unsigned y) {
    return (unsigned)((unsigned long long)x * y >> 32);
}
inline int __mulhi(int x, int y) { return (int)((long long)x * y >> 32); }
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return (unsigned long long)((unsigned __int128)x * y >> 64);
}
inline long long __mul64hi(long long x, long long y) {
    return (long long)((__int128)x * y >> 64);
}
inline int __mul24(int x, int y) { return (x << 8 >> 8) * (y << 8 >> 8); }
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    unsigned long long bytes = (unsigned long long)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        unsigned pick = selector >> 4 * i & 15, byte = bytes >> 8 * (pick & 7) & 255;
        result |= (pick & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
    }
    return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n) {
    return (unsigned)((((unsigned long long)high << 32 | low) << (n & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (n & 31));
}
inline unsigned __sad(int x, int y, unsigned z) { return (x > y ? x - y : y - x) + z; }

/* -- arithmetic with a named rounding: only to nearest, which is the host's -- */

inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }
inline float __fmaf_rn(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dsub_rn(double x, double y) { return x - y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __ddiv_rn(double x, double y) { return x / y; }
inline double __dsqrt_rn(double x) { return __builtin_sqrt(x); }
inline double __fma_rn(double x, double y, double z) { return __builtin_fma(x, y, z); }
inline float __expf(float x) { return __builtin_expf(x); }
inline float __exp10f(float x) { return exp10f(x); }
inline float __logf(float x) { return __builtin_logf(x); }
inline float __log2f(float x) { return __builtin_log2f(x); }
inline float __log10f(float x) { return __builtin_log10f(x); }
inline float __powf(float x, float y) { return __builtin_powf(x, y); }
inline float __sinf(float x) { return __builtin_sinf(x); }
inline float __cosf(float x) { return __builtin_cosf(x); }
inline float __tanf(float x) { return __builtin_tanf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }
inline void __sincosf(float x, float *s, float *c) { sincosf(x, s, c); }

/* Conversions to integers saturate, and NaN gives 0 (the most negative number for 64 bits). */
template <class I> inline I slip_whole(double x, I least, I most) {
    if (x != x) return sizeof(I) == 8 ? (I)(1ull << 63) : (I)0;
    if (x <= (double)least) return least;
    if (x >= (double)most) return most;
    return (I)x;
}
#define SLIP_ROUNDED(F, f, I, i, least, most) \
    inline I __##f##2##i##_rn(F x) { return slip_whole(__builtin_nearbyint(x), least, most); } \
    inline I __##f##2##i##_rz(F x) { return slip_whole((double)x, least, most); } \
    inline I __##f##2##i##_rd(F x) { return slip_whole(__builtin_floor(x), least, most); } \
    inline I __##f##2##i##_ru(F x) { return slip_whole(__builtin_ceil(x), least, most); }
#define SLIP_WHOLE(I, i, least, most) \
    SLIP_ROUNDED(float, float, I, i, least, most) SLIP_ROUNDED(double, double, I, i, least, most)
SLIP_WHOLE(int, int, -2147483647 - 1, 2147483647)
SLIP_WHOLE(unsigned, uint, 0u, ~0u)
SLIP_WHOLE(long long, ll, -9223372036854775807ll - 1, 9223372036854775807ll)
SLIP_WHOLE(unsigned long long, ull, 0ull, ~0ull)
#undef SLIP_ROUNDED
#undef SLIP_WHOLE
inline float __int2float_rn(int x) { return (float)x; }
inline float __uint2float_rn(unsigned x) { return (float)x; }
inline float __ll2float_rn(long long x) { return (float)x; }
inline float __ull2float_rn(unsigned long long x) { return (float)x; }
inline double __int2double_rn(int x) { return (double)x; }
inline double __uint2double_rn(unsigned x) { return (double)x; }
inline double __ll2double_rn(long long x) { return (double)x; }
inline double __ull2double_rn(unsigned long long x) { return (double)x; }
inline float __double2float_rn(double x) { return (float)x; }
inline long lrintf(float x) { return __float2ll_rn(x); }
inline long lrint(double x) { return __double2ll_rn(x); }
inline long lroundf(float x) { return __float2ll_rz(__builtin_roundf(x)); }
inline long lround(double x) { return __double2ll_rz(__builtin_round(x)); }
inline long long llrintf(float x) { return __float2ll_rn(x); }
inline long long llrint(double x) { return __double2ll_rn(x); }
