"""Losses of classes on the device: minus the scores of the targets, weighted, smoothed, reduced.

Sums are taken in double, by one block where there are few targets, else by `SUMMERS` blocks whose
sums a further block adds up: the order depends on the number of targets only.
"""

from __future__ import annotations

import struct
from math import prod
from typing import Any

from slipstream.core.kernels.cuda import elements
from slipstream.core.kernels.cuda.walks import (
    THREADS,
    address,
    blocks,
    described,
    merged,
)
from slipstream.core.launch.cuda.launches import KernelCode, Launch, LaunchKernel, make_launch
from slipstream.core.vocab.records import Kernel, Plan

# Targets up to which one block sums, or every block sums for itself.
ALONE = 8192
SUMMERS = 256

_HEAD = """
#define THREADS 256
struct slip_steps { int64_t row, column, place[RANK]; };
struct slip_rows {
    int64_t slot, tag, rows, classes, positions, ignored, each, shape[RANK];
    slip_steps input, target, out;
    double smoothing;
};
// Where the first class of target number `at` lies: row at / positions, place at % positions.
SLIP_DEVICE int64_t slip_start(const slip_rows& rows, const slip_steps& steps, int64_t at) {
    int64_t left = at % rows.positions, start = at / rows.positions * steps.row;
#pragma unroll
    for (int d = RANK - 1; d >= 0; d--) {
        start += left % rows.shape[d] * steps.place[d];
        left /= rows.shape[d];
    }
    return start;
}
// The class of a target; -1 where it counts nowhere.
SLIP_DEVICE int64_t slip_class(const slip_rows& rows, SLIP_POINTER(const target_t) target,
                               int64_t at, bool reports) {
    const int64_t found = target[slip_start(rows, rows.target, at)];
    if (found == rows.ignored) return -1;
    if (found >= 0 && found < rows.classes) return found;
    if (reports) slip_index_error(rows.slot, rows.tag, at, found, rows.classes);
    return -1;
}
SLIP_DEVICE wide_t slip_weight(const slip_rows& rows GIVEN, int64_t number) {
#if WEIGHTED
    const item_t weight = weights[number * rows.each];
    return WIDEN(weight);
#else
    return 1;
#endif
}
"""
SUM = """
// The sum over the threads of a block; every thread gets it.
SLIP_DEVICE double slip_sum(double x) {
    __shared__ double sums[THREADS];
    __syncthreads();
    sums[threadIdx.x] = x;
    __syncthreads();
    for (int half = THREADS / 2; half; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    return sums[0];
}
"""
_HEAD += SUM
# Minus the score of the target's class, with a share of all classes' scores.
_LOSS = """
SLIP_DEVICE wide_t slip_loss(const slip_rows& rows, SLIP_POINTER(const item_t) scores,
                             int64_t at, int64_t number GIVEN) {
    const int64_t start = slip_start(rows, rows.input, at);
    const item_t score = scores[start + number * rows.input.column];
    wide_t loss = -WIDEN(score) * slip_weight(rows PASSED, number);
    if (rows.smoothing != 0) {
        wide_t spread = 0;
        for (int64_t c = 0; c < rows.classes; c++) {
            const item_t other = scores[start + c * rows.input.column];
            spread -= WIDEN(other) * slip_weight(rows PASSED, c);
        }
        loss = loss * (wide_t)(1.0 - rows.smoothing)
               + spread * (wide_t)(rows.smoothing / (double)rows.classes);
    }
    return loss;
}
"""
_EACH = """
extern "C" __global__ void slip_loss_each(item_t* out, const item_t* scores,
                                          const target_t* target WEIGHTS, const slip_rows rows) {
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= rows.rows * rows.positions) return;
    const int64_t number = slip_class(rows, target, at, true);
    const wide_t loss = number < 0 ? (wide_t)0 : slip_loss(rows, scores, at, number PASSED);
    out[slip_start(rows, rows.out, at)] = NARROW(loss);
}
"""
_SUM = """
extern "C" __global__ void slip_loss_sum(result_t* out, const item_t* scores,
                                         const target_t* target WEIGHTS, const slip_rows rows) {
    double loss = 0, weight = 0;
    const int64_t count = rows.rows * rows.positions, step = (int64_t)gridDim.x * THREADS;
    for (int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x; at < count; at += step) {
        const int64_t number = slip_class(rows, target, at, true);
        if (number < 0) continue;
        loss += (double)slip_loss(rows, scores, at, number PASSED);
        weight += (double)slip_weight(rows PASSED, number);
    }
    loss = slip_sum(loss);
    weight = slip_sum(weight);
    if (threadIdx.x) return;
#if PARTS
    out[2 * blockIdx.x] = loss;
    out[2 * blockIdx.x + 1] = weight;
#else
    const wide_t result = (wide_t)(MEAN ? loss / weight : loss);
    out[0] = NARROW(result);
#endif
}
"""
_FINISH = """
extern "C" __global__ void slip_loss_finish(item_t* out, const double* sums) {
    const double loss = slip_sum(sums[2 * threadIdx.x]);
    const double weight = slip_sum(sums[2 * threadIdx.x + 1]);
    const wide_t result = (wide_t)(MEAN ? loss / weight : loss);
    if (threadIdx.x == 0) out[0] = NARROW(result);
}
"""
# The sums of the weights, which divide the gradient of a mean.
_WEIGHTS = """
extern "C" __global__ void slip_loss_weights(double* out, const target_t* target WEIGHTS,
                                             const slip_rows rows) {
    double weight = 0;
    const int64_t count = rows.rows * rows.positions, step = (int64_t)gridDim.x * THREADS;
    for (int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x; at < count; at += step) {
        const int64_t number = slip_class(rows, target, at, false);
        if (number >= 0) weight += (double)slip_weight(rows PASSED, number);
    }
    weight = slip_sum(weight);
    if (threadIdx.x == 0) out[blockIdx.x] = weight;
}
"""
# A thread a score.  Few weights are summed by every block for itself.
_SLOPE = """
extern "C" __global__ void slip_loss_grad(item_t* out SUMS, const item_t* grad,
                                          const target_t* target WEIGHTS, const slip_rows rows) {
    const int64_t count = rows.rows * rows.positions;
    double divisor = 1;
#if MEAN
    double weight = 0;
#if PARTS
    weight = sums[threadIdx.x];
#else
    for (int64_t i = threadIdx.x; i < count; i += THREADS) {
        const int64_t number = slip_class(rows, target, i, false);
        if (number >= 0) weight += (double)slip_weight(rows PASSED, number);
    }
#endif
    divisor = slip_sum(weight);
#endif
    const int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (thread >= count * rows.classes) return;
    const int64_t place = thread % rows.positions, left = thread / rows.positions;
    const int64_t c = left % rows.classes, at = left / rows.classes * rows.positions + place;
    const int64_t number = slip_class(rows, target, at, c == 0);
    wide_t result = 0;
    if (number >= 0) {
        const item_t given = grad[slip_start(rows, rows.input, at)];
        const wide_t share = (wide_t)((double)-WIDEN(given) / divisor);
        const wide_t own = share * slip_weight(rows PASSED, c);
        if (rows.smoothing != 0) result = own * (wide_t)(rows.smoothing / (double)rows.classes);
        if (c == number) result += own * (wide_t)(1.0 - rows.smoothing);
    }
    out[slip_start(rows, rows.out, at) + c * rows.out.column] = NARROW(result);
}
"""


