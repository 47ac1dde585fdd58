cdef extern from *:
    """
    #ifndef SLIP_BEAT
    #define SLIP_BEAT
    /* Written under the interpreter's lock, read by the watch without it: plain words that are
       written whole; a look that sees one of them late is put right by the next. */
    typedef struct slip_beat {
        volatile long long recorded;
        volatile long long sent;
        volatile int asleep;
        long long seen;
        struct slip_beat *next;
    } slip_beat;
    #endif
    """
    ctypedef struct slip_beat:
        pass

cdef class Beat:
    cdef slip_beat *data
    cdef public long long recorded
    cdef public long long sent
    cpdef object record(self)
    cpdef object note_waiting(self, Py_ssize_t count)

cdef class Watch:
    cdef public object drain
