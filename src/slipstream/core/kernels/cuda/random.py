"""Kernels that draw: the mapping from words to values of `kernels.cpu.philox`, bit for bit.

A thread takes one counter of the stream, four words, and stores the values they give.  The
host owns the counter: (seed, base) are run-time numbers, followed by the parameters of the law as
it uses them, worked out on the host by `_constants`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from slipstream.core.kernels.cuda import elements
from slipstream.core.kernels.cuda.access import FLAT
from slipstream.core.kernels.cuda.drawing import (
    BERNOULLI,
    CLOCKS,
    FILL,
    FINISH,
    GENERAL,
    KEYS,
    PICK,
    SUMS,
)
from slipstream.core.kernels.cuda.joined import FlatPart
from slipstream.core.kernels.cuda.orders import Ordering
from slipstream.core.kernels.cuda.walks import (
    address,
    blocks,
    described,
    divider,
    launch,
    merged,
    place_type,
)
from slipstream.core.launch.cuda.launches import KernelCode, Launch, LaunchKernel
from slipstream.core.shapes.broadcast import broadcast_strides
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.dtypes import DType
from slipstream.core.vocab.records import Kernel, Plan, TensorBase

# The names of `kernels.cpu.random.LAWS`, and how many values a counter gives: float32, float64.
LAWS = {"uniform": (4, 2), "normal": (4, 2), "exponential": (4, 2), "integers": (2, 2),
        "bernoulli": (4, 4)}
# A capture finds the words that a replay draws anew by these classes.
STREAM = ("seed", "base")
MASK = (1 << 64) - 1
# What the kernels report, as the CPU says it.
CHANCE_FAULTS = {-1: "Expected p_in >= 0 && p_in <= 1 to be true, but got false."}
WEIGHT_FAULTS = {
    -1: "probability tensor contains either `inf`, `nan` or element < 0",
    -2: "invalid multinomial distribution (sum of probabilities <= 0)",
    -3: "invalid multinomial distribution (with replacement=False, not enough non-negative "
        "category to sample)",
    -4: "invalid multinomial distribution (sum of probabilities is not finite)",
}


@lru_cache(512)
def _constants(law: str, dtype: DType, *given: float) -> tuple[Any, ...]:
    """The parameters of a law as its kernel uses them."""
    if law == "uniform":
        return _range(dtype, *given)
    if law == "normal":
        mean, std = given
        return mean, std * np.sqrt(0.5) if dtype.is_complex else std
    if law == "exponential":
        return -1.0 / given[0], 0.0
    if law == "integers":
        low, high = given
        return int(low) & MASK, int(high - low) & MASK
    return round(given[0] * 2.0**32), 0


def _range(dtype: DType, low: float, high: float) -> tuple[float, float, float]:
    """Start, span, and the largest number below the end, in the dtype that is stored."""
    kind = dtype.to_real().numpy
    wide = np.dtype(np.float64 if dtype.to_real() is dtypes.float64 else np.float32)
    with np.errstate(all="ignore"):
        start, stop = kind.type(low), kind.type(high)
        span = wide.type(stop) - wide.type(start)
        if wide.type(start) < wide.type(stop):
            stop = np.nextafter(stop, kind.type(-np.inf))
    return float(start), float(span), float(stop)


def _prepared(plan: Plan, law: str, dtype: DType) -> None:
    """Let the plan hand the kernel's own constants over, after (seed, base)."""
    before = plan.prepare

    def prepare(values: Any) -> tuple[Any, ...]:
        seed, base, *given = before(values)
        return (seed, base, *_constants(law, dtype, *given))

    plan.prepare = prepare


def _geometry(spec: Any) -> tuple[list[int], list[int]]:
    """Sizes and strides of the real numbers of a tensor, in the order in which they are drawn."""
    parts = 2 if spec.dtype.is_complex else 1
    shape = (*spec.shape, parts)
    strides = (*[step * parts for step in spec.strides], 1)
    sizes, walks = merged(shape, [strides])
    return list(sizes), list(walks[0])


def fill(plan: Any, call: Any) -> LaunchKernel:
    """uniform, normal, exponential, integers, and bernoulli of one chance."""
    law = described(plan, call).name.rpartition(" ")[2]
    out = plan.out_spec
    real = out.dtype.to_real()
    _prepared(plan, law, out.dtype)
    numbers = {"uniform": ("f64",) * 3, "integers": ("i64",) * 2,
               "bernoulli": ("i64",) * 2}.get(law, ("f64",) * 2)
    if out.numel:
        plan.binding = _fill_launch(plan, real, law, (*STREAM, *numbers),
                                    len(plan.operands))
    return LaunchKernel(f"cuda {law}")


