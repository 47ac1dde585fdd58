from slipstream.core.vocab.records cimport Spec

cdef class SpecTable:
    cdef dict _table
    cpdef Spec intern(self, object device, object dtype, tuple shape, tuple strides)
    cpdef Spec contiguous(self, object device, object dtype, tuple shape)
    cpdef Spec like(self, Spec spec, object dtype)
