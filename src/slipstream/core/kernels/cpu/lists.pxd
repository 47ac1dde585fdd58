from slipstream.core.kernels.cpu.machine cimport Binding
from slipstream.core.kernels.cpu.programs cimport ProgramKernel
from slipstream.core.launch.cuda.words cimport Words
from slipstream.core.vocab.records cimport Kernel, Plan, Storage, TensorBase

cdef class ListBinding:
    cdef public Words words
    cdef public list columns
    cdef public list bindings

cdef class ListKernel(Kernel):
    cdef public ProgramKernel single
    cpdef object run(self, Plan plan, tuple operands, tuple numbers)

cpdef size_t address_of(TensorBase tensor) except? 0