def _fill_launch(plan: Any, real: DType, law: str, numbers: tuple[str, ...], inputs: int) -> Any:
    """The launch that fills; ``inputs``: how many operands follow the result, unread."""
    out = plan.out_spec
    sizes, strides = _geometry(out)
    reals = out.numel * (2 if out.dtype.is_complex else 1)
    double = real is dtypes.float64
    each = LAWS[law][int(double)]
    wide = "double" if double else "float"
    cls = "i64" if law in ("integers", "bernoulli") else "f64" if double else "f32"
    head = (f"{place_type(reals)}#define RANK {len(sizes)}\n#define EACH {each}\n"
            f"typedef {elements.STORED[real.name]} item_t;\ntypedef {wide} wide_t;\n"
            f"#define STORED(x) ({elements.stored(real, cls, 'x')})\n"
            f"#define {law.upper()}{64 if double and cls != 'i64' else 32}\n")
    unread = "".join(f", const void* unread{place}" for place in range(inputs))
    declared = ", ".join(f"{'double' if kind == 'f64' else 'uint64_t'} n{place}"
                         for place, kind in enumerate(numbers[2:]))
    text = FILL.replace(" UNREAD", unread).replace("NUMBERS", declared)
    code = KernelCode(f"slip_{law}", (head + GENERAL + text).replace("LAW", law))
    count = blocks(reals, each)
    tail = [count, reals, *sizes, *map(divider, sizes), *strides]
    made = launch(code, out.device, count, tail, numbers=numbers)
    if law == "bernoulli" and strides in ([], [1]):
        made.part, made.count = DrawnPart.of(real, inputs, out.device), reals
    return made


