from slipstream.core.vocab.records cimport Plan, Spec, TensorBase
from slipstream.core.vocab.modes cimport ModeState, ModeTable
from slipstream.core.vocab.ring cimport Ring
from slipstream.core.engine.tape cimport Tape
from slipstream.core.launch.door cimport LaunchDoor
from slipstream.core.dispatch.carrying cimport OpCore
from slipstream.core.dispatch.plans cimport PlanTable
from slipstream.core.dispatch.ways cimport Keywords, Way

cdef ModeTable modes
cdef Tape tape
cdef LaunchDoor door

cdef class Op(OpCore):
    cpdef object call(self, tuple args, dict kwargs)
    cpdef object call1(self, object a)
    cpdef object call2(self, object a, object b)
    cpdef object call_inplace(self, tuple args, dict kwargs)
    cpdef object call_out(self, tuple args, dict kwargs, object out)
    cpdef object dispatch(self, ModeState state, object values, object target, int form)
    cdef object _first_call(self, tuple key, ModeState state, object values, tuple given)
    cpdef Plan plan_for(self, ModeState state, object values, object target, int form)
    cdef object _first_call1(self, tuple key, ModeState state, object a)
    cdef object _first_call2(self, tuple key, ModeState state, object a, object b)

cdef int _plain, _in_place
cdef object YES
cdef object NO

cdef object _go(Op op, Way way, ModeState state, tuple args, dict kwargs, object target)
cdef object _note_way(Op op, Plan plan, ModeState state, tuple args, dict kwargs, int form)
cdef object _into(Op op, ModeState state, tuple args, dict kwargs, object target, int form)
cdef object _pair_key(ModeState state, tuple args)
cdef object _key(Op op, ModeState state, object values, object target, int form)
cdef bint _told_apart(tuple values) except -1
cdef object _as_taken(OpCore op, object values)
cdef bint _has_numpy(object values) except -1
cdef object _note_made(object values, Plan plan, object begun)
cdef tuple _short_key(OpCore op, ModeState state, tuple args)
cdef int _wants(ModeState state, TensorBase tensor) except -1
cdef object UNKEYED
cdef object _short_part(OpCore op, Py_ssize_t place, object value)
cdef object _part(OpCore op, Py_ssize_t place, object value)
cdef object _note_recent(Op op, Plan plan, object left, object right, int flags)
cdef object _record_short(
    Plan plan, tuple operands, tuple tail, TensorBase out, ModeState state)
