/* CUDA C++ for the host's compiler: keywords, vector types, checked pointers. */
typedef __SIZE_TYPE__ size_t;

static slip_context *slip_now;
static unsigned char slip_shared_memory[2 << 20] __attribute__((aligned(1024)));

#define SLIP_SIMULATED 1
#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static SLIP_SHARED_SECTION
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __restrict__
#define __restrict
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#if defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define SLIP_SHARED_SECTION __attribute__((section("slip_shared")))
extern "C" char __start_slip_shared[] __attribute__((weak, visibility("hidden")));
extern "C" char __stop_slip_shared[] __attribute__((weak, visibility("hidden")));
#define SLIP_SHARED_START __start_slip_shared
#define SLIP_SHARED_END __stop_slip_shared
#else
#define SLIP_SHARED_SECTION
#define SLIP_SHARED_START 0
#define SLIP_SHARED_END 0
#endif

#define threadIdx (slip_now->thread)
#define blockIdx (slip_now->block)
#define blockDim (slip_now->block_dim)
#define gridDim (slip_now->grid_dim)
#define warpSize SLIP_WARP

typedef slip_triple uint3;

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    operator uint3() const { return {x, y, z}; }
};

#define SLIP_VECTORS(T, name, align2, align4) \
    struct name##3 { T x, y, z; }; \
    inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
    SLIP_VECTORS_BUT_3(T, name, align2, align4)
#define SLIP_VECTORS_BUT_3(T, name, align2, align4) \
    struct name##1 { T x; }; \
    struct __align__(align2) name##2 { T x, y; }; \
    struct __align__(align4) name##4 { T x, y, z, w; }; \
    inline name##1 make_##name##1(T x) { return {x}; } \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; } \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
SLIP_VECTORS(signed char, char, 2, 4)
SLIP_VECTORS(unsigned char, uchar, 2, 4)
SLIP_VECTORS(short, short, 4, 8)
SLIP_VECTORS(unsigned short, ushort, 4, 8)
SLIP_VECTORS(int, int, 8, 16)
SLIP_VECTORS_BUT_3(unsigned, uint, 8, 16)
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
SLIP_VECTORS(long long, longlong, 16, 16)
SLIP_VECTORS(unsigned long long, ulonglong, 16, 16)
SLIP_VECTORS(float, float, 8, 16)
SLIP_VECTORS(double, double, 16, 16)

/* -- types about types -- */

template <class T> struct slip_bare { typedef T type; };
template <class T> struct slip_bare<const T> { typedef T type; };
template <class T> struct slip_bare<volatile T> { typedef T type; };
template <class T> struct slip_bare<const volatile T> { typedef T type; };
template <class T> struct slip_is_const { enum { value = 0 }; };
template <class T> struct slip_is_const<const T> { enum { value = 1 }; };
template <class T> struct slip_is_const<const volatile T> { enum { value = 1 }; };
template <bool B, class T, class F> struct slip_choose { typedef T type; };
template <class T, class F> struct slip_choose<false, T, F> { typedef F type; };
template <bool B, class T = void> struct slip_if {};
template <class T> struct slip_if<true, T> { typedef T type; };
/* Numbers are read and written through proxies; classes and unions by plain references. */
template <class T> struct slip_is_class {
    enum { value = __is_class(T) || __is_union(T) };
};

/* -- checked access -- */

static const slip_block slip_anywhere = {0, ~0ull, 0, 0, 0, 0};

template <int N> struct slip_word {};
template <> struct slip_word<1> { typedef unsigned char type; };
template <> struct slip_word<2> { typedef unsigned short type; };
template <> struct slip_word<4> { typedef unsigned type; };
template <> struct slip_word<8> { typedef unsigned long long type; };

template <unsigned N> inline void slip_mark(unsigned char *marks, int access) {
    if constexpr (N == 1 || N == 2 || N == 4 || N == 8) {
        typedef typename slip_word<N>::type word __attribute__((may_alias, aligned(1)));
        *(word *)marks |= (word)(0x0101010101010101ull * (unsigned)access);
    } else {
        for (unsigned i = 0; i < N; i++) marks[i] |= (unsigned char)access;
    }
}

/* Where `nbytes` at `at` may be touched; elsewhere than in its block: a byte bin. */
template <unsigned N, unsigned Align>
inline void *slip_check(const slip_block *block, const void *at, int access) {
    unsigned long long offset = (unsigned long long)((const char *)at - block->start);
    if (__builtin_expect(offset >= block->size || block->size - offset < N
                         || ((unsigned long long)at & (Align - 1)), 0))
        return slip_now->refuse(slip_now, block, at, N, access);
    if (block->touch) {
        slip_mark<N>(block->touch + offset, access);
        block->pages[(block->first + offset) / SLIP_PAGE] = 1;
        if (N & (N - 1)) block->pages[(block->first + offset + N - 1) / SLIP_PAGE] = 1;
    }
    return (void *)at;
}

