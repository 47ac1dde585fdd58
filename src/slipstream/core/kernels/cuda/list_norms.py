"""The norm of all elements of a list of tensors, in two launches that neither wait nor overflow.

A chunk gives its largest magnitude m and s, the sum of (|x| / m) ** p; one block joins them: with
M the largest m the norm is M * (sum of s * (m / M) ** p) ** (1 / p).  Squares of floats of 32 bits
and less fit a double as they are, so that for p = 2 the elements are read once, with m = 1.
All is computed in double precision, in an order that follows from the sizes alone.
"""

from __future__ import annotations

import math
import struct
from typing import Any

from slipstream.core.kernels.cuda import elements
from slipstream.core.kernels.cuda.lists import Tables, cut
from slipstream.core.launch.cuda.launches import (
    LISTED,
    KernelCode,
    Launch,
    LaunchKernel,
    make_launch,
)
from slipstream.core.vocab.dtypes import DType
from slipstream.core.vocab.records import Plan

THREADS = 256
# Elements that a block reads at a time.
STEP = 1024
KINDS = {2.0: "SQUARES", math.inf: "LARGEST"}
# Classes in which elements are computed that this reads.
CLASSES = ("f32", "f64")

_COMMON = """
struct slip_largest {
    typedef double type;
    static __device__ __forceinline__ double identity() { return 0; }
    // A nan stays.
    static __device__ __forceinline__ double join(double u, double v) {
        return u != u || u > v ? u : v;
    }
};
// Of its own shared memory (`slip_fold_row`): no barrier stands between two folds of a kernel.
struct slip_widest : slip_largest {};
struct slip_total {
    typedef double type;
    static __device__ __forceinline__ double identity() { return 0; }
    static __device__ __forceinline__ double join(double u, double v) { return u + v; }
};
// By what elements are divided: 0, inf and nan would make nan of the quotient.
SLIP_DEVICE double slip_scale(double m) { return m > 0 && m < (double)INFINITY ? m : 1.0; }
SLIP_DEVICE double slip_power(double x, double p) {
#if defined(SQUARES)
    return x * x;
#elif defined(LARGEST)
    return x;
#else
    return pow(x, p);
#endif
}
#ifdef LARGEST
typedef slip_largest slip_joined;
#else
typedef slip_total slip_joined;
#endif
"""

_PARTS = """
struct tail_words { int64_t tensors; };
extern "C" __global__ void __launch_bounds__(256)
slip_list_norm_parts(const uint64_t* table, const uint64_t* chunks, double* parts, const double p,
                     const tail_words tail) {
    const uint64_t packed = chunks[2 * (int64_t)blockIdx.x];
    const int64_t first = (int64_t)chunks[2 * (int64_t)blockIdx.x + 1];
    const int64_t end = first + (int64_t)(packed >> 32);
    SLIP_POINTER(const item_t) x = slip_pointer_at<const item_t>(
        table[(int64_t)(packed & 0xffffffffull)]);
    double scale = 1;
#ifndef ONCE
    double m = 0;
    for (int64_t at = first + threadIdx.x; at < end; at += 256) {
        m = slip_largest::join(m, fabs((double)(WIDEN(x[at]))));
    }
    scale = slip_scale(slip_fold_row<slip_widest, 8>(m, threadIdx.x, 256));
#endif
    double s[VECTOR] = {};
    const bool aligned = slip_aligned<item_t>(x, 16);
    for (int64_t at = first + threadIdx.x * VECTOR; at < end; at += 256 * VECTOR) {
        const int left = (int)slip_least(end - at, VECTOR);
        const slip_vector<item_t, VECTOR> held = slip_read<item_t, VECTOR>(
            x + at, left, aligned && left == VECTOR);
#pragma unroll
        for (int e = 0; e < VECTOR; e++) {
            const double y = fabs((double)(WIDEN(held.get(e)))) / scale;
            if (e < left) s[e] = slip_joined::join(s[e], slip_power(y, p));
        }
    }
    const double all = slip_fold_row<slip_joined, 8>(
        slip_fold_lanes<slip_joined, VECTOR>(s), threadIdx.x, 256);
    if (threadIdx.x == 0) {
        parts[2 * (int64_t)blockIdx.x] = scale;
        parts[2 * (int64_t)blockIdx.x + 1] = all;
    }
}
"""

