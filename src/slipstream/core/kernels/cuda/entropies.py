"""Cross entropy of rows of scores on the device, from the logarithms of the rows' sums.

Forward: the loss of a row is ``logsum - score of its class``; the blocks' sums, in double, are
joined in order by the block that comes last.  Backward, in one pass over the scores:
``(e^(score - logsum) - [class of the row]) * share``, where the share of a mean is the upstream
gradient over the number of targets that count, which every block counts for itself.
"""

from __future__ import annotations

from typing import Any

from slipstream.core.kernels.cuda import elements
from slipstream.core.kernels.cuda.access import power_of_two
from slipstream.core.kernels.cuda.losses import SUM
from slipstream.core.kernels.cuda.walks import address, blocks
from slipstream.core.launch.cuda.launches import KernelCode, Launch, LaunchKernel, make_launch
from slipstream.core.vocab.records import Kernel, Plan

# Threads and blocks at most of the forward kernel: the last block takes a part with each thread.
SUMMING = 256
# Threads and blocks of the backward kernel; vectors that a thread asks for at once.
THREADS = 512
BLOCKS = 528
BATCH = 4

_HEAD = """
#define THREADS {threads}
#define MEAN {mean}
#define EACH {each}
#define V {vector}
#define BATCH {batch}
struct slip_rows {{ int64_t slot, tag, rows, classes, ignored, step, grad_step; }};
"""
_FORWARD = """
extern "C" __global__ void slip_softmax_loss(item_t* out, const item_t* scores,
                                             const int64_t* target, const wide_t* logsum,
                                             double* parts, uint32_t* tickets,
                                             const slip_rows rows) {
    double loss = 0, counted = 0;
    for (int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x; at < rows.rows;
         at += (int64_t)gridDim.x * THREADS) {
        const int64_t number = target[at];
        const bool good = number >= 0 && number < rows.classes, counts = number != rows.ignored;
        if (counts && !good) slip_index_error(rows.slot, rows.tag, at, number, rows.classes);
        wide_t own = 0;
        if (counts && good) {
            const item_t score = scores[at * rows.step + number];
            own = logsum[at] - WIDEN(score);
            loss += (double)own;
            counted += 1;
        }
#if EACH
        out[at] = NARROW(own);
#endif
    }
#if !EACH
    loss = slip_sum(loss);
    counted = slip_sum(counted);
    if (threadIdx.x == 0) {
        parts[2 * blockIdx.x] = loss;
        parts[2 * blockIdx.x + 1] = counted;
    }
    if (!slip_is_last(tickets, gridDim.x)) return;
    const bool mine = threadIdx.x < gridDim.x;
    loss = slip_sum(mine ? slip_fresh(parts, 2 * threadIdx.x) : 0.0);
    counted = slip_sum(mine ? slip_fresh(parts, 2 * threadIdx.x + 1) : 0.0);
    const wide_t result = (wide_t)(MEAN ? loss / counted : loss);
    if (threadIdx.x == 0) out[0] = NARROW(result);
#endif
}
"""
_BACKWARD = """
extern "C" __global__ void __launch_bounds__(THREADS, 2)
slip_softmax_loss_grad(item_t* out, const item_t* grad, const item_t* scores,
                       const int64_t* target, const wide_t* logsum, const slip_rows rows) {
    double divisor = 1;
#if MEAN
    double counted = 0;
    for (int64_t at = threadIdx.x; at < rows.rows; at += THREADS) {
        counted += target[at] != rows.ignored ? 1.0 : 0.0;
    }
    divisor = slip_sum(counted);
#endif
    const bool fits = slip_aligned<item_t>(out, V * (int)sizeof(item_t))
                      && slip_aligned<item_t>(scores, V * (int)sizeof(item_t));
    const int vectors = (int)(rows.classes / V);
    for (int64_t row = blockIdx.x; row < rows.rows; row += gridDim.x) {
        const int64_t number = target[row];
        const item_t given = grad[row * rows.grad_step];
        const wide_t total = logsum[row];
        const wide_t share = number == rows.ignored ? (wide_t)0
                             : (wide_t)((double)WIDEN(given) / divisor);
        for (int first = threadIdx.x; first < vectors; first += THREADS * BATCH) {
            slip_vector<item_t, V> held[BATCH];
#pragma unroll
            for (int k = 0; k < BATCH; k++) {
                const int at = first + k * THREADS;
                if (at < vectors) {
                    held[k] = slip_read<item_t, V>(scores + (row * rows.step + (int64_t)at * V), V,
                                                   fits);
                }
            }
#pragma unroll
            for (int k = 0; k < BATCH; k++) {
                const int at = first + k * THREADS;
                if (at >= vectors) continue;
                slip_vector<item_t, V> made = {};
                const int64_t own = number - (int64_t)at * V;
#pragma unroll
                for (int e = 0; e < V; e++) {
                    const wide_t raised = EXP(WIDEN(held[k].get(e)) - total);
                    const wide_t slope = (raised - (own == e ? (wide_t)1 : (wide_t)0)) * share;
                    made.set(e, NARROW(slope));
                }
                slip_write(out + (row * rows.classes + (int64_t)at * V), made, V, fits);
            }
        }
    }
}
"""


def _code(name: str, text: str, scores: Any, threads: int, call: Any) -> KernelCode:
    dtype = scores.dtype
    vector = power_of_two(scores.shape[1], max(16 // dtype.itemsize, 1))
    vector = power_of_two(scores.strides[0], vector)
    head = _HEAD.format(threads=threads, mean=int(call["reduction"] == "mean"), vector=vector,
                        each=int(call["reduction"] == "none"), batch=BATCH)
    exponential = "exp" if dtype.itemsize == 8 else "expf"
    return KernelCode(name, f"{elements.typed(dtype)}#define EXP {exponential}\n{head}{SUM}{text}")


def _tail(plan: Any, call: Any, code: KernelCode, grad_step: int = 0) -> list[int]:
    scores = call.spec("self")
    return [plan.backend.error_slot(), code.mark, *scores.shape, call["ignore_index"],
            scores.strides[0], grad_step]


class JoiningKernel(Kernel):
    """One launch whose blocks leave parts in scratch memory."""

    def __init__(self, name: str, launch: Launch) -> None:
        self.name = name
        self.launch = launch

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Operands: the result, scores, targets, logarithms of sums."""
        backend: Any = plan.backend
        parts = backend.scratch(16 * SUMMING)
        places = [address(tensor) for tensor in operands]
        backend.record(self.launch, (*places, parts.address, backend.tickets()), ())


def forward(plan: Any, call: Any) -> Kernel:
    """The loss of rows."""
    scores = call.spec("self")
    code = _code("slip_softmax_loss", _FORWARD, scores, SUMMING, call)
    grid = min(blocks(scores.shape[0], SUMMING), SUMMING)
    made = make_launch(code, plan.out_spec.device, grid, SUMMING, tail=_tail(plan, call, code))
    return JoiningKernel("cuda softmax loss", made)


def backward(plan: Any, call: Any) -> Kernel:
    """Its gradient by the scores."""
    scores, grad = call.spec("self"), call.spec("grad")
    code = _code("slip_softmax_loss_grad", _BACKWARD, scores, THREADS, call)
    step = grad.strides[0] if grad.ndim else 0
    plan.binding = make_launch(code, plan.out_spec.device, min(scores.shape[0], BLOCKS), THREADS,
                               tail=_tail(plan, call, code, step))
    return LaunchKernel("cuda softmax loss gradient")
