from slipstream.core.launch.cuda.backend cimport CudaBackend
from slipstream.core.launch.cuda.launches cimport Bound, Launch
from slipstream.core.launch.cuda.queue cimport Queue
from slipstream.core.launch.cuda.words cimport Words
from slipstream.core.vocab.records cimport Backend, Storage, TensorBase

cdef class Step:
    cdef public Launch launch
    cdef public tuple places
    cdef public bint counts
    cpdef object record(self, CudaBackend backend, tuple operands, size_t scratch, tuple numbers)

cdef size_t address_of(Step step, tuple operands, size_t scratch, Py_ssize_t at) except? 0

cdef class Staged(Bound):
    cdef public list stages
    cdef public Py_ssize_t nbytes
