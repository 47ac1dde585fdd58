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

    /* A call of a module with one argument and without hooks goes straight to the class's forward:
       Python's slot would look for __call__, which looks for ``_hooked`` and makes a method.
       Assigning __call__ later gives the class Python's slot again. */
    #if !defined(PYPY_VERSION) && !defined(Py_GIL_DISABLED) && PY_VERSION_HEX < 0x030E0000
    #define SLIP_CALLS 1
    static PyObject *slip_called = NULL, *slip_plain = NULL;
    static PyObject *slip_general, *slip_hooked, *slip_forward;

    /* The class's forward, where nothing of the object hides it; NULL without an error where only
       Python's look-ups will do. */
    static PyObject* slip_forward_of(PyObject* owner) {
        PyTypeObject* type = Py_TYPE(owner);
        PyObject *found, *own;
        int hidden;
        if (_PyType_Lookup(type, slip_general) != slip_plain) return NULL;
        if (_PyType_Lookup(type, slip_hooked) != Py_False) return NULL;
        found = _PyType_Lookup(type, slip_forward);
        if (found == NULL || !PyType_HasFeature(Py_TYPE(found), Py_TPFLAGS_METHOD_DESCRIPTOR))
            return NULL;
        own = PyObject_GenericGetDict(owner, NULL);
        if (own == NULL) return NULL;
        Py_INCREF(found);
        hidden = PyDict_Contains(own, slip_hooked);
        if (hidden == 0) hidden = PyDict_Contains(own, slip_forward);
        Py_DECREF(own);
        if (hidden == 0) return found;
        Py_DECREF(found);
        return NULL;
    }

    static PyObject* slip_call(PyObject* owner, PyObject* args, PyObject* named) {
        PyObject *both[2], *whole, *result;
        Py_ssize_t place, count = PyTuple_GET_SIZE(args);
        PyObject* forward = NULL;
        if (count == 1 && (named == NULL || PyDict_GET_SIZE(named) == 0)) {
            forward = slip_forward_of(owner);
            if (forward == NULL && PyErr_Occurred()) return NULL;
        }
        if (forward != NULL) {
            both[0] = owner;
            both[1] = PyTuple_GET_ITEM(args, 0);
            result = PyObject_Vectorcall(forward, both, 2, NULL);
            Py_DECREF(forward);
            return result;
        }
        whole = PyTuple_New(count + 1);
        if (whole == NULL) return NULL;
        PyTuple_SET_ITEM(whole, 0, Py_NewRef(owner));
        for (place = 0; place < count; ++place)
            PyTuple_SET_ITEM(whole, place + 1, Py_NewRef(PyTuple_GET_ITEM(args, place)));
        result = PyObject_Call(slip_called, whole, named);
        Py_DECREF(whole);
        return result;
    }
    #endif

    /* ``call``: the function that is our __call__. */
    static int slip_call_directly(PyObject* cls, PyObject* call) {
    #ifdef SLIP_CALLS
        static PyObject* name = NULL;
        if (name == NULL) {
            slip_general = PyUnicode_InternFromString("__getattribute__");
            slip_hooked = PyUnicode_InternFromString("_hooked");
            slip_forward = PyUnicode_InternFromString("forward");
            name = PyUnicode_InternFromString("__call__");
            if (!slip_general || !slip_hooked || !slip_forward || !name) return -1;
            slip_plain = Py_XNewRef(_PyType_Lookup(&PyBaseObject_Type, slip_general));
            slip_called = Py_NewRef(call);
        }
        if (slip_plain == NULL || slip_called != call) return 0;
        if (_PyType_Lookup((PyTypeObject*)cls, name) != call) return 0;
        ((PyTypeObject*)cls)->tp_call = slip_call;
        return 1;
    #else
        return 0;
    #endif
    }
    """
    int slip_ask_quietly(object cls, object find) except -1
    int slip_call_directly(object cls, object call) except -1

cdef extern from "Python.h":
    object PyObject_GenericGetDict(object owner, void* context)
