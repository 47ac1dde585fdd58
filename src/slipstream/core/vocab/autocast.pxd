cdef class AutocastState:
    cdef public dict enabled, dtypes, casts, members
    cdef public bint caching
    cdef public Py_ssize_t nesting
