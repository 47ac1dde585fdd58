from slipstream.core.vocab.records cimport Backend, Kernel, Memory, Plan, Storage, TensorBase
from slipstream.core.vocab.modes cimport ModeState, ModeTable
from slipstream.core.vocab.ring cimport Ring

cdef ModeTable modes

cdef class ImmediateBackend(Backend):
    pass

cdef class LaunchDoor:
    cdef public Py_ssize_t launches
    cdef public tuple windowed
    cdef public Py_ssize_t pending
    cdef public Py_ssize_t captures
    cpdef object boundary(self)
    cpdef object note_capture(self, Py_ssize_t more)
    cpdef object settle(self, tuple operands)
    cpdef object settle_storage(self, Storage storage)
    cpdef object submit(self, Plan plan, tuple operands, tuple numbers)
    cpdef object _profiled(self, Plan plan, tuple operands, tuple numbers)
