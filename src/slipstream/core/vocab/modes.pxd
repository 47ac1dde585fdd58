from slipstream.core.vocab.ring cimport Ring

cdef extern from *:
    """
    #include <string.h>
    static CYTHON_INLINE unsigned long long slip_thread(void) {
        return (unsigned long long)PyThreadState_Get()->id;
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
    /* Frames as the interpreter has them: the public functions make an object of each frame, which
       costs more than all else here. */
    #if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030E0000 && defined(__has_include)
    #if __has_include("internal/pycore_frame.h")
    #define SLIP_FRAMES 1
    #ifndef Py_BUILD_CORE
    #define Py_BUILD_CORE 1
    #include "internal/pycore_frame.h"
    #undef Py_BUILD_CORE
    #else
    #include "internal/pycore_frame.h"
    #endif
    #if PY_VERSION_HEX >= 0x030D0000
    #define SLIP_TOP(state) ((state)->current_frame)
    #define SLIP_CODE(frame) ((PyObject *)_PyFrame_GetCode(frame))
    #else
    #define SLIP_TOP(state) ((state)->cframe->current_frame)
    #define SLIP_CODE(frame) ((PyObject *)(frame)->f_code)
    #endif
    #endif
    #endif
    /* The innermost frame outside root: its code (a new reference) and instruction; or None. */
    #ifdef SLIP_FRAMES
    static PyObject *slip_site(PyObject *root, PyObject *known, int *instruction) {
        struct _PyInterpreterFrame *frame = SLIP_TOP(PyThreadState_Get());
        PyObject *code;
        for (; frame; frame = frame->previous) {
            if (_PyFrame_IsIncomplete(frame)) continue;
            code = SLIP_CODE(frame);
            if (code == known || !slip_is_ours((PyCodeObject *)code, root)) {
                *instruction = _PyInterpreterFrame_LASTI(frame) * (int)sizeof(_Py_CODEUNIT);
                return Py_NewRef(code);
            }
        }
        Py_RETURN_NONE;
    }
    #else
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
    #endif
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
    cpdef object note_site(self, ModeState state)
