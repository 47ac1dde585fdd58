from slipstream.core.dispatch.carrying cimport OpCore
from slipstream.core.launch.cuda.words cimport Words
from slipstream.core.launch.door cimport LaunchDoor
from slipstream.core.vocab.modes cimport ModeState
from slipstream.core.vocab.records cimport GradRecord, Plan, Spec, Storage, TensorBase

cdef extern from *:
    """
    static CYTHON_INLINE double slip_read_number(size_t address, int single) {
        return single ? (double)*(float *)address : *(double *)address;
    }
    static CYTHON_INLINE void slip_write_number(size_t address, double value, int single) {
        if (single) *(float *)address = (float)value;
        else *(double *)address = value;
    }
    /* Whether a dict of dicts holds the objects of a list: key, value, the value's keys and
       values, and so on. */
    static CYTHON_INLINE int slip_holds(PyObject *dict, PyObject *held, Py_ssize_t *at,
                                        int nested) {
        Py_ssize_t next = 0, count = PyList_GET_SIZE(held);
        PyObject *key, *value;
        while (PyDict_Next(dict, &next, &key, &value)) {
            if (*at + 2 > count || PyList_GET_ITEM(held, *at) != key
                || PyList_GET_ITEM(held, *at + 1) != value) return 0;
            *at += 2;
            if (nested && PyDict_Check(value) && !slip_holds(value, held, at, 0)) return 0;
        }
        return 1;
    }
    static CYTHON_INLINE int slip_same_state(PyObject *state, PyObject *held) {
        Py_ssize_t at = 0;
        return PyDict_Check(state) && slip_holds(state, held, &at, 1)
               && at == PyList_GET_SIZE(held);
    }
    """
    double slip_read_number(size_t address, bint single)
    void slip_write_number(size_t address, double value, bint single)
    bint slip_same_state(object state, list held)

cdef LaunchDoor door

cdef class TensorList:
    cdef public Plan plan
    cdef public list specs
    cdef public Words words
    cdef public tuple operands
    cdef public object tables
    cdef public object stream
    cdef public list places
    cdef public Py_ssize_t count
    cdef public Py_ssize_t width
    cdef public Py_ssize_t targets
    cdef public bint exported
    cdef public bint moved
    cdef public bint busy
    cpdef list new_column(self)
    cpdef bint run(self, ModeState state, tuple columns, tuple numbers, tuple shared) except -1
    cpdef bint look(self, ModeState state, tuple columns) except -1
    cpdef bint look_at(self, list tensors, Py_ssize_t column, bint gradients,
                       object site) except -1
    cpdef bint find(self, ModeState state) except -1

cdef class Steps:
    cdef public list tensors
    cdef public Spec spec
    cdef public bint single
    cdef public double latest
    cpdef size_t address(self, TensorBase each) except? 0
    cpdef double read(self, size_t address) except? -1
    cpdef object write(self, size_t address, double value)
    cpdef bint advance(self, ModeState state) except -1

cdef class Snapshot:
    cdef public list groups
    cdef public list params
    cdef public list trained
    cdef public list held
    cpdef bint same(self, list groups, object state) except -1
    cpdef bint same_state(self, object state) except -1

cpdef object drop_gradients(list tensors)
