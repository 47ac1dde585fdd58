cdef class Space:
    cdef public tuple outer, inner, outer_steps, inner_steps
    cdef public long long rows, length

cdef class Reduction:
    cdef public object stages
    cdef public list itemsizes, levels, full, steps, order
    cdef public bint places, single, row_inputs, spread
    cdef public Reduction brief
    cdef public long long outputs, part_bytes, fold_bytes, kept_bytes, work, itemsize
