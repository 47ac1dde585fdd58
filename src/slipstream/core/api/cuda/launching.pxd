from slipstream.core.engine.tape cimport Tape
from slipstream.core.launch.door cimport LaunchDoor
from slipstream.core.vocab.modes cimport ModeState, ModeTable
from slipstream.core.vocab.records cimport Plan, Storage, TensorBase

cdef LaunchDoor door
cdef ModeTable modes
cdef Tape tape

cdef class Prepared:
    cdef public Plan plan
    cdef public tuple alignments
    cdef public tuple writes
    cdef public tuple checks
    cdef public tuple limits

cdef class Launcher:
    cdef public object kernel
    cdef public object grid
    cdef public tuple shape
    cdef public object stream
    cdef public dict plans
    cdef object check(self, ModeState state, Prepared prepared, list operands, object args)
    cdef object check_numbers(self, Prepared prepared, list numbers, object args)
    cdef object written(self, ModeState state, Prepared prepared, list operands)
