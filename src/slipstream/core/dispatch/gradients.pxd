from slipstream.core.dispatch.op cimport Op
from slipstream.core.engine.tape cimport Rule, SavedTensor
from slipstream.core.vocab.modes cimport ModeState, ModeTable
from slipstream.core.launch.door cimport LaunchDoor
from slipstream.core.vocab.records cimport GradRecord, Node, Plan, Spec, TensorBase

cdef ModeTable modes
cdef LaunchDoor door
# Where arguments come from; C numbers, so that they are compared without objects.
cdef Py_ssize_t G, GRADS, RESULT, DTYPES, KEPT, MISSING

cdef class Passing:
    cdef public Spec upstream
    cdef public tuple held
    cdef public Plan plan
    cdef public tuple operands
    cdef public tuple numbers

cdef class FormulaRule(Rule):
    cdef public Op op
    cdef public list formulas
    cdef public list calls
    cdef public dict sources
    cdef public Op program
    cdef public tuple program_sources
    cdef public bint eager
    cdef public bint multiple
    cdef public bint passes
    cdef public tuple wanted
    cdef public object joint
    cdef public object upstream
    cdef public tuple upstream_sources
    cdef public tuple joint_sources
    cpdef list apply(self, Node node, list grads, bint create_graph)
    cdef bint _is_wanted_as_it_is(self, Node node, list grads) except -1
    cdef list _held(self, Node node)
    cdef object _value(self, Py_ssize_t source, Node node, list grads, list held)
    cdef tuple _values(self, tuple sources, Node node, list grads, list held)
    cdef list _with_tensors(self, Node node, list grads, list held)
    cdef list _with_program(self, Node node, list grads, list held)
    cdef list _looked_up(self, Node node, list grads, list held)
    cdef list _again(self, Passing passing, Node node, list grads, list held)

cdef dict _alike
cdef object _unpack(object saved, Node node)
cdef tuple _dtypes_of(tuple inputs)
cdef bint _declined(Node node, list grads) except -1
cdef object _note_declined(Node node, list grads)
cdef bint _serves(Passing passing, list grads, list held) except -1
cdef bint _lacks(list grads)
cdef object _record_of(Node node)
