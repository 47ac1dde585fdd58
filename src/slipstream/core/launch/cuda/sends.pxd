cimport cython

from slipstream.core.launch.cuda.launches cimport Launch
from slipstream.core.launch.cuda.memo cimport Window
from slipstream.core.launch.cuda.sampling cimport Sampler
from slipstream.core.launch.cuda.words cimport Words
from slipstream.core.native.hot cimport HotCalls
from slipstream.core.vocab.cells cimport Cells
from slipstream.core.vocab.ring cimport Ring

# Numbers of the module that C code reads.
cdef int _driver, _send, _stream
cdef unsigned long long _prime
cdef long long _replayed, _empty, _rebase
cdef Py_ssize_t _most_pending, _ahead

@cython.final
cdef class Work:
    cdef public list launches
    cdef public list sites
    cdef public str reason
    cdef public tuple words
    cdef public Words traces
    cdef public Py_ssize_t offset
    cdef public Py_ssize_t hollow
    cpdef unsigned long long trace(self, Py_ssize_t place)

@cython.final
cdef class Parts:
    cdef public list rows
    cdef public Cells cells
    cdef public double cost
    cdef public Py_ssize_t site
    cdef public Py_ssize_t content
    cdef public object launches
    cdef public Words traces
    cdef public tuple symbols
    cdef public Py_ssize_t copied
    cdef bint are_of(self, Work work) except -1

@cython.final
cdef class Begun:
    cdef public int layer
    cdef public long long start
    cdef public size_t event
    cdef public Parts parts
    cdef public bint untold

@cython.final
cdef class Noted:
    cdef public Py_ssize_t first
    cdef public object rows
    cdef public tuple symbols
    cdef public bint graph
    cdef public Py_ssize_t copied
    cdef public bint untold
    cdef public long long begun
    cdef public double cost
    cdef public object span
    cdef public object times

@cython.final
cdef class Span:
    cdef public size_t first
    cdef public size_t last
    cdef public Parts parts
    cdef public long long where
    cdef public long long begun
    cdef public long long host
    cdef public Noted noted
    cpdef double busy(self, long long start, long long end) except? -1

cdef class Notes:
    cdef public object library
    cdef public Sampler sampler
    cdef public list notes
    cdef public Py_ssize_t left
    cdef public Py_ssize_t beyond
    cpdef bint begin(self, Parts parts, long long now) except *
    cpdef Noted note(self, Parts parts, Begun begun, bint graph)

cdef class Sends:
    cdef public Ring ring
    cdef public object driver
    cdef public HotCalls calls
    cdef public bint told
    cdef public Notes activities
    cdef public dict clocks
    cdef public dict free
    cdef public object pending
    cdef public dict ended
    cdef public object lock
    cdef public Py_ssize_t lost
    cdef public dict streams
    cdef public dict known
    cdef public object sample
    cpdef Begun begin(self, object queue, Work work=*)
    cpdef long long where_of(self, object queue) except? -1
    cpdef object sent(self, object queue, Work work, Begun begun)
    cpdef str text_of(self, Work work)
    cpdef Parts parts_of(self, Work work, long long where)
    cpdef size_t mark(self, size_t stream, long long where) except? 0
    cpdef object over(self, size_t stream, Parts parts, Begun begun, long long where)
    cpdef object timed(self, size_t stream, Parts parts, Begun begun, long long where)
    cpdef object resolve(self)
    cpdef object write_done(self)
    cpdef object write_span(self, Span span)

cpdef Py_ssize_t done_of(object pending, object calls) except? -1
cpdef object moments(Span span, object clock, object ended)
cdef unsigned long long digest_of(list launches, unsigned long long key) except? 0
cdef bint alike(list launches, list others) except -1
cdef Words kept_of(Work work)
cpdef Work work_of(Window window, Py_ssize_t first, Py_ssize_t count, str reason)
