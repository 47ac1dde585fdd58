"""The CUDA C++ that goes before every kernel of ours; nothing is included, by NVRTC or the host.

The simulated driver compiles the same text with the host's compiler over a header of its own, which
defines ``SLIP_SIMULATED`` and the checked pointers.  Both branches give the same bits, but for the
payload of a nan.
"""

from __future__ import annotations

from slipstream.core.kernels.cuda.prelude_numbers import NUMBERS

_TYPES = r"""
#ifndef SLIP_SIMULATED
// A kernel uses a few of the functions only.
#pragma nv_diag_suppress 177
#endif
#define SLIP_DEVICE static __device__ __forceinline__

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;

#define INT64_MIN (-9223372036854775807ll - 1)
#define INT64_MAX 9223372036854775807ll
#undef NAN
#undef INFINITY
#define NAN __int_as_float(0x7fffffff)
#define INFINITY __int_as_float(0x7f800000)

struct slip_float16 { uint16_t bits; };
struct slip_bfloat16 { uint16_t bits; };
struct __align__(8) slip_c64 { float re, im; };
struct __align__(16) slip_c128 { double re, im; };
"""

# The simulated driver's header has its own of these.
_POINTERS = r"""
#ifndef SLIP_SIMULATED
#define SLIP_POINTER(...) __VA_ARGS__*
template <class V, class T> SLIP_DEVICE V slip_load(const T* p) {
    return *reinterpret_cast<const V*>(p);
}
template <class V, class T> SLIP_DEVICE void slip_store(T* p, V v) {
    *reinterpret_cast<V*>(p) = v;
}
template <class T> SLIP_DEVICE T* slip_pointer_at(unsigned long long address) {
    return reinterpret_cast<T*>(address);
}
template <class U, class T> SLIP_DEVICE U* slip_cast(T* p) { return reinterpret_cast<U*>(p); }
// An element that another block of the same kernel wrote.
template <class T> SLIP_DEVICE T slip_fresh(const T* p, int64_t at) {
    return *reinterpret_cast<const volatile T*>(p + at);
}
SLIP_DEVICE slip_c64 slip_fresh(const slip_c64* p, int64_t at) {
    const volatile slip_c64* x = p + at;
    return slip_c64{x->re, x->im};
}
SLIP_DEVICE slip_c128 slip_fresh(const slip_c128* p, int64_t at) {
    const volatile slip_c128* x = p + at;
    return slip_c128{x->re, x->im};
}
SLIP_DEVICE unsigned char* slip_dynamic_shared() {
    extern __shared__ __align__(16) unsigned char slip_shared_bytes[];
    return slip_shared_bytes;
}
#else
#define slip_fresh(p, at) ((p)[at])
#endif
"""

