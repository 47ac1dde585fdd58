from slipstream.core.kernels.cpu.philox cimport Philox
from slipstream.core.vocab.records cimport Kernel, Plan, Spec, TensorBase

cdef Philox philox

cdef class FillKernel(Kernel):
    cdef public int law
    cpdef object run(self, Plan plan, tuple operands, tuple numbers)
    cdef object _fill(self, size_t address, Spec spec, tuple numbers)

cdef class BernoulliKernel(Kernel):
    cpdef object run(self, Plan plan, tuple operands, tuple numbers)

cdef class MultinomialKernel(Kernel):
    cdef public bint replacement
    cpdef object run(self, Plan plan, tuple operands, tuple numbers)
