from slipstream.core.dispatch.op cimport Op
from slipstream.core.vocab.modes cimport ModeState, ModeTable
from slipstream.core.vocab.records cimport Plan

cdef ModeTable modes

cdef class SizedOp(Op):
    cdef public Op below
    cdef public tuple values
    cdef object _first(self, ModeState state, tuple key)
