from slipstream.core.engine.tape cimport Rule, Tape
from slipstream.core.vocab.modes cimport ModeState
from slipstream.core.vocab.records cimport GradRecord, Node, Spec, Storage, TensorBase

cdef class WeightCastRule(Rule):
    pass

cdef class Walk:
    cdef public bint retain_graph, create_graph, accumulate
    cdef public dict grads, expected, wanted
    cdef public list ready
    cdef public object needed
    cdef public ModeState state
    cdef public list early, leaves, held
    cdef public Py_ssize_t held_bytes
    cpdef object give(self, Node node, Py_ssize_t place, TensorBase grad)
    cpdef object push(self, Node node)
    cpdef object complete(self, Node node)
    cpdef bint hold(self, Node node) except -1
    cpdef object flush(self)
    cpdef object count(self, list roots)
    cpdef object visit(self, Node node)
    cpdef bint skips(self, Node node, TensorBase grad) except -1
    cpdef list step(self, Node node, list grads)
    cpdef object release(self, Node node, list results)

cdef extern from *:
    """
    #define slip_holders(object) Py_REFCNT(object)
    """
    Py_ssize_t slip_holders(object held)

cdef Tape tape
cdef object accumulate_leaf(Node node, list grads, bint create_graph)
cdef object _owned(list grads, bint create_graph)
cdef Py_ssize_t _holders(list grads)
cpdef object fit(TensorBase grad, Spec spec, Node node, Py_ssize_t place=*)
cdef bint _reduces_to(tuple shape, tuple wanted) except -1
cdef object _sum_to(TensorBase grad, tuple wanted)
