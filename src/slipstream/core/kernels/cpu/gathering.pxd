from libc.stdint cimport int64_t

from slipstream.core.kernels.cpu.machine cimport pool


cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    enum { SLIP_DIMS = 64, SLIP_BUFFER = 256, SLIP_TILE = 32, SLIP_AHEAD = 8 };
    #if defined(__GNUC__) && !defined(__clang__)
    #define SLIP_VECTORS __attribute__((optimize("O3")))
    #else
    #define SLIP_VECTORS
    #endif
    enum { SLIP_PARTS = 256 };
    typedef void (*slip_run_parts)(void (*)(void *, int64_t), void *, int64_t, int);
    /* Words of a packed binding; shape, strides (in bytes) and indices follow the head. */
    enum { SLIP_NDIM, SLIP_COUNT, SLIP_ADDS, SLIP_TARGET_SIDE, SLIP_TYPE, SLIP_WAY, SLIP_HEAD };
    /* Ways through the innermost dims. */
    enum { SLIP_ELEMENTS, SLIP_ROWS, SLIP_PLANE };
    enum { SLIP_STEP, SLIP_SIZE, SLIP_WIDTH, SLIP_WRAPS, SLIP_STRIDES };

    /* Operands may be aligned to one byte and hold any type. */
    #define SLIP_LOOSE(T, NAME) typedef T NAME __attribute__((aligned(1), may_alias))
    SLIP_LOOSE(uint8_t, slip_1);
    SLIP_LOOSE(uint16_t, slip_2);
    SLIP_LOOSE(uint32_t, slip_4);
    SLIP_LOOSE(uint64_t, slip_8);
    SLIP_LOOSE(float, slip_f4);
    SLIP_LOOSE(double, slip_f8);
    SLIP_LOOSE(int32_t, slip_i4);
    SLIP_LOOSE(int64_t, slip_i8);
    #define SLIP_PACKED __attribute__((packed, may_alias))
    typedef struct SLIP_PACKED { uint64_t a, b; } slip_16;
    typedef struct SLIP_PACKED { float re, im; } slip_c8;
    typedef struct SLIP_PACKED { double re, im; } slip_c16;

    static inline float slip_half(uint16_t h) {
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
    static inline uint16_t slip_to_half(float v) {
        uint32_t x, sign;
        float small;
        memcpy(&x, &v, 4);
        sign = (x >> 16) & 0x8000u;
        x &= 0x7FFFFFFFu;
        if (x > 0x7F800000u) return (uint16_t)(sign | 0x7E00u);
        if (x >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u);
        if (x >= 0x38800000u)
            return (uint16_t)(sign | ((x + 0xFFFu + ((x >> 13) & 1u) - 0x38000000u) >> 13));
        /* Adding 0.5 rounds at the place of float16's subnormal unit, 2**-24. */
        memcpy(&small, &x, 4);
        small += 0.5f;
        memcpy(&x, &small, 4);
        return (uint16_t)(sign | (x - 0x3F000000u));
    }
    static inline float slip_bfloat(uint16_t h) {
        uint32_t x = (uint32_t)h << 16;
        float v;
        memcpy(&v, &x, 4);
        return v;
    }
    static inline uint16_t slip_to_bfloat(float v) {
        uint32_t x;
        memcpy(&x, &v, 4);
        if ((x & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)((x >> 16 & 0x8000u) | 0x7FC0u);
        return (uint16_t)((x + 0x7FFFu + ((x >> 16) & 1u)) >> 16);
    }

    /* n elements; shift, where given, moves the target (side 1) or the source (side 0). */
    #define SLIP_LOOP(T, BODY) { \\
        int64_t i = 0; \\
        if (!shift && ts == (int64_t)sizeof(T) && ss == (int64_t)sizeof(T)) \\
            for (; i < n; i++) { T *a = (T *)t + i; const T *b = (const T *)s + i; BODY; } \\
        else if (!shift) \\
            for (; i < n; i++, t += ts, s += ss) { \\
                T *a = (T *)t; const T *b = (const T *)s; BODY; } \\
        else if (side) \\
            for (; i < n; i++, t += ts, s += ss) { \\
                T *a = (T *)(t + shift[i]); const T *b = (const T *)s; BODY; } \\
        else \\
            for (; i < n; i++, t += ts, s += ss) { \\
                T *a = (T *)t; const T *b = (const T *)(s + shift[i]); BODY; } \\
        break; }

    static void slip_set_row(int64_t type, char *t, const char *s, int64_t ts, int64_t ss,
                             int64_t n, const int64_t *shift, int side) {
        if (!shift && ts == type && ss == type && n * type > 64) {
            memcpy(t, s, (size_t)(n * type));
            return;
        }
        switch (type) {
        case 1: SLIP_LOOP(slip_1, *a = *b)
        case 2: SLIP_LOOP(slip_2, *a = *b)
        case 4: SLIP_LOOP(slip_4, *a = *b)
        case 8: SLIP_LOOP(slip_8, *a = *b)
        default: SLIP_LOOP(slip_16, *a = *b)
        }
    }
    /* The type is a dtype's code, in the order of slipstream.core.vocab.dtypes. */
    static void slip_add_row(int64_t type, char *t, const char *s, int64_t ts, int64_t ss,
                             int64_t n, const int64_t *shift, int side) {
        switch (type) {
        case 0: SLIP_LOOP(slip_1, *a = (*a | *b) != 0)
        case 1:
        case 2: SLIP_LOOP(slip_1, *a = (uint8_t)(*a + *b))
        case 3: SLIP_LOOP(slip_2, *a = (uint16_t)(*a + *b))
        case 4: SLIP_LOOP(slip_4, *a += *b)
        case 5: SLIP_LOOP(slip_8, *a += *b)
        case 6: SLIP_LOOP(slip_2, *a = slip_to_half(slip_half(*a) + slip_half(*b)))
        case 7: SLIP_LOOP(slip_2, *a = slip_to_bfloat(slip_bfloat(*a) + slip_bfloat(*b)))
        case 8: SLIP_LOOP(slip_f4, *a += *b)
        case 9: SLIP_LOOP(slip_f8, *a += *b)
        case 10: SLIP_LOOP(slip_c8, a->re += b->re; a->im += b->im)
        default: SLIP_LOOP(slip_c16, a->re += b->re; a->im += b->im)
        }
    }
    static inline void slip_row(const int64_t *plan, char *t, const char *s, int64_t ts,
                                int64_t ss, int64_t n, const int64_t *shift) {
        if (plan[SLIP_ADDS])
            slip_add_row(plan[SLIP_TYPE], t, s, ts, ss, n, shift, (int)plan[SLIP_TARGET_SIDE]);
        else
            slip_set_row(plan[SLIP_TYPE], t, s, ts, ss, n, shift, (int)plan[SLIP_TARGET_SIDE]);
    }

    /* Checked indices times step, up to the first that is not in [0, size); wrap is 0 or size. */
    #define SLIP_INDICES(T) \
        for (int64_t i = 0; i < n; i++, p += stride) { \
            int64_t x = *(const T *)p; \
            x += x < 0 ? wrap : 0; \
            if ((uint64_t)x >= (uint64_t)size) return i; \
            shift[i] = (first ? 0 : shift[i]) + x * step; \
        }
    static inline int64_t slip_resolve(const int64_t *index, const char *p, int64_t stride,
                                       int64_t n, int64_t *shift, int first) {
        const int64_t step = index[SLIP_STEP], size = index[SLIP_SIZE];
        const int64_t wrap = index[SLIP_WRAPS] ? size : 0;
        if (index[SLIP_WIDTH] == 8) SLIP_INDICES(slip_i8)
        else SLIP_INDICES(slip_i4)
        return n;
    }
    /* Sums up the shifts of n positions along a dim; returns how many are good, and which index
       is not. */
    static inline int64_t slip_shifts(const int64_t *plan, int64_t dim, char *const *at,
                                      int64_t start, int64_t n, int64_t *shift, int64_t *which) {
        const int64_t *index = plan + SLIP_HEAD + 3 * plan[SLIP_NDIM];
        for (int64_t k = 0; k < plan[SLIP_COUNT]; k++) {
            int64_t stride = index[SLIP_STRIDES + dim];
            const char *p = at[k] + start * stride;
            int64_t good = k ? slip_resolve(index, p, stride, n, shift, 0)
                             : slip_resolve(index, p, stride, n, shift, 1);
            if (good < n) {
                n = good;
                *which = k;
            }
            index += SLIP_STRIDES + plan[SLIP_NDIM];
        }
        return n;
    }
    /* One index of 8 bytes, elements of 4 or 8: found and moved in one go.  Returns how many were
       done before the first bad index, or -1 where this way does not fit. */
    #define SLIP_ONCE(T, PLACE, BODY) \\
        for (; i < n; i++, p += stride, t += ts, s += ss) { \\
            const int64_t x = *(const slip_i8 *)p; \\
            if ((uint64_t)x >= size) return i; \\
            T *a = (T *)(PLACE ? t + x * step : t); \\
            const T *b = (const T *)(PLACE ? s : s + x * step); \\
            BODY; \\
        }
    static int64_t slip_once(const int64_t *plan, char *t, const char *s, const char *p) {
        const int64_t *shape = plan + SLIP_HEAD, ndim = plan[SLIP_NDIM], n = shape[ndim - 1];
        const int64_t *index = shape + 3 * ndim, ts = shape[2 * ndim - 1], ss = shape[3 * ndim - 1];
        const int64_t step = index[SLIP_STEP], stride = index[SLIP_STRIDES + ndim - 1];
        const int64_t type = plan[SLIP_TYPE];
        const uint64_t size = (uint64_t)index[SLIP_SIZE];
        const int side = (int)plan[SLIP_TARGET_SIDE];
        int64_t i = 0;
        if (plan[SLIP_COUNT] != 1 || index[SLIP_WIDTH] != 8 || index[SLIP_WRAPS]) return -1;
        if (plan[SLIP_ADDS]) {
            if (type == 8 && side) SLIP_ONCE(slip_f4, 1, *a += *b)
            else if (type == 9 && side) SLIP_ONCE(slip_f8, 1, *a += *b)
            else if (type == 5 && side) SLIP_ONCE(slip_8, 1, *a += *b)
            else return -1;
        } else if (type == 4) {
            if (side) SLIP_ONCE(slip_4, 1, *a = *b)
            else SLIP_ONCE(slip_4, 0, *a = *b)
        } else if (type == 8) {
            if (side) SLIP_ONCE(slip_8, 1, *a = *b)
            else SLIP_ONCE(slip_8, 0, *a = *b)
        } else return -1;
        return n;
    }
    /* The last dim; returns the number of elements done, all where every index was good. */
    static int64_t slip_elements(const int64_t *plan, char *t, char *s, char *const *at,
                                 int64_t *which) {
        const int64_t *shape = plan + SLIP_HEAD, ndim = plan[SLIP_NDIM], n = shape[ndim - 1];
        int64_t ts = shape[2 * ndim - 1], ss = shape[3 * ndim - 1], shift[SLIP_BUFFER];
        if (!plan[SLIP_COUNT]) {
            slip_row(plan, t, s, ts, ss, n, NULL);
            return n;
        }
        int64_t once = slip_once(plan, t, s, at[0]);
        if (once >= 0) {
            *which = 0;
            return once;
        }
        for (int64_t start = 0; start < n; start += SLIP_BUFFER) {
            int64_t wanted = n - start < SLIP_BUFFER ? n - start : SLIP_BUFFER;
            int64_t good = slip_shifts(plan, ndim - 1, at, start, wanted, shift, which);
            slip_row(plan, t + start * ts, s + start * ss, ts, ss, good, shift);
            if (good < wanted) return start + good;
        }
        return n;
    }
    /* The last two dims where one index serves the whole last dim. */
    static int64_t slip_rows(const int64_t *plan, char *t, char *s, char *const *at,
                             int64_t *which) {
        const int64_t *shape = plan + SLIP_HEAD, ndim = plan[SLIP_NDIM], n = shape[ndim - 1];
        const int64_t rows = shape[ndim - 2], *ts = shape + 2 * ndim - 2, *ss = ts + ndim;
        const int64_t in_target = plan[SLIP_TARGET_SIDE];
        int64_t shift[SLIP_BUFFER];
        for (int64_t start = 0; start < rows; start += SLIP_BUFFER) {
            int64_t wanted = rows - start < SLIP_BUFFER ? rows - start : SLIP_BUFFER;
            int64_t good = slip_shifts(plan, ndim - 2, at, start, wanted, shift, which);
            for (int64_t r = 0; r < good; r++, t += ts[0], s += ss[0]) {
                int64_t next = r + SLIP_AHEAD < good ? shift[r + SLIP_AHEAD] : shift[r];
                const char *soon = (in_target ? t : s) + next;
                for (int line = 0; line < 256; line += 64) __builtin_prefetch(soon + line);
                slip_row(plan, in_target ? t + shift[r] : t, in_target ? s : s + shift[r], ts[1],
                         ss[1], n, NULL);
            }
            if (good < wanted) return (start + good) * n;
        }
        return rows * n;
    }

    /* The two innermost dims of a copy whose source runs along the outer of them, in tiles. */
    static int64_t slip_plane(const int64_t *plan, char *t, const char *s) {
        const int64_t *shape = plan + SLIP_HEAD, ndim = plan[SLIP_NDIM];
        int64_t rows = shape[ndim - 2], columns = shape[ndim - 1];
        const int64_t *ts = shape + 2 * ndim - 2, *ss = shape + 3 * ndim - 2;
        for (int64_t c = 0; c < columns; c += SLIP_TILE)
            for (int64_t r = 0; r < rows; r += SLIP_TILE) {
                int64_t width = columns - c < SLIP_TILE ? columns - c : SLIP_TILE;
                int64_t height = rows - r < SLIP_TILE ? rows - r : SLIP_TILE;
                for (int64_t i = r; i < r + height; i++)
                    slip_set_row(plan[SLIP_TYPE], t + i * ts[0] + c * ts[1],
                                 s + i * ss[0] + c * ss[1], ts[1], ss[1], width, NULL, 0);
            }
        return rows * columns;
    }

    /* Steps the outer dims on; returns 0 after the last row. */
    static inline int slip_advance(int64_t *counters, const int64_t *shape, int64_t dims,
                                   int64_t ndim, const int64_t *const *strides, char **at,
                                   int64_t operands) {
        for (int64_t d = dims - 1; d >= 0; d--) {
            int64_t back = ++counters[d] < shape[d] ? 0 : shape[d];
            for (int64_t k = 0; k < operands; k++) at[k] += strides[k][d] * (1 - back);
            if (!back) return 1;
            counters[d] = 0;
        }
        return 0;
    }

    /* at: target, source, indices.  Returns position * count + which of the first bad index. */
    static int64_t slip_gather(const void *packed, char **at) {
        const int64_t *plan = (const int64_t *)packed;
        const int64_t ndim = plan[SLIP_NDIM], count = plan[SLIP_COUNT], *shape = plan + SLIP_HEAD;
        const int64_t *index = shape + 3 * ndim, *strides[SLIP_DIMS + 2];
        const int64_t way = plan[SLIP_WAY], dims = ndim - 1 - (way != SLIP_ELEMENTS);
        const int64_t n = shape[ndim - 1] * (dims < ndim - 1 ? shape[ndim - 2] : 1);
        int64_t counters[SLIP_DIMS], done = 0, which = 0;
        for (int64_t d = 0; d < dims; d++) counters[d] = 0;
        for (int64_t k = 0; k < count + 2; k++)
            strides[k] = k < 2 ? shape + (k + 1) * ndim
                               : index + (k - 2) * (SLIP_STRIDES + ndim) + SLIP_STRIDES;
        do {
            int64_t good = way == SLIP_ROWS ? slip_rows(plan, at[0], at[1], at + 2, &which)
                           : way == SLIP_PLANE ? slip_plane(plan, at[0], at[1])
                           : slip_elements(plan, at[0], at[1], at + 2, &which);
            if (good < n) return (done + good) * count + which;
            done += n;
        } while (slip_advance(counters, shape, dims, ndim, strides, at, count + 2));
        return -1;
    }

    /* Whether n neighbours are all in [0, size), or with wraps in [-size, size). */
    SLIP_VECTORS static int slip_all_good(const int64_t *index, const char *p, int64_t n) {
        const int64_t size = index[SLIP_SIZE], low = index[SLIP_WRAPS] ? size : 0;
        int64_t good = -1;
        /* The sign of (x - size) has to be set, that of (x + low) not. */
        for (int64_t i = 0; i < n; i++) {
            const int64_t x = ((const slip_i8 *)p)[i];
            good &= (x - size) & ~(x + low);
        }
        return good < 0;
    }
    /* The first bad index of a walk, as slip_gather tells it; nothing is moved. */
    static int64_t slip_check(const void *packed, char **at) {
        const int64_t *plan = (const int64_t *)packed;
        const int64_t ndim = plan[SLIP_NDIM], count = plan[SLIP_COUNT], *shape = plan + SLIP_HEAD;
        const int64_t *index = shape + 3 * ndim, *strides[SLIP_DIMS + 2];
        const int64_t in_rows = plan[SLIP_WAY] == SLIP_ROWS, last = ndim - 1 - in_rows;
        const int64_t inner = in_rows ? shape[ndim - 1] : 1, n = shape[last];
        int64_t counters[SLIP_DIMS], shift[SLIP_BUFFER], done = 0, which = 0;
        for (int64_t d = 0; d < last; d++) counters[d] = 0;
        for (int64_t k = 0; k < count + 2; k++)
            strides[k] = k < 2 ? shape + (k + 1) * ndim
                               : index + (k - 2) * (SLIP_STRIDES + ndim) + SLIP_STRIDES;
        const int dense = count == 1 && index[SLIP_WIDTH] == 8 && index[SLIP_STRIDES + last] == 8;
        do {
            if (dense && slip_all_good(index, at[2], n)) {
                done += n * inner;
                continue;
            }
            for (int64_t start = 0; start < n; start += SLIP_BUFFER) {
                int64_t wanted = n - start < SLIP_BUFFER ? n - start : SLIP_BUFFER;
                int64_t good = slip_shifts(plan, last, at + 2, start, wanted, shift, &which);
                if (good < wanted) return (done + (start + good) * inner) * count + which;
            }
            done += n * inner;
        } while (slip_advance(counters, shape, last, ndim, strides, at, count + 2));
        return -1;
    }

    /* A walk in parts along its first dim, which run beside each other: no two parts write to one
       place where that dim moves the target. */
    enum { SLIP_WORDS = 512, SLIP_FEW = 16 };
    typedef struct {
        const int64_t *plan;
        char *const *at;
        int64_t words, each, inner;
        int checks;
        int64_t bad[SLIP_PARTS];
    } slip_parted;

    static void slip_part(void *context, int64_t number) {
        slip_parted *work = context;
        const int64_t *plan = work->plan, ndim = plan[SLIP_NDIM], count = plan[SLIP_COUNT];
        const int64_t *shape = plan + SLIP_HEAD, start = number * work->each;
        int64_t own[SLIP_WORDS];
        char *at[SLIP_FEW + 2];
        memcpy(own, plan, (size_t)work->words * sizeof *own);
        if (own[SLIP_HEAD] - start < work->each) own[SLIP_HEAD] -= start;
        else own[SLIP_HEAD] = work->each;
        for (int64_t k = 0; k < count + 2; k++) {
            const int64_t *stride = k < 2 ? shape + (k + 1) * ndim
                : shape + 3 * ndim + (k - 2) * (SLIP_STRIDES + ndim) + SLIP_STRIDES;
            at[k] = work->at[k] + start * stride[0];
        }
        const int64_t bad = work->checks ? slip_check(own, at) : slip_gather(own, at);
        work->bad[number] = bad < 0 ? -1 : bad + start * work->inner * count;
    }

    static int64_t slip_walk(const void *packed, char **at, int checks, size_t tasks,
                             int threads) {
        const int64_t *plan = packed, ndim = plan[SLIP_NDIM], count = plan[SLIP_COUNT];
        const int64_t *shape = plan + SLIP_HEAD;
        slip_parted work = {plan, at, SLIP_HEAD + 3 * ndim + count * (SLIP_STRIDES + ndim), 0, 1,
                            checks, {0}};
        int64_t parts = 4 * (int64_t)threads;
        if (parts > SLIP_PARTS) parts = SLIP_PARTS;
        if (threads <= 1 || shape[0] < 2 || work.words > SLIP_WORDS || count > SLIP_FEW
                || (!checks && shape[ndim] == 0))
            return checks ? slip_check(packed, at) : slip_gather(packed, at);
        work.each = (shape[0] + parts - 1) / parts;
        parts = (shape[0] + work.each - 1) / work.each;
        for (int64_t d = 1; d < ndim; d++) work.inner *= shape[d];
        ((slip_run_parts)tasks)(slip_part, &work, parts, threads);
        for (int64_t k = 0; k < parts; k++)
            if (work.bad[k] >= 0) return work.bad[k];
        return -1;
    }

    /* Masks. */
    enum { SLIP_COUNT_TRUE, SLIP_NONZERO, SLIP_SELECT, SLIP_SPREAD };

    static int64_t slip_count_row(const char *m, int64_t stride, int64_t n) {
        int64_t total = 0, i = 0;
        if (stride == 1)
            for (; i + 8 <= n; i += 8) {
                uint64_t x = *(const slip_8 *)(m + i);
                x |= x >> 4;
                x |= x >> 2;
                x |= x >> 1;
                /* One bit a byte now; the product's top byte is their sum. */
                total += (int64_t)(((x & 0x0101010101010101u) * 0x0101010101010101u) >> 56);
            }
        for (; i < n; i++) total += m[i * stride] != 0;
        return total;
    }
    /* Where n bytes of a mask are true; places has room for n + 1. */
    static inline int64_t slip_true(const char *m, int64_t stride, int64_t n, int64_t *places) {
        int64_t found = 0;
        for (int64_t i = 0; i < n; i += 8) {
            int64_t stop = i + 8 < n ? i + 8 : n;
            if (stride == 1 && stop == i + 8 && *(const slip_8 *)(m + i) == 0) continue;
            for (int64_t j = i; j < stop; j++) {
                places[found] = j;
                found += m[j * stride] != 0;
            }
        }
        return found;
    }
    /* plan: ndim, itemsize, shape, strides of data, strides of mask.  at: data, mask.
       row: bytes from one result to the next in dense; column: from one coordinate to the next. */
    static int64_t slip_mask(int what, const void *packed, char **at, char *dense,
                             int64_t row, int64_t column) {
        const int64_t *plan = (const int64_t *)packed;
        const int64_t ndim = plan[0], type = plan[1], *shape = plan + 2, last = ndim - 1;
        const int64_t *strides[2] = {shape + ndim, shape + 2 * ndim};
        int64_t counters[SLIP_DIMS], places[SLIP_BUFFER + 1], found = 0, n = shape[last];
        int64_t ds = strides[0][last], ms = strides[1][last];
        for (int64_t d = 0; d < ndim; d++) counters[d] = 0;
        do {
            if (what == SLIP_COUNT_TRUE) {
                found += slip_count_row(at[1], ms, n);
                continue;
            }
            for (int64_t start = 0; start < n; start += SLIP_BUFFER) {
                int64_t wanted = n - start < SLIP_BUFFER ? n - start : SLIP_BUFFER;
                int64_t some = slip_true(at[1] + start * ms, ms, wanted, places);
                char *data = at[0] + start * ds, *out = dense + found * row;
                for (int64_t j = 0; what == SLIP_NONZERO && j < some; j++, out += row) {
                    for (int64_t d = 0; d < last; d++)
                        *(slip_i8 *)(out + d * column) = counters[d];
                    *(slip_i8 *)(out + last * column) = start + places[j];
                }
                for (int64_t j = 0; what != SLIP_NONZERO && j < some; j++) places[j] *= ds;
                if (what == SLIP_SELECT) slip_set_row(type, out, data, row, 0, some, places, 0);
                if (what == SLIP_SPREAD) slip_set_row(type, data, out, 0, row, some, places, 1);
                found += some;
            }
        } while (slip_advance(counters, shape, last, ndim, strides, at, 2));
        return found;
    }
    """
    int64_t slip_gather(const void *packed, char **at) noexcept nogil
    int64_t slip_check(const void *packed, char **at) noexcept nogil
    int64_t slip_walk(const void *packed, char **at, int checks, size_t tasks,
                      int threads) noexcept nogil
    int64_t slip_mask(int what, const void *packed, char **at, char *dense, int64_t row,
                      int64_t column) noexcept nogil


cdef Py_ssize_t SMALL
cdef int COUNT_TRUE
cdef int NONZERO
cdef int SELECT
cdef int SPREAD


cdef class GatherBinding:
    cdef readonly object dtype
    cdef readonly str kind
    cdef readonly tuple shape
    cdef readonly tuple target_strides
    cdef readonly tuple source_strides
    cdef readonly tuple indices
    cdef readonly Py_ssize_t numel
    cdef bytes packed
    cdef Py_ssize_t count


cdef class MaskBinding:
    cdef readonly object dtype
    cdef readonly tuple shape
    cdef readonly tuple strides
    cdef readonly tuple mask_strides
    cdef readonly Py_ssize_t numel
    cdef bytes packed
    cdef bytes unmerged


cdef class Gathering:
    cpdef Py_ssize_t run(self, GatherBinding binding, size_t target, size_t source,
                         tuple indices) except? -2
    cpdef Py_ssize_t check(self, GatherBinding binding, tuple indices) except? -2
    cpdef Py_ssize_t count(self, MaskBinding binding, size_t mask) except -1
    cpdef Py_ssize_t nonzero(self, MaskBinding binding, size_t target, size_t mask,
                             tuple steps) except -1
    cpdef Py_ssize_t select(self, MaskBinding binding, size_t target, size_t source,
                            size_t mask) except -1
    cpdef Py_ssize_t spread(self, MaskBinding binding, size_t target, size_t source,
                            size_t mask) except -1
    cdef Py_ssize_t _masked(self, int what, MaskBinding binding, size_t data, size_t mask,
                            size_t dense) except -1
