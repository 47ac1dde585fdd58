from slipstream.core.vocab.records cimport Backend, OpBase, Plan, Spec

cdef class ProductSizes:
    cdef public OpBase op
    cdef public object recipe
    cdef public Backend backend
    cdef public tuple operands
    cdef public Py_ssize_t left, right, added
    cdef public bint turned
    cdef public bint bounded
    cdef public dict rules
    cpdef Plan bind(self, object values, int flags)
    cpdef tuple _shape(self, Spec left, Spec right, Spec added)