# Several neighbouring elements at once.  They stay in 32-bit words, as they come from memory: an
# access that must go element by element then ends in the same registers as a whole one.
_VECTORS = r"""
template <class T> struct slip_lane;
#define SLIP_SHORT_LANE(T, FROM, TO)                                                            \
    template <> struct slip_lane<T> {                                                           \
        static __device__ __forceinline__ T get(const uint32_t* word, int e) {                  \
            const int bit = e * (int)sizeof(T) % 4 * 8;                                         \
            const uint32_t bits = word[e * (int)sizeof(T) / 4] >> bit;                          \
            return FROM;                                                                        \
        }                                                                                       \
        static __device__ __forceinline__ void set(uint32_t* word, int e, T x) {                \
            const int bit = e * (int)sizeof(T) % 4 * 8;                                         \
            const uint32_t mask = (0xffffffffu >> (32 - 8 * (int)sizeof(T))) << bit;            \
            uint32_t& held = word[e * (int)sizeof(T) / 4];                                      \
            held = (held & ~mask) | (((uint32_t)(TO) << bit) & mask);                           \
        }                                                                                       \
    };
SLIP_SHORT_LANE(uint8_t, (uint8_t)bits, x)
SLIP_SHORT_LANE(int8_t, (int8_t)bits, x)
SLIP_SHORT_LANE(uint16_t, (uint16_t)bits, x)
SLIP_SHORT_LANE(int16_t, (int16_t)bits, x)
SLIP_SHORT_LANE(slip_float16, slip_float16{(uint16_t)bits}, x.bits)
SLIP_SHORT_LANE(slip_bfloat16, slip_bfloat16{(uint16_t)bits}, x.bits)
SLIP_SHORT_LANE(uint32_t, bits, x)
SLIP_SHORT_LANE(int32_t, (int32_t)bits, x)
SLIP_SHORT_LANE(float, __uint_as_float(bits), __float_as_uint(x))
#define SLIP_LONG_LANE(T, FROM, TO)                                                             \
    template <> struct slip_lane<T> {                                                           \
        static __device__ __forceinline__ T get(const uint32_t* word, int e) {                  \
            const uint64_t bits = (uint64_t)word[2 * e + 1] << 32 | word[2 * e];                \
            return FROM;                                                                        \
        }                                                                                       \
        static __device__ __forceinline__ void set(uint32_t* word, int e, T x) {                \
            const uint64_t bits = (uint64_t)(TO);                                               \
            word[2 * e] = (uint32_t)bits;                                                       \
            word[2 * e + 1] = (uint32_t)(bits >> 32);                                           \
        }                                                                                       \
    };
SLIP_LONG_LANE(int64_t, (int64_t)bits, x)
SLIP_LONG_LANE(uint64_t, bits, x)
SLIP_LONG_LANE(double, __longlong_as_double((int64_t)bits), __double_as_longlong(x))
template <> struct slip_lane<slip_c64> {
    static __device__ __forceinline__ slip_c64 get(const uint32_t* word, int e) {
        return slip_make_c64(slip_lane<float>::get(word, 2 * e),
                             slip_lane<float>::get(word, 2 * e + 1));
    }
    static __device__ __forceinline__ void set(uint32_t* word, int e, slip_c64 x) {
        slip_lane<float>::set(word, 2 * e, x.re);
        slip_lane<float>::set(word, 2 * e + 1, x.im);
    }
};
template <> struct slip_lane<slip_c128> {
    static __device__ __forceinline__ slip_c128 get(const uint32_t* word, int e) {
        return slip_make_c128(slip_lane<double>::get(word, 2 * e),
                              slip_lane<double>::get(word, 2 * e + 1));
    }
    static __device__ __forceinline__ void set(uint32_t* word, int e, slip_c128 x) {
        slip_lane<double>::set(word, 2 * e, x.re);
        slip_lane<double>::set(word, 2 * e + 1, x.im);
    }
};

template <int BYTES> struct slip_chunk;
template <> struct slip_chunk<1> {
    uint8_t held;
    __device__ __forceinline__ void put(uint32_t* word) const { word[0] = held; }
    __device__ __forceinline__ void take(const uint32_t* word) { held = (uint8_t)word[0]; }
};
template <> struct __align__(2) slip_chunk<2> {
    uint16_t held;
    __device__ __forceinline__ void put(uint32_t* word) const { word[0] = held; }
    __device__ __forceinline__ void take(const uint32_t* word) { held = (uint16_t)word[0]; }
};
#define SLIP_CHUNK(BYTES)                                                                       \
    template <> struct __align__(BYTES) slip_chunk<BYTES> {                                     \
        uint32_t held[BYTES / 4];                                                               \
        __device__ __forceinline__ void put(uint32_t* word) const {                             \
            for (int i = 0; i < BYTES / 4; i++) word[i] = held[i];                              \
        }                                                                                       \
        __device__ __forceinline__ void take(const uint32_t* word) {                            \
            for (int i = 0; i < BYTES / 4; i++) held[i] = word[i];                              \
        }                                                                                       \
    };
SLIP_CHUNK(4)
SLIP_CHUNK(8)
SLIP_CHUNK(16)

// A condition that the compiler must take as new: it would rather copy a loop than test it inside.
SLIP_DEVICE bool slip_opaque(bool x) {
#ifndef SLIP_SIMULATED
    int kept = x;
    asm volatile("" : "+r"(kept));
    return kept != 0;
#else
    return x;
#endif
}
// N elements of type T: one access of at most 16 bytes.
template <class T, int N> struct slip_vector {
    static const int WORDS = (sizeof(T) * N + 3) / 4;
    uint32_t word[WORDS];
    __device__ __forceinline__ T get(int e) const { return slip_lane<T>::get(word, e); }
    __device__ __forceinline__ void set(int e, T x) { slip_lane<T>::set(word, e, x); }
    // Drop the first M elements, and let others come in at the end.
    template <int M> __device__ __forceinline__ void push(const slip_vector<T, M>& part) {
        const int moved = slip_vector<T, M>::WORDS;
#pragma unroll
        for (int i = 0; i < WORDS; i++) {
            word[i] = i + moved < WORDS ? word[i + moved] : part.word[i + moved - WORDS];
        }
    }
};
// N elements from p on in one access if `whole`, else the first `left` of them: a loop over four
// elements at a time, so that it takes few instructions.
template <class T, int N, class P>
SLIP_DEVICE slip_vector<T, N> slip_read(P p, int left, bool whole) {
    slip_vector<T, N> v = {};
    if (whole) {
        slip_load<slip_chunk<sizeof(T) * N> >(p).put(v.word);
        return v;
    }
    const int M = N < 4 ? N : 4;
#pragma unroll 1
    for (int e = 0; e < N; e += M) {
        slip_vector<T, M> part = {};
#pragma unroll
        for (int i = 0; i < M; i++) {
            if (e + i < left) part.set(i, p[e + i]);
        }
        v.push(part);
    }
    return v;
}
template <class T, int N, class P>
SLIP_DEVICE void slip_write(P p, slip_vector<T, N> v, int left, bool whole) {
    if (whole) {
        slip_chunk<sizeof(T) * N> chunk;
        chunk.take(v.word);
        slip_store<slip_chunk<sizeof(T) * N> >(p, chunk);
        return;
    }
    const int M = N < 4 ? N : 4;
    const slip_vector<T, M> none = {};
#pragma unroll 1
    for (int e = 0; e < N; e += M) {
#pragma unroll
        for (int i = 0; i < M; i++) {
            if (e + i < left) p[e + i] = v.get(i);
        }
        v.push(none);
    }
}
// One element, N times.
template <class T, int N, class P> SLIP_DEVICE slip_vector<T, N> slip_repeat(P p, int left) {
    slip_vector<T, N> v = {};
    if (left > 0) {
        const T x = p[0];
#pragma unroll
        for (int e = 0; e < N; e++) v.set(e, x);
    }
    return v;
}
// N elements `step` apart.
template <class T, int N, class P>
SLIP_DEVICE slip_vector<T, N> slip_gather(P p, int left, int64_t step) {
    slip_vector<T, N> v = {};
#pragma unroll
    for (int e = 0; e < N; e++) {
        if (e < left) v.set(e, p[e * step]);
    }
    return v;
}
template <class T, int N, class P>
SLIP_DEVICE void slip_scatter(P p, const slip_vector<T, N>& v, int left, int64_t step) {
#pragma unroll
    for (int e = 0; e < N; e++) {
        if (e < left) p[e * step] = v.get(e);
    }
}
// N elements into shared memory, on their way while the thread goes on; it may read them, and it
// alone, when `slip_copies_done` has returned.
template <class T, int N, class P, class Q>
SLIP_DEVICE void slip_copy_ahead(P to, Q from, bool whole) {
#if !defined(SLIP_SIMULATED) && __CUDA_ARCH__ >= 800
    if constexpr (sizeof(T) * N >= 4) {
        if (whole) {
            const uint32_t place = (uint32_t)__cvta_generic_to_shared(to);
            if constexpr (sizeof(T) * N == 16) {
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                             :: "r"(place), "l"(from) : "memory");
            } else {
                asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
                             :: "r"(place), "l"(from), "n"(sizeof(T) * N) : "memory");
            }
            return;
        }
    }
#endif
    slip_write(to, slip_read<T, N>(from, N, whole), N, true);
}
SLIP_DEVICE void slip_copies_done() {
#if !defined(SLIP_SIMULATED) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
template <class T> SLIP_DEVICE bool slip_aligned(const T* p, int bytes) {
    return ((uint64_t)(size_t)p & (uint64_t)(bytes - 1)) == 0;
}
"""

