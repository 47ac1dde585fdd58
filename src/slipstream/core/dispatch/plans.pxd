from slipstream.core.dispatch.carrying cimport OpCore
from slipstream.core.vocab.records cimport Plan, TensorBase

cdef class PlanTable:
    cdef public list ring
    cdef public Py_ssize_t limit
    cdef public Py_ssize_t hand
    cdef public Py_ssize_t made
    cpdef object keep(self, OpCore op, Plan plan)
