from slipstream.core.engine.tape cimport Tape
from slipstream.core.engine.views cimport Operations
from slipstream.core.vocab.modes cimport ModeState, ModeTable
from slipstream.core.vocab.records cimport GradRecord, Spec, Storage, TensorBase

cdef Operations operations
cdef Tape tape
cdef ModeTable modes

cdef extern from *:
    """
    #define slip_holders(object) Py_REFCNT(object)
    """
    Py_ssize_t slip_holders(object held)

cdef class Accumulator:
    cdef public ModeState adder
    cdef public bint forking
    cdef public object turn, strided
    cdef public Py_ssize_t lone
    cdef bint claim(self, ModeState state) except -1
    cdef object leave(self)
    cdef object accumulate(self, GradRecord record, list grads, bint create_graph,
                           ModeState state)
    cdef object put(self, GradRecord record, list grads, bint create_graph, ModeState state)
    cdef object add_cast(self, GradRecord record, TensorBase grad, ModeState state)
    cdef TensorBase added(self, TensorBase before, TensorBase grad)
    cdef TensorBase owned(self, GradRecord record, list grads, bint create_graph)
    cdef TensorBase laid_out(self, TensorBase grad, tuple strides)
    cdef Py_ssize_t holders(self, list grads)

cdef tuple _wanted_strides(Spec spec, Spec leaf)
