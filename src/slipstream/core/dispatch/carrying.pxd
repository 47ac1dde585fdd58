from slipstream.core.vocab.making cimport slip_new
from slipstream.core.vocab.records cimport (
    Backend, GradRecord, Kernel, Memory, Node, OpBase, Plan, Slots, Spec, Storage, TensorBase
)
from slipstream.core.vocab.modes cimport ModeState, ModeTable
from slipstream.core.vocab.ring cimport Ring
from slipstream.core.engine.tape cimport Rule, Tape
from slipstream.core.dispatch.facts cimport OpFacts
from slipstream.core.dispatch.numbers cimport StoredNumbers
from slipstream.core.dispatch.ways cimport Keywords
from slipstream.core.launch.door cimport LaunchDoor

cdef ModeTable modes
cdef Tape tape
cdef LaunchDoor door
cdef Slots slots
cdef int _plain, _in_place, _kernel, _view

cdef class OpCore(OpFacts):
    cpdef object bind(self, tuple args, dict kwargs)
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

cdef object note_write(Storage storage, ModeState state)
cdef tuple _operands_beside(Plan plan, TensorBase out, object values)
cdef object _operands(Plan plan, tuple outs, object values)
cdef Py_ssize_t distance(tuple starts, tuple steps)
