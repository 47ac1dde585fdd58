cimport cython

from slipstream.core.memory.flows cimport Flow
from slipstream.core.memory.segments cimport Segments
from slipstream.core.memory.slabs cimport Shelf, Slab
from slipstream.core.vocab.records cimport Memory

cdef extern from "stdlib.h":
    void* realloc(void* pointer, size_t nbytes)

cdef class Allocator(Memory):
    cdef readonly Py_ssize_t granularity
    cdef public Py_ssize_t slab_granularity
    cdef readonly list shelves
    cdef readonly Segments large
    cdef public long long live_bytes
    cdef public long long peak_bytes
    cdef public long long requested_taken
    cdef public long long requested_given
    cdef readonly Flow large_blocks
    cdef readonly Flow large_bytes
    cdef public object pieces
    cdef public long long retries
    cdef public long long failures
    cdef public long long collected
    cdef public tuple rungs
    cdef public long long collect_above
    cdef public list callbacks
    cdef public object drain
    cdef public object error
    cdef readonly object listener
    cdef list table
    cdef Py_ssize_t small
    cdef Py_ssize_t round_up
    cdef int shift
    cdef list returned
    cdef size_t* stack
    cdef Py_ssize_t pending
    cdef Py_ssize_t room
    cdef bint busy
    cdef bint direct
    cdef Py_ssize_t outside
    cdef readonly dict strays
    cpdef size_t allocate(self, Py_ssize_t nbytes) except? 0
    cpdef object free(self, size_t address, Py_ssize_t nbytes)
    @cython.final
    cdef size_t take(self, Py_ssize_t nbytes) except? 0
    @cython.final
    cdef size_t take_large(self, Py_ssize_t nbytes) except? 0
    @cython.final
    cdef int settle(self) except -1
    cdef int give_large(self, size_t address) except -1
    cdef int count_large(self, Py_ssize_t size, Py_ssize_t nbytes) except -1
    @cython.final
    cdef int widen(self) except -1
    cpdef Shelf shelf(self, Py_ssize_t nbytes)

cpdef object announce(Allocator memory, size_t address, Py_ssize_t nbytes)
cdef int give_back(Allocator memory, size_t address, Py_ssize_t nbytes) except -1
