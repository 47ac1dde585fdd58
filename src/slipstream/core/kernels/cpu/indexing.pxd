from slipstream.core.kernels.cpu.gathering cimport GatherBinding, Gathering, MaskBinding
from slipstream.core.vocab.records cimport Kernel, Plan, TensorBase

cdef Gathering gathering

cdef size_t address(TensorBase tensor)
cdef tuple addresses(tuple operands, Py_ssize_t first, Py_ssize_t last)

cdef class ReadKernel(Kernel):
    cdef public GatherBinding binding
    cdef public GatherBinding checks
    cdef public object failure
    cpdef object run(self, Plan plan, tuple operands, tuple numbers)

cdef class WriteKernel(Kernel):
    cdef public GatherBinding binding
    cdef public GatherBinding checks
    cdef public GatherBinding copy
    cdef public GatherBinding wide
    cdef public object failure
    cdef public Py_ssize_t last
    cpdef object run(self, Plan plan, tuple operands, tuple numbers)
    cdef object _store(self, TensorBase out, size_t source, tuple places)

cdef class ScatterProductKernel(Kernel):
    cdef public object dim
    cdef public object size
    cdef public bint copies
    cpdef object run(self, Plan plan, tuple operands, tuple numbers)

cdef class JoinKernel(Kernel):
    cdef public tuple bindings
    cdef public tuple offsets
    cdef public list places
    cdef public list parts
    cpdef object run(self, Plan plan, tuple operands, tuple numbers)

cdef class CountKernel(Kernel):
    cdef public MaskBinding binding
    cpdef object run(self, Plan plan, tuple operands, tuple numbers)

cdef class NonzeroKernel(Kernel):
    cdef public MaskBinding binding
    cpdef object run(self, Plan plan, tuple operands, tuple numbers)

cdef class SelectKernel(Kernel):
    cdef public MaskBinding binding
    cpdef object run(self, Plan plan, tuple operands, tuple numbers)

cdef class SpreadKernel(Kernel):
    cdef public MaskBinding binding
    cpdef object run(self, Plan plan, tuple operands, tuple numbers)
