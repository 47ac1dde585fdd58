cimport cython

cdef extern from "stdlib.h":
    void free(void *data) nogil

cdef extern from *:
    """
    #include <stdlib.h>
    #include <string.h>
    static CYTHON_INLINE long long slip_running(void) {
        return (long long)PyThreadState_GetID(PyThreadState_Get());
    }
    static CYTHON_INLINE long long slip_pointer(PyObject *held) {
        return (long long)(size_t)held;
    }
    /* Where a key's two words are kept among 4096 such pairs. */
    static CYTHON_INLINE Py_ssize_t slip_near(long long key) {
        return 2 * (Py_ssize_t)(((unsigned long long)key * 0x9E3779B97F4A7C15ULL) >> 52);
    }
    /* One more in a row of (count, ns, value). */
    static CYTHON_INLINE void slip_count(long long *row, long long duration, long long value) {
        row[0] += 1;
        row[1] += duration;
        row[2] += value;
    }
    /* n cells in place of those that are there; the new ones are zero. */
    static CYTHON_INLINE long long *slip_more_cells(long long *data, Py_ssize_t before,
                                                    Py_ssize_t n) {
        long long *wider = (long long *)realloc(data, (size_t)n * 8);
        if (wider != NULL)
            memset(wider + before, 0, (size_t)(n - before) * 8);
        return wider;
    }
    """
    long long slip_running() noexcept
    long long slip_pointer(object held) noexcept
    Py_ssize_t slip_near(long long key) noexcept
    void slip_count(long long *row, long long duration, long long value) noexcept
    long long *slip_more_cells(long long *data, Py_ssize_t before, Py_ssize_t n)

# Numbers of the module that C code reads.
cdef Py_ssize_t _width, _cell, _kinds, _near, _part, _whole
cdef int _op, _view, _dispatch, _launch, _host_kernel

@cython.final
cdef class Cells:
    cdef readonly Py_ssize_t room
    cdef public list items
    cdef long long *data
    cpdef object widen(self, Py_ssize_t room)
    cdef int lengthen_at(self, Py_ssize_t place, long long duration) except -1
    cdef Py_ssize_t found(self, long long key) noexcept
    cdef int keep(self, long long key, Py_ssize_t number) noexcept
    cdef int count(self, Py_ssize_t row, long long duration, long long value) except -1
    cpdef object add(self, Py_ssize_t row, long long duration, long long value)
    cpdef object lengthen(self, Py_ssize_t row, long long duration)
    cpdef object set(self, Py_ssize_t place, long long value)
    cpdef Py_ssize_t get(self, Py_ssize_t place) except? -1

@cython.final
cdef class Ring:
    cdef public Py_ssize_t capacity
    cdef public Py_ssize_t written
    cdef public Py_ssize_t launching
    cdef public int layer
    cdef public int outside
    cdef public long long entered
    cdef public long long last
    cdef public long long thread
    cdef public object virtual
    cdef public object timer
    cdef public object stacks
    cdef public list names
    cdef public list sites
    cdef public Cells by_site
    cdef public Cells by_name
    cdef public Cells layers
    cdef public Py_ssize_t calls
    cdef public dict others
    cdef public dict threads
    cdef dict _names
    cdef dict _sites
    cdef dict _threads
    cdef Cells _near_names
    cdef Cells _near_sites
    cdef Cells _cells
    cdef Py_ssize_t _place
    cpdef Py_ssize_t now(self) except? -1
    cpdef object enter(self)
    cpdef int switch(self, int layer) except -1
    cdef int _turn_to(self, int layer) except -1
    cpdef int surround(self, int layer) except -1
    cpdef Py_ssize_t begin(self, object plan, bint immediate) except? -1
    cpdef object finish(self, Py_ssize_t name, object code, int instruction, long long start)
    cpdef object viewed(self, object plan, object code, int instruction)
    cpdef Py_ssize_t name_of(self, object name) except -1
    cpdef Py_ssize_t site_of(self, object code, int instruction) except -1
    cdef Py_ssize_t _number_of(self, object name) except -1
    cdef Py_ssize_t _place_of(self, object code, int instruction, long long address) except -1
    cpdef object write(self, long long what, Py_ssize_t name, Py_ssize_t site, long long start,
                       long long end, long long value)
    cpdef object write_parts(self, Cells parts, Py_ssize_t start, Py_ssize_t length, double share)
    cdef int _put(self, long long what, Py_ssize_t name, Py_ssize_t site, long long start,
                  long long end, long long value) except -1
    cdef long long _running(self) noexcept
