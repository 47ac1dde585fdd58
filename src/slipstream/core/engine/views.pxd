from slipstream.core.vocab.records cimport OpBase

cdef class Operations:
    cdef public OpBase accumulate, sum
    cdef public object sum_to, cast, cast_list, move, full, zeros, index_put, strided_view
    cdef public object come_after
