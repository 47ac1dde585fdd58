from slipstream.core.vocab.records cimport Kernel, Plan, Spec, TensorBase

cdef extern from *:
    """
    #include <stdint.h>
    #define SLIP_RANGE(T, VALUE) \\
        for (Py_ssize_t i = 0; i < n; i++) ((T *)at)[i] = (T)(VALUE); \\
        break;
    static void slip_whole_range(int code, size_t at, Py_ssize_t n, int64_t start, int64_t step) {
        switch (code) {
        case 5: SLIP_RANGE(int64_t, (uint64_t)start + (uint64_t)step * (uint64_t)i)
        case 8: SLIP_RANGE(float, (int64_t)((uint64_t)start + (uint64_t)step * (uint64_t)i))
        default: SLIP_RANGE(double, (int64_t)((uint64_t)start + (uint64_t)step * (uint64_t)i))
        }
    }
    static void slip_real_range(int code, size_t at, Py_ssize_t n, double start, double step) {
        switch (code) {
        case 8: SLIP_RANGE(float, start + step * (double)i)
        default: SLIP_RANGE(double, start + step * (double)i)
        }
    }
    """
    void slip_whole_range(int code, size_t at, Py_ssize_t n, long long start, long long step)
    void slip_real_range(int code, size_t at, Py_ssize_t n, double start, double step)

cdef class RangeKernel(Kernel):
    cpdef object run(self, Plan plan, tuple operands, tuple numbers)
