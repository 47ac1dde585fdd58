from slipstream.core.engine.views cimport Operations
from slipstream.core.vocab.records cimport Node, Spec, TensorBase

cdef Operations operations

cpdef object fit(TensorBase grad, Spec spec, Node node, Py_ssize_t place=*)
cdef bint _reduces_to(tuple shape, tuple wanted) except -1
cdef object _sum_to(TensorBase grad, tuple wanted)
