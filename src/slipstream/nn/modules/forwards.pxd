cdef extern from "Python.h":
    object PyObject_GenericGetDict(object owner, void* context)

cdef dict _parameters_of(object module)
