from slipstream.core.launch.cuda.launches cimport Launch
from slipstream.core.launch.cuda.words cimport Words
from slipstream.core.native.hot cimport HotCalls

cdef tuple PLACES

cdef class Window:
    cdef public list launches
    cdef public Words words
    cdef public Words ends
    cdef public list sites
    cdef public list kept
    cdef public list moments
    cdef public Words traces
    cdef public unsigned long long key
    cdef public Py_ssize_t drained
    cdef public Launch last
    cdef public Py_ssize_t start
    cdef public list releases
    cpdef object clear(self)
    cpdef object seal(self)
    cdef object note(self, Launch launch, object code, int instruction)

cdef class Graph:
    cdef public list launches
    cdef public Words words
    cdef public size_t executable
    cdef public Py_ssize_t nbytes
    cdef public list nodes
    cdef public list children
    cdef public Py_ssize_t hits
    cdef public Py_ssize_t patches
    cdef public Py_ssize_t used

cdef bint same_arguments(Graph graph, Window window) except -1
cdef bint same_kernels(list mine, list other) except -1

cdef class Memo:
    cdef HotCalls hot
    cdef object driver
    cdef object counts
    cdef public dict graphs
    cdef public dict seen
    cdef public dict sights
    cdef public Py_ssize_t nbytes
    cdef public Py_ssize_t count
    cpdef Graph find(self, Window window)
    cpdef object note(self, Window window)
    cpdef Graph _first_or_second(self, Window window)
    cpdef Graph _nearest(self, list known, Window window)
    cpdef bint _came_before(self, Window window) except -1
    cpdef bint _is_kept(self, Graph graph) except -1
    cpdef Graph _another(self, Window window)
    cpdef Py_ssize_t _differences(self, Graph graph, Window window) except -1
    cpdef Py_ssize_t _patch(self, Graph graph, Window window) except -1
    cpdef object _patch_node(self, Graph graph, Py_ssize_t place, Launch launch, bytes block)
    cpdef Graph _capture(self, Window window)
