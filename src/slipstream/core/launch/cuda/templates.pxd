from slipstream.core.launch.cuda.backend cimport CudaBackend
from slipstream.core.launch.cuda.launches cimport Launch
from slipstream.core.launch.cuda.queue cimport Queue
from slipstream.core.launch.cuda.words cimport Words
from slipstream.core.vocab.records cimport Kernel, Plan, Spec, Storage, TensorBase

cdef class TemplateKernel(Kernel):
    cdef public list launches
    cdef public object first
    cdef public tuple order
    cdef public size_t alignment
    cdef public object aligner
    cdef public object make_own
    cdef public Kernel own
    cdef public object own_binding
    cpdef object record(self, Queue queue, Launch launch, tuple operands, size_t space)
    cpdef object put(self, Queue queue, Launch launch, tuple operands, size_t space)
