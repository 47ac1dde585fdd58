from slipstream.core.vocab.records cimport Kernel, Plan, TensorBase


cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    typedef struct {
        int64_t rows, classes, positions, ignored, wide_target, way;
        double smoothing;
    } slip_classes;
    enum { SLIP_EACH, SLIP_MEAN, SLIP_SUM };

    static inline int64_t slip_target(const slip_classes *s, const void *target, int64_t at) {
        return s->wide_target ? ((const int64_t *)target)[at] : ((const uint8_t *)target)[at];
    }

    /* 0, or 1 for a target that is no class, which goes to *wrong.  Sums are doubles. */
    #define SLIP_LOSS(NAME, SLOPE, T) \\
    static int NAME(const slip_classes *s, T *out, const T *x, const void *target, \\
                    const T *weight, long long *wrong) { \\
        double total = 0.0, weights = 0.0; \\
        int64_t count = s->classes, apart = s->positions; \\
        for (int64_t n = 0, at = 0; n < s->rows; n++) \\
            for (int64_t p = 0; p < apart; p++, at++) { \\
                int64_t t = slip_target(s, target, at); \\
                const T *row = x + n * count * apart + p; \\
                T loss = 0; \\
                if (t != s->ignored) { \\
                    if (t < 0 || t >= count) { *wrong = t; return 1; } \\
                    T w = weight ? weight[t] : (T)1; \\
                    loss = -row[t * apart] * w; \\
                    if (s->smoothing != 0.0) { \\
                        double spread = 0.0; \\
                        for (int64_t c = 0; c < count; c++) \\
                            spread -= row[c * apart] * (weight ? weight[c] : (T)1); \\
                        loss = (T)(loss * (1.0 - s->smoothing) \\
                                   + spread * (s->smoothing / (double)count)); \\
                    } \\
                    total += loss; \\
                    weights += w; \\
                } \\
                if (s->way == SLIP_EACH) out[at] = loss; \\
            } \\
        if (s->way == SLIP_SUM) *out = (T)total; \\
        if (s->way == SLIP_MEAN) *out = (T)(total / weights); \\
        return 0; \\
    } \\
    static int SLOPE(const slip_classes *s, T *out, const T *g, const void *target, \\
                     const T *weight, long long *wrong) { \\
        int64_t count = s->classes, apart = s->positions, all = s->rows * apart; \\
        double weights = 0.0; \\
        for (int64_t at = 0; at < all; at++) { \\
            int64_t t = slip_target(s, target, at); \\
            if (t == s->ignored) continue; \\
            if (t < 0 || t >= count) { *wrong = t; return 1; } \\
            weights += weight ? weight[t] : (T)1; \\
        } \\
        memset(out, 0, (size_t)(all * count) * sizeof(T)); \\
        for (int64_t n = 0, at = 0; n < s->rows; n++) \\
            for (int64_t p = 0; p < apart; p++, at++) { \\
                int64_t t = slip_target(s, target, at); \\
                T *row = out + n * count * apart + p; \\
                if (t == s->ignored) continue; \\
                double share = s->way == SLIP_EACH ? -g[at] : -*g; \\
                if (s->way == SLIP_MEAN) share /= weights; \\
                if (s->smoothing != 0.0) \\
                    for (int64_t c = 0; c < count; c++) \\
                        row[c * apart] = (T)(share * (s->smoothing / (double)count) \\
                                             * (weight ? weight[c] : (T)1)); \\
                row[t * apart] += (T)(share * (weight ? weight[t] : (T)1) \\
                                      * (1.0 - s->smoothing)); \\
            } \\
        return 0; \\
    }
    SLIP_LOSS(slip_loss_float, slip_slope_float, float)
    SLIP_LOSS(slip_loss_double, slip_slope_double, double)

    static int slip_class_loss(const char *packed, int slope, int wide, char *out, const char *x,
                               const char *target, const char *weight, long long *wrong) {
        const slip_classes *s = (const slip_classes *)packed;
        if (wide) return (slope ? slip_slope_double : slip_loss_double)(
            s, (double *)out, (const double *)x, target, (const double *)weight, wrong);
        return (slope ? slip_slope_float : slip_loss_float)(
            s, (float *)out, (const float *)x, target, (const float *)weight, wrong);
    }
    """
    int slip_class_loss(const char *packed, int slope, int wide, char *out, const char *x,
                        const char *target, const char *weight, long long *wrong) nogil

cdef class ClassLoss(Kernel):
    cdef public bytes packed
    cdef public bint wide, slope
    cdef public Py_ssize_t numel
    cpdef object run(self, Plan plan, tuple operands, tuple numbers)
