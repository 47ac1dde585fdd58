cdef extern from *:
    """
    static CYTHON_INLINE unsigned long long slip_thread(void) {
        return (unsigned long long)PyThreadState_GetID(PyThreadState_Get());
    }
    static CYTHON_INLINE PyObject* slip_frame(void) { return (PyObject*)PyEval_GetFrame(); }
    static CYTHON_INLINE PyObject* slip_code(PyObject* f) {
        return (PyObject*)PyFrame_GetCode((PyFrameObject*)f); }
    static CYTHON_INLINE int slip_instruction(PyObject* f) {
        return PyFrame_GetLasti((PyFrameObject*)f); }
    static CYTHON_INLINE PyObject* slip_back(PyObject* f) {
        return (PyObject*)PyFrame_GetBack((PyFrameObject*)f); }
    static CYTHON_INLINE PyObject* slip_filename(PyObject* c) {
        return ((PyCodeObject*)c)->co_filename; }
    """
    unsigned long long slip_thread()
    void* slip_frame()
    object slip_code(object frame)
    int slip_instruction(object frame)
    void* slip_back(object frame)
    void* slip_filename(object code)

cdef class ModeState:
    cdef public bint grad_enabled
    cdef public bint inference
    cdef public int special
    cdef public list stack
    cdef public object device
    cdef public object code
    cdef public int instruction
    cdef public object stream

cdef class ModeTable:
    cdef dict _by_thread
    cdef object _local
    cdef unsigned long long _last_thread
    cdef ModeState _last
    cdef public object listeners
    cdef public str root
    cpdef ModeState current(self)
    cdef void note_site(self, ModeState state)
    cdef void _walk(self, ModeState state, object frame)
