from slipstream.core.memory.ledger cimport Ledger
from slipstream.core.memory.streams cimport StreamAllocator
from slipstream.core.vocab.modes cimport ModeState, ModeTable

cdef ModeTable modes

cdef class DeviceAllocator(StreamAllocator):
    cdef readonly object driver
    cdef readonly int ordinal
    cdef readonly object memory
    cdef readonly Ledger ledger
    cdef public object handle
    cdef public object route
    cdef readonly list neighbours
    cdef public bint abandoned
    cdef public int held
    cdef public int number
    cdef readonly dict replays
    cdef readonly dict elsewhere
    cdef readonly list watchers
    cdef bint special
    cpdef size_t allocate(self, Py_ssize_t nbytes) except? 0
    cdef size_t allocate_specially(self, Py_ssize_t nbytes) except? 0
    cdef int give_large(self, size_t address) except -1
    cpdef object used(self, size_t address, int stream, long long sequence)
