from slipstream.core.shapes.specs cimport SpecTable
from slipstream.core.vocab.records cimport Plan, Spec, TensorBase
from slipstream.core.vocab.modes cimport ModeState
from slipstream.core.dispatch.op cimport Op

cdef SpecTable specs

cdef class Binder:
    cpdef tuple key(self, Op op, ModeState state, object values, object target, int form)
    cpdef Plan bind(self, object recipe, object values, int flags)
    cdef tuple _domain(self, list inputs)
    cdef tuple _strides(self, Spec spec, tuple domain)
    cdef tuple _results(
        self, object recipe, list inputs, tuple domain, list strides, bint contiguous)

cdef tuple reduced_layout(tuple domain, tuple reduced, bint keepdim)
