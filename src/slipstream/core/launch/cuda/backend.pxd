from slipstream.core.launch.cuda.launches cimport Bound, Launch, LaunchKernel
from slipstream.core.launch.cuda.queue cimport Queue
from slipstream.core.native.hot cimport HotCalls
from slipstream.core.vocab.modes cimport ModeState, ModeTable
from slipstream.core.vocab.records cimport Backend, Plan, Storage, TensorBase

cdef ModeTable mode_table

cdef class CudaBackend(Backend):
    cdef public list queues
    cdef public object streams
    cdef public Queue default
    cdef public HotCalls hot
    cdef public bint memo
    cdef public bint blocking
    cdef public object device
    cdef public object driver
    cdef public int ordinal
    cdef public size_t context
    cdef public object counts
    cdef public object allocator
    cdef public object slot
    cdef public object staging
    cdef public object order
    cdef public object edges
    cdef public object pinning
    cdef public object pinned
    cdef public object lock
    cdef public object counters
    cdef public object chains
    cdef public bint telling
    cpdef Queue queue(self)
    cpdef object boundary(self)
    cpdef dict lasting(self)
    cpdef size_t workspace(self) except 0
    cpdef Storage scratch(self, Py_ssize_t nbytes)
    cpdef size_t tickets(self) except 0
    cpdef object record_operands(self, Launch launch, tuple operands, tuple numbers)
    cpdef object record(self, Launch launch, tuple addresses, tuple numbers)

cdef Storage storage_of(CudaBackend backend, size_t address, Py_ssize_t nbytes)
cdef object run_plan(CudaBackend backend, Plan plan, tuple operands, tuple numbers)
cdef size_t tickets_of(CudaBackend backend, Queue queue) except 0
cdef object send_exported(Queue queue, tuple operands)
