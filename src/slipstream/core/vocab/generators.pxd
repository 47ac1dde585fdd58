cdef class Generator:
    cdef object _device
    cdef unsigned long long _seed
    cdef unsigned long long _counter
    cdef object _lock
    cdef dict _stand_ins
    cdef object __weakref__
    cpdef tuple draw(self, unsigned long long count)
