cimport cython

cdef class Spec:
    cdef readonly object device
    cdef readonly object dtype
    cdef readonly tuple shape
    cdef readonly tuple strides
    cdef readonly Py_ssize_t numel
    cdef readonly Py_ssize_t ndim
    cdef readonly Py_ssize_t itemsize
    cdef readonly Py_ssize_t nbytes
    cdef readonly Py_ssize_t extent
    cdef readonly bint contiguous
    cdef readonly bint differentiable
    cdef readonly tuple kind
    cdef readonly tuple key
    cdef object __weakref__

cdef class Memory:
    cpdef size_t allocate(self, Py_ssize_t nbytes) except? 0
    cpdef object free(self, size_t address, Py_ssize_t nbytes)

# Holds nothing that could hold it.
@cython.no_gc
@cython.freelist(64)
cdef class Release:
    cdef public list launches
    cdef public Py_ssize_t place
    cdef public int output
    cdef public Py_ssize_t after
    cpdef object note(self)

cdef class Storage:
    cdef public size_t address
    cdef public Py_ssize_t nbytes
    cdef public Py_ssize_t version
    cdef public int owner
    cdef public bint read_only
    cdef public int exported
    cdef public object device
    cdef public object keep
    cdef public object pending
    cdef public object write_site
    cdef public Release release
    cdef object __weakref__

cdef class Kernel:
    cdef public str name
    cpdef object run(self, Plan plan, tuple operands, tuple numbers)

cdef class Backend:
    cdef public str name
    cdef public int owner
    cdef public Memory memory
    cdef public bint has_data
    cdef public bint on_host
    cdef public bint immediate
    cpdef object submit(self, Plan plan, tuple operands, tuple numbers)
    cpdef object boundary(self)
    cpdef dict lasting(self)

cdef class Plan:
    cdef public OpBase op
    cdef public object recipe
    cdef public tuple key
    cdef public tuple short_key
    cdef public int kind
    cdef public Spec out_spec
    cdef public tuple out_specs
    cdef public tuple in_specs
    cdef public int outputs
    cdef public Kernel kernel
    cdef public object binding
    cdef public Backend backend
    cdef public tuple operands
    cdef public tuple numbers
    cdef public tuple statics
    cdef public Py_ssize_t offset
    cdef public tuple steps
    cdef public object prepare
    cdef public object rule
    cdef public bint used
    cdef public bint bare
    cdef public tuple quick
    cdef public tuple kept
    cdef public object passing

cdef class OpBase:
    cdef public str name
    cpdef object call(self, tuple args, dict kwargs)
    cpdef object call_inplace(self, tuple args, dict kwargs)
    cpdef object call1(self, object a)
    cpdef object call2(self, object a, object b)

cdef class Slots:
    cdef public OpBase add, sub, mul, div, matmul, neg
    cdef public OpBase eq, ne, lt, le, gt, ge
    cdef public object tensor_class
    cdef public object with_array

cdef class Node:
    cdef public object rule
    cdef public tuple edges
    cdef public tuple places
    cdef public tuple saved
    cdef public tuple values
    cdef public tuple inputs
    cdef public tuple outputs
    cdef public object code
    cdef public int instruction
    cdef public Py_ssize_t sequence
    cdef public object hooks
    cdef public object extra
    cdef public object visit, stream
    cdef public Plan plan
    cdef object __weakref__

cdef class GradRecord(Node):
    cdef public bint requires_grad
    cdef public bint retains_grad
    cdef public object grad
    cdef public Node node
    cdef public int output
    cdef public Py_ssize_t generation

cdef class TensorBase:
    cdef public Spec spec
    cdef public Storage storage
    cdef public Py_ssize_t offset
    cdef public GradRecord record
    cdef public TensorBase base
    cdef object __weakref__

cdef Slots _slots
cdef bint _are_operands(object a, object b)
cdef object _with_array(object ufunc, object a, object b)
cdef object _compared(object ufunc, object a, object b)
