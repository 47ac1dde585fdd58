# Numbers of the module that C code reads.
cdef Py_ssize_t _first, _share, _most_again
cdef long long _interval, _budget
cdef double _long

cdef class Sampler:
    cdef public object library
    cdef public bint every
    cdef public bint off
    cdef public int open
    cdef public Py_ssize_t calm
    cdef public Py_ssize_t patience
    cdef public dict seen
    cdef public long long last
    cdef public Py_ssize_t sends
    cdef public set contents
    cdef public Py_ssize_t again
    cdef public Py_ssize_t content
    cdef public long long begun
    cdef public bint turned
    cdef public dict usual
    cdef public long long price
    cdef public object prices
    cdef public long long spent
    cdef public bint lapped
    cpdef bint begin(self, Py_ssize_t content, Py_ssize_t count, double cost,
                     long long now) except *
    cpdef bint is_due(self, Py_ssize_t content, long long now) except *
    cpdef object end(self, long long now=*)
    cpdef object turn(self, bint needed)
