cdef extern from *:
    """
    static PyObject* slip_no_arguments = NULL;
    static CYTHON_INLINE PyObject* slip_new(PyObject* cls) {
        PyTypeObject* record = (PyTypeObject*)cls;
        if (slip_no_arguments == NULL) slip_no_arguments = PyTuple_New(0);
        /* The record's own: a Python class may have a __new__ that takes data. */
        while (record->tp_flags & Py_TPFLAGS_HEAPTYPE) record = record->tp_base;
        return record->tp_new((PyTypeObject*)cls, slip_no_arguments, NULL);
    }
    """
    object slip_new(object cls)
