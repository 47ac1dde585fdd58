cimport cython

from slipstream.core.memory.blocks cimport Allocator
from slipstream.core.memory.ledger cimport Ledger
from slipstream.core.memory.slabs cimport Judge, Shelf
from slipstream.core.memory.uses cimport Clean, Own, Uses
from slipstream.core.vocab.modes cimport ModeState, ModeTable

cdef ModeTable modes

cdef class DeviceAllocator(Allocator):
    cdef readonly object driver
    cdef readonly int ordinal
    cdef readonly object memory
    cdef readonly Ledger ledger
    cdef readonly Uses uses
    cdef public object current
    cdef public object covered
    cdef public object order
    cdef public object handle
    cdef public object route
    cdef readonly list neighbours
    cdef readonly bint abandoned
    cdef readonly dict elsewhere
    cdef readonly list watchers
    cdef list owns
    cdef bint special
    cdef int streams
    cpdef size_t allocate(self, Py_ssize_t nbytes) except? 0
    cdef size_t allocate_specially(self, Py_ssize_t nbytes) except? 0
    cdef size_t allocate_among(self, Py_ssize_t nbytes, int stream) except? 0
    cpdef size_t take_own(self, Py_ssize_t nbytes, int stream) except? 0
    cpdef size_t take_small(self, Py_ssize_t nbytes, Judge judge) except? 0
    cdef int give_large(self, size_t address) except -1
    cpdef object used(self, size_t address, int stream, long long sequence)
