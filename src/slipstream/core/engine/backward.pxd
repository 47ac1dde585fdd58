from slipstream.core.vocab.records cimport GradRecord, Node, Spec, Storage, TensorBase

cdef class Walk:
    cdef public bint retain_graph, create_graph, accumulate
    cdef public dict grads, expected, wanted
    cdef public list ready
    cdef public object needed
    cpdef object give(self, Node node, Py_ssize_t place, TensorBase grad)
    cpdef object push(self, Node node)
    cpdef object count(self, list roots)
    cpdef object visit(self, Node node)
    cpdef list step(self, Node node, list grads)
    cpdef object release(self, Node node, list results)
