cdef int NEVER, ALWAYS, MOST_OPERANDS
cdef unsigned long long LIVES
from slipstream.core.launch.cuda.launches cimport Launch, Part
from slipstream.core.launch.cuda.memo cimport Window
from slipstream.core.launch.cuda.words cimport Words
from slipstream.core.vocab.records cimport Release, Spec, Storage, TensorBase

cdef class Group:
    cdef public Words starts
    cdef public Words ends
    cdef public Words kinds
    cdef public Words deaths
    cdef public unsigned long long codes
    cdef public Py_ssize_t count
    cpdef object clear(self)
    cpdef object cut(self, Py_ssize_t count)
    cpdef bint add(self, Window window, Py_ssize_t number, list releases) except -1
    cpdef long long code_of(self, unsigned long long begin, unsigned long long end,
                            unsigned long long kind, unsigned long long number) except? -2
    cpdef unsigned long long death_at(self, unsigned long long begin,
                                      unsigned long long number) except? 0

cdef class Chains:
    cdef public Group group
    cdef public dict bound
    cdef public dict families
    cdef public int owner
    cdef public int mode
    cdef public long long fewest
    cdef public Py_ssize_t joined
    cpdef bint link(self, Window window, Launch launch, tuple operands, bint note) except -1
    cpdef object note(self, Window window, Storage storage, int output)
    cpdef object join(self, Window window)
    cpdef object split(self, Window window, Py_ssize_t first, Py_ssize_t last, list releases,
                       list groups)
    cpdef Launch find(self, Window window, Py_ssize_t first, Py_ssize_t last)
    cpdef Launch consider(self, object key, object known)

cdef unsigned long long death_of(list releases, Py_ssize_t number, Py_ssize_t output) except? 0
cdef object rebuild(Window window, list groups)
cdef object note_kept(Window window, list kept)
