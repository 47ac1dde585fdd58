from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef extern from *:
    """
    #include <math.h>
    #include <stdint.h>
    #include <string.h>

    enum { SLIP_GROUP = 16, SLIP_CHUNK = 1024 };
    enum { SLIP_UNIFORM, SLIP_NORMAL, SLIP_EXPONENTIAL };
    /* Codes of dtypes, in the order of slipstream.core.vocab.dtypes. */
    enum { SLIP_BOOL, SLIP_UINT8, SLIP_INT8, SLIP_INT16, SLIP_INT32, SLIP_INT64,
           SLIP_HALF, SLIP_BFLOAT, SLIP_FLOAT, SLIP_DOUBLE, SLIP_CFLOAT, SLIP_CDOUBLE };

    static inline uint32_t slip_bits(float v) { uint32_t b; memcpy(&b, &v, 4); return b; }
    static inline float slip_float(uint32_t b) { float v; memcpy(&v, &b, 4); return v; }
    static inline int64_t slip_wide_bits(double v) { int64_t b; memcpy(&b, &v, 8); return b; }
    static inline double slip_double(int64_t b) { double v; memcpy(&v, &b, 8); return v; }

    static inline uint16_t slip_narrow(float v, int code) {
        uint32_t x = slip_bits(v), sign = (x >> 16) & 0x8000u;
        x &= 0x7FFFFFFFu;
        if (code == SLIP_BFLOAT)
            return (uint16_t)(sign | (x > 0x7F800000u ? 0x7FC0u
                                      : (x + 0x7FFFu + ((x >> 16) & 1u)) >> 16));
        if (x > 0x7F800000u) return (uint16_t)(sign | 0x7E00u);
        if (x >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u);
        /* Adding 0.5 rounds at the place of float16's subnormal unit, 2**-24. */
        if (x < 0x38800000u)
            return (uint16_t)(sign | (slip_bits(slip_float(x) + 0.5f) - 0x3F000000u));
        return (uint16_t)(sign | ((x + 0xFFFu + ((x >> 13) & 1u) - 0x38000000u) >> 13));
    }
    static inline float slip_widen(uint16_t h, int code) {
        uint32_t x = (uint32_t)(h & 0x7FFFu), sign = (uint32_t)(h & 0x8000u) << 16;
        if (code == SLIP_BFLOAT) return slip_float((uint32_t)h << 16);
        if (x >= 0x7C00u) return slip_float(sign | 0x7F800000u | (x << 13));
        return slip_float(sign | slip_bits(slip_float(x << 13) * 0x1p112f));
    }
    static inline int slip_is_narrow(int code) {
        return code == SLIP_HALF || code == SLIP_BFLOAT;
    }
    static inline float slip_rounded(float v, int code) {
        return slip_is_narrow(code) ? slip_widen(slip_narrow(v, code), code) : v;
    }
    /* The largest number of the dtype below v. */
    static inline float slip_below(float v, int code) {
        uint16_t h;
        if (!slip_is_narrow(code)) return nextafterf(v, -INFINITY);
        h = slip_narrow(v, code);
        h = (h & 0x7FFFu) == 0 ? 0x8001u : (h & 0x8000u) ? h + 1 : h - 1;
        return slip_widen(h, code);
    }

    /* Whole groups of blocks, from block `base` of the stream on. */
    static void slip_words(uint32_t *out, int64_t blocks, uint64_t base, uint64_t seed) {
        uint32_t a[SLIP_GROUP], b[SLIP_GROUP], c[SLIP_GROUP], d[SLIP_GROUP];
        for (int64_t first = 0; first < blocks; first += SLIP_GROUP) {
            uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
            for (int j = 0; j < SLIP_GROUP; j++) {
                uint64_t n = base + (uint64_t)(first + j);
                a[j] = (uint32_t)n;
                b[j] = (uint32_t)(n >> 32);
                c[j] = d[j] = 0;
            }
            for (int round = 0; round < 10; round++) {
                for (int j = 0; j < SLIP_GROUP; j++) {
                    uint64_t p = (uint64_t)0xD2511F53u * a[j], q = (uint64_t)0xCD9E8D57u * c[j];
                    uint32_t x = (uint32_t)(q >> 32) ^ b[j] ^ k0;
                    uint32_t y = (uint32_t)(p >> 32) ^ d[j] ^ k1;
                    a[j] = x;
                    b[j] = (uint32_t)q;
                    c[j] = y;
                    d[j] = (uint32_t)p;
                }
                k0 += 0x9E3779B9u;
                k1 += 0xBB67AE85u;
            }
            for (int j = 0; j < SLIP_GROUP; j++) {
                out[4 * j] = a[j];
                out[4 * j + 1] = b[j];
                out[4 * j + 2] = c[j];
                out[4 * j + 3] = d[j];
            }
            out += 4 * SLIP_GROUP;
        }
    }

    static inline float slip_log32(float u) {
        int32_t bits = (int32_t)slip_bits(u), e = (bits - 0x3F3504F3) >> 23;
        float f = slip_float((uint32_t)bits - ((uint32_t)e << 23)) - 1.0f, k = (float)e;
        float s = f / (2.0f + f), z = s * s, t = (float)(2.0 / 9);
        t = t * z + (float)(2.0 / 7);
        t = t * z + (float)(2.0 / 5);
        t = (t * z + (float)(2.0 / 3)) * z;
        return k * 0.693145751953125f + (k * (float)1.4286068203094172e-06 + (s * t + s * 2.0f));
    }
    static inline double slip_log64(double u) {
        int64_t bits = slip_wide_bits(u), e = (bits - 0x3FE6A09E667F3BCDLL) >> 52;
        double f = slip_double(bits - e * 0x10000000000000LL) - 1.0, k = (double)e;
        double s = f / (2.0 + f), z = s * s, t = 2.0 / 21;
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
    static inline float slip_sine32(float x) {
        float z = x * x, t = (float)(1.0 / 362880);
        t = t * z + (float)(-1.0 / 5040);
        t = t * z + (float)(1.0 / 120);
        t = t * z + (float)(-1.0 / 6);
        return x + x * (t * z);
    }
    static inline float slip_cosine32(float x) {
        float z = x * x, t = (float)(-1.0 / 3628800);
        t = t * z + (float)(1.0 / 40320);
        t = t * z + (float)(-1.0 / 720);
        t = t * z + (float)(1.0 / 24);
        t = t * z + (float)(-1.0 / 2);
        return t * z + 1.0f;
    }
    static inline double slip_sine64(double x) {
        double z = x * x, t = 1.0 / 355687428096000.0;
        t = t * z + -1.0 / 1307674368000.0;
        t = t * z + 1.0 / 6227020800.0;
        t = t * z + -1.0 / 39916800;
        t = t * z + 1.0 / 362880;
        t = t * z + -1.0 / 5040;
        t = t * z + 1.0 / 120;
        t = t * z + -1.0 / 6;
        return x + x * (t * z);
    }
    static inline double slip_cosine64(double x) {
        double z = x * x, t = 1.0 / 20922789888000.0;
        t = t * z + -1.0 / 87178291200.0;
        t = t * z + 1.0 / 479001600;
        t = t * z + -1.0 / 3628800;
        t = t * z + 1.0 / 40320;
        t = t * z + -1.0 / 720;
        t = t * z + 1.0 / 24;
        t = t * z + -1.0 / 2;
        return t * z + 1.0;
    }
    #define SLIP_ANGLE (2.0 * 3.141592653589793 * 0x1p-32)

    /* Box and Muller: two words (four for float64) make two numbers. */
    static inline void slip_pair32(const uint32_t *w, float *v, float mean, float std) {
        uint32_t q = (w[1] + 0x20000000u) >> 30;
        float u = (float)(int32_t)(w[0] >> 1) * 0x1p-31f + 0x1p-32f;
        float x = (float)(int32_t)(w[1] - (q << 30)) * (float)SLIP_ANGLE;
        float r = sqrtf(slip_log32(u) * -2.0f), s = slip_sine32(x), c = slip_cosine32(x);
        uint32_t odd = 0u - (q & 1u), s_bits = slip_bits(s), c_bits = slip_bits(c);
        uint32_t both = (s_bits ^ c_bits) & odd;
        s = slip_float(s_bits ^ both ^ ((q & 2u) << 30));
        c = slip_float(c_bits ^ both ^ (((q + 1u) & 2u) << 30));
        v[0] = r * c * std + mean;
        v[1] = r * s * std + mean;
    }
    static inline double slip_unit64(const uint32_t *w, uint32_t last) {
        return (double)(int32_t)(w[0] >> 5) * 0x1p26 + (double)(int32_t)(w[1] >> 6 | last);
    }
    static inline void slip_pair64(const uint32_t *w, double *v, double mean, double std) {
        uint32_t q = (w[2] + 0x20000000u) >> 30;
        double u = (slip_unit64(w, 0) + 0.5) * 0x1p-53;
        double x = ((double)(int32_t)(w[2] - (q << 30)) + (double)(int32_t)(w[3] >> 1) * 0x1p-31)
                   * SLIP_ANGLE;
        double r = sqrt(slip_log64(u) * -2.0), s = slip_sine64(x), c = slip_cosine64(x);
        double sine = (q & 1u) ? c : s, cosine = (q & 1u) ? s : c;
        sine = (q & 2u) ? -sine : sine;
        cosine = ((q + 1u) & 2u) ? -cosine : cosine;
        v[0] = r * cosine * std + mean;
        v[1] = r * sine * std + mean;
    }

    typedef struct { float a, span, last; } slip_range32;
    typedef struct { double a, span, last; } slip_range64;

    static void slip_values32(int kind, const uint32_t *w, float *v, int64_t n, slip_range32 p) {
        if (kind == SLIP_UNIFORM)
            for (int64_t i = 0; i < n; i++) {
                float x = (float)(int32_t)(w[i] >> 8) * 0x1p-24f * p.span + p.a;
                v[i] = x < p.last ? x : p.last;
            }
        else if (kind == SLIP_NORMAL)
            for (int64_t i = 0; i < n; i += 2) slip_pair32(w + i, v + i, p.a, p.span);
        else
            for (int64_t i = 0; i < n; i++)
                v[i] = slip_log32((float)(int32_t)(w[i] >> 8 | 1u) * 0x1p-24f) * p.span;
    }
    static void slip_values64(int kind, const uint32_t *w, double *v, int64_t n, slip_range64 p) {
        if (kind == SLIP_UNIFORM)
            for (int64_t i = 0; i < n; i++) {
                double x = slip_unit64(w + 2 * i, 0) * 0x1p-53 * p.span + p.a;
                v[i] = x < p.last ? x : p.last;
            }
        else if (kind == SLIP_NORMAL)
            for (int64_t i = 0; i < n; i += 2) slip_pair64(w + 2 * i, v + i, p.a, p.span);
        else
            for (int64_t i = 0; i < n; i++)
                v[i] = slip_log64(slip_unit64(w + 2 * i, 1) * 0x1p-53) * p.span;
    }
    static slip_range32 slip_params32(int kind, int code, double a, double b) {
        slip_range32 p = {(float)a, (float)b, 0.0f};
        float high;
        if (kind == SLIP_EXPONENTIAL) p.span = (float)(-1.0 / a);
        if (kind != SLIP_UNIFORM) return p;
        p.a = slip_rounded((float)a, code);
        high = slip_rounded((float)b, code);
        p.span = high - p.a;
        p.last = p.a < high ? slip_below(high, code) : high;
        return p;
    }

    static void slip_fill_floats32(int kind, int code, char *out, int64_t count, uint64_t seed,
                                   uint64_t base, double a, double b) {
        uint32_t words[SLIP_CHUNK];
        float values[SLIP_CHUNK];
        slip_range32 p = slip_params32(kind, code, a, b);
        for (int64_t start = 0; start < count; start += SLIP_CHUNK) {
            int64_t n = count - start < SLIP_CHUNK ? count - start : SLIP_CHUNK;
            slip_words(words, (n + 3) / 4, base + (uint64_t)(start / 4), seed);
            slip_values32(kind, words, values, n, p);
            if (!slip_is_narrow(code)) {
                memcpy(out + 4 * start, values, (size_t)(4 * n));
                continue;
            }
            for (int64_t i = 0; i < n; i++)
                ((uint16_t *)out)[start + i] = slip_narrow(values[i], code);
        }
    }
    static void slip_fill_floats64(int kind, char *out, int64_t count, uint64_t seed,
                                   uint64_t base, double a, double b) {
        uint32_t words[SLIP_CHUNK];
        double values[SLIP_CHUNK / 2];
        slip_range64 p = {a, b, a < b ? nextafter(b, -INFINITY) : b};
        if (kind == SLIP_EXPONENTIAL) p.span = -1.0 / a;
        if (kind == SLIP_UNIFORM) p.span = b - a;
        for (int64_t start = 0; start < count; start += SLIP_CHUNK / 2) {
            int64_t n = count - start < SLIP_CHUNK / 2 ? count - start : SLIP_CHUNK / 2;
            slip_words(words, (n + 1) / 2, base + (uint64_t)(start / 2), seed);
            slip_values64(kind, words, values, n, p);
            memcpy(out + 8 * start, values, (size_t)(8 * n));
        }
    }
    static void slip_fill_floats(int kind, int code, char *out, int64_t count, uint64_t seed,
                                 uint64_t base, double a, double b) {
        if (code == SLIP_DOUBLE) slip_fill_floats64(kind, out, count, seed, base, a, b);
        else slip_fill_floats32(kind, code, out, count, seed, base, a, b);
    }
    static void slip_fill_words(uint32_t *out, int64_t count, uint64_t seed, uint64_t base) {
        uint32_t words[SLIP_CHUNK];
        for (int64_t start = 0; start < count; start += SLIP_CHUNK) {
            int64_t n = count - start < SLIP_CHUNK ? count - start : SLIP_CHUNK;
            slip_words(words, (n + 3) / 4, base + (uint64_t)(start / 4), seed);
            memcpy(out + start, words, (size_t)(4 * n));
        }
    }

    #define SLIP_STORE(T) \\
        for (int64_t i = 0; i < n; i++) ((T *)out)[start + i] = (T)v[i]; \\
        break;
    static void slip_store(int code, char *out, int64_t start, const int64_t *v, int64_t n) {
        switch (code) {
        case SLIP_BOOL:
            for (int64_t i = 0; i < n; i++) out[start + i] = v[i] != 0;
            break;
        case SLIP_UINT8: SLIP_STORE(uint8_t)
        case SLIP_INT8: SLIP_STORE(int8_t)
        case SLIP_INT16: SLIP_STORE(int16_t)
        case SLIP_INT32: SLIP_STORE(int32_t)
        case SLIP_INT64: SLIP_STORE(int64_t)
        case SLIP_FLOAT: SLIP_STORE(float)
        case SLIP_DOUBLE: SLIP_STORE(double)
        default:
            for (int64_t i = 0; i < n; i++)
                ((uint16_t *)out)[start + i] = slip_narrow((float)v[i], code);
        }
    }
    /* floor(x * n / 2**64) from 32-bit parts; n = 0 stands for 2**64. */
    static inline uint64_t slip_scaled(uint64_t x1, uint64_t x0, uint64_t n1, uint64_t n0) {
        uint64_t middle = x1 * n0 + ((x0 * n0) >> 32);
        uint64_t cross = x0 * n1 + (middle & 0xFFFFFFFFu);
        return x1 * n1 + (middle >> 32) + (cross >> 32);
    }
    static void slip_fill_integers(int code, char *out, int64_t count, uint64_t seed,
                                   uint64_t base, uint64_t low, uint64_t size) {
        uint32_t w[SLIP_CHUNK];
        int64_t values[SLIP_CHUNK / 2];
        uint64_t n1 = size >> 32, n0 = size & 0xFFFFFFFFu;
        for (int64_t start = 0; start < count; start += SLIP_CHUNK / 2) {
            int64_t n = count - start < SLIP_CHUNK / 2 ? count - start : SLIP_CHUNK / 2;
            slip_words(w, (n + 1) / 2, base + (uint64_t)(start / 2), seed);
            for (int64_t i = 0; i < n; i++) {
                uint64_t x = size ? slip_scaled(w[2 * i], w[2 * i + 1], n1, n0)
                                  : (uint64_t)w[2 * i] << 32 | w[2 * i + 1];
                values[i] = (int64_t)(x + low);
            }
            slip_store(code, out, start, values, n);
        }
    }
    static void slip_fill_bernoulli(int code, char *out, int64_t count, uint64_t seed,
                                    uint64_t base, uint64_t threshold) {
        uint32_t w[SLIP_CHUNK];
        int64_t values[SLIP_CHUNK];
        for (int64_t start = 0; start < count; start += SLIP_CHUNK) {
            int64_t n = count - start < SLIP_CHUNK ? count - start : SLIP_CHUNK;
            slip_words(w, (n + 3) / 4, base + (uint64_t)(start / 4), seed);
            for (int64_t i = 0; i < n; i++) values[i] = w[i] < threshold;
            slip_store(code, out, start, values, n);
        }
    }
    """
    void slip_fill_floats(int kind, int code, char *out, int64_t count, uint64_t seed,
                          uint64_t base, double a, double b) noexcept nogil
    void slip_fill_words(uint32_t *out, int64_t count, uint64_t seed, uint64_t base) noexcept nogil
    void slip_fill_integers(int code, char *out, int64_t count, uint64_t seed, uint64_t base,
                            uint64_t low, uint64_t size) noexcept nogil
    void slip_fill_bernoulli(int code, char *out, int64_t count, uint64_t seed, uint64_t base,
                             uint64_t threshold) noexcept nogil


cdef Py_ssize_t SMALL
cdef int UNIFORM
cdef int NORMAL
cdef int EXPONENTIAL
cdef int FLOAT16
cdef int COMPLEX64


cdef class Philox:
    cdef object _floats(self, int kind, size_t address, object dtype, Py_ssize_t count,
                        tuple stream, tuple parameters)
    cpdef object fill_bits(self, size_t address, Py_ssize_t count, tuple stream)
    cpdef object fill_uniform(self, size_t address, object dtype, Py_ssize_t count,
                              tuple stream, double low=*, double high=*)
    cpdef object fill_normal(self, size_t address, object dtype, Py_ssize_t count,
                             tuple stream, double mean=*, double std=*)
    cpdef object fill_exponential(self, size_t address, object dtype, Py_ssize_t count,
                                  tuple stream, double rate=*)
    cpdef object fill_integers(self, size_t address, object dtype, Py_ssize_t count,
                               tuple stream, object low, object high)
    cpdef object fill_bernoulli(self, size_t address, object dtype, Py_ssize_t count,
                                tuple stream, double p=*)
    cpdef object fill_permutation(self, size_t address, Py_ssize_t count, tuple stream)
