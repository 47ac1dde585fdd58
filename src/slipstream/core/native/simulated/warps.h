/* What threads of a block do together, and atomics. */
inline void __syncthreads() { slip_now->barrier(slip_now, 0); }
inline int __syncthreads_count(int predicate) {
    return slip_now->barrier(slip_now, predicate != 0);
}
inline void slip_cluster_meet() { slip_now->meet(slip_now); }
inline unsigned slip_block_rank() { return slip_now->rank; }
inline unsigned slip_block_size() { return blockDim.x * blockDim.y * blockDim.z; }
inline int __syncthreads_or(int predicate) { return __syncthreads_count(predicate) != 0; }
inline int __syncthreads_and(int predicate) { return __syncthreads_count(!predicate) == 0; }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) {}

inline unsigned slip_lane() {
    const slip_triple &t = threadIdx, &d = blockDim;
    return (t.x + d.x * (t.y + d.y * t.z)) % SLIP_WARP;
}

template <class T> inline unsigned long long slip_pack(T value) {
    static_assert(sizeof(T) <= 8, "warp operations take values of at most eight bytes");
    unsigned long long word = 0;
    __builtin_memcpy(&word, &value, sizeof(T));
    return word;
}
template <class T> inline T slip_unpack(unsigned long long word) {
    T value;
    __builtin_memcpy(&value, &word, sizeof(T));
    return value;
}
template <class T> inline T slip_exchange(unsigned mask, T value, int source) {
    return slip_unpack<T>(slip_now->together(slip_now, mask, SLIP_SHUFFLE, slip_pack(value),
                                             source));
}
/* Lanes of one segment of `width` lanes see each other; others read their own value. */
template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = SLIP_WARP) {
    int first = (int)slip_lane() & ~(width - 1);
    return slip_exchange<T>(mask, value, first + (source & (width - 1)));
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = SLIP_WARP) {
    int lane = slip_lane(), from = lane - (int)delta;
    return slip_exchange<T>(mask, value, from < (lane & ~(width - 1)) ? lane : from);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = SLIP_WARP) {
    int lane = slip_lane(), from = lane + (int)delta;
    return slip_exchange<T>(mask, value, from > (lane | (width - 1)) ? lane : from);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int other, int width = SLIP_WARP) {
    int lane = slip_lane(), from = lane ^ other;
    return slip_exchange<T>(mask, value, from > (lane | (width - 1)) ? lane : from);
}

inline unsigned long long slip_vote(unsigned mask, int what, unsigned long long value) {
    return slip_now->together(slip_now, mask, what, value, 0);
}
inline void __syncwarp(unsigned mask = ~0u) { slip_vote(mask, SLIP_BALLOT, 0); }
inline unsigned __ballot_sync(unsigned mask, int predicate) {
    return (unsigned)slip_vote(mask, SLIP_BALLOT, predicate != 0);
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }
template <class T> inline unsigned __match_any_sync(unsigned mask, T value) {
    return (unsigned)slip_vote(mask, SLIP_MATCH, slip_pack(value));
}
template <class T> inline unsigned __match_all_sync(unsigned mask, T value, int *same) {
    unsigned there = __ballot_sync(mask, 1), equal = __match_any_sync(mask, value);
    *same = equal == there;
    return *same ? there : 0;
}
#define SLIP_REDUCE(T, name, what) \
    inline T __reduce_##name##_sync(unsigned mask, T v) { return (T)slip_vote(mask, what, v); }
SLIP_REDUCE(unsigned, add, SLIP_ADD)
SLIP_REDUCE(int, add, SLIP_ADD)
SLIP_REDUCE(unsigned, min, SLIP_MIN)
SLIP_REDUCE(int, min, SLIP_SIGNED_MIN)
SLIP_REDUCE(unsigned, max, SLIP_MAX)
SLIP_REDUCE(int, max, SLIP_SIGNED_MAX)
SLIP_REDUCE(unsigned, and, SLIP_AND)
SLIP_REDUCE(unsigned, or, SLIP_OR)
SLIP_REDUCE(unsigned, xor, SLIP_XOR)
/* Which lanes run together is not known before a `_sync`: no other lane may be counted on. */
inline unsigned __activemask() { return 1u << slip_lane(); }

/* -- atomics: threads of the simulated card never run at once -- */

template <class T> inline T *slip_atomic(const slip_pointer<T> &p) {
    return (T *)slip_check<sizeof(T), alignof(T)>(p.block, p.at, SLIP_ATOMIC);
}
template <class T> inline T *slip_atomic(T *p) { return p; }

/* The value is converted to what the pointer points to. */
template <class T> struct slip_same { typedef T type; };
#define SLIP_ATOMIC_ON(pointer, name, next) \
    template <class T> inline T name(pointer p, typename slip_same<T>::type value) { \
        T *at = slip_atomic(p), old = *at; \
        *at = next; \
        return old; \
    }
