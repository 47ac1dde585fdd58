cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    #if defined(Py_GIL_DISABLED) || defined(PYPY_VERSION) || defined(Py_TRACE_REFS)
    #define SLIP_RECYCLES 0
    #else
    #define SLIP_RECYCLES 1
    #endif

    #define SLIP_MOST_KEPT 2048

    /* Memory of released objects of one class; nothing in it is an object any more. */
    typedef struct {
        PyTypeObject* type;
        Py_ssize_t count;
        Py_ssize_t most;
        PyObject* kept[SLIP_MOST_KEPT];
    } slip_shelf;

    static PyObject* slip_taken(slip_shelf* shelf, PyTypeObject* type, Py_ssize_t items) {
        PyObject* object;
        if (shelf->count == 0 || type != shelf->type) return PyType_GenericAlloc(type, items);
        object = shelf->kept[--shelf->count];
        memset(object, 0, (size_t)type->tp_basicsize);
        (void)PyObject_Init(object, type);
        PyObject_GC_Track(object);
        return object;
    }

    static void slip_put(slip_shelf* shelf, PyObject* object) {
        PyTypeObject* type = Py_TYPE(object);
        if (type == shelf->type && shelf->count < shelf->most) {
            if (type->tp_finalize != NULL) {
                /* The collector's word before an object says that __del__ was called: the next
                   object here has that call still to come.  Where the word means something else
                   nothing is kept. */
                ((uintptr_t*)object)[-1] = 0;
                if (PyObject_GC_IsFinalized(object)) {
                    PyObject_GC_Del(object);
                    return;
                }
            }
            shelf->kept[shelf->count++] = object;
            return;
        }
        PyObject_GC_Del(object);
    }

    /* A slot of a class is a plain C function: one pair for each shelf. */
    #define SLIP_SHELF(number) \\
        static slip_shelf slip_shelf_##number; \\
        static PyObject* slip_take_##number(PyTypeObject* type, Py_ssize_t items) { \\
            return slip_taken(&slip_shelf_##number, type, items); \\
        } \\
        static void slip_put_##number(void* object) { \\
            slip_put(&slip_shelf_##number, (PyObject*)object); \\
        }
    SLIP_SHELF(0)
    SLIP_SHELF(1)
    SLIP_SHELF(2)
    SLIP_SHELF(3)
    SLIP_SHELF(4)
    SLIP_SHELF(5)
    SLIP_SHELF(6)
    SLIP_SHELF(7)
    #define SLIP_SHELVES 8

    static slip_shelf* const slip_shelves[SLIP_SHELVES] = {
        &slip_shelf_0, &slip_shelf_1, &slip_shelf_2, &slip_shelf_3,
        &slip_shelf_4, &slip_shelf_5, &slip_shelf_6, &slip_shelf_7};
    static const allocfunc slip_takers[SLIP_SHELVES] = {
        slip_take_0, slip_take_1, slip_take_2, slip_take_3,
        slip_take_4, slip_take_5, slip_take_6, slip_take_7};
    static const freefunc slip_putters[SLIP_SHELVES] = {
        slip_put_0, slip_put_1, slip_put_2, slip_put_3,
        slip_put_4, slip_put_5, slip_put_6, slip_put_7};
    static int slip_shelves_used = 0;

    static slip_shelf* slip_shelf_of(PyObject* cls) {
        int number;
        for (number = 0; number < slip_shelves_used; ++number)
            if ((PyObject*)slip_shelves[number]->type == cls) return slip_shelves[number];
        return NULL;
    }

    static int slip_recycle(PyObject* cls, Py_ssize_t most) {
        PyTypeObject* type = (PyTypeObject*)cls;
        slip_shelf* shelf;
        if (!SLIP_RECYCLES || slip_shelf_of(cls) != NULL || slip_shelves_used == SLIP_SHELVES)
            return 0;
        /* What Python makes by itself: a class with a dict of its own has more than these bytes. */
        if (!PyType_IS_GC(type) || type->tp_itemsize != 0 || type->tp_dictoffset != 0
                || type->tp_alloc != PyType_GenericAlloc || type->tp_free != PyObject_GC_Del)
            return 0;
        shelf = slip_shelves[slip_shelves_used];
        Py_INCREF(cls);
        shelf->type = type;
        shelf->most = most < SLIP_MOST_KEPT ? most : SLIP_MOST_KEPT;
        type->tp_alloc = slip_takers[slip_shelves_used];
        type->tp_free = slip_putters[slip_shelves_used];
        ++slip_shelves_used;
        return 1;
    }

    static Py_ssize_t slip_kept(PyObject* cls) {
        slip_shelf* shelf = slip_shelf_of(cls);
        return shelf == NULL ? -1 : shelf->count;
    }
    """
    bint slip_recycle(object cls, Py_ssize_t most)
    Py_ssize_t slip_kept(object cls)
