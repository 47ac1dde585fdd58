cdef class Counts:
    cdef public Py_ssize_t launches
    cdef public Py_ssize_t replayed
    cdef public Py_ssize_t patched
    cdef public Py_ssize_t captured
    cdef public Py_ssize_t windows
    cdef public dict single
    cpdef object alone(self, str reason, list launches)
    cpdef dict report(self)
