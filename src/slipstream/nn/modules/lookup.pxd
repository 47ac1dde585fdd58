cdef extern from *:
    """
    /* Before 3.12 Python makes an error, and its text, of every look-up that goes on to
       __getattr__.  A class whose look-ups are all Python's and ours has this slot instead, which
       asks without an error.  Assigning __getattr__ or __getattribute__ later gives the class
       Python's slot again. */
    static PyObject* slip_find = NULL;

    static PyObject* slip_getattr(PyObject* owner, PyObject* name) {
    #if PY_VERSION_HEX < 0x030C0000
        PyObject* found = _PyObject_GenericGetAttrWithDict(owner, name, NULL, 1);
        PyObject* both[2];
        if (found != NULL || PyErr_Occurred()) return found;
        both[0] = owner;
        both[1] = name;
        return PyObject_Vectorcall(slip_find, both, 2, NULL);
    #else
        return PyObject_GenericGetAttr(owner, name);
    #endif
    }

    /* ``find``: the function that is our __getattr__. */
    static int slip_ask_quietly(PyObject* cls, PyObject* find) {
    #if PY_VERSION_HEX < 0x030C0000 && !defined(PYPY_VERSION)
        PyTypeObject* type = (PyTypeObject*)cls;
        static PyObject *general = NULL, *last = NULL;
        PyObject *plain, *own;
        if (general == NULL) general = PyUnicode_InternFromString("__getattribute__");
        if (last == NULL) last = PyUnicode_InternFromString("__getattr__");
        if (general == NULL || last == NULL) return -1;
        plain = _PyType_Lookup(type, general);
        own = _PyType_Lookup(type, last);
        if (own != find || plain == NULL || !Py_IS_TYPE(plain, &PyWrapperDescr_Type)
                || ((PyWrapperDescrObject*)plain)->d_wrapped != (void*)PyObject_GenericGetAttr)
            return 0;
        if (slip_find == NULL) {
            Py_INCREF(find);
            slip_find = find;
        }
        if (slip_find != find) return 0;
        type->tp_getattro = slip_getattr;
        return 1;
    #else
        return 0;
    #endif
    }
    """
    int slip_ask_quietly(object cls, object find) except -1

cdef extern from "Python.h":
    object PyObject_GenericGetDict(object owner, void* context)
