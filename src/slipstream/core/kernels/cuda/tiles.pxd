cdef class Sizes:
    cdef public object rows, columns, depth, batches
