cimport cython

from slipstream.core.memory.slabs cimport Judge

@cython.final
cdef class Use:
    cdef public int owner
    cdef public long long sequence
    cdef public dict others
    cdef public dict inherited

@cython.final
cdef class Uses:
    cdef readonly dict marks
    cdef readonly int home
    cdef public long long floor
    cpdef object note(self, size_t address, int stream, long long sequence)
    cpdef Use find(self, size_t address)
    cdef object hand_on(self, size_t address)
    cpdef object leave(self, size_t address, size_t rest)
    cpdef object join(self, size_t address, size_t after)

@cython.final
cdef class Own(Judge):
    cdef Uses uses
    cdef int stream

@cython.final
cdef class Clean(Judge):
    cdef dict marks
    cdef int stream
    cdef dict covered
    cdef dict latest
    cdef bint plain
    cdef bint is_covered(self, int stream, long long sequence)
