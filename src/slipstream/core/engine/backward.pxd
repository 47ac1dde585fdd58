from slipstream.core.engine.accumulating cimport Accumulator
from slipstream.core.engine.tape cimport Rule, Tape
from slipstream.core.engine.views cimport Operations
from slipstream.core.launch.door cimport LaunchDoor
from slipstream.core.vocab.modes cimport ModeState, ModeTable
from slipstream.core.vocab.records cimport (
    Backend, GradRecord, Node, Plan, Spec, Storage, TensorBase)

cdef ModeTable modes
cdef LaunchDoor door
cdef Operations operations
cdef Tape tape
cdef Accumulator accumulator
cdef Checks _checks

cdef class Checks:
    cdef public bint nan
    cdef public Py_ssize_t held_bytes
    cdef public Py_ssize_t walks, begun

cdef class Visit:
    cdef public Node node
    cdef public list grads
    cdef public Py_ssize_t left

cdef Visit visit_of(Node node)
cdef Py_ssize_t _sequence(Visit visit) except -1

cdef class WeightCastRule(Rule):
    pass

cdef class Walk:
    cdef public bint retain_graph, create_graph, accumulate, alone
    cdef public list all
    cdef public dict visits, wanted, lasting
    cdef public list ready, ones, roots
    cdef public object needed
    cdef public Visit next
    cdef public ModeState state
    cdef public list early, leaves, held
    cdef public Py_ssize_t held_bytes
    cdef Visit find(self, Node node)
    cdef Visit meet(self, Node node)
    cpdef object begin(self, Node node, Py_ssize_t place, TensorBase grad)
    cpdef object give(self, Visit visit, Py_ssize_t place, TensorBase grad)
    cpdef object push(self, Visit visit)
    cpdef object complete(self, Visit visit)
    cpdef bint hold(self, Visit visit) except -1
    cpdef object flush(self)
    cpdef object count(self)
    cpdef object run(self)
    cpdef object visit(self, Visit visit)
    cpdef bint skips(self, Node node, TensorBase grad) except -1
    cpdef list step(self, Node node, list grads)
    cpdef object release(self, Node node, list results)

cpdef list run_backward(list tensors, list grads, bint retain_graph, bint create_graph,
                        list inputs, bint accumulate)
cdef object _free(Node node)
cdef bint _lacks(list grads)
cdef object start_walk(Walk walk, list tensors, list grads)
cdef object _let_go(Walk walk)
cdef object come_after_forward(Walk walk)
cdef bint _is_on_a_card(Node node) except -1
cdef object push_roots(Walk walk)
cdef TensorBase lasting_ones(Walk walk, Node node, TensorBase tensor)
cdef object _put_back(Walk walk)
