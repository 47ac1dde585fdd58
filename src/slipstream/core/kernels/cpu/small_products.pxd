from slipstream.core.vocab.records cimport Kernel, Plan, TensorBase

cdef class SmallProduct(Kernel):
    cdef Py_ssize_t m, n, k
    cdef Py_ssize_t a_row, a_column, b_row, b_column, o_row, o_column, c_row, c_column
    cdef bint wide, added
    cdef public bint addend_last
    cpdef object run(self, Plan plan, tuple operands, tuple numbers)
    cdef void _float(self, size_t out, size_t a, size_t b, size_t c, double beta, double alpha)
    cdef void _double(self, size_t out, size_t a, size_t b, size_t c, double beta, double alpha)
