from slipstream.core.launch.cuda.words cimport Words
from slipstream.core.vocab.records cimport Backend, Kernel, Plan

cdef class Part:
    cdef public int outputs
    cdef public int inputs
    cdef public tuple kinds
    cdef public tuple sizes
    cdef public bint heads
    cdef public bint follows
    cdef public bint reduces
    cdef public bint dear
    cdef public long long widest

cdef class Launch:
    cdef public size_t function
    cdef public unsigned long long mark
    cdef public tuple shape
    cdef public tuple numbers
    cdef public bytes tail
    cdef public str name
    cdef public object code
    cdef public object places
    cdef public Part part
    cdef public long long count
    cdef public bint leads
    cpdef bytes parameters(self, Words words, Py_ssize_t start, Py_ssize_t count)

cdef class Bound:
    cpdef object record(self, Backend backend, tuple operands, tuple numbers)

cdef class LaunchKernel(Kernel):
    pass
