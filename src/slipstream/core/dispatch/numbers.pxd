from cpython.long cimport PyLong_AsLongLongAndOverflow
from slipstream.core.vocab.records cimport Plan, TensorBase

cdef long long EXACT

cdef class StoredNumbers:
    cdef public tuple numbers
    cdef public tuple stored
    cdef public object dtype
    cdef public object least
    cdef public object greatest
    cdef double low
    cdef double high
    cdef bint fits(self, object value) except -1
    cpdef tuple of(self, object values)