template <class T> struct slip_pointer;

/* An element: converting reads it, assigning writes it. */
template <class T> struct slip_element {
    T *at;
    const slip_block *block;
    T *reach(int access) const { return (T *)slip_check<sizeof(T), alignof(T)>(block, at, access); }
    T get() const { return *reach(SLIP_READ); }
    operator T() const { return get(); }
    const slip_element &set(T value) const {
        *reach(SLIP_WRITE) = value;
        return *this;
    }
    const slip_element &operator=(T value) const { return set(value); }
    const slip_element &operator=(const slip_element &other) const { return set(other.get()); }
    template <class U> const slip_element &operator=(const slip_element<U> &other) const {
        return set((T)other.get());
    }
    slip_pointer<T> operator&() const { return slip_pointer<T>(at, block); }
#define SLIP_ASSIGN(sign) \
    template <class U> const slip_element &operator sign##=(U value) const { \
        return set((T)(get() sign value)); \
    }
    SLIP_ASSIGN(+) SLIP_ASSIGN(-) SLIP_ASSIGN(*) SLIP_ASSIGN(/) SLIP_ASSIGN(%)
    SLIP_ASSIGN(&) SLIP_ASSIGN(|) SLIP_ASSIGN(^) SLIP_ASSIGN(<<) SLIP_ASSIGN(>>)
#undef SLIP_ASSIGN
    const slip_element &operator++() const { return set(get() + 1); }
    const slip_element &operator--() const { return set(get() - 1); }
    T operator++(int) const { T old = get(); set(old + 1); return old; }
    T operator--(int) const { T old = get(); set(old - 1); return old; }
};

/* A pointer that knows the block it points into. */
template <class T> struct slip_pointer {
    typedef typename slip_bare<T>::type bare;
    enum { fixed = slip_is_const<T>::value };
    typedef typename slip_choose<!fixed && !slip_is_class<bare>::value, slip_element<bare>,
                                 typename slip_choose<fixed && !slip_is_class<bare>::value,
                                                      bare, T &>::type>::type element;
    T *at;
    const slip_block *block;

    slip_pointer() = default;
    slip_pointer(T *at, const slip_block *block) : at(at), block(block) {}
    slip_pointer(T *at) : at(at), block(&slip_anywhere) {}
    template <class U, class = typename slip_if<slip_is_const<T>::value
                                                && __is_same(const U, T)>::type>
    slip_pointer(const slip_pointer<U> &other) : at(other.at), block(other.block) {}
    element operator*() const { return pick(at); }
    template <class I> element operator[](I i) const { return pick(at + i); }
    T *operator->() const { return &touch(at); }
    operator T *() const { return at; }
    explicit operator bool() const { return at != 0; }
    bool operator!() const { return at == 0; }
    template <class I> slip_pointer operator+(I i) const { return slip_pointer(at + i, block); }
    template <class I> slip_pointer operator-(I i) const { return slip_pointer(at - i, block); }
    template <class I, class = typename slip_if<!slip_is_class<I>::value>::type>
    friend slip_pointer operator+(I i, const slip_pointer &p) { return p + i; }
    long operator-(const slip_pointer &other) const { return at - other.at; }
    long operator-(const T *other) const { return at - other; }
    template <class I> slip_pointer &operator+=(I i) { at += i; return *this; }
    template <class I> slip_pointer &operator-=(I i) { at -= i; return *this; }
    slip_pointer &operator++() { at++; return *this; }
    slip_pointer &operator--() { at--; return *this; }
    slip_pointer operator++(int) { slip_pointer old = *this; at++; return old; }
    slip_pointer operator--(int) { slip_pointer old = *this; at--; return old; }
#define SLIP_COMPARE(sign) \
    friend bool operator sign(const slip_pointer &a, const slip_pointer &b) { \
        return a.at sign b.at; \
    } \
    friend bool operator sign(const slip_pointer &a, T *b) { return a.at sign b; }
    SLIP_COMPARE(==) SLIP_COMPARE(!=) SLIP_COMPARE(<) SLIP_COMPARE(<=)
    SLIP_COMPARE(>) SLIP_COMPARE(>=)
#undef SLIP_COMPARE
  private:
    T &touch(T *place) const {
        return *(T *)slip_check<sizeof(T), alignof(T)>(block, place,
                                                       fixed ? SLIP_READ : SLIP_WRITE);
    }
    element pick(T *place) const {
        if constexpr (!fixed && !slip_is_class<bare>::value) return element{(bare *)place, block};
        else return touch(place);
    }
};

/* Bytes without a type are cast before they are used. */
#define SLIP_VOID(V) \
    template <> struct slip_pointer<V> { \
        V *at; \
        const slip_block *block; \
        slip_pointer() = default; \
        slip_pointer(V *at, const slip_block *block) : at(at), block(block) {} \
        slip_pointer(V *at) : at(at), block(&slip_anywhere) {} \
        template <class U> slip_pointer(const slip_pointer<U> &p) : at(p.at), block(p.block) {} \
        operator V *() const { return at; } \
        explicit operator bool() const { return at != 0; } \
    };
