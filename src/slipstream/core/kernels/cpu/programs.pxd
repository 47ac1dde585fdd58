from slipstream.core.kernels.cpu.machine cimport Binding, Machine
from slipstream.core.vocab.records cimport Kernel, Plan, Spec, Storage, TensorBase

cdef class ProgramKernel(Kernel):
    cdef public object program
    cdef public object evaluator
    cdef public Machine machine
    cdef public bint rows
    cpdef object run(self, Plan plan, tuple operands, tuple numbers)
