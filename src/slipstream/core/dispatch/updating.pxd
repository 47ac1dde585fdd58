from slipstream.core.dispatch.op cimport Op
from slipstream.core.launch.door cimport LaunchDoor
from slipstream.core.vocab.modes cimport ModeState
from slipstream.core.vocab.records cimport Plan, Spec, Storage, TensorBase

cdef LaunchDoor door

cdef class UpdateOp(Op):
    cdef public int targets
    cdef public dict known
    cpdef object update(self, ModeState state, tuple tensors, tuple numbers)
    cpdef object long_way(self, ModeState state, tuple key, tuple values)
    cpdef bint fits(self, Plan plan, tuple values) except -1
    cpdef bint plain(self, tuple tensors) except -1
