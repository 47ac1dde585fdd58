from slipstream.core.vocab.making cimport slip_new
from slipstream.core.vocab.records cimport (
    Backend, GradRecord, Kernel, Memory, Node, OpBase, Plan, Slots, Spec, Storage, TensorBase
)
from slipstream.core.vocab.modes cimport ModeState, ModeTable
from slipstream.core.vocab.ring cimport Ring
from slipstream.core.engine.tape cimport Rule, Tape
from slipstream.core.dispatch.ways cimport Keywords, Ways
from slipstream.core.launch.door cimport LaunchDoor

cdef ModeTable modes
cdef Tape tape
cdef LaunchDoor door
cdef Slots slots
cdef int _plain, _in_place, _kernel, _view

cdef class OpCore(OpBase):
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
    cdef public bint refuses, lone
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
    cdef tuple _specs(self, object tensors, bint grad_enabled)
    cdef object _carry_out(self, Plan plan, ModeState state, object values, object target, int form)
    cpdef object _gathered(self, ModeState state, object values, object written, object error)
    cdef object _compound(self, object values)
    cdef object _submit(self, Plan plan, tuple outs, object values)
    cpdef object call_again(self, TensorBase a, TensorBase b)
    cdef object _launch(self, Plan plan, ModeState state, object values)
    cdef object _record(self, Plan plan, ModeState state, object values, tuple outs)
    cdef tuple _numbers(self, Plan plan, object values)
    cdef TensorBase _alias(self, TensorBase source, Spec spec, Py_ssize_t offset, object tracked)
    cdef object _view(self, Plan plan, ModeState state, object values)
    cdef object _views(self, Plan plan, ModeState state, object values)
    cdef object _record_view(self, Plan plan, ModeState state, object values, tuple outs)
    cdef TensorBase _new(self, Spec spec, Backend backend)
    cdef bint _plainly_writable(
        self, Plan plan, ModeState state, object values, object target, int form)
    cdef object _write(self, Plan plan, ModeState state, object values, object target, int form)

cdef size_t watched_block(Backend backend, Py_ssize_t nbytes) except? 0
cdef object watched_record(Plan plan, object values, tuple outs, ModeState state)

cdef object _operands(Plan plan, tuple outs, object values)
cdef Py_ssize_t distance(tuple starts, tuple steps)
