from slipstream.core.dispatch.op cimport Op
from slipstream.core.engine.tape cimport Rule, SavedTensor
from slipstream.core.vocab.modes cimport ModeState, ModeTable
from slipstream.core.vocab.records cimport GradRecord, Node, Spec, TensorBase

cdef ModeTable modes

cdef class FormulaRule(Rule):
    cdef public Op op
    cdef public list formulas
    cdef public list calls
    cdef public dict sources
    cdef public Op program
    cdef public tuple program_sources
    cdef public bint eager
    cdef public bint multiple
    cdef public tuple wanted
    cdef public object joint
    cdef public object upstream
    cpdef list apply(self, Node node, list grads, bint create_graph)
    cdef object _value(self, Py_ssize_t source, Node node, list grads)
    cdef tuple _values(self, tuple sources, Node node, list grads)
    cdef list _with_tensors(self, Node node, list grads)
    cdef list _with_program(self, Node node, list grads)

cdef object _unpack(object saved, Node node)
cdef tuple _dtypes_of(tuple inputs)
cdef bint _lacks(list grads)
cdef object _record_of(Node node)
