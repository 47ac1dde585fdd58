from slipstream.core.dispatch.op cimport Op
from slipstream.core.vocab.modes cimport ModeTable
from slipstream.core.vocab.records cimport Slots, TensorBase

cdef ModeTable modes
cdef Slots slots