# Index arithmetic; a `divider` word holds a multiplier and, from bit 32 on, a shift.
_INDICES = r"""
// The remainder of `left` by `size`; `left` becomes the quotient.  For left < 2**31.
SLIP_DEVICE uint32_t slip_take(uint32_t& left, int64_t size, int64_t divider) {
    const uint32_t multiplier = (uint32_t)divider;
    const uint32_t quotient = (__umulhi(left, multiplier) + left) >> (int)(divider >> 32);
    const uint32_t remainder = left - quotient * (uint32_t)size;
    left = quotient;
    return remainder;
}
SLIP_DEVICE int64_t slip_take(int64_t& left, int64_t size, int64_t divider) {
    const int64_t quotient = left / size;
    const int64_t remainder = left - quotient * size;
    left = quotient;
    return remainder;
}
SLIP_DEVICE int64_t slip_least(int64_t a, int64_t b) { return a < b ? a : b; }
"""

# Reductions over the threads of a row or of a block's columns.  The order in which values are
# joined depends on the number of threads only.
_FOLDS = r"""
// An extreme and its place, of 32 bits where no more elements are reduced.
template <class T, class I> struct slip_place { T value; I index; };
template <class T, class I> SLIP_DEVICE slip_place<T, I> slip_make_place(T value, I index) {
    slip_place<T, I> x;
    x.value = value;
    x.index = index;
    return x;
}

// Moments of numbers, as distances from one of them, `first`: a mean far from zero loses nothing.
// How many there are, the mean of the distances, and the sum of their squared distances from it.
template <class T> struct __align__(16) slip_spread {
    T count, first, mean, square;
    __device__ __forceinline__ T value() const { return square; }
};
template <class T>
SLIP_DEVICE slip_spread<T> slip_make_spread(T count, T first, T mean, T square) {
    slip_spread<T> x;
    x.count = count;
    x.first = first;
    x.mean = mean;
    x.square = square;
    return x;
}
#ifndef SLIP_SIMULATED
template <class T> SLIP_DEVICE slip_spread<T> slip_fresh(const slip_spread<T>* p, int64_t at) {
    const volatile slip_spread<T>* x = p + at;
    return slip_make_spread<T>(x->count, x->first, x->mean, x->square);
}
SLIP_DEVICE slip_spread<float> slip_fresh(const slip_spread<float>* p, int64_t at) {
    slip_spread<float> x;
    asm volatile("ld.volatile.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.count), "=f"(x.first), "=f"(x.mean), "=f"(x.square) : "l"(p + at));
    return x;
}
#endif
SLIP_DEVICE float slip_fused(float a, float b, float c) { return fmaf(a, b, c); }
SLIP_DEVICE double slip_fused(double a, double b, double c) { return fma(a, b, c); }
// 1 / count, correctly rounded: as a division goes that need not look for numbers out of range.
SLIP_DEVICE float slip_rate(float count) {
#ifndef SLIP_SIMULATED
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(count));
    return fmaf(fmaf(-count, r, 1.0f), r, r);
#else
    return 1.0f / count;
#endif
}
SLIP_DEVICE double slip_rate(double count) { return 1.0 / count; }
// One more number of a batch: the batch's sum and sum of squares about the mean so far.
template <class T>
SLIP_DEVICE void slip_gather_spread(T& first, T mean, T& sum, T& near, T x, bool starts) {
    if (starts) first = x;
    const T distance = (x - first) - mean;
    sum = sum + distance;
    near = slip_fused(distance, distance, near);
}
// The batch; `rate` is 1 / how many numbers there are with it.
template <class T>
SLIP_DEVICE void slip_enter_spread(T& mean, T& square, T sum, T near, T rate) {
    const T step = sum * rate;
    mean = mean + step;
    square = square + slip_fused(-sum, step, near);
}
template <class T>
SLIP_DEVICE slip_spread<T> slip_join_spreads(slip_spread<T> u, slip_spread<T> v) {
    // What holds nothing has no first number.
    const T first = u.count == 0 ? v.first : u.first;
    const T other = v.count == 0 ? first : v.first;
    const T count = u.count + v.count, share = count == 0 ? 0 : v.count * slip_rate(count);
    const T step = (other - first) + (v.mean - u.mean);
    return slip_make_spread<T>(count, first, slip_fused(step, share, u.mean),
                               slip_fused(step * step, share * u.count, u.square + v.square));
}

// The sum of exponentials of numbers' distances from the largest of them.  Where that is infinite,
// or there is none above -infinity, the distances are no numbers.
template <class T> struct slip_grown {
    T largest, total;
    __device__ __forceinline__ T value() const {
        return total > 0 && largest < (T)INFINITY ? total : (T)NAN;
    }
};
template <class T> SLIP_DEVICE slip_grown<T> slip_make_grown(T largest, T total) {
    slip_grown<T> x;
    x.largest = largest;
    x.total = total;
    return x;
}
#ifndef SLIP_SIMULATED
template <class T> SLIP_DEVICE slip_grown<T> slip_fresh(const slip_grown<T>* p, int64_t at) {
    const volatile slip_grown<T>* x = p + at;
    return slip_make_grown<T>(x->largest, x->total);
}
#endif
SLIP_DEVICE float slip_below(float x) { return -fabsf(x); }
SLIP_DEVICE double slip_below(double x) { return -fabs(x); }

// Ways that values go between the threads of a warp: `distance` away, or from the first of a group.
struct slip_across {
    int distance;
    template <class T> __device__ __forceinline__ T operator()(T x) const {
        return __shfl_xor_sync(0xffffffffu, x, distance);
    }
};
struct slip_from_first {
    int width;
    template <class T> __device__ __forceinline__ T operator()(T x) const {
        return __shfl_sync(0xffffffffu, x, 0, width);
    }
};
template <class W, class T> SLIP_DEVICE T slip_moved(W way, T x) { return way(x); }
template <class W> SLIP_DEVICE bool slip_moved(W way, bool x) { return way((int)x) != 0; }
template <class W> SLIP_DEVICE slip_c64 slip_moved(W way, slip_c64 x) {
    return slip_make_c64(way(x.re), way(x.im));
}
template <class W> SLIP_DEVICE slip_c128 slip_moved(W way, slip_c128 x) {
    return slip_make_c128(way(x.re), way(x.im));
}
template <class W, class T, class I>
SLIP_DEVICE slip_place<T, I> slip_moved(W way, slip_place<T, I> x) {
    return slip_make_place<T, I>(slip_moved(way, x.value), way(x.index));
}
template <class W, class T> SLIP_DEVICE slip_spread<T> slip_moved(W way, slip_spread<T> x) {
    return slip_make_spread<T>(way(x.count), way(x.first), way(x.mean), way(x.square));
}
template <class W, class T> SLIP_DEVICE slip_grown<T> slip_moved(W way, slip_grown<T> x) {
    return slip_make_grown<T>(way(x.largest), way(x.total));
}

// One value of N, joined in halves.
template <class F, int N> SLIP_DEVICE typename F::type slip_fold_lanes(typename F::type (&x)[N]) {
#pragma unroll
    for (int half = N / 2; half; half /= 2) {
#pragma unroll
        for (int e = 0; e < half; e++) x[e] = F::join(x[e], x[e + half]);
    }
    return x[0];
}
// Over `width` neighbouring threads of a warp, a power of two.  All get what the first one found:
// threads join in different orders, which may tell zeros of different sign apart.
template <class F> SLIP_DEVICE typename F::type slip_fold_warp(typename F::type x, int width) {
    for (int half = width / 2; half; half /= 2) {
        x = F::join(x, slip_moved(slip_across{half}, x));
    }
    return slip_moved(slip_from_first{width}, x);
}
// Over the `lanes` threads of a row: a power of two below 32 (WARPS is 0), one warp, or a block of
// at most WARPS warps.  Folds of a kernel have types of their own, and so memory of their own, or a
// barrier between them.
template <class F, int WARPS>
SLIP_DEVICE typename F::type slip_fold_row(typename F::type x, int lane, int lanes) {
    if (WARPS == 0) return slip_fold_warp<F>(x, lanes);
    x = slip_fold_warp<F>(x, 32);
    if (WARPS == 1) return x;
    __shared__ typename F::type shared[WARPS < 2 ? 1 : WARPS];
    if (lane % 32 == 0) shared[lane / 32] = x;
    __syncthreads();
    const int mine = lane % (WARPS < 2 ? 1 : WARPS);
    x = mine < lanes / 32 ? shared[mine] : F::identity();
    return slip_fold_warp<F>(x, WARPS);
}
// Whether all other blocks that share a ticket have come here before: what they wrote until then
// can be read (`slip_fresh`).  The last one leaves the ticket as it was, zero.
SLIP_DEVICE bool slip_is_last(SLIP_POINTER(uint32_t) ticket, uint32_t blocks) {
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0) {
#ifndef SLIP_SIMULATED
        // It releases all that the barrier made this thread see, and acquires what others did.
        uint32_t before;
        asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                     : "=r"(before) : "l"(ticket) : "memory");
#else
        __threadfence();
        const uint32_t before = atomicAdd(ticket, 1u);
        __threadfence();
#endif
        last = before == blocks - 1;
        if (last) *ticket = 0;
    }
    __syncthreads();
    return last;
}
// Over the rows of threads of a block, for N columns a thread; every row gets the result.  A thread
// takes four values of one column at a time, so that most threads have work in most rounds, and
// threads that follow each other find theirs in banks that do.
template <class F, int N, int THREADS>
SLIP_DEVICE void slip_fold_columns(typename F::type (&x)[N]) {
    if (blockDim.y == 1) return;
    __shared__ typename F::type shared[N * THREADS];
    const int threads = blockDim.x * blockDim.y, columns = blockDim.x * N;
    const int mine = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
    for (int e = 0; e < N; e++) {
        shared[(int)threadIdx.y * columns + e * (int)blockDim.x + (int)threadIdx.x] = x[e];
    }
    __syncthreads();
    int rows = blockDim.y;
    for (; rows >= 8; rows /= 4) {
        const int left = rows / 4 * columns;
        for (int at = mine; at < left; at += threads) {
            typename F::type found[4];
#pragma unroll
            for (int i = 0; i < 4; i++) found[i] = shared[at + i * left];
            shared[at] = slip_fold_lanes<F, 4>(found);
        }
        __syncthreads();
    }
    for (int at = mine; at < columns; at += threads) {
        typename F::type found = shared[at];
        for (int i = 1; i < rows; i++) found = F::join(found, shared[at + i * columns]);
        shared[at] = found;
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < N; e++) x[e] = shared[e * (int)blockDim.x + (int)threadIdx.x];
}
"""

