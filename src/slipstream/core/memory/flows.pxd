cimport cython

@cython.final
cdef class Flow:
    cdef public long long taken
    cdef public long long given
    cdef public long long peak
    cpdef int add(self, Py_ssize_t amount) except -1
    cpdef int remove(self, Py_ssize_t amount) except -1
