from slipstream.core.engine.tape cimport Tape
from slipstream.core.vocab.modes cimport ModeState
from slipstream.core.vocab.records cimport Plan, Spec, TensorBase

cdef extern from *:
    """
    #define slip_address(object) ((unsigned long long)(size_t)(object))
    #define slip_kind(object) ((unsigned long long)(size_t)Py_TYPE(object))
    """
    unsigned long long slip_address(object thing)
    unsigned long long slip_kind(object thing)

cdef Tape tape
cdef int SHIFT, STAMINA

cdef class Way:
    cdef public Plan plan
    cdef public tuple given
    cdef public Py_ssize_t count
    cdef public int flags
    cdef public int typed
    cdef public tuple places
    cdef public int stamina
    cdef public int form
    cdef public bint short
    cpdef tuple bound(self, tuple values, dict kwargs)

cdef class Ways:
    cdef public list table
    cdef public int numeric
    cdef public tuple defaults
    cpdef object clear(self)
    cpdef Way find(self, ModeState state, tuple args, dict kwargs, int form)
    cpdef Way note(self, Plan plan, ModeState state, tuple args, dict kwargs, tuple places,
                   int form)
    cdef list told(self, Way way, tuple args)
    cdef bint has_keywords(self, Way way, dict kwargs) except -1
    cdef bint told_by_type(self, Py_ssize_t place, object value) except -1

cdef class Keywords:
    cdef public tuple known
    cpdef tuple bound(self, tuple args, tuple tails, dict kwargs)
    cpdef object note(self, tuple places, Py_ssize_t after, dict kwargs)

cdef bint _lasts(object value) except -1
cdef Py_ssize_t _mixed(Ways ways, ModeState state, tuple args, dict kwargs, int form,
                       int* flags) except -1
