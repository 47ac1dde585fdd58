from slipstream.core.vocab.records cimport Kernel, Plan, TensorBase

cdef extern from "Python.h":
    object PyMemoryView_FromMemory(char* memory, Py_ssize_t size, int flags)

cdef class ArrayKernel(Kernel):
    cdef public object function
    cpdef object run(self, Plan plan, tuple operands, tuple numbers)

cdef class NoKernel(Kernel):
    cpdef object run(self, Plan plan, tuple operands, tuple numbers)
