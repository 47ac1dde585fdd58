from slipstream.core.vocab.records cimport Kernel, Plan, TensorBase


cdef extern from *:
    """
    #include <stdint.h>

    /* Words of a packed geometry; strides are in elements. */
    enum { SLIP_N, SLIP_O, SLIP_H, SLIP_W, SLIP_OUT, SLIP_IMAGE = SLIP_OUT + 4,
           SLIP_SIZE = SLIP_IMAGE + 4, SLIP_OWN = SLIP_SIZE + 2, SLIP_KERNEL, SLIP_WEIGHT =
           SLIP_KERNEL + 2, SLIP_KEPT = SLIP_WEIGHT + 4, SLIP_STEP, SLIP_PAD = SLIP_STEP + 2,
           SLIP_APART = SLIP_PAD + 2, SLIP_BIAS = SLIP_APART + 2 };

    /* One window of one image: x and w begin at the group's first channel. */
    #define SLIP_WINDOW(NAME, T) \\
    static inline double NAME(const int64_t *p, const T *x, const T *w, int64_t top, \\
                              int64_t left) { \\
        double total = 0.0; \\
        for (int64_t c = 0; c < p[SLIP_OWN]; c++) \\
            for (int64_t a = 0; a < p[SLIP_KERNEL]; a++) { \\
                int64_t y = top + a * p[SLIP_APART]; \\
                if (y < 0 || y >= p[SLIP_SIZE]) continue; \\
                const T *line = x + c * p[SLIP_IMAGE + 1] + y * p[SLIP_IMAGE + 2]; \\
                const T *cells = w + c * p[SLIP_WEIGHT + 1] + a * p[SLIP_WEIGHT + 2]; \\
                for (int64_t b = 0; b < p[SLIP_KERNEL + 1]; b++) { \\
                    int64_t z = left + b * p[SLIP_APART + 1]; \\
                    if (z < 0 || z >= p[SLIP_SIZE + 1]) continue; \\
                    total += (double)line[z * p[SLIP_IMAGE + 3]] \\
                             * (double)cells[b * p[SLIP_WEIGHT + 3]]; \\
                } \\
            } \\
        return total; \\
    }
    SLIP_WINDOW(slip_window_float, float)
    SLIP_WINDOW(slip_window_double, double)

    #define SLIP_CONVOLVE(NAME, T, WINDOW) \\
    static void NAME(const char *packed, size_t out, size_t image, size_t weight, size_t bias) { \\
        const int64_t *p = (const int64_t *)packed; \\
        for (int64_t n = 0; n < p[SLIP_N]; n++) \\
            for (int64_t o = 0; o < p[SLIP_O]; o++) { \\
                int64_t group = o / p[SLIP_KEPT]; \\
                const T *x = (const T *)image + n * p[SLIP_IMAGE] \\
                             + group * p[SLIP_OWN] * p[SLIP_IMAGE + 1]; \\
                const T *w = (const T *)weight + o * p[SLIP_WEIGHT]; \\
                T *to = (T *)out + n * p[SLIP_OUT] + o * p[SLIP_OUT + 1]; \\
                double first = bias ? (double)((const T *)bias)[o * p[SLIP_BIAS]] : 0.0; \\
                for (int64_t i = 0; i < p[SLIP_H]; i++) \\
                    for (int64_t j = 0; j < p[SLIP_W]; j++) \\
                        to[i * p[SLIP_OUT + 2] + j * p[SLIP_OUT + 3]] = (T)(first + WINDOW( \\
                            p, x, w, i * p[SLIP_STEP] - p[SLIP_PAD], \\
                            j * p[SLIP_STEP + 1] - p[SLIP_PAD + 1])); \\
            } \\
    }
    SLIP_CONVOLVE(slip_convolve_float, float, slip_window_float)
    SLIP_CONVOLVE(slip_convolve_double, double, slip_window_double)
    """
    void slip_convolve_float(const char *packed, size_t out, size_t image, size_t weight,
                             size_t bias)
    void slip_convolve_double(const char *packed, size_t out, size_t image, size_t weight,
                              size_t bias)

cdef class SmallConvolution(Kernel):
    cdef public bytes packed
    cdef public bint wide
    cpdef object run(self, Plan plan, tuple operands, tuple numbers)
