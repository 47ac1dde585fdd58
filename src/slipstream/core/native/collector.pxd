cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <stdlib.h>
    /* A buffer, behind a line of its own that says what is in it. */
    typedef struct slip_filled {
        struct slip_filled *next;
        size_t valid;
    } slip_filled;
    #define SLIP_HEAD 64
    #define SLIP_BUFFER ((size_t)1 << 21)
    static slip_filled *slip_ready;
    static long long slip_held, slip_most, slip_refused;

    static void slip_requested(uint8_t **buffer, size_t *size, size_t *records) {
        char *base = NULL;
        *records = 0;
        if (__atomic_add_fetch(&slip_held, SLIP_BUFFER, __ATOMIC_RELAXED) <= slip_most)
            base = (char *)aligned_alloc(SLIP_HEAD, SLIP_HEAD + SLIP_BUFFER);
        if (base == NULL) {
            __atomic_sub_fetch(&slip_held, SLIP_BUFFER, __ATOMIC_RELAXED);
            __atomic_add_fetch(&slip_refused, 1, __ATOMIC_RELAXED);
        }
        *buffer = base == NULL ? NULL : (uint8_t *)(base + SLIP_HEAD);
        *size = base == NULL ? 0 : SLIP_BUFFER;
    }
    static void slip_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size,
                               size_t valid) {
        (void)context;
        (void)stream;
        if (buffer == NULL)
            return;
        slip_filled *head = (slip_filled *)((char *)buffer - SLIP_HEAD);
        head->valid = valid < size ? valid : size;
        head->next = __atomic_load_n(&slip_ready, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n(&slip_ready, &head->next, head, 1, __ATOMIC_RELEASE,
                                            __ATOMIC_RELAXED))
            ;
    }
    static void slip_silent(void *data, int domain, uint32_t number, const void *facts) {
        (void)data;
        (void)domain;
        (void)number;
        (void)facts;
    }
    static slip_filled *slip_take(void) {
        return __atomic_exchange_n(&slip_ready, (slip_filled *)NULL, __ATOMIC_ACQUIRE);
    }
    static slip_filled *slip_after(slip_filled *head) { return head->next; }
    static size_t slip_valid(slip_filled *head) { return head->valid; }
    static size_t slip_data(slip_filled *head) { return (size_t)head + SLIP_HEAD; }
    static void slip_free(size_t data) {
        free((char *)data - SLIP_HEAD);
        __atomic_sub_fetch(&slip_held, SLIP_BUFFER, __ATOMIC_RELAXED);
    }
    static size_t slip_callback(int which) {
        return which == 0 ? (size_t)slip_requested : which == 1 ? (size_t)slip_completed
                                                                : (size_t)slip_silent;
    }
    static void slip_bound(long long most) {
        slip_most = most;
        slip_refused = 0;
    }
    static long long slip_refusals(void) { return slip_refused; }
    """
    ctypedef struct slip_filled:
        pass
    slip_filled *slip_take()
    slip_filled *slip_after(slip_filled *head)
    size_t slip_valid(slip_filled *head)
    size_t slip_data(slip_filled *head)
    void slip_free(size_t data)
    size_t slip_callback(int which)
    void slip_bound(long long most)
    long long slip_refusals()

cdef class Collector:
    cdef readonly tuple callbacks
    cpdef object begin(self, long long most)
    cpdef list take(self)
    cpdef object free(self, size_t address)
    cpdef long long refused(self)
