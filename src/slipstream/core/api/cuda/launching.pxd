from slipstream.core.engine.tape cimport Tape
from slipstream.core.launch.door cimport LaunchDoor
from slipstream.core.vocab.modes cimport ModeState, ModeTable
from slipstream.core.vocab.records cimport Plan, Storage, TensorBase

cdef LaunchDoor door
cdef ModeTable modes
cdef Tape tape
cdef int _INTEGER, _SINGLE, _HALF, _TRUTH
cdef double _LARGEST

cdef class Prepared:
    cdef public Plan plan
    cdef public tuple alignments
    cdef public tuple writes
    cdef public tuple checks
    cdef public tuple limits
    cdef public tuple key

cdef class Launcher:
    cdef public object kernel
    cdef public object grid
    cdef public tuple shape
    cdef public object stream
    cdef public dict plans
    cdef public Prepared recent
    cdef bint sort(self, tuple key, tuple args, list operands, list numbers) except -1
    cdef Prepared look_up(self, tuple args, list operands, list numbers)
    cdef object check(self, ModeState state, Prepared prepared, list operands, object args)
    cdef object check_numbers(self, Prepared prepared, list numbers, object args)
    cdef object written(self, ModeState state, Prepared prepared, list operands)
