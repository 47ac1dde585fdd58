from libc.stdint cimport int32_t, int64_t


cdef extern from "runner.h":
    ctypedef void (*slip_loop)(int64_t, void*, const void*, const void*, const void*) noexcept nogil
    ctypedef void (*slip_load)(int64_t, void*, const void*, int64_t) noexcept nogil
    ctypedef void (*slip_store)(int64_t, void*, int64_t, const void*) noexcept nogil
    ctypedef struct slip_loop_entry:
        const char* name
        slip_loop loop
    ctypedef struct slip_load_entry:
        const char* name
        slip_load loop
    ctypedef struct slip_store_entry:
        const char* name
        slip_store loop
    ctypedef struct slip_reduction:
        const char* name
    ctypedef struct slip_table:
        const slip_loop_entry* loops
        const slip_load_entry* loads
        const slip_store_entry* stores
        const slip_reduction* reductions
    ctypedef struct slip_value:
        int32_t level, size, first, last, slot, expanded
    ctypedef struct slip_step:
        slip_loop loop
        int32_t dst, a, b, c
    ctypedef struct slip_operand:
        int32_t value, itemsize, natural, early
        slip_load load
        slip_store store
    ctypedef struct slip_fold:
        const slip_reduction* loops
        int32_t source, dst
    ctypedef struct slip_code:
        int32_t values, inputs, numbers, constants, outputs, operands, phases, reduces, slots, item
        int32_t count, lined, ordered, uniforms
        slip_value* value
        slip_operand* operand
        slip_step* uniform
        slip_step* row
        slip_step* full
        slip_fold* fold
        int32_t* row_begin
        int32_t* full_begin
        int32_t* fold_begin
        char* constant
    ctypedef struct slip_layout:
        int64_t rows, width, groups, blocks, chunks, touched
        int32_t columnar
        slip_loop direct
    const slip_table* slip_loops()
    slip_code* slip_new_code(const int32_t* counts)
    void slip_free_code(slip_code* code)
    slip_layout* slip_bind(const slip_code*, int, int, const int64_t*, const int64_t*)
    void slip_unbind(slip_layout*)
    int slip_run(const slip_code*, const slip_layout*, const size_t*, const void*, int) nogil
    bint slip_run_direct(const slip_layout*, const size_t*) nogil
    int slip_started()
    size_t slip_parallel_address "(size_t)slip_parallel"
    void slip_put_bool(char*, bint)
    void slip_put_int(char*, unsigned long long)
    void slip_put_float(char*, int, double, double)


cdef extern from *:
    """
    #include <Python.h>
    #include <stdlib.h>
    static inline void *slip_allocate(size_t words) {
        void *memory = malloc(words ? 8 * words : 8);
        if (!memory) PyErr_NoMemory();
        return memory;
    }
    """
    int64_t* slip_words "slip_allocate"(size_t) except NULL
    size_t* slip_addresses "slip_allocate"(size_t) except NULL
    char* slip_bytes "slip_allocate"(size_t) except NULL
    void free(void*)
    unsigned long long PyLong_AsUnsignedLongLongMask(object) except? 18446744073709551615
    long long PyLong_AsLongLongAndOverflow(object, int*) except? -1


cdef long long HELD
cdef int WORDS
cdef Workers pool
cdef const slip_table* table
cdef dict loops
cdef dict loads
cdef dict stores
cdef dict reductions


cdef class Workers:
    cdef public int threads
    cdef public size_t parallel
    cpdef int started(self)


cdef class Binding:
    cdef readonly tuple outer_shape
    cdef readonly tuple inner_shape
    cdef readonly tuple strides
    cdef public object views
    cdef slip_layout* layout


cdef class Machine:
    cdef readonly object program
    cdef slip_code* code
    cdef int operands
    cdef bytes kinds
    cpdef Binding bind(self, tuple outer_shape, tuple inner_shape, tuple strides)
    cdef int _cut(self, Binding binding, int64_t* words, int rank) except -1
    cdef int run(self, Binding binding, size_t* addresses, tuple numbers) except -1
    cdef int _put(self, char* place, int kind, object number) except -1
    cdef int _run(self, Binding binding, size_t* addresses, char* numbers) except -1
    cdef object _build(self, object lowered)
    cdef object _reserve(self, object lowered)
    cdef object _build_values(self, object lowered)
    cdef object _build_operands(self, object lowered)
    cdef object _build_steps(self, object lowered)
    cdef int _set_step(self, slip_step* step, object entry) except -1
    cdef object _build_folds(self, object lowered)