class DrawnPart(FlatPart):
    """Zeros and ones of one chance, drawn for the elements in the order of memory."""

    def __init__(self, stored: DType, inputs: int, device: Any) -> None:
        super().__init__((stored,), (FLAT,), 1, device)
        # Nothing is read.
        self.kinds += (0,) * inputs
        self.sizes += (0,) * inputs
        self.inputs = inputs
        self.stored = stored
        self.words = ["bernoulli"]

    @staticmethod
    @lru_cache
    def of(stored: DType, inputs: int, device: Any) -> DrawnPart:
        """The same for the same dtype."""
        return DrawnPart(stored, inputs, device)

    def types(self) -> list[str]:
        """The C types of the operands' elements."""
        return [elements.STORED[self.stored.name], *["void"] * self.inputs]

    def number_parameters(self, prefix: str) -> list[str]:
        """The parameters that are run-time numbers: the stream, and the chance of 2**32."""
        return [f"const uint64_t {prefix}{name}" for name in ("seed", "base", "n0", "n1")]

    def add_before(self, lines: Any, prefix: str, vector: int) -> None:
        """What a vector's elements share: the words of its counters."""
        fours = -(-vector // 4)
        lines.add(f"slip_four {prefix}four[{fours}];")
        lines.loop(f"for (int i = 0; i < {fours}; i++)")
        lines.add(f"{prefix}four[i] = slip_philox({prefix}base + (((uint64_t)at >> 2) + i), "
                  f"{prefix}seed);")
        lines.close()

    def add_element(self, lines: Any, prefix: str, vector: int, read: list[str]) -> list[str]:
        """Element ``e`` of a vector; the texts of the results as they are stored."""
        word = f"{prefix}four[e / 4].word[e % 4]"
        if vector < 4:
            word = f"{prefix}four[0].word[(at + e) % 4]"
        lines.add(f"const uint64_t {prefix}value = {prefix}some & ({word} <= {prefix}most);")
        return [elements.stored(self.stored, "i64", f"{prefix}value")]

    def add_uniform(self, lines: Any, prefix: str) -> None:
        """The chance of 2**32 as the largest word that is good, where there is one."""
        lines.add(f"const bool {prefix}some = {prefix}n0 != 0;",
                  f"const uint32_t {prefix}most = (uint32_t)({prefix}n0 - 1);")


# -- chances of their own --
def bernoulli(plan: Any, call: Any) -> Kernel:
    """One chance for all elements, or each its own: from ``p``, or from self without p."""
    p = call["p"]
    if not isinstance(p, TensorBase) and not (p is None and call.form == 0):
        return fill(plan, call)
    described(plan, call)
    out = plan.out_spec
    source = p.spec if isinstance(p, TensorBase) else call.spec("self")
    steps = broadcast_strides(source.shape, source.strides, out.shape)
    sizes, walks = merged(out.shape, [out.strides, steps])
    between = ", const void* unread0" if isinstance(p, TensorBase) else ""
    widened = elements.converted("f64", source.dtype.compute,
                                 elements.widened(source.dtype, "given"))
    head = (f"{place_type(out.numel)}#define RANK {len(sizes)}\n#define EACH 4\n"
            f"typedef {elements.STORED[out.dtype.name]} item_t;\n"
            f"typedef {elements.STORED[source.dtype.name]} chance_t;\n"
            f"#define WIDENED(given) ({widened})\n"
            f"#define STORED(x) ({elements.stored(out.dtype, 'i64', 'x')})\n")
    code = KernelCode("slip_bernoulli_each", head + BERNOULLI.replace(" UNREAD", between),
                      faults=CHANCE_FAULTS)
    if out.numel:
        count = blocks(out.numel, 4)
        tail = [count, out.numel, plan.backend.error_slot(), code.mark, *sizes,
                *map(divider, sizes), *walks[0], *walks[1]]
        plan.binding = launch(code, out.device, count, tail, numbers=STREAM)
    return LaunchKernel("cuda bernoulli of probabilities")


# -- orders --
class PermutationKernel(Kernel):
    """The stable order of random keys."""

    def __init__(self, plan: Any) -> None:
        self.name = "cuda permutation"
        self.count = plan.out_spec.numel
        if self.count:
            device = plan.out_spec.device
            counters = blocks(self.count, 2)
            self.keys = launch(KernelCode("slip_random_keys", KEYS), device, counters,
                               [counters, self.count], numbers=STREAM)
            self.ordering = Ordering(device, self.count, 64, self.count, wide=True)

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Operands: a contiguous out int64[count]; numbers: seed, base."""
        if not self.count:
            return
        backend: Any = plan.backend
        keys, ordered = backend.scratch(8 * self.count), backend.scratch(8 * self.count)
        backend.record(self.keys, (keys.address,), numbers)
        self.ordering.run(backend, address(operands[0]), ordered.address, keys.address)


def permutation(plan: Any, call: Any) -> PermutationKernel:
    """The numbers below n in random order."""
    described(plan, call)
    return PermutationKernel(plan)


# -- multinomial --
class MultinomialKernel(Kernel):
    """Categories drawn from rows of weights: two launches and some memory between them."""

    def __init__(self, first: Launch, second: Launch, nbytes: int) -> None:
        self.name = "cuda multinomial"
        self.first = first
        self.second = second
        self.nbytes = nbytes

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Operands: out, weights; numbers: seed, base."""
        backend: Any = plan.backend
        between = backend.scratch(self.nbytes)
        out, weights = address(operands[0]), address(operands[1])
        backend.record(self.first, (between.address, weights), numbers)
        backend.record(self.second, (out, between.address), numbers)


def multinomial(plan: Any, call: Any) -> Kernel:
    """Inverse of the cumulated weights, or the order of exponential clocks."""
    described(plan, call)
    spec, out = call.spec("self"), plan.out_spec
    if not out.numel:
        return LaunchKernel("cuda multinomial")
    again = bool(call["replacement"])
    classes, drawn = spec.shape[-1], out.shape[-1]
    rows = spec.numel // classes
    widened = elements.converted("f64", spec.dtype.compute, elements.widened(spec.dtype, "given"))
    head = (f"typedef {elements.STORED[spec.dtype.name]} item_t;\n"
            f"#define WIDENED(given) ({widened})\n")
    # Only float64 has weights by which a clock's time leaves the range of its dtype: the order of
    # times is that of their logarithms.
    kind = f"#define LOGARITHMS {int(spec.dtype is dtypes.float64)}\n"
    first = KernelCode("slip_weight_sums" if again else "slip_clocks",
                       head + GENERAL + (SUMS if again else kind + CLOCKS), faults=WEIGHT_FAULTS)
    second = KernelCode("slip_pick" if again else "slip_first_clocks",
                        head + GENERAL + (PICK if again else FINISH), faults=WEIGHT_FAULTS)
    steps = [spec.strides[0] if spec.ndim > 1 else 0, spec.strides[-1],
             out.strides[0] if out.ndim > 1 else 0, out.strides[-1]]
    launches = []
    for code, count in ((first, rows if again else blocks(rows * classes, 2)),
                        (second, blocks(rows * drawn, 2) if again else rows * classes)):
        tail = [count, plan.backend.error_slot(), code.mark, rows, classes, drawn, *steps]
        launches.append(launch(code, out.device, count, tail, numbers=STREAM))
    return MultinomialKernel(launches[0], launches[1], 8 * rows * classes)