_SERVICES = r"""
// Philox4x32-10: the four words of block `counter` of the stream `seed`; one mapping everywhere.
struct slip_four { uint32_t word[4]; };
SLIP_DEVICE slip_four slip_philox(uint64_t counter, uint64_t seed) {
    uint32_t a = (uint32_t)counter, b = (uint32_t)(counter >> 32), c = 0, d = 0;
    uint32_t low = (uint32_t)seed, high = (uint32_t)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint64_t p = (uint64_t)0xD2511F53u * a, q = (uint64_t)0xCD9E8D57u * c;
        a = (uint32_t)(q >> 32) ^ b ^ low;
        b = (uint32_t)q;
        c = (uint32_t)(p >> 32) ^ d ^ high;
        d = (uint32_t)p;
        low += 0x9E3779B9u;
        high += 0xBB67AE85u;
    }
    const slip_four out = {{a, b, c, d}};
    return out;
}
// Report a bad index; the first one takes the slot (words: seen, tag, position, value, bound,
// taken, the address of the device's flag), and `seen` is written last.  The lane must go on with
// 0, or write nothing.
static __device__ __noinline__ void slip_index_error(unsigned long long slot, int64_t tag,
                                                     int64_t position, int64_t value,
                                                     int64_t bound) {
    if (atomicCAS(slip_pointer_at<unsigned long long>(slot + 40), 0ull, 1ull) != 0ull) return;
    SLIP_POINTER(int64_t) words = slip_pointer_at<int64_t>(slot);
    words[1] = tag;
    words[2] = position;
    words[3] = value;
    words[4] = bound;
    atomicExch(slip_pointer_at<unsigned>((unsigned long long)words[6]), 1u);
    __threadfence_system();
    words[0] = 1;
}
// Whether an earlier kernel of this device reported something.
SLIP_DEVICE bool slip_is_reported(unsigned long long flag) {
#ifdef SLIP_SIMULATED
    return atomicAdd(slip_pointer_at<unsigned>(flag), 0u) != 0;
#else
    return *slip_pointer_at<const volatile unsigned>(flag) != 0;
#endif
}
"""

PRELUDE = _TYPES + _POINTERS + NUMBERS + _VECTORS + _INDICES + _FOLDS + _SERVICES
