from slipstream.core.vocab.records cimport Kernel, Plan, TensorBase

cdef void _fold(float* sums) noexcept
cdef float _widened(unsigned short bits) noexcept
cdef unsigned short _narrowed(float value) noexcept

cdef class SmallProduct(Kernel):
    cdef Py_ssize_t m, n, k
    cdef Py_ssize_t a_row, a_column, b_row, b_column, o_row, o_column, c_row, c_column
    cdef Py_ssize_t sums
    cdef bint wide, narrow, added
    cdef public bint addend_last
    cpdef object run(self, Plan plan, tuple operands, tuple numbers)
    cdef void _float(self, size_t out, size_t a, size_t b, size_t c, double beta, double alpha)
    cdef void _double(self, size_t out, size_t a, size_t b, size_t c, double beta, double alpha)
    cdef void _bfloat16(self, size_t out, size_t a, size_t b, size_t c, double beta, double alpha)
    cdef float _narrow_sum(self, unsigned short* a, unsigned short* b) noexcept
