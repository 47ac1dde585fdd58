from slipstream.core.vocab.ring cimport Ring

cdef extern from *:
    """
    #include <string.h>
    static CYTHON_INLINE unsigned long long slip_thread(void) {
        return (unsigned long long)PyThreadState_GetID(PyThreadState_Get());
    }
    /* Whether a code object's file lies below the folder root: such frames are ours. */
    static int slip_is_ours(PyCodeObject *code, PyObject *root) {
        PyObject *name = code->co_filename;
        Py_ssize_t n = PyUnicode_GET_LENGTH(root);
        if (PyUnicode_GET_LENGTH(name) < n || PyUnicode_KIND(name) != PyUnicode_KIND(root))
            return 0;
        return !memcmp(PyUnicode_DATA(name), PyUnicode_DATA(root),
                       (size_t)n * PyUnicode_KIND(root));
    }
    /* The innermost frame outside root: its code (a new reference) and instruction; or NULL. */
    static PyObject *slip_site(PyObject *root, PyObject *known, int *instruction) {
        PyFrameObject *frame = PyEval_GetFrame(), *back;
        PyCodeObject *code;
        Py_XINCREF(frame);
        while (frame) {
            code = PyFrame_GetCode(frame);
            if ((PyObject *)code == known || !slip_is_ours(code, root)) {
                *instruction = PyFrame_GetLasti(frame);
                Py_DECREF(frame);
                return (PyObject *)code;
            }
            Py_DECREF(code);
            back = PyFrame_GetBack(frame);
            Py_DECREF(frame);
            frame = back;
        }
        Py_RETURN_NONE;
    }
    """
    unsigned long long slip_thread()
    object slip_site(object root, object known, int* instruction)

cdef class ModeState:
    cdef public bint grad_enabled
    cdef public bint inference
    cdef public int special
    cdef public object autocast
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
    cdef public Ring ring
    cdef public str root
    cpdef ModeState current(self)
    cpdef void note_site(self, ModeState state)
