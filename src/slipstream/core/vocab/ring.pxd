cimport cython

from slipstream.core.vocab.cells cimport Cells, slip_near

cdef extern from *:
    """
    static CYTHON_INLINE long long slip_running(void) {
        return (long long)PyThreadState_Get()->id;
    }
    static CYTHON_INLINE long long slip_pointer(PyObject *held) {
        return (long long)(size_t)held;
    }
    """
    long long slip_running() noexcept
    long long slip_pointer(object held) noexcept

# Numbers of the module that C code reads.
cdef Py_ssize_t _width, _kinds, _part, _whole, _bunch
cdef int _op, _view, _dispatch, _launch, _host_kernel
cdef long long _looked_at, _each, _low

cdef class Book:
    cdef public Py_ssize_t capacity
    cdef public Py_ssize_t written
    cdef public object stacks
    cdef public list names
    cdef public list sites
    cdef public Cells by_site
    cdef public Cells by_name
    cdef dict _names
    cdef dict _sites
    cdef dict _threads
    cdef Cells _near_names
    cdef Cells _near_sites
    cdef Cells _cells
    cdef Py_ssize_t _place
    cdef Py_ssize_t _counted
    cdef long long _site_key
    cdef Py_ssize_t _site
    cpdef Py_ssize_t name_of(self, object name) except -1
    cpdef Py_ssize_t site_of(self, object code, int instruction) except -1
    cdef Py_ssize_t _number_of(self, object name) except -1
    cdef Py_ssize_t _place_of(self, object code, int instruction, long long address) except -1
    cpdef object write(self, long long what, Py_ssize_t name, Py_ssize_t site, long long start,
                       long long end, long long value)
    cpdef object write_parts(self, Cells parts, Py_ssize_t start, Py_ssize_t length, double share)
    cpdef object amend(self, Py_ssize_t number, long long start, long long end, long long flag=*)
    cdef int _put(self, long long what, Py_ssize_t name, Py_ssize_t site, long long start,
                  long long end, long long value) except -1
    cdef int _store(self, long long first, long long second, long long start, long long end,
                    long long value, long long where) except -1
    cdef int _count(self, Py_ssize_t until) except -1
    cdef long long _running(self) noexcept

@cython.final
cdef class Ring(Book):
    cdef public Py_ssize_t launching
    cdef public int layer
    cdef public int outside
    cdef public long long entered
    cdef public long long last
    cdef public long long owed
    cdef public int owing
    cdef public long long thread
    cdef public object state
    cdef public object virtual
    cdef public object timer
    cdef public Cells layers
    cdef public Py_ssize_t calls
    cdef public dict others
    cdef public dict threads
    cpdef Py_ssize_t now(self) except? -1
    cdef int meet(self, object state) except -1
    cpdef object enter(self, object state)
    cpdef int switch(self, int layer) except -1
    cdef int _turn_to(self, int layer) except -1
    cpdef int surround(self, int layer) except -1
    cpdef Py_ssize_t begin(self, object plan, bint immediate, object state) except? -1
    cdef int _launch_from(self, object plan, int layer) except -1
    cpdef object finish(self, Py_ssize_t name, object code, int instruction, long long start,
                        object state)
    cpdef object viewed(self, object plan, object code, int instruction)
