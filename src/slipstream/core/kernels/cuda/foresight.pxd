cdef class Foresight:
    cdef public dict dims
    cdef public list met
    cdef public set known
    cpdef void meet(self, object device, tuple sizes, object codes, object more) except *
    cdef void _think(self, object device, tuple sizes, object codes, object more) except *

cpdef long long doubling(long long size)
