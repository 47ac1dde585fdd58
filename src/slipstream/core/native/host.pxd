cdef extern from *:
    """
    #if defined(_WIN32)
    #include <malloc.h>
    #else
    #include <stdlib.h>
    #endif
    #if defined(__linux__)
    #include <sys/mman.h>
    #endif
    #define SLIP_PAGE ((size_t)4096)
    #define SLIP_HUGE ((size_t)1 << 21)

    #if defined(__linux__)
    static size_t slip_map(size_t nbytes, int flags) {
        /* One huge page more than asked, so that an aligned piece lies inside; the rest goes. */
        size_t span = nbytes + SLIP_HUGE;
        char *start = (char*)mmap(NULL, span, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
        if (start == (char*)MAP_FAILED) return 0;
        size_t head = (size_t)(-(Py_ssize_t)(size_t)start) & (SLIP_HUGE - 1);
        if (head) munmap(start, head);
        if (SLIP_HUGE - head) munmap(start + head + nbytes, SLIP_HUGE - head);
        madvise(start + head, nbytes, MADV_HUGEPAGE);
        return (size_t)(start + head);
    }
    #endif

    static size_t slip_reserve(size_t nbytes) {
        void *piece = NULL;
        #if defined(__linux__)
        if (nbytes >= SLIP_HUGE) return slip_map(nbytes, 0);
        #endif
        #if defined(_WIN32)
        piece = _aligned_malloc(nbytes, SLIP_PAGE);
        return (size_t)piece;
        #else
        return posix_memalign(&piece, SLIP_PAGE, nbytes) ? 0 : (size_t)piece;
        #endif
    }

    static void slip_release(size_t address, size_t nbytes) {
        #if defined(__linux__)
        if (nbytes >= SLIP_HUGE) { munmap((void*)address, nbytes); return; }
        #endif
        #if defined(_WIN32)
        _aligned_free((void*)address);
        #else
        free((void*)address);
        #endif
    }

    static size_t slip_window(size_t nbytes) {
        #if defined(__linux__)
        return slip_map(nbytes, MAP_NORESERVE);
        #else
        return 0;
        #endif
    }

    static void slip_forget(size_t address, size_t nbytes) {
        #if defined(__linux__)
        madvise((void*)address, nbytes, MADV_DONTNEED);
        #endif
    }
    """
    size_t slip_reserve(size_t nbytes)
    size_t slip_window(size_t nbytes)
    void slip_forget(size_t address, size_t nbytes)
    void slip_release(size_t address, size_t nbytes)

cdef class HostMemory:
    cdef readonly Py_ssize_t granularity
    cdef readonly Py_ssize_t minimum
    cdef readonly dict pieces
    cpdef size_t reserve(self, Py_ssize_t nbytes) except? 0
    cpdef object release(self, size_t address)
    cdef readonly dict windows
