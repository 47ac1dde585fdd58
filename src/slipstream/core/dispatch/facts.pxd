from slipstream.core.dispatch.numbers cimport StoredNumbers
from slipstream.core.dispatch.ways cimport Keywords, Ways
from slipstream.core.vocab.records cimport OpBase, Plan, TensorBase

cdef class OpFacts(OpBase):
    cdef public object entry
    cdef public object signature
    cdef public object builder
    cdef public object function
    cdef public tuple names
    cdef public tuple kinds
    cdef public tuple defaults
    cdef public tuple tails
    cdef public Py_ssize_t count
    cdef public Py_ssize_t positional
    cdef public Py_ssize_t required
    cdef public Py_ssize_t variadic
    cdef public Py_ssize_t device_at
    cdef public bint compound
    cdef public bint refuses, pointwise, lone
    cdef public dict plans
    cdef public dict binary
    cdef public dict recipes
    cdef public dict programs
    cdef public dict rules
    cdef public dict kernels
    # The plan found last, and what was looked up.
    cdef public Plan recent
    cdef public object recent_left
    cdef public object recent_right
    cdef public int recent_flags
    cdef public dict lists
    # How often its plans were dropped.
    cdef public Py_ssize_t drops
    cdef public Py_ssize_t unkeyed
    cdef public dict policies
    cdef public int heeds
    cdef public Keywords keywords
    cdef public Ways ways
    cdef bint _is_bare(self, Plan plan) except -1
    cdef bint _is_pair(self, Plan plan) except -1
    cdef bint _is_recent(self, tuple pair) except -1
    cdef bint _is_short(self, Plan plan, Py_ssize_t count) except -1