SLIP_VOID(void)
SLIP_VOID(const void)

#define SLIP_POINTER(...) slip_pointer<__VA_ARGS__>

template <class T> inline slip_pointer<T> slip_pointer_at(unsigned long long address) {
    return slip_pointer<T>((T *)address, slip_now->find(slip_now, address));
}
template <class U, class T> inline slip_pointer<U> slip_cast(const slip_pointer<T> &p) {
    return slip_pointer<U>((U *)p.at, p.block);
}
template <class U, class T> inline slip_pointer<U> slip_cast(T *p) {
    return slip_pointer<U>((U *)p);
}
template <class V, class T> inline V slip_load(const slip_pointer<T> &p) {
    return *(const V *)slip_check<sizeof(V), alignof(V)>(p.block, p.at, SLIP_READ);
}
template <class V, class T> inline V slip_load(T *p) {
    return *(const V *)slip_check<sizeof(V), alignof(V)>(&slip_anywhere, p, SLIP_READ);
}
template <class V, class T> inline void slip_store(const slip_pointer<T> &p, const V &value) {
    *(V *)slip_check<sizeof(V), alignof(V)>(p.block, p.at, SLIP_WRITE) = value;
}
template <class V, class T> inline void slip_store(T *p, const V &value) {
    *(V *)slip_check<sizeof(V), alignof(V)>(&slip_anywhere, p, SLIP_WRITE) = value;
}
template <class T> inline typename slip_bare<T>::type __ldg(const slip_pointer<T> &p) {
    return slip_load<typename slip_bare<T>::type>(p);
}
template <class T> inline T __ldg(const T *p) { return *p; }
template <class T> inline slip_pointer<T> slip_shared() {
    return slip_pointer<T>((T *)slip_now->shared.start, &slip_now->shared);
}
inline slip_pointer<unsigned char> slip_dynamic_shared() { return slip_shared<unsigned char>(); }

/* The compiler calls this before an index goes past an array whose length it knows. */
struct slip_index_site {
    const char *file;
    unsigned line, column;
    const struct { unsigned short kind, info; char name[1]; } *array, *index;
};
extern "C" __attribute__((visibility("hidden"), used))
void __ubsan_handle_out_of_bounds(void *site, void *index) {
    const slip_index_site *at = (const slip_index_site *)site;
    slip_now->bad_index(slip_now, at->file, at->line, at->array->name, (long long)index);
}

/* -- what the rewritten text calls -- */

/* The value behind an element's proxy; anything else as it is. */
template <class T> inline T &&slip_plain(T &&value) { return (T &&)value; }
template <class T> inline T slip_plain(const slip_element<T> &value) { return value.get(); }
template <class T> inline T slip_plain(slip_element<T> &&value) { return value.get(); }
template <class T> inline T slip_plain(slip_element<T> &value) { return value.get(); }

/* &x[i] */
template <class T, class I> inline slip_pointer<T> slip_address(const slip_pointer<T> &p, I i) {
    return p + i;
}
template <class X, class I> inline auto slip_address(X &x, I i) -> decltype(&x[i]) {
    return &x[i];
}

/* reinterpret_cast<To>(x) and static_cast<To>(x) */
template <class To> struct slip_recast {
    template <class From> static To of(From from) {
        static_assert(sizeof(From) == sizeof(To), "reinterpret_cast between different sizes");
        To to;
        __builtin_memcpy(&to, &from, sizeof(To));
        return to;
    }
};
template <class U> struct slip_recast<U *> {
    template <class T> static slip_pointer<U> of(const slip_pointer<T> &p) {
        return slip_cast<U>(p);
    }
    template <class T> static U *of(T *p) { return (U *)p; }
    template <class T> static U *of(const slip_element<T> &e) { return (U *)e.get(); }
    static U *of(unsigned long long address) { return (U *)address; }
    static U *of(unsigned long address) { return (U *)address; }
    static U *of(long long address) { return (U *)address; }
    static U *of(int address) { return (U *)(long)address; }
};
template <class U> struct slip_recast<U &> {
    template <class T> static U &of(T &value) { return *(U *)&value; }
};

/* (U*)x is written `slip_to<U>() ->* x`, and *(U*)x `*slip_to<U>() ->* x`. */
template <class U> struct slip_to_value {
    template <class X> auto operator->*(const X &x) const {
        return *slip_pointer<U>(slip_recast<U *>::of(x));
    }
    template <class T> U &operator->*(T *x) const { return *(U *)x; }
};
template <class U> struct slip_to {
    slip_to_value<U> operator*() const { return slip_to_value<U>(); }
    template <class X> auto operator->*(const X &x) const { return slip_recast<U *>::of(x); }
    template <class T> U *operator->*(T *x) const { return (U *)x; }
};
