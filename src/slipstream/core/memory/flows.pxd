cimport cython

@cython.final
cdef class Flow:
    cdef public long long taken
    cdef public long long given
    cdef public long long peak
    cpdef void add(self, Py_ssize_t amount)
    cpdef void remove(self, Py_ssize_t amount)
