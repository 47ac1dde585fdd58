cdef int NEVER
from slipstream.core.launch.cuda.launches cimport Launch, Part
from slipstream.core.launch.cuda.memo cimport Window
from slipstream.core.launch.cuda.words cimport Words
from slipstream.core.vocab.records cimport Release, Spec, Storage, TensorBase

cdef class Group:
    cdef public Words starts
    cdef public Words ends
    cdef public Words kinds
    cdef public unsigned long long codes
    cdef public Py_ssize_t count
    cpdef object clear(self)
    cpdef bint add(self, Launch launch, Words words, Py_ssize_t start) except -1
    cpdef long long code_of(self, unsigned long long begin, unsigned long long end,
                            unsigned long long kind) except? -2

cdef class Chains:
    cdef public Group group
    cdef public dict bound
    cdef public dict families
    cdef public int owner
    cdef public int mode
    cdef public Py_ssize_t joined
    cpdef bint link(self, Window window, Launch launch, tuple operands, bint note) except -1
    cpdef object note(self, Window window, Storage storage, int output)
    cpdef object join(self, Window window)
    cpdef object split(self, Window window, Py_ssize_t first, Py_ssize_t last, list releases,
                       list groups)
    cpdef Launch find(self, Window window, Py_ssize_t first, Py_ssize_t last, list releases)
    cpdef Launch consider(self, object key, object family)

cdef object rebuild(Window window, list groups)
cdef object note_kept(Window window, list kept)
