from slipstream.core.memory.blocks cimport Allocator
from slipstream.core.memory.slabs cimport Judge, Shelf
from slipstream.core.memory.uses cimport Clean, Own, Uses

cdef class StreamAllocator(Allocator):
    cdef readonly Uses uses
    cdef public object current
    cdef public object covered
    cdef public object order
    cdef list owns
    cdef int streams
    cpdef object used(self, size_t address, int stream, long long sequence)
    cdef size_t allocate_among(self, Py_ssize_t nbytes, int stream) except? 0
    cpdef size_t take_own(self, Py_ssize_t nbytes, int stream) except? 0
    cpdef size_t take_small(self, Py_ssize_t nbytes, Judge judge) except? 0