#define SLIP_ATOMICS(name, next) \
    SLIP_ATOMIC_ON(T *, name, next) SLIP_ATOMIC_ON(slip_pointer<T>, name, next)
SLIP_ATOMICS(atomicAdd, old + value)
SLIP_ATOMICS(atomicSub, old - value)
SLIP_ATOMICS(atomicExch, value)
SLIP_ATOMICS(atomicMin, value < old ? value : old)
SLIP_ATOMICS(atomicMax, value > old ? value : old)
SLIP_ATOMICS(atomicAnd, old & value)
SLIP_ATOMICS(atomicOr, old | value)
SLIP_ATOMICS(atomicXor, old ^ value)
SLIP_ATOMICS(atomicInc, old >= value ? 0 : old + 1)
SLIP_ATOMICS(atomicDec, old == 0 || old > value ? value : old - 1)

#define SLIP_SWAP_ON(pointer) \
    template <class T> inline T atomicCAS(pointer p, typename slip_same<T>::type expected, \
                                          typename slip_same<T>::type value) { \
        T *at = slip_atomic(p), old = *at; \
        if (old == expected) *at = value; \
        return old; \
    }
SLIP_SWAP_ON(T *)
SLIP_SWAP_ON(slip_pointer<T>)

#define atomicAdd_block atomicAdd
#define atomicSub_block atomicSub
#define atomicExch_block atomicExch
#define atomicMin_block atomicMin
#define atomicMax_block atomicMax
#define atomicCAS_block atomicCAS
#define atomicAdd_system atomicAdd
#define atomicExch_system atomicExch
#define atomicCAS_system atomicCAS

inline void __trap() { slip_now->trap(slip_now, "__trap()"); }
inline void __brkpt() {}
#define assert(condition) \
    ((condition) ? (void)0 : slip_now->trap(slip_now, "assert(" #condition ")"))
extern "C" int fflush(void *);
template <class... A> inline int printf(const char *format, const A &...values) {
    int count = __builtin_printf(format, slip_plain(values)...);
    fflush(0);
    return count;
}
inline long long clock64() { return ++slip_now->ticks; }
inline int clock() { return (int)clock64(); }

/* -- the door from the engine: parameters out of their block, then a loop over threads -- */

template <class T> struct slip_argument {
    enum { size = sizeof(T), align = alignof(T), kind = 0 };
    static const T &read(const unsigned char *at) { return *(const T *)at; }
};
template <class T> struct slip_argument<slip_pointer<T>> {
    enum { size = 8, align = 8, kind = slip_is_const<T>::value ? 1 : 2 };
    static slip_pointer<T> read(const unsigned char *at) {
        return slip_pointer_at<T>(*(const unsigned long long *)at);
    }
};

template <class... P> struct slip_signature {
    static constexpr unsigned place(unsigned n) {
        const unsigned sizes[] = {slip_argument<P>::size..., 0};
        const unsigned aligns[] = {slip_argument<P>::align..., 1};
        unsigned at = 0;
        for (unsigned i = 0; i <= n; i++) {
            at = (at + aligns[i] - 1) & ~(aligns[i] - 1);
            if (i < n) at += sizes[i];
        }
        return at;
    }
};

template <unsigned... I> struct slip_indices {};
template <unsigned N, unsigned... I> struct slip_count : slip_count<N - 1, N - 1, I...> {};
template <unsigned... I> struct slip_count<0, I...> { typedef slip_indices<I...> type; };

template <class F, F f> struct slip_describe;
template <class... P, void (*f)(P...)> struct slip_describe<void (*)(P...), f> {
    typedef slip_signature<P...> signature;
    template <class... A> static void threads(slip_context *context, const A &...arguments) {
        while (context->next(context)) f(arguments...);
    }
    template <unsigned... I> static void unpack(slip_context *context, slip_indices<I...>) {
        threads(context,
                slip_argument<P>::read(context->parameters + signature::place(I))...);
    }
    static void run(slip_context *context) {
        slip_now = context;
        unpack(context, typename slip_count<sizeof...(P)>::type());
    }
    template <unsigned... I>
    static const slip_parameter *table(slip_indices<I...>) {
        static const slip_parameter all[] = {
            {signature::place(I), slip_argument<P>::size, slip_argument<P>::kind}..., {0, 0, 0}};
        return all;
    }
    static slip_kernel kernel(const char *name, unsigned max_threads, unsigned cluster) {
        return {name, run, table(typename slip_count<sizeof...(P)>::type()),
                (unsigned)sizeof...(P), signature::place(sizeof...(P)), max_threads, 0,
                cluster};
    }
};
