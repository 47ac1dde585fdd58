from slipstream.core.dispatch.op cimport Op
from slipstream.core.vocab.modes cimport ModeTable
from slipstream.core.vocab.records cimport TensorBase

cdef ModeTable modes
