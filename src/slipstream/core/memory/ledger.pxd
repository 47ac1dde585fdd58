cimport cython

from slipstream.core.vocab.modes cimport ModeState

cdef extern from *:
    """
    #ifndef SLIP_LEDGER
    #define SLIP_LEDGER
    #include <stdlib.h>
    /* One block: who asked for it.  The code object is held, so that its line can be told. */
    typedef struct { size_t address; PyObject *code; Py_ssize_t nbytes; int instruction; }
        slip_entry;

    /* The entry of an address, or the empty one where it belongs; the table is never full. */
    static CYTHON_INLINE slip_entry *slip_entry_of(slip_entry *table, size_t mask,
                                                   size_t address) {
        size_t place = ((address >> 9) * (size_t)0x9E3779B97F4A7C15) >> 20;
        for (;; place++) {
            slip_entry *entry = table + (place & mask);
            if (entry->address == address || entry->address == 0) return entry;
        }
    }
    static CYTHON_INLINE void slip_entry_set(slip_entry *entry, PyObject *code, int instruction,
                                             Py_ssize_t nbytes) {
        PyObject *old = entry->code;
        entry->instruction = instruction;
        entry->nbytes = nbytes;
        if (old != code) {
            Py_INCREF(code);
            entry->code = code;
            Py_XDECREF(old);
        }
    }
    static slip_entry *slip_entries(size_t count) {
        return (slip_entry *)calloc(count, sizeof(slip_entry));
    }
    static void slip_entry_move(slip_entry *entry, slip_entry *table, size_t mask) {
        *slip_entry_of(table, mask, entry->address) = *entry;
    }
    static PyObject *slip_entry_code(slip_entry *entry) {
        PyObject *code = entry->code ? entry->code : Py_None;
        Py_INCREF(code);
        return code;
    }
    static void slip_entry_drop(slip_entry *entry) {
        Py_CLEAR(entry->code);
    }
    #endif
    """
    ctypedef struct slip_entry:
        size_t address
        Py_ssize_t nbytes
        int instruction
    slip_entry* slip_entry_of(slip_entry* table, size_t mask, size_t address)
    void slip_entry_set(slip_entry* entry, object code, int instruction, Py_ssize_t nbytes)
    slip_entry* slip_entries(size_t count)
    void slip_entry_move(slip_entry* entry, slip_entry* table, size_t mask)
    void slip_entry_drop(slip_entry* entry)
    object slip_entry_code(slip_entry* entry)
    void free(void* pointer)

@cython.final
cdef class Ledger:
    cdef dict sites
    cdef slip_entry* table
    cdef size_t mask
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t most
    cdef bint busy
    cdef object keeps
    cdef object note(self, size_t address, object code, int instruction, Py_ssize_t nbytes)
    cdef int make_room(self) except -1
    cdef set stale(self)
    cdef int rebuild(self, size_t size, set stale) except -1
