from slipstream.core.kernels.cuda.spaces cimport Reduction, Space

cdef class Cut:
    cdef public object plan
    cdef public dict words
    cdef public tuple block
    cdef public long long blocks, chunks, shared

cdef long long _power_of_two(long long number, long long limit) except -1
cdef long long _rounded_up(long long number)
cdef long long _blocks(long long count, long long each)
cdef str _near_kind(long long step)
cdef list _row_kinds(Reduction reduction, Space space)
cdef long long _row_vector(
    Reduction reduction, Space space, object kinds, long long length) except -1
cdef long long _read_bytes(Reduction reduction, object kinds, object shared) except -1
cdef long long _batch(Reduction reduction, long long bytes_read, long long vector)
cdef long long _most_vectors(Reduction reduction, long long fitting, long long vector)
cdef long long _least(Reduction reduction, long long bytes_read, long long vector,
                      long long batch, bint columns)
cdef long long _keep(Reduction reduction, long long bytes_kept, long long vector)
cdef tuple _lanes(long long vectors, long long most, long long rows, bint large)
cdef long long _block_class(long long lanes)
cdef dict _row_words(Reduction reduction, Space space, long long vectors, bint taken)
cdef long long _turns(
    Reduction reduction, long long work, long long batch, long long threads)
cdef long long _row_chunks(
    Reduction reduction, long long rows, long long length, long long stored)
cdef bint _wide(Space space) except -1
cdef long long _column_vector(Reduction reduction, Space space) except -1
cdef tuple _column_kinds(Reduction reduction, Space space, long long vector)
cdef dict _column_words(Reduction reduction, Space space, long long tiles, long long tile)
cdef long long _column_chunks(long long length, long long high, long long blocks, long long joined)
cdef long long _column_span(long long length, long long chunks, long long turn)
