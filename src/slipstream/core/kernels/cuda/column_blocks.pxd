from slipstream.core.kernels.cuda.spaces cimport Reduction, Space

cpdef tuple column_block(Reduction reduction, Space space, long long vector)
cdef long long _narrow(Reduction reduction, Space space, long long vector) except -1
