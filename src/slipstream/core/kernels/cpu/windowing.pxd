from slipstream.core.vocab.records cimport Kernel, Plan, TensorBase


cdef extern from *:
    """
    #include <math.h>
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>

    /* What a walk does. */
    enum { SLIP_VALUES, SLIP_PLACES, SLIP_PICK, SLIP_SPREAD };
    /* Words of a packed geometry; strides are in bytes, images first. */
    enum { SLIP_MODE, SLIP_CODE, SLIP_ITEM, SLIP_DISJOINT, SLIP_N, SLIP_C, SLIP_H, SLIP_W, SLIP_OH,
           SLIP_OW, SLIP_IMAGES, SLIP_CELLS = SLIP_IMAGES + 4, SLIP_INDEX = SLIP_CELLS + 4,
           SLIP_KERNEL = SLIP_INDEX + 4, SLIP_STEP = SLIP_KERNEL + 2, SLIP_PAD = SLIP_STEP + 2,
           SLIP_APART = SLIP_PAD + 2 };

    static inline float slip_wide_half(uint16_t h) {
        uint32_t x = (uint32_t)(h & 0x7FFFu) << 13, sign = (uint32_t)(h & 0x8000u) << 16;
        float v;
        if ((h & 0x7FFFu) >= 0x7C00u) x |= 0x7F800000u;
        memcpy(&v, &x, 4);
        if ((h & 0x7FFFu) < 0x7C00u) v *= 0x1p112f;
        memcpy(&x, &v, 4);
        x |= sign;
        memcpy(&v, &x, 4);
        return v;
    }
    static inline float slip_wide_bfloat(uint16_t h) {
        uint32_t x = (uint32_t)h << 16;
        float v;
        memcpy(&v, &x, 4);
        return v;
    }

    /* One plane.  Padding never wins, nan always; else the first of equals. */
    #define SLIP_POOL(NAME, T, WIDE, LOAD, LOWEST, LOWEST_RAW) \\
    static void NAME(const int64_t *p, const char *in, char *out) { \\
        int64_t h = p[SLIP_H], w = p[SLIP_W], sh = p[SLIP_IMAGES + 2], sw = p[SLIP_IMAGES + 3]; \\
        int64_t dy = p[SLIP_APART], dx = p[SLIP_APART + 1]; \\
        int places = p[SLIP_MODE] == SLIP_PLACES; \\
        for (int64_t i = 0; i < p[SLIP_OH]; i++) { \\
            int64_t top = i * p[SLIP_STEP] - p[SLIP_PAD], end = top + dy * p[SLIP_KERNEL]; \\
            if (top < 0) top += (-top + dy - 1) / dy * dy; \\
            if (end > h) end = h; \\
            for (int64_t j = 0; j < p[SLIP_OW]; j++) { \\
                int64_t left = j * p[SLIP_STEP + 1] - p[SLIP_PAD + 1]; \\
                int64_t stop = left + dx * p[SLIP_KERNEL + 1]; \\
                if (left < 0) left += (-left + dx - 1) / dx * dx; \\
                if (stop > w) stop = w; \\
                WIDE best = LOWEST; \\
                T raw = LOWEST_RAW; \\
                int64_t place = top * w + left; \\
                for (int64_t y = top; y < end; y += dy) \\
                    for (int64_t x = left; x < stop; x += dx) { \\
                        T cell = *(const T *)(in + y * sh + x * sw); \\
                        WIDE v = LOAD(cell); \\
                        int wins = (v > best) | (v != v); \\
                        best = wins ? v : best; \\
                        raw = wins ? cell : raw; \\
                        place = wins ? y * w + x : place; \\
                    } \\
                char *to = out + i * p[SLIP_CELLS + 2] + j * p[SLIP_CELLS + 3]; \\
                if (places) *(int64_t *)to = place; \\
                else *(T *)to = raw; \\
            } \\
        } \\
    }
    #define SLIP_SAME(v) (v)
    SLIP_POOL(slip_pool_u8, uint8_t, uint8_t, SLIP_SAME, 0, 0)
    SLIP_POOL(slip_pool_i8, int8_t, int8_t, SLIP_SAME, INT8_MIN, INT8_MIN)
    SLIP_POOL(slip_pool_i16, int16_t, int16_t, SLIP_SAME, INT16_MIN, INT16_MIN)
    SLIP_POOL(slip_pool_i32, int32_t, int32_t, SLIP_SAME, INT32_MIN, INT32_MIN)
    SLIP_POOL(slip_pool_i64, int64_t, int64_t, SLIP_SAME, INT64_MIN, INT64_MIN)
    SLIP_POOL(slip_pool_half, uint16_t, float, slip_wide_half, -INFINITY, 0xFC00u)
    SLIP_POOL(slip_pool_bfloat, uint16_t, float, slip_wide_bfloat, -INFINITY, 0xFF80u)
    SLIP_POOL(slip_pool_float, float, float, SLIP_SAME, -INFINITY, -INFINITY)
    SLIP_POOL(slip_pool_double, double, double, SLIP_SAME, -INFINITY, -INFINITY)
    typedef void (*slip_pool_type)(const int64_t *, const char *, char *);
    /* By the dtype's code, in the order of slipstream.core.vocab.dtypes. */
    static const slip_pool_type slip_pools[10] = {
        NULL, slip_pool_u8, slip_pool_i8, slip_pool_i16, slip_pool_i32, slip_pool_i64,
        slip_pool_half, slip_pool_bfloat, slip_pool_float, slip_pool_double};

    /* cells = image[index], or with spread image[index] = cells; 1 for an index outside. */
    static int slip_move(const int64_t *p, char *image, char *cells, const char *index) {
        int64_t w = p[SLIP_W], pixels = p[SLIP_H] * w, item = p[SLIP_ITEM];
        int spread = p[SLIP_MODE] == SLIP_SPREAD;
        for (int64_t i = 0; i < p[SLIP_OH]; i++)
            for (int64_t j = 0; j < p[SLIP_OW]; j++) {
                int64_t at = *(const int64_t *)(index + i * p[SLIP_INDEX + 2]
                                                + j * p[SLIP_INDEX + 3]);
                if (at < 0 || at >= pixels) return 1;
                char *a = image + at / w * p[SLIP_IMAGES + 2] + at % w * p[SLIP_IMAGES + 3];
                char *b = cells + i * p[SLIP_CELLS + 2] + j * p[SLIP_CELLS + 3];
                char *t = spread ? a : b, *s = spread ? b : a;
                if (item == 4) memcpy(t, s, 4);
                else if (item == 8) memcpy(t, s, 8);
                else memcpy(t, s, (size_t)item);
            }
        return 0;
    }
    /* image[index] += cells, summed in double in the order of the cells; 2: out of memory. */
    static int slip_sum(const int64_t *p, char *image, const char *cells, const char *index,
                        double *sums) {
        int64_t w = p[SLIP_W], pixels = p[SLIP_H] * w;
        int wide = p[SLIP_ITEM] == 8;
        for (int64_t k = 0; k < pixels; k++) sums[k] = 0.0;
        for (int64_t i = 0; i < p[SLIP_OH]; i++)
            for (int64_t j = 0; j < p[SLIP_OW]; j++) {
                int64_t at = *(const int64_t *)(index + i * p[SLIP_INDEX + 2]
                                                + j * p[SLIP_INDEX + 3]);
                const char *b = cells + i * p[SLIP_CELLS + 2] + j * p[SLIP_CELLS + 3];
                if (at < 0 || at >= pixels) return 1;
                sums[at] += wide ? *(const double *)b : (double)*(const float *)b;
            }
        for (int64_t y = 0; y < p[SLIP_H]; y++)
            for (int64_t x = 0; x < w; x++) {
                char *a = image + y * p[SLIP_IMAGES + 2] + x * p[SLIP_IMAGES + 3];
                if (wide) *(double *)a = sums[y * w + x];
                else *(float *)a = (float)sums[y * w + x];
            }
        return 0;
    }

    /* Every plane of a batch; 0, 1 for an index outside the image, 2 without memory. */
    static int slip_windows(const char *packed, char *images, char *cells, const char *index) {
        const int64_t *p = (const int64_t *)packed;
        int64_t item = p[SLIP_ITEM];
        double *sums = NULL;
        int spread = p[SLIP_MODE] == SLIP_SPREAD, bad = 0;
        if (spread && p[SLIP_DISJOINT])
            memset(images, 0, (size_t)(p[SLIP_N] * p[SLIP_C] * p[SLIP_H] * p[SLIP_W] * item));
        else if (spread) {
            sums = (double *)malloc((size_t)(p[SLIP_H] * p[SLIP_W]) * sizeof(double) + 1);
            if (sums == NULL) return 2;
        }
        for (int64_t n = 0; n < p[SLIP_N] && !bad; n++)
            for (int64_t c = 0; c < p[SLIP_C] && !bad; c++) {
                char *a = images + n * p[SLIP_IMAGES] + c * p[SLIP_IMAGES + 1];
                char *b = cells + n * p[SLIP_CELLS] + c * p[SLIP_CELLS + 1];
                const char *k = index + n * p[SLIP_INDEX] + c * p[SLIP_INDEX + 1];
                if (p[SLIP_MODE] < SLIP_PICK) slip_pools[p[SLIP_CODE]](p, a, b);
                else if (sums != NULL) bad = slip_sum(p, a, b, k, sums);
                else bad = slip_move(p, a, b, k);
            }
        free(sums);
        return bad;
    }
    """
    int slip_windows(const char *packed, char *images, char *cells, const char *index) nogil

cdef class WindowKernel(Kernel):
    cdef public bytes packed
    cdef public int mode
    cdef public Py_ssize_t numel
    cpdef object run(self, Plan plan, tuple operands, tuple numbers)
