from slipstream.core.dispatch.op cimport Op
from slipstream.core.vocab.records cimport Spec, TensorBase

cdef Op _basic
cdef Op _read
