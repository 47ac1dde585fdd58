from slipstream.core.vocab.records cimport Kernel, Plan, Spec, Storage, TensorBase

cdef class ProgramKernel(Kernel):
    cdef public object program
    cdef public object evaluator
    cpdef object run(self, Plan plan, tuple operands, tuple numbers)