_WHOLE = """
struct tail_words { int64_t chunks; };
extern "C" __global__ void __launch_bounds__(256)
slip_list_norm_whole(const double* parts, double* factor, item_t* norm, const double p,
                     const double most, const tail_words tail) {
    double m = 0;
    for (int64_t at = threadIdx.x; at < tail.chunks; at += 256) {
        // A chunk of zeros has scale 1, which may be far above the others.
        if (parts[2 * at + 1] != 0) m = slip_largest::join(m, parts[2 * at]);
    }
    const double scale = slip_scale(slip_fold_row<slip_widest, 8>(m, threadIdx.x, 256));
    double s = 0;
    for (int64_t at = threadIdx.x; at < tail.chunks; at += 256) {
        const double mine = parts[2 * at + 1], ratio = parts[2 * at] / scale;
        // Of finite elements a share is finite: an infinite one goes on whatever its scale.
        if (mine != 0)
            s = slip_joined::join(s, isinf(mine) ? mine : mine * slip_power(ratio, p));
    }
    s = slip_fold_row<slip_joined, 8>(s, threadIdx.x, 256);
    if (threadIdx.x != 0) return;
#if defined(SQUARES)
    const double relative = sqrt(s);
#elif defined(LARGEST)
    const double relative = s;
#else
    const double relative = pow(s, 1 / p);
#endif
    const double value = scale * relative;
    // most / (norm + 1e-6), so that no step of it overflows; at most 1, and nan stays.
    const double small = most / (value + 1e-6);
    const double large = most / scale / (relative + 1e-6 / scale);
    const double found = scale < 1 ? small : large;
    factor[0] = found > 1 ? 1.0 : found;
    factor[1] = relative;
    norm[0] = NARROW((wide_t)value);
}
"""


class NormKernel(LaunchKernel):
    """Both launches; ``plan.binding``: they, and how many chunks there are."""

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Operands: table, chunks, the factor, the norm; numbers: order, largest norm."""
        backend: Any = plan.backend
        first, second, chunks = plan.binding
        parts = backend.scratch(16 * chunks)
        table, cuts, factor, norm = [
            each.storage.address + each.offset * each.spec.itemsize for each in operands]
        backend.record(first, (table, cuts, parts.address), numbers[:1])
        backend.record(second, (parts.address, factor, norm), numbers)


def bound(backend: Any, dtype: DType, order: float,
          numels: list[int]) -> tuple[NormKernel, tuple[Launch, Launch, int], Tables] | None:
    """Kernel, launches and tables for tensors of one dtype; None for what this does not read."""
    chunks = cut(numels, STEP)
    if dtype.compute not in CLASSES or not chunks.size:
        return None
    kind = KINDS.get(order, "POWERS")
    head = f"{elements.typed(dtype)}#define {kind}\n#define VECTOR {16 // dtype.itemsize}\n"
    if kind == "LARGEST" or (kind == "SQUARES" and dtype.compute == "f32"):
        head += "#define ONCE\n"
    parts = KernelCode("slip_list_norm_parts", head + _COMMON + _PARTS).made_by(LISTED)
    whole = KernelCode("slip_list_norm_whole", head + _COMMON + _WHOLE).made_by(LISTED)
    count = chunks.size // 2
    first = make_launch(parts, backend.device, count, THREADS, numbers=("f64",),
                        tail=struct.pack("<q", len(numels)))
    second = make_launch(whole, backend.device, 1, THREADS, numbers=("f64", "f64"),
                         tail=struct.pack("<q", count))
    return NormKernel("cuda norm of a list"), (first, second, count), Tables(backend, chunks)
