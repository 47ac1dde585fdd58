from slipstream.core.dispatch.op cimport Op
from slipstream.core.vocab.modes cimport ModeState, ModeTable
from slipstream.core.vocab.records cimport GradRecord, Spec, TensorBase

cdef ModeTable modes

cdef class Cast:
    cdef public ModeState state
    cdef public str device_type
    cdef public object dtype
    cdef public bint keeps
    cpdef bint eligible(self, object value)
    cpdef object value(self, object value)
    cpdef tuple sequence(self, tuple values)
    cpdef object named(self, object values)
    cpdef object tensor(self, TensorBase tensor)

cdef bint is_weight(TensorBase tensor)
