cimport cython

from slipstream.core.memory.slabs cimport Judge
from slipstream.core.memory.uses cimport Uses

@cython.final
cdef class Block:
    cdef readonly size_t address
    cdef readonly Py_ssize_t size
    cdef readonly bint free
    cdef readonly bint gap
    cdef readonly Block before
    cdef readonly Block after
    cpdef bint whole(self)

@cython.final
cdef class Segments:
    cdef readonly Py_ssize_t grain
    cdef readonly list holes
    cdef readonly dict live
    cdef readonly size_t base
    cdef Block tail
    cdef list spare
    cdef public Uses uses
    cdef readonly dict gaps
    cdef Py_ssize_t place(self, Py_ssize_t size, size_t address)
    cdef int shelve(self, Block block) except -1
    cdef int unshelve(self, Block block) except -1
    cdef int split(self, Block block, Py_ssize_t size) except -1
    cdef int join(self, Block block, Block after) except -1
    cdef size_t take(self, Py_ssize_t size) except? 0
    cpdef size_t take_where(self, Py_ssize_t size, Judge judge) except? 0
    cdef size_t carve(self, Py_ssize_t place, Py_ssize_t size) except? 0
    cdef Py_ssize_t give(self, size_t address) except -1
    cpdef Block add(self, size_t address, Py_ssize_t size)
