from slipstream.core.dispatch.op cimport Op
from slipstream.core.vocab.autocast cimport AutocastState
from slipstream.core.vocab.modes cimport ModeState, ModeTable
from slipstream.core.dispatch.carrying cimport OpCore
from slipstream.core.dispatch.lists cimport TensorList
from slipstream.core.engine.tape cimport Tape
from slipstream.core.launch.door cimport LaunchDoor
from slipstream.core.vocab.records cimport GradRecord, Spec, Storage, TensorBase

cdef ModeTable modes
cdef Tape tape
cdef LaunchDoor door

cdef class Cast:
    cdef public ModeState state
    cdef public str device_type
    cdef public object dtype
    cdef public bint keeps
    cpdef bint eligible(self, object value)
    cpdef object value(self, object value)
    cpdef tuple sequence(self, tuple values)
    cpdef object named(self, object values)
    cpdef object tensor(self, TensorBase tensor)
    cpdef object fill(self, AutocastState settings, TensorBase tensor, object member)
    cpdef bint lacks(self, TensorBase weight, dict casts) except -1
    cpdef object keep(self, object facts, TensorBase weight, TensorBase cast)

cdef object _key(TensorBase weight, object dtype)
cpdef object forget_casts(AutocastState settings, bint ended)
cpdef bint is_capturing() except -1
cdef Cast cast_for(str policy, ModeState state, str device_type, tuple args, object kwargs)
cdef Cast lowering(ModeState state, str device_type)
cdef Cast cast_of(ModeState state, str device_type, object dtype, bint keeps)
cpdef object autocast(Op op, ModeState state, tuple args, object kwargs, object target, object form)

cdef class WeightCast:
    cdef public TensorBase weight
    cdef public Storage storage
    cdef public Py_ssize_t version
    cdef public TensorBase cast
    cdef public bint used

cdef bint _serves(WeightCast known, TensorBase weight, bint grad_enabled) except -1

cdef bint is_weight(TensorBase tensor)
