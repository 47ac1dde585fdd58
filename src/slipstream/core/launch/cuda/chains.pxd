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

cdef class Outcome:
    cdef public list launches
    cdef public Words releases
    cdef public Words words
    cdef public Words spans
    cdef public list joined
    cdef public Words ends
    cdef public unsigned long long key
    cdef public list kept
    cdef public list lasts
    cdef public Py_ssize_t count
    cdef bint fits(self, Window window, Words releases) except -1
    cdef bint spans_fit(self, Words words) except -1

cdef class Chains:
    cdef public dict bound
    cdef public dict families
    cdef public int owner
    cdef public int mode
    cdef public long long fewest
    cdef public Py_ssize_t joined
    cdef public dict outcomes
    cdef public Py_ssize_t held
    cdef public Py_ssize_t doubts
    cpdef bint link(self, Window window, Launch launch, tuple operands, bint note) except -1
    cpdef bint may_pay(self, Window window, Launch before, Launch launch) except -1
    cpdef object note(self, Window window, Storage storage, int output)
    cpdef object join(self, Window window)
    cpdef object join_groups(self, Window window)
    cpdef Outcome recall(self, Window window, Words signs)
    cpdef object remember(self, unsigned long long key, Outcome outcome)
    cpdef list groups_of(self, Window window, list releases, Words spans)
    cpdef object split(self, Window window, Py_ssize_t first, Py_ssize_t last, list releases,
                       list groups)
    cpdef Launch find(self, Window window, Py_ssize_t first, Py_ssize_t last, Group group)
    cpdef Launch consider(self, object key, object known)

cdef bint suits(Window window, Py_ssize_t begin, Py_ssize_t place) except -1
cdef Part leader(tuple launches)
cdef unsigned long long death_of(list releases, Py_ssize_t number, Py_ssize_t output) except? 0
cdef Words signs_of(list releases)
cdef object plan_rebuilt(Window window, list groups, Outcome outcome)
cdef object rebuild(Window window, Outcome outcome)
cdef Py_ssize_t main_of(Window window, Py_ssize_t first, Py_ssize_t last) except -1
cdef object note_kept(Window window, Outcome outcome)
