cdef extern from *:
    """
    /* Python's name of an operator becomes the operator's C slot itself.  Cython puts a method
       under such a name, for which a subclass gets a slot that looks it up in every call. */
    static int slip_expose(PyTypeObject* type, PyObject* model, const char* name, void* slot) {
        int failed;
        PyObject* made;
        PyObject* known = PyObject_GetAttrString(model, name);
        if (known == NULL) return -1;
        if (slot == NULL || !Py_IS_TYPE(known, &PyWrapperDescr_Type)) {
            Py_DECREF(known);
            return 0;
        }
        made = PyDescr_NewWrapper(type, ((PyWrapperDescrObject*)known)->d_base, slot);
        Py_DECREF(known);
        if (made == NULL) return -1;
        failed = PyDict_SetItemString(type->tp_dict, name, made);
        Py_DECREF(made);
        return failed;
    }

    /* ``model``: a class of C whose operators have wrappers to take the kind of wrapper from. */
    static int slip_expose_slots(PyObject* cls, PyObject* model) {
    #ifdef PYPY_VERSION
        return 0;
    #else
        PyTypeObject* type = (PyTypeObject*)cls;
        PyNumberMethods* slots = type->tp_as_number;
        int failed = slip_expose(type, model, "__add__", (void*)slots->nb_add)
            || slip_expose(type, model, "__sub__", (void*)slots->nb_subtract)
            || slip_expose(type, model, "__mul__", (void*)slots->nb_multiply)
            || slip_expose(type, model, "__truediv__", (void*)slots->nb_true_divide)
            || slip_expose(type, model, "__matmul__", (void*)slots->nb_matrix_multiply);
        PyType_Modified(type);
        return failed ? -1 : 0;
    #endif
    }
    """
    int slip_expose_slots(object cls, object model) except -1
