from slipstream.core.kernels.cpu.machine cimport pool
from slipstream.core.vocab.records cimport Kernel, Plan, TensorBase


cdef extern from *:
    """
    #include <math.h>
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>
    #if defined(__GNUC__) && !defined(__clang__)
    #pragma GCC push_options
    #pragma GCC optimize("O3", "no-trapping-math", "no-math-errno")
    #endif

    /* Work on lines: the elements along one axis.  Words of a packed geometry; strides are in
       bytes, operands in the order in, out, second out; the outer dims follow. */
    enum { SLIP_WAY, SLIP_TYPE, SLIP_LENGTH, SLIP_KEPT, SLIP_FLAGS, SLIP_BYTES, SLIP_STEPS,
           SLIP_RANK = SLIP_STEPS + 3, SLIP_DIMS };
    /* Flags: the largest first; a nan wins; the second output is the place. */
    enum { SLIP_DOWN = 1, SLIP_NANS = 2, SLIP_VALUES_ONLY = 4 };
    /* What is done with a line. */
    enum { SLIP_SUM, SLIP_PRODUCT, SLIP_LOGSUM, SLIP_HIGHEST, SLIP_LOWEST, SLIP_SORT, SLIP_BEST,
           SLIP_KTH };
    #define SLIP_BUNDLE 64
    typedef void (*slip_line_task)(void *context, int64_t index);
    typedef void (*slip_run_tasks)(slip_line_task task, void *context, int64_t tasks, int threads);

    /* ---- scans: w lines side by side, `lane` bytes apart ---- */
    typedef struct { int64_t n, w, step[3], lane[3]; const char *in; char *out, *second; }
        slip_bundle;

    static inline double slip_logaddexp(double x, double y) {
        if (x == y) return x + 0.693147180559945309417232121458176568;
        const double apart = x - y;
        if (apart > 0) return x + log1p(exp(-apart));
        if (apart <= 0) return y + log1p(exp(apart));
        return apart;
    }
    #define SLIP_ADD(p, q) ((p) + (q))
    #define SLIP_TIMES(p, q) ((p) * (q))

    /* One step of W lines; dense: neighbours in memory. */
    #define SLIP_SCAN_STEP(I, O, A, W, IN, OUT, JOIN) \\
        for (int64_t j = 0; j < (W); j++) { \\
            sum[j] = JOIN(sum[j], (A)*(const I *)(x + j * (IN))); \\
            *(O *)(y + j * (OUT)) = (O)sum[j]; \\
        }
    #define SLIP_SCAN_WALK(I, O, A, W, IN, OUT, JOIN) \\
        for (int64_t i = 1; i < b->n; i++) { \\
            x += b->step[0]; \\
            y += b->step[1]; \\
            SLIP_SCAN_STEP(I, O, A, W, IN, OUT, JOIN) \\
        }
    #define SLIP_SCAN(NAME, I, O, A, JOIN) \\
    static void NAME(const slip_bundle *b) { \\
        A sum[SLIP_BUNDLE]; \\
        const char *x = b->in; \\
        char *y = b->out; \\
        const int64_t in = b->lane[0], out = b->lane[1]; \\
        const int dense = in == sizeof(I) && out == sizeof(O); \\
        for (int64_t j = 0; j < b->w; j++) { \\
            sum[j] = (A)*(const I *)(x + j * in); \\
            *(O *)(y + j * out) = (O)sum[j]; \\
        } \\
        if (dense && b->w == SLIP_BUNDLE) { \\
            SLIP_SCAN_WALK(I, O, A, SLIP_BUNDLE, (int64_t)sizeof(I), (int64_t)sizeof(O), JOIN) \\
        } else if (dense) { \\
            SLIP_SCAN_WALK(I, O, A, b->w, (int64_t)sizeof(I), (int64_t)sizeof(O), JOIN) \\
        } else if (b->w == 4) { \\
            SLIP_SCAN_WALK(I, O, A, 4, in, out, JOIN) \\
        } else if (b->w == 1) { \\
            SLIP_SCAN_WALK(I, O, A, 1, in, out, JOIN) \\
        } else { \\
            SLIP_SCAN_WALK(I, O, A, b->w, in, out, JOIN) \\
        } \\
    }
    #define SLIP_SCANS(TAG, I, O, A) \\
        SLIP_SCAN(slip_sum_##TAG, I, O, A, SLIP_ADD) \\
        SLIP_SCAN(slip_product_##TAG, I, O, A, SLIP_TIMES)
    SLIP_SCANS(f32, float, float, double)
    SLIP_SCANS(f64, double, double, double)
    SLIP_SCANS(u8, uint8_t, int64_t, uint64_t)
    SLIP_SCANS(i8, int8_t, int64_t, uint64_t)
    SLIP_SCANS(i16, int16_t, int64_t, uint64_t)
    SLIP_SCANS(i32, int32_t, int64_t, uint64_t)
    SLIP_SCANS(i64, int64_t, int64_t, uint64_t)
    SLIP_SCAN(slip_logsum_f32, float, float, double, slip_logaddexp)
    SLIP_SCAN(slip_logsum_f64, double, double, double, slip_logaddexp)

    /* Running extrema: the last of equals; nan stays. */
    #define SLIP_EXTREME_WALK(T, W, IN, OUT, SECOND, BEATS) \\
        for (int64_t i = 0; i < b->n; i++) { \\
            const char *x = b->in + i * b->step[0]; \\
            char *y = b->out + i * b->step[1], *z = b->second + i * b->step[2]; \\
            for (int64_t j = 0; j < (W); j++) { \\
                const T v = *(const T *)(x + j * (IN)); \\
                const int wins = (v BEATS best[j]) | (v != v); \\
                best[j] = wins ? v : best[j]; \\
                place[j] = wins ? i : place[j]; \\
                *(int64_t *)(y + j * (OUT)) = place[j]; \\
                *(T *)(z + j * (SECOND)) = best[j]; \\
            } \\
        }
    #define SLIP_EXTREME(NAME, T, BEATS) \\
    static void NAME(const slip_bundle *b) { \\
        T best[SLIP_BUNDLE]; \\
        int64_t place[SLIP_BUNDLE]; \\
        for (int64_t j = 0; j < b->w; j++) { \\
            best[j] = *(const T *)(b->in + j * b->lane[0]); \\
            place[j] = 0; \\
        } \\
        if (b->w == 4) { \\
            SLIP_EXTREME_WALK(T, 4, b->lane[0], b->lane[1], b->lane[2], BEATS) \\
        } else if (b->lane[0] == sizeof(T) && b->lane[1] == 8 && b->lane[2] == sizeof(T)) { \\
            SLIP_EXTREME_WALK(T, b->w, (int64_t)sizeof(T), 8, (int64_t)sizeof(T), BEATS) \\
        } else { \\
            SLIP_EXTREME_WALK(T, b->w, b->lane[0], b->lane[1], b->lane[2], BEATS) \\
        } \\
    }
    #define SLIP_EXTREMES(TAG, T) \\
        SLIP_EXTREME(slip_highest_##TAG, T, >=) \\
        SLIP_EXTREME(slip_lowest_##TAG, T, <=)
    SLIP_EXTREMES(u8, uint8_t)
    SLIP_EXTREMES(i8, int8_t)
    SLIP_EXTREMES(i16, int16_t)
    SLIP_EXTREMES(i32, int32_t)
    SLIP_EXTREMES(i64, int64_t)
    SLIP_EXTREMES(f32, float)
    SLIP_EXTREMES(f64, double)

    typedef void (*slip_scan)(const slip_bundle *);
    /* By type: uint8, int8, int16, int32, int64, float32, float64. */
    static const slip_scan slip_scan_of[5][7] = {
        {slip_sum_u8, slip_sum_i8, slip_sum_i16, slip_sum_i32, slip_sum_i64, slip_sum_f32,
         slip_sum_f64},
        {slip_product_u8, slip_product_i8, slip_product_i16, slip_product_i32, slip_product_i64,
         slip_product_f32, slip_product_f64},
        {0, 0, 0, 0, 0, slip_logsum_f32, slip_logsum_f64},
        {slip_highest_u8, slip_highest_i8, slip_highest_i16, slip_highest_i32, slip_highest_i64,
         slip_highest_f32, slip_highest_f64},
        {slip_lowest_u8, slip_lowest_i8, slip_lowest_i16, slip_lowest_i32, slip_lowest_i64,
         slip_lowest_f32, slip_lowest_f64}};

    /* ---- keys: unsigned numbers in the order of the elements; nan largest, zeros equal ---- */
    #define SLIP_KEYS(NAME, T, K, KEY) \\
    static void NAME(int64_t n, const char *in, int64_t step, K flip, K *key) { \\
        if (step == sizeof(T)) { \\
            const T *x = (const T *)in; \\
            for (int64_t i = 0; i < n; i++) { const T e = x[i]; key[i] = (K)(KEY) ^ flip; } \\
        } else \\
            for (int64_t i = 0; i < n; i++) { \\
                const T e = *(const T *)(in + i * step); \\
                key[i] = (K)(KEY) ^ flip; \\
            } \\
    }
    #define SLIP_FLOAT_KEY(K, SIGN, TOP) \\
        ((e & (K)~(SIGN)) > (TOP) ? (K)~(K)0 : (e & (K)~(SIGN)) == 0 ? (K)(SIGN) \\
         : (e & (SIGN)) ? (K)~e : (K)(e | (SIGN)))
    /* A key of 16 bits as one of 32: nan has all bits set in both. */
    static inline uint32_t slip_high(uint16_t key) {
        return (uint32_t)key << 16 | (key == 0xFFFFu ? 0xFFFFu : 0u);
    }
    SLIP_KEYS(slip_keys_bool, uint8_t, uint32_t, e != 0)
    SLIP_KEYS(slip_keys_u8, uint8_t, uint32_t, e)
    SLIP_KEYS(slip_keys_i8, int8_t, uint32_t, (uint32_t)e ^ 0x80000000u)
    SLIP_KEYS(slip_keys_i16, int16_t, uint32_t, (uint32_t)e ^ 0x80000000u)
    SLIP_KEYS(slip_keys_i32, int32_t, uint32_t, (uint32_t)e ^ 0x80000000u)
    SLIP_KEYS(slip_keys_f16, uint16_t, uint32_t,
              slip_high(SLIP_FLOAT_KEY(uint16_t, 0x8000u, 0x7C00u)))
    SLIP_KEYS(slip_keys_b16, uint16_t, uint32_t,
              slip_high(SLIP_FLOAT_KEY(uint16_t, 0x8000u, 0x7F80u)))
    SLIP_KEYS(slip_keys_f32, uint32_t, uint32_t,
              SLIP_FLOAT_KEY(uint32_t, 0x80000000u, 0x7F800000u))
    SLIP_KEYS(slip_keys_i64, int64_t, uint64_t, (uint64_t)e ^ (1ull << 63))
    SLIP_KEYS(slip_keys_f64, uint64_t, uint64_t,
              SLIP_FLOAT_KEY(uint64_t, 1ull << 63, 0x7FF0000000000000ull))

    typedef void (*slip_narrow_keys)(int64_t, const char *, int64_t, uint32_t, uint32_t *);
    typedef void (*slip_wide_keys)(int64_t, const char *, int64_t, uint64_t, uint64_t *);
    /* By dtype: bool, uint8, int8, int16, int32, float16, bfloat16, float32; int64, float64. */
    static const slip_narrow_keys slip_narrow_of[8] = {
        slip_keys_bool, slip_keys_u8, slip_keys_i8, slip_keys_i16, slip_keys_i32, slip_keys_f16,
        slip_keys_b16, slip_keys_f32};
    static const slip_wide_keys slip_wide_of[2] = {slip_keys_i64, slip_keys_f64};

    /* A key and the place of its element: no two are equal. */
    typedef uint64_t slip_near;
    typedef struct { uint64_t key, place; } slip_far;
    #define SLIP_NEAR(KEY, PLACE) ((uint64_t)(KEY) << 32 | (uint64_t)(PLACE))
    #define SLIP_NEAR_KEY(e) ((e) >> 32)
    #define SLIP_NEAR_PLACE(e) ((int64_t)((e) & 0xFFFFFFFFu))
    #define SLIP_NEAR_LESS(p, q) ((p) < (q))
    static inline slip_far slip_make_far(uint64_t key, int64_t place) {
        const slip_far made = {key, (uint64_t)place};
        return made;
    }
    #define SLIP_FAR_KEY(e) ((e).key)
    #define SLIP_FAR_PLACE(e) ((int64_t)(e).place)
    #define SLIP_FAR_LESS(p, q) \\
        ((p).key < (q).key || ((p).key == (q).key && (p).place < (q).place))
    #define SLIP_SOME 512    /* keys made at a time */

    /* Sorts n entries by a number, stably, by digits of eight bits; returns their array. */
    #define SLIP_DIGITS(NAME, E, NUMBER, DIGITS) \\
    static E *NAME(E *e, E *spare, int64_t n) { \\
        uint32_t counts[DIGITS][256]; \\
        memset(counts, 0, sizeof counts); \\
        for (int64_t i = 0; i < n; i++) { \\
            const uint64_t number = NUMBER(e[i]); \\
            for (int d = 0; d < DIGITS; d++) counts[d][(number >> 8 * d) & 255]++; \\
        } \\
        for (int d = 0; d < DIGITS; d++) { \\
            uint32_t *count = counts[d], sum = 0; \\
            if (count[((uint64_t)NUMBER(e[0]) >> 8 * d) & 255] == (uint64_t)n) continue; \\
            for (int k = 0; k < 256; k++) { \\
                const uint32_t own = count[k]; \\
                count[k] = sum; \\
                sum += own; \\
            } \\
            for (int64_t i = 0; i < n; i++) \\
                spare[count[((uint64_t)NUMBER(e[i]) >> 8 * d) & 255]++] = e[i]; \\
            E *other = e; \\
            e = spare; \\
            spare = other; \\
        } \\
        return e; \\
    }
    SLIP_DIGITS(slip_keyed_near, slip_near, SLIP_NEAR_KEY, 4)
    SLIP_DIGITS(slip_keyed_far, slip_far, SLIP_FAR_KEY, 8)
    SLIP_DIGITS(slip_placed_near, slip_near, SLIP_NEAR_PLACE, 4)
    SLIP_DIGITS(slip_placed_far, slip_far, SLIP_FAR_PLACE, 4)

    /* Sorts; mixed: the entries do not come in the order of their places. */
    #define SLIP_SORTS(TAG, E, LESS) \\
    static void slip_insert_##TAG(E *e, int64_t n) { \\
        for (int64_t i = 1; i < n; i++) { \\
            const E own = e[i]; \\
            int64_t j = i; \\
            for (; j > 0 && LESS(own, e[j - 1]); j--) e[j] = e[j - 1]; \\
            e[j] = own; \\
        } \\
    } \\
    static E *slip_sort_##TAG(E *e, E *spare, int64_t n, int mixed) { \\
        if (n <= 48) { \\
            slip_insert_##TAG(e, n); \\
            return e; \\
        } \\
        E *found = mixed ? slip_placed_##TAG(e, spare, n) : e; \\
        return slip_keyed_##TAG(found, found == e ? spare : e, n); \\
    } \\
    /* Moves the k smallest to the front; the largest of them is then at k - 1. */ \\
    static void slip_select_##TAG(E *e, int64_t n, int64_t k) { \\
        int64_t low = 0, high = n - 1; \\
        while (high - low > 24) { \\
            const int64_t middle = low + (high - low) / 2; \\
            E p = e[low], q = e[middle], r = e[high]; \\
            E pivot = LESS(p, q) ? (LESS(q, r) ? q : LESS(p, r) ? r : p) \\
                                 : (LESS(p, r) ? p : LESS(q, r) ? r : q); \\
            int64_t i = low, j = high; \\
            while (i <= j) { \\
                while (LESS(e[i], pivot)) i++; \\
                while (LESS(pivot, e[j])) j--; \\
                if (i <= j) { \\
                    const E t = e[i]; \\
                    e[i++] = e[j]; \\
                    e[j--] = t; \\
                } \\
            } \\
            if (k - 1 <= j) high = j; \\
            else if (k - 1 >= i) low = i; \\
            else return; \\
        } \\
        slip_insert_##TAG(e + low, high - low + 1); \\
    }
    SLIP_SORTS(near, slip_near, SLIP_NEAR_LESS)
    SLIP_SORTS(far, slip_far, SLIP_FAR_LESS)

    /* The works on a line that need entries: all sorted; the k smallest sorted, where they are few;
       the k-th smallest, or with `below` the k smallest at the front.  Each returns the array that
       begins with the answer. */
    #define SLIP_ORDERS(TAG, E, K, MAKE, KEYOF, LESS, KEYS, BITS) \\
    typedef struct { KEYS make; const char *in; int64_t n, step; K flip; } slip_line_##TAG; \\
    static E *slip_all_##TAG(const slip_line_##TAG *x, E *e, E *spare) { \\
        K key[SLIP_SOME]; \\
        for (int64_t at = 0; at < x->n; at += SLIP_SOME) { \\
            const int64_t some = x->n - at < SLIP_SOME ? x->n - at : SLIP_SOME; \\
            x->make(some, x->in + at * x->step, x->step, x->flip, key); \\
            for (int64_t i = 0; i < some; i++) e[at + i] = MAKE(key[i], at + i); \\
        } \\
        return slip_sort_##TAG(e, spare, x->n, 0); \\
    } \\
    static E *slip_best_##TAG(const slip_line_##TAG *x, E *e, E *spare, int64_t k, \\
                              int64_t room) { \\
        K key[SLIP_SOME], edge = (K)~(K)0; \\
        int64_t held = 0; \\
        int full = 0; \\
        for (int64_t at = 0; at < x->n; at += SLIP_SOME) { \\
            const int64_t some = x->n - at < SLIP_SOME ? x->n - at : SLIP_SOME; \\
            x->make(some, x->in + at * x->step, x->step, x->flip, key); \\
            for (int64_t i = 0; i < some; i += 32) { \\
                const int64_t end = i + 32 < some ? i + 32 : some; \\
                K any = 0; \\
                if (full) { \\
                    if (end == i + 32) \\
                        for (int j = 0; j < 32; j++) any |= key[i + j] < edge; \\
                    else \\
                        for (int64_t j = i; j < end; j++) any |= key[j] < edge; \\
                    if (!any) continue; \\
                } \\
                for (int64_t j = i; j < end; j++) { \\
                    if (full && key[j] >= edge) continue; \\
                    e[held++] = MAKE(key[j], at + j); \\
                    if (held < room) continue; \\
                    slip_select_##TAG(e, held, k); \\
                    held = k; \\
                    edge = KEYOF(e[k - 1]); \\
                    full = 1; \\
                } \\
            } \\
        } \\
        if (held > k) slip_select_##TAG(e, held, k); \\
        return slip_sort_##TAG(e, spare, k, 1); \\
    } \\
    static E *slip_kth_##TAG(const slip_line_##TAG *x, E *e, int64_t k, int nans, int below) { \\
        const int64_t wanted = k; \\
        K key[SLIP_SOME]; \\
        uint32_t *counts = (uint32_t *)(e + x->n); \\
        int64_t held = 0; \\
        const int counted = x->n >= 256, cut = BITS - (x->n >= 8192 ? 12 : 10); \\
        if (counted) memset(counts, 0, (1u << (BITS - cut)) * sizeof(uint32_t)); \\
        for (int64_t at = 0; at < x->n; at += SLIP_SOME) { \\
            const int64_t some = x->n - at < SLIP_SOME ? x->n - at : SLIP_SOME; \\
            x->make(some, x->in + at * x->step, x->step, x->flip, key); \\
            if (nans) { \\
                K any = 0; \\
                for (int64_t i = 0; i < some; i++) any |= key[i] == (K)~(K)0; \\
                for (int64_t i = 0; any && i < some; i++) \\
                    if (key[i] == (K)~(K)0) { \\
                        e[0] = MAKE(key[i], at + i); \\
                        return e; \\
                    } \\
            } \\
            if (counted) for (int64_t i = 0; i < some; i++) counts[key[i] >> cut]++; \\
            else for (int64_t i = 0; i < some; i++) e[at + i] = MAKE(key[i], at + i); \\
        } \\
        if (!counted) { \\
            slip_select_##TAG(e, x->n, k); \\
            return below ? e : e + k - 1; \\
        } \\
        uint32_t digit = 0; \\
        while (k > counts[digit]) k -= counts[digit++]; \\
        for (int64_t at = 0; at < x->n; at += SLIP_SOME) { \\
            const int64_t some = x->n - at < SLIP_SOME ? x->n - at : SLIP_SOME; \\
            x->make(some, x->in + at * x->step, x->step, x->flip, key); \\
            for (int64_t i = 0; i < some; i++) { \\
                e[held] = MAKE(key[i], at + i); \\
                const uint32_t own = (uint32_t)(key[i] >> cut); \\
                held += own == digit || (below && own < digit); \\
            } \\
        } \\
        if (below) k = wanted; \\
        slip_select_##TAG(e, held, k); \\
        return below ? e : e + k - 1; \\
    } \\
    static void slip_order_##TAG(const int64_t *p, KEYS make, const char *const *at, E *e) { \\
        const int64_t k = p[SLIP_KEPT], n = p[SLIP_LENGTH], item = p[SLIP_BYTES]; \\
        const int64_t room = 2 * k + 32 < n ? 2 * k + 32 : n; \\
        const slip_line_##TAG x = {make, at[0], n, p[SLIP_STEPS], \\
                                   p[SLIP_FLAGS] & SLIP_DOWN ? (K)~(K)0 : 0}; \\
        E *found = p[SLIP_WAY] == SLIP_SORT ? slip_all_##TAG(&x, e, e + n) \\
            : p[SLIP_WAY] == SLIP_KTH \\
                ? slip_kth_##TAG(&x, e, k, (p[SLIP_FLAGS] & SLIP_NANS) != 0, 0) \\
            : n > 256 * k ? slip_best_##TAG(&x, e, e + room, k, room) \\
            : slip_sort_##TAG(slip_kth_##TAG(&x, e, k, 0, 1), e + n, k, 1); \\
        const int64_t count = p[SLIP_WAY] == SLIP_KTH ? 1 : k; \\
        const int only = (p[SLIP_FLAGS] & SLIP_VALUES_ONLY) != 0; \\
        char *to = (char *)at[2]; \\
        if (!only) \\
            for (int64_t i = 0; i < count; i++) \\
                *(int64_t *)(at[1] + i * p[SLIP_STEPS + 1]) = PLACE_##TAG(found[i]); \\
        for (int64_t i = 0; i < count; i++) { \\
            const char *from = at[0] + PLACE_##TAG(found[i]) * p[SLIP_STEPS]; \\
            char *here = to + i * p[SLIP_STEPS + 2]; \\
            if (item == 4) memcpy(here, from, 4); \\
            else if (item == 8) memcpy(here, from, 8); \\
            else if (item == 2) memcpy(here, from, 2); \\
            else *here = *from; \\
        } \\
    }
    #define PLACE_near SLIP_NEAR_PLACE
    #define PLACE_far SLIP_FAR_PLACE
    SLIP_ORDERS(near, slip_near, uint32_t, SLIP_NEAR, SLIP_NEAR_KEY, SLIP_NEAR_LESS,
                slip_narrow_keys, 32)
    SLIP_ORDERS(far, slip_far, uint64_t, slip_make_far, SLIP_FAR_KEY, SLIP_FAR_LESS,
                slip_wide_keys, 64)

    /* ---- all lines ---- */
    typedef struct { const int64_t *p; const char *at[3]; int64_t lines, each; int failed; }
        slip_lines_work;

    /* Addresses of a line; the number of lines that follow it along the last outer dim. */
    static int64_t slip_line_at(const slip_lines_work *work, int64_t line, const char **at) {
        const int64_t *p = work->p, rank = p[SLIP_RANK], *size = p + SLIP_DIMS;
        int64_t rest = 1;
        for (int k = 0; k < 3; k++) at[k] = work->at[k];
        for (int64_t d = rank - 1; d >= 0; d--) {
            const int64_t place = line % size[d];
            line /= size[d];
            if (d == rank - 1) rest = size[d] - place;
            for (int k = 0; k < 3; k++) at[k] += place * size[(k + 1) * rank + d];
        }
        return rest;
    }

    static void slip_scan_task(void *context, int64_t index) {
        slip_lines_work *work = context;
        const int64_t *p = work->p, rank = p[SLIP_RANK];
        const slip_scan scan = slip_scan_of[p[SLIP_WAY]][p[SLIP_TYPE]];
        const int64_t end = (index + 1) * work->each < work->lines ? (index + 1) * work->each
                                                                   : work->lines;
        for (int64_t line = index * work->each; line < end;) {
            const char *at[3];
            slip_bundle b = {p[SLIP_LENGTH], slip_line_at(work, line, at), {0}, {0}, 0, 0, 0};
            for (int k = 0; k < 3; k++) {
                b.step[k] = p[SLIP_STEPS + k];
                b.lane[k] = rank ? p[SLIP_DIMS + (k + 2) * rank - 1] : 0;
            }
            b.in = at[0];
            b.out = (char *)at[1];
            b.second = (char *)at[2];
            const int64_t most = llabs(b.lane[0]) < llabs(b.step[0]) ? SLIP_BUNDLE : 4;
            if (b.w > end - line) b.w = end - line;
            if (b.w > most) b.w = most;
            scan(&b);
            line += b.w;
        }
    }

    static void slip_order_task(void *context, int64_t index) {
        slip_lines_work *work = context;
        const int64_t *p = work->p, n = p[SLIP_LENGTH], type = p[SLIP_TYPE];
        const int64_t end = (index + 1) * work->each < work->lines ? (index + 1) * work->each
                                                                   : work->lines;
        const int64_t entry = type < 8 ? sizeof(slip_near) : sizeof(slip_far);
        void *room = malloc((size_t)(2 * n + 2048) * entry);
        if (!room) {
            work->failed = 1;
            return;
        }
        for (int64_t line = index * work->each; line < end; line++) {
            const char *at[3];
            slip_line_at(work, line, at);
            if (type < 8) slip_order_near(p, slip_narrow_of[type], at, room);
            else slip_order_far(p, slip_wide_of[type - 8], at, room);
        }
        free(room);
    }

    static int slip_lines(const char *packed, int64_t lines, const size_t *at, size_t tasks,
                          int threads) {
        slip_lines_work work = {(const int64_t *)packed, {0}, lines, lines, 0};
        const int64_t way = work.p[SLIP_WAY];
        const slip_line_task task = way < SLIP_SORT ? slip_scan_task : slip_order_task;
        for (int k = 0; k < 3; k++) work.at[k] = (const char *)at[k];
        if (threads <= 1 || lines < 2) {
            task(&work, 0);
            return work.failed;
        }
        const int64_t parts = 4 * (int64_t)threads;
        work.each = (lines + parts - 1) / parts;
        /* Whole bundles, so that no vector is cut. */
        if (way < SLIP_SORT && work.each > SLIP_BUNDLE)
            work.each = (work.each + SLIP_BUNDLE - 1) / SLIP_BUNDLE * SLIP_BUNDLE;
        ((slip_run_tasks)tasks)(task, &work, (lines + work.each - 1) / work.each, threads);
        return work.failed;
    }
    #if defined(__GNUC__) && !defined(__clang__)
    #pragma GCC pop_options
    #endif
    """
    int slip_lines(const char *packed, long long lines, const size_t *at, size_t tasks,
                   int threads) nogil


cdef class LineKernel(Kernel):
    cdef public bytes packed
    cdef public long long lines
    cdef public long long numel
    cdef public int outputs
    cpdef object run(self, Plan plan, tuple operands, tuple numbers)
