cdef extern from *:
    """
    static PyObject *slip_guarded[2];

    static void slip_call_guarded(int slot, void *address) {
        PyObject *kind, *value, *trace, *place, *found = NULL;
        PyGILState_STATE state;
        if (!Py_IsInitialized()) return;
        state = PyGILState_Ensure();
        PyErr_Fetch(&kind, &value, &trace);
        place = PyLong_FromVoidPtr(address);
        if (place != NULL) found = PyObject_CallFunctionObjArgs(slip_guarded[slot], place, NULL);
        if (found == NULL) PyErr_WriteUnraisable(slip_guarded[slot]);
        Py_XDECREF(found);
        Py_XDECREF(place);
        PyErr_Restore(kind, value, trace);
        PyGILState_Release(state);
    }

    static void slip_memory_gone(void *address) { slip_call_guarded(0, address); }
    static void slip_capsule_gone(void *address) { slip_call_guarded(1, address); }

    static size_t slip_guard(int slot, PyObject *function) {
        Py_INCREF(function);
        Py_XSETREF(slip_guarded[slot], function);
        return (size_t)(slot ? slip_capsule_gone : slip_memory_gone);
    }
    """
    size_t slip_guard(int slot, object function)
