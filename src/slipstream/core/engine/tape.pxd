from slipstream.core.vocab.making cimport slip_new
from slipstream.core.vocab.records cimport GradRecord, Node, Plan, Spec, Storage, TensorBase
from slipstream.core.vocab.modes cimport ModeState

cdef class Rule:
    cdef public str name
    cdef public tuple differentiable
    cdef public tuple saves
    cdef public tuple keeps
    cdef public bint saves_output
    cdef public bint saves_second
    cdef public bint materializes
    cdef public bint follows_base
    cdef public bint foreign
    cdef public bint casts
    cdef public bint widens
    cdef public bint constant
    cpdef list apply(self, Node node, list grads, bint create_graph)
    cpdef object free(self, Node node)

cdef class SavedTensor:
    cdef public TensorBase tensor
    cdef public Py_ssize_t version
    cdef public bint is_output
    cdef public object packed
    cdef public GradRecord record
    cpdef hand_over(self, object pack)
    cpdef TensorBase unpack(self, Node node, GradRecord record)

cdef class AccumulateGrad(Rule):
    pass

cdef class Tape:
    cdef public Py_ssize_t sequence
    cdef public object refresh
    cdef public object pack
    cdef public type tensor_class
    cdef public list waiting
    cpdef object settle(self)
    cpdef tuple edge_of(self, TensorBase tensor)
    cpdef TensorBase alias(self, TensorBase tensor)
    cpdef bint requires_grad(self, TensorBase tensor)
    cdef Node _target(self, TensorBase tensor)
    cpdef Node record(self, Rule rule, object values, tuple outs, ModeState state)
    cpdef object record_cast(self, Rule rule, TensorBase leaf, tuple facts, ModeState state)
    cpdef Node record_plan(self, Plan plan, object values, tuple outs, ModeState state)
    cpdef Node record_short(self, Plan plan, tuple operands, tuple tail, TensorBase out,
                            ModeState state)
    cdef Node _begin(self, Rule rule, ModeState state)
    cdef object _keep(self, Node node, Rule rule, object values)
    cdef object _keep_tensors(self, Node node, Rule rule, object values)
    cdef bint _lead_plainly(self, Node node, tuple places, object values) except -1
    cdef object _keep_of_plan(self, Node node, Plan plan, object values)
    cdef object _lead(self, Node node, list tensors)
    cdef object _belong(self, TensorBase out, Node node, int place)
    cdef object _save_output(self, Node node, TensorBase out)
    cdef object _save_second(self, Node node, TensorBase out)
    cdef SavedTensor _bare(self, TensorBase out)
    cdef SavedTensor _saved(self, TensorBase tensor, bint is_output)
    cpdef Node make_node(self, Rule rule, object values, ModeState state)
    cdef object _save(self, object value)
    cpdef object attach(self, Node node, tuple outs)

cdef TensorBase _alias(object tensor, GradRecord record)
cdef list _differentiated(Rule rule, object values)
cdef tuple _specs_of(list tensors)
cdef object _alone(dict known, Spec spec)
cdef int _number(TensorBase tensor)
cdef bint _last(tuple values) except -1
cdef object _kept(object value, bint spec)
cdef object _frozen(object value)
