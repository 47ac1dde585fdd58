cimport cython

cdef extern from "stdlib.h":
    void free(void *data) nogil

cdef extern from *:
    """
    #include <stdlib.h>
    #include <string.h>
    /* Where a key's four words are kept among 4096 such rows. */
    static CYTHON_INLINE Py_ssize_t slip_near(long long key) {
        return 4 * (Py_ssize_t)(((unsigned long long)key * 0x9E3779B97F4A7C15ULL) >> 52);
    }
    /* One more in a row of (count, ns, value). */
    static CYTHON_INLINE void slip_count(long long *row, long long duration, long long value) {
        row[0] += 1;
        row[1] += duration;
        row[2] += value;
    }
    /* n cells in place of those that are there; the new ones are zero. */
    static CYTHON_INLINE long long *slip_more_cells(long long *data, Py_ssize_t before,
                                                    Py_ssize_t n) {
        long long *wider = (long long *)realloc(data, (size_t)n * 8);
        if (wider != NULL)
            memset(wider + before, 0, (size_t)(n - before) * 8);
        return wider;
    }
    """
    Py_ssize_t slip_near(long long key) noexcept
    void slip_count(long long *row, long long duration, long long value) noexcept
    long long *slip_more_cells(long long *data, Py_ssize_t before, Py_ssize_t n)

# A number of the module that C code reads.
cdef Py_ssize_t _cell

@cython.final
cdef class Cells:
    cdef readonly Py_ssize_t room
    cdef public list items
    cdef long long *data
    cpdef object widen(self, Py_ssize_t room)
    cdef int keep(self, long long key, Py_ssize_t number) noexcept
    cdef int count(self, Py_ssize_t row, long long duration, long long value) except -1
    cpdef object add(self, Py_ssize_t row, long long duration, long long value)
    cpdef object lengthen(self, Py_ssize_t row, long long duration)
    cdef long long at(self, Py_ssize_t place) noexcept
    cpdef object set(self, Py_ssize_t place, long long value)
    cpdef Py_ssize_t get(self, Py_ssize_t place) except? -1