class Loss:
    """Makes the launches of one call; ``scores`` is the spec of the scores or their gradient."""

    def __init__(self, plan: Any, call: Any, scores: Any, given: Any) -> None:
        described(plan, call)
        self.terms = plan.statics[0]
        self.plan = plan
        weight = call["weight"]
        shape = scores.shape if scores.ndim > 1 else (1, *scores.shape)
        self.rows, self.classes = shape[:2]
        specs = (given, call.spec("target"), plan.out_spec)
        steps = [_steps(spec, scores) for spec in specs]
        self.shape, places = merged(shape[2:], [each[2] for each in steps])
        self.count = self.rows * prod(shape[2:])
        self.steps = [[row, column, *place] for (row, column, _), place in zip(
            steps, places, strict=True)]
        self.each = 0 if weight is None else weight.spec.strides[0]
        self.weighted = weight is not None
        self.mean = self.terms.reduction == "mean"
        self.head = (f"{elements.typed(scores.dtype)}#define RANK {len(self.shape)}\n"
                     f"typedef {elements.STORED[call.spec('target').dtype.name]} target_t;\n"
                     f"#define MEAN {int(self.mean)}\n#define WEIGHTED {int(self.weighted)}\n")

    def launch(self, name: str, text: str, grid: int, parts: bool = False) -> Launch:
        """A launch of so many blocks."""
        more = "item_t" if not parts else "double"
        head = f"{self.head}#define PARTS {int(parts)}\ntypedef {more} result_t;\n"
        passed = self.weighted
        for word, meaning in ((" GIVEN", ", SLIP_POINTER(const item_t) weights"),
                              (" PASSED", ", weights"), (" WEIGHTS", ", const item_t* weights")):
            text = text.replace(word, meaning if passed else "")
        text = text.replace(" SUMS", ", const double* sums" if parts else "")
        code = KernelCode(name, head + text)
        return make_launch(code, self.plan.out_spec.device, grid, THREADS, tail=self.tail(code))

    def tail(self, code: KernelCode) -> bytes:
        """The geometry."""
        words = [self.plan.backend.error_slot(), code.mark, self.rows, self.classes,
                 self.count // max(self.rows, 1), self.terms.ignore_index, self.each, *self.shape]
        words += [step for steps in self.steps for step in steps]
        return struct.pack(f"<{len(words)}qd", *words, self.terms.smoothing)


def _steps(spec: Any, scores: Any) -> tuple[int, int, tuple[int, ...]]:
    """Strides as (row, class, places): of scores, of targets, or of one number for all."""
    places = max(scores.ndim - 2, 0)
    if spec.ndim == scores.ndim and spec.shape == scores.shape:
        row, column = spec.strides[:2] if spec.ndim > 1 else (0, spec.strides[0])
        return row, column, spec.strides[2:]
    if spec.ndim and scores.ndim > 1:
        return spec.strides[0], 0, spec.strides[1:]
    return 0, 0, (0,) * places


class SteppedKernel(Kernel):
    """Sums of parts, then a launch that uses them."""

    def __init__(self, name: str, first: Launch, last: Launch, slope: bool) -> None:
        self.name = name
        self.first = first
        self.last = last
        self.slope = slope

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Operands: the result, scores or gradient, targets, weights."""
        backend: Any = plan.backend
        out, *inputs = [address(tensor) for tensor in operands]
        sums = backend.scratch(16 * SUMMERS)
        if self.slope:
            backend.record(self.first, (sums.address, *inputs[1:]), ())
            backend.record(self.last, (out, sums.address, *inputs), ())
        else:
            backend.record(self.first, (sums.address, *inputs), ())
            backend.record(self.last, (out, sums.address), ())


def forward(plan: Any, call: Any) -> Kernel:
    """The loss of classes."""
    loss = Loss(plan, call, call.spec("self"), call.spec("self"))
    name = "cuda class loss"
    if loss.terms.reduction == "none":
        if loss.count:
            plan.binding = loss.launch("slip_loss_each", _HEAD + _LOSS + _EACH,
                                       blocks(loss.count))
    elif loss.count <= ALONE:
        plan.binding = loss.launch("slip_loss_sum", _HEAD + _LOSS + _SUM, 1)
    else:
        first = loss.launch("slip_loss_sum", _HEAD + _LOSS + _SUM, SUMMERS, True)
        code = KernelCode("slip_loss_finish", loss.head + _UNWEIGHTED + _FINISH)
        last = make_launch(code, plan.out_spec.device, 1, THREADS)
        return SteppedKernel(name, first, last, False)
    return LaunchKernel(name)


# The head without the functions that take weights.
_UNWEIGHTED = "\n#define THREADS 256\n" + SUM


def backward(plan: Any, call: Any) -> Kernel:
    """The transpose of `forward`, which is linear in the scores."""
    loss = Loss(plan, call, plan.out_spec, call.spec("grad"))
    name = "cuda class loss gradient"
    numel = loss.count * loss.classes
    if loss.mean and loss.count > ALONE and numel:
        first = loss.launch("slip_loss_weights", _HEAD + _WEIGHTS, SUMMERS)
        last = loss.launch("slip_loss_grad", _HEAD + _SLOPE, blocks(numel), True)
        return SteppedKernel(name, first, last, True)
    if numel:
        plan.binding = loss.launch("slip_loss_grad", _HEAD + _SLOPE, blocks(numel))
    return LaunchKernel(name)
