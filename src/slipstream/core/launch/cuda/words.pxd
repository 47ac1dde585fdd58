cdef extern from "stdlib.h":
    void free(void *data) nogil

cdef extern from *:
    """
    #include <stdlib.h>
    #include <string.h>
    static CYTHON_INLINE unsigned long long slip_bits(double value) {
        unsigned long long bits;
        memcpy(&bits, &value, 8);
        return bits;
    }
    static CYTHON_INLINE unsigned long long slip_float_bits(double value) {
        float narrow = (float)value;
        unsigned bits;
        memcpy(&bits, &narrow, 4);
        return bits;
    }
    static CYTHON_INLINE unsigned long long *slip_widen(unsigned long long *data, Py_ssize_t n) {
        return (unsigned long long *)realloc(data, (size_t)n * 8);
    }
    static CYTHON_INLINE int slip_same(unsigned long long *a, Py_ssize_t i, unsigned long long *b,
                                       Py_ssize_t j, Py_ssize_t n) {
        return n == 0 || !memcmp(a + i, b + j, (size_t)n * 8);
    }
    static CYTHON_INLINE unsigned long long slip_digest(unsigned long long *a, Py_ssize_t n) {
        unsigned long long found = 0xCBF29CE484222325ULL;
        for (Py_ssize_t i = 0; i < n; i++) found = (found ^ a[i]) * 0x100000001B3ULL;
        return found;
    }
    static CYTHON_INLINE PyObject *slip_bytes(unsigned long long *a, Py_ssize_t i, Py_ssize_t n) {
        return PyBytes_FromStringAndSize(n ? (char *)(a + i) : "", n * 8);
    }
    static CYTHON_INLINE PyObject *slip_copy(PyObject *block) {
        return PyBytes_FromStringAndSize(PyBytes_AS_STRING(block), PyBytes_GET_SIZE(block));
    }
    /* Write a word's low bytes into a block that nobody else holds yet. */
    static CYTHON_INLINE void slip_put(PyObject *block, Py_ssize_t place,
                                       unsigned long long word, Py_ssize_t width) {
        if (place >= 0 && width >= 0 && width <= 8 && place + width <= PyBytes_GET_SIZE(block))
            memcpy(PyBytes_AS_STRING(block) + place, &word, (size_t)width);
    }
    """
    unsigned long long slip_bits(double value)
    unsigned long long slip_float_bits(double value)
    bytes slip_copy(bytes block)
    void slip_put(bytes block, Py_ssize_t place, unsigned long long word, Py_ssize_t width)
    unsigned long long *slip_widen(unsigned long long *data, Py_ssize_t n)
    bint slip_same(unsigned long long *a, Py_ssize_t i, unsigned long long *b, Py_ssize_t j,
                   Py_ssize_t n)
    unsigned long long slip_digest(unsigned long long *a, Py_ssize_t n)
    bytes slip_bytes(unsigned long long *a, Py_ssize_t i, Py_ssize_t n)

cdef class Words:
    cdef readonly Py_ssize_t length
    cdef public list items
    cdef Py_ssize_t room
    cdef unsigned long long *data
    cpdef int append(self, unsigned long long word) except -1
    cpdef unsigned long long get(self, Py_ssize_t place)
    cpdef bint replace(self, Py_ssize_t place, unsigned long long word)
    cpdef size_t address(self, Py_ssize_t start)
    cpdef object append_number(self, str cls, object value)
    cdef object append_whole(self, object value)
    cpdef object append_numbers(self, tuple classes, tuple numbers, Py_ssize_t whole)
    cpdef int append_double(self, double value) except -1
    cpdef int append_float(self, double value) except -1
    cpdef object widen(self)
    cpdef bint same(self, Py_ssize_t start, Words other, Py_ssize_t place, Py_ssize_t count)
    cpdef unsigned long long digest(self)
    cpdef unsigned long long digest_of(self, Py_ssize_t start, Py_ssize_t count)
    cpdef tuple take(self, Py_ssize_t start, Py_ssize_t count)
    cpdef object put(self, Py_ssize_t start, Words other, Py_ssize_t place, Py_ssize_t count)
    cpdef bytes block(self, Py_ssize_t start, Py_ssize_t count, bytes tail)
    cpdef bytes patched(self, Py_ssize_t start, bytes block, object places)
    cpdef Words copy(self)
    cpdef object cut(self, Py_ssize_t length)
    cpdef object clear(self)
