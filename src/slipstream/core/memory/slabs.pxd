cimport cython

cdef extern from *:
    """
    #if defined(_MSC_VER)
    #include <intrin.h>
    static CYTHON_INLINE int slip_lowest_bit(unsigned long long bits) {
        unsigned long place;
        _BitScanForward64(&place, bits);
        return (int)place;
    }
    #else
    #define slip_lowest_bit(bits) __builtin_ctzll(bits)
    #endif
    """
    int slip_lowest_bit(unsigned long long bits)

cdef class Judge:
    cdef bint accepts(self, size_t address) except -1

@cython.final
cdef class Slab:
    cdef readonly size_t base
    cdef readonly Py_ssize_t nbytes
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t slots
    cdef readonly Py_ssize_t free
    cdef Py_ssize_t position
    cdef unsigned long long summary
    cdef unsigned long long words[64]
    cdef object bits
    cdef int fill(self) except -1
    cdef int occupy(self, Py_ssize_t slot) except -1
    cdef Py_ssize_t find_slot(self, Judge judge) except -2
    cpdef bint is_free(self, Py_ssize_t slot)

@cython.final
cdef class Shelf:
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t slots
    cdef public long long taken
    cdef readonly list slabs
    cdef Slab current
    cdef size_t take(self)
    cdef bint give(self, size_t address) except -1
    cpdef size_t take_where(self, Judge judge) except? 0
    cdef Slab advance(self, Py_ssize_t start)
    cdef Slab find(self, size_t address)
    cpdef object add(self, Slab slab)
    cdef Py_ssize_t place(self, size_t address)
    cdef int renumber(self, Py_ssize_t start) except -1
