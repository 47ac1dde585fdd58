from slipstream.core.vocab.records cimport Backend, OpBase, Plan, Spec

cdef class Factor:
    cdef public tuple batch
    cdef public object first, second

cdef class Geometry:
    cdef public tuple batch
    cdef public object rows, depth, columns
    cdef public Factor left, right, out, added
    cpdef list words(self)

cdef Geometry _matrices(Spec out, Spec left, Spec right, bint turned, Spec added)
cdef tuple _reach(Geometry found)

cdef class RowsSizes:
    cdef public OpBase op
    cdef public object recipe
    cdef public Backend backend
    cdef public tuple operands
    cdef public dict rules
    cpdef Plan bind(self, object values, int flags)

cdef class ProductSizes:
    cdef public OpBase op
    cdef public object recipe
    cdef public Backend backend
    cdef public tuple operands
    cdef public Py_ssize_t left, right, added
    cdef public bint turned
    cdef public bint bounded
    cdef public Py_ssize_t bound
    cdef public dict rules
    cpdef Plan bind(self, object values, int flags)
    cpdef tuple _shape(self, Spec left, Spec right, Spec added)
