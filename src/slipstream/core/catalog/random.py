# cython: annotation_typing=False
"""Random numbers.

The host owns every generator's counter.  A plan knows how many counters its call consumes; at
each call ``Plan.prepare`` takes them and hands (seed, base) to the kernel with the run-time
numbers, so that plans stay cached, nothing is drawn when one is made, and reading a generator's
state never waits.  A stream's values depend on the seed, the counter, the shape and the dtype
only: not on the device, the strides or the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes

from slipstream.core.catalog.creation import TAIL, pinning
from slipstream.core.catalog.table import define, ops
from slipstream.core.dispatch import promotion
from slipstream.core.dispatch.arguments import ints
from slipstream.core.dispatch.entry import COMPOUND, RANDOM, Entry
from slipstream.core.dispatch.registry import Candidate
from slipstream.core.kernels.cpu import random as kernels
from slipstream.core.kernels.cpu.philox import philox
from slipstream.core.shapes.broadcast import broadcast_shapes
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.generators import Generator, defaults
from slipstream.core.vocab.records import Kernel, Plan, TensorBase

# Bits of a float dtype's mantissa: integers up to 2**bits are exact.
MANTISSA = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
Numbers = Callable[..., tuple[Any, ...]]


def _generator(call: Any, device: Any) -> int:
    """The place of the generator among the arguments; RuntimeError for one of another device."""
    given = call["generator"]
    if given is not None and not isinstance(given, Generator):
        raise TypeError(f"{call.op.name}(): argument 'generator' must be Generator, not "
                        f"{type(given).__name__}")
    return int(call.op.names.index("generator"))


def _drawing(plan: Plan, call: Any, kernel: Kernel, draws: int,
             numbers: Numbers | tuple[Any, ...]) -> Kernel:
    """Give a plan its ``prepare``: the stream of this call, then ``numbers(*values)``.

    Numbers that are the same at every call are a tuple.
    """
    device = plan.out_spec.device
    place = _generator(call, device)
    has_data = plan.backend.has_data

    def prepare(values: Any) -> tuple[Any, ...]:
        checked = numbers if isinstance(numbers, tuple) else numbers(*values)
        if not has_data:
            return ()
        given = values[place]
        if given is None:
            given = defaults.of(device)
        elif given.device is not device:
            raise RuntimeError(f"Expected a '{device}' device type for generator but found "
                               f"'{given.device}'\n  mend: draw from Generator('{device}')")
        return given.draw(draws) + checked

    plan.prepare = prepare
    return kernel


def _filling(name: str, numbers: Numbers | tuple[Any, ...]) -> Candidate:
    """The candidate of an op that fills one result by a law of `kernels.cpu.random`."""
    kernel = kernels.FillKernel(name)

    def make(plan: Plan, call: Any) -> Kernel:
        draws = philox.draws(plan.out_spec.numel, plan.out_spec.dtype, name)
        return _drawing(plan, call, kernel, draws, numbers)

    return Candidate(kernel.name, make)


def _own(call: Any) -> Any:
    return [(call.spec("self").dtype, call.spec("self").shape)]


def _zero(g: Any) -> Any:
    return ops.zeros_like.call((g,), None)


def _floats_only(call: Any) -> None:
    dtype = call.spec("self").dtype
    if dtype.category < 2:
        raise call.error(NotImplementedError, f'"{call.op.name}_" not implemented for '
                                              f"'{dtype.name}'", "use a float dtype")


def _real_only(call: Any) -> None:
    if call.spec("self").dtype.is_complex:
        raise call.error(NotImplementedError,
                         f'"{call.op.name}_" not implemented for complex dtypes')


def _positive_floats(call: Any) -> None:
    _floats_only(call)
    _real_only(call)


def in_place(signature: str, candidate: Candidate, doc: str, check: Any) -> None:
    """An entry that fills ``self``; its gradient is zero, as self's old values are lost."""
    define(Entry(signature, RANDOM, shape=_own, gradient={"self": _zero}, method=False,
                 inplace=True, deterministic=False, check=check, doc=doc),
           cpu=candidate, cuda="random.fill")


def _uniform_numbers(self: Any, low: Any, high: Any, generator: Any) -> tuple[Any, ...]:
    dtype = self.spec.dtype.to_real()
    most = float(ml_dtypes.finfo(dtype.numpy).max)
    for word, value in (("from", low), ("to", high)):
        if not -most <= value <= most:
            raise RuntimeError(f"{word} is out of bounds for {dtype.name}: {value}")
    if low > high:
        raise RuntimeError("uniform_ expects to return a [from, to) range, but found "
                           f"from={low} > to={high}")
    if high - low > most:
        raise RuntimeError(f"uniform_ expects to - from <= {most}, the most that {dtype.name} "
                           f"holds, but found from={low} and to={high}")
    return float(low), float(high)


def _normal_numbers(self: Any, mean: Any, std: Any, generator: Any) -> tuple[Any, ...]:
    _check_deviation(std)
    return float(mean), float(std)


def _check_deviation(std: Any) -> None:
    if not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")


def _exponential_numbers(self: Any, rate: Any, generator: Any) -> tuple[Any, ...]:
    if not rate > 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={rate}")
    return (float(rate),)


def _integer_numbers(self: Any, low: Any, high: Any, generator: Any) -> tuple[Any, ...]:
    return int(low), int(high)


in_place("uniform(Tensor self, Number from=0.0, Number to=1.0, *, Generator? generator=None)",
         _filling("uniform", _uniform_numbers),
         "Fill self with numbers uniform in [from, to).  Raises RuntimeError where from > to.",
         _floats_only)
in_place("normal(Tensor self, Number mean=0.0, Number std=1.0, *, Generator? generator=None)",
         _filling("normal", _normal_numbers),
         "Fill self with normal numbers.  Raises RuntimeError for a negative std.", _floats_only)
in_place("exponential(Tensor self, Number lambd=1.0, *, Generator? generator=None)",
         _filling("exponential", _exponential_numbers),
         "Fill self with exponential numbers of rate lambd, which must be positive.",
         _positive_floats)
in_place("random_integers(Tensor self, Number low, Number high, *, Generator? generator=None)",
         _filling("integers", _integer_numbers),
         "Fill self with integers in [low, high).", _real_only)


# -- bernoulli -----------------------------------------------------------------------------------
def _chance(p: Any) -> tuple[Any, ...]:
    if not 0.0 <= p <= 1.0:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    return (float(p),)


def _bernoulli_kernel(plan: Plan, call: Any) -> Kernel:
    """One p for all elements, or each its own: from ``p``, or from self where p is left out."""
    p = call["p"]
    draws = philox.draws(plan.out_spec.numel, plan.out_spec.dtype, "bernoulli")
    if isinstance(p, TensorBase) or (p is None and call.form == 0):
        return _drawing(plan, call, kernels.BernoulliKernel(), draws, ())
    kernel = kernels.FillKernel("bernoulli")
    return _drawing(plan, call, kernel, draws,
                    lambda self, p, generator: _chance(0.5 if p is None else p))


def _bernoulli_check(call: Any) -> None:
    _real_only(call)
    p = call["p"]
    if p is None and call.form == 0:
        _floats_only(call)
    if isinstance(p, TensorBase) and not p.spec.dtype.is_floating_point:
        raise call.error(RuntimeError, "expected probabilities tensor to have floating type")


define(Entry(
    "bernoulli(Tensor self, Tensor|Number p=None, *, Generator? generator=None)", RANDOM,
    shape=_own, gradient={"self": _zero, "p": _zero}, path="bernoulli", inplace=True, out=True,
    deterministic=False, check=_bernoulli_check,
    doc="Ones with the probabilities of self, or of p where it is given, and zeros else.  The "
        "in-place form fills self with p = 0.5 unless given.  Raises RuntimeError outside [0, 1].",
), cpu=Candidate("philox bernoulli", _bernoulli_kernel), cuda="random.bernoulli")
define(Entry(
    "bernoulli_mask(Tensor self, Number p, Generator? generator=None)", RANDOM,
    shape=lambda call: [(dtypes.bool_, call.spec("self").shape)], method=False, path="",
    deterministic=False, doc="A bool mask of self's shape, true with probability p.",
), cpu=_filling("bernoulli", lambda self, p, generator: _chance(p)),
   cuda="random.fill")


# -- integers ------------------------------------------------------------------------------------
def _bounds(dtype: Any) -> tuple[int, int]:
    """The integers that a dtype holds exactly, without gaps."""
    if dtype.is_floating_point:
        limit = 1 << MANTISSA[dtype.name]
        return -limit, limit
    if dtype is dtypes.bool_:
        return 0, 1
    bits = 8 * dtype.itemsize - dtype.is_signed
    return (-(1 << bits) if dtype.is_signed else 0), (1 << bits) - 1


def _check_range(name: str, low: int, high: int, dtype: Any) -> None:
    if low >= high:
        raise RuntimeError(f"{name} expects 'from' to be less than 'to', but got from={low} >= "
                           f"to={high}")
    least, most = _bounds(dtype)
    for word, value in (("from", low), ("to - 1", high - 1)):
        if not least <= value <= most:
            raise RuntimeError(f"{word} is out of bounds for {dtype.name}: {value}")


def _random(self: Any, start: Any, to: Any, generator: Any) -> Any:
    """random_(), random_(to), random_(from, to)."""
    dtype = self.spec.dtype
    if dtype.is_complex:
        raise NotImplementedError("random_ is not defined for complex numbers")
    most = _bounds(dtype)[1]
    if start is None and to is None:
        low, high = 0, most + 1
    elif to is None:
        low, high = 0, int(start)
    else:
        low, high = int(start or 0), int(to)
    _check_range("random_", low, high, dtype)
    return ops.random_integers.call_inplace((self, low, high), {"generator": generator})


define(Entry("random(Tensor self, any from=None, any to=None, *, Generator? generator=None)",
             COMPOUND, function=_random, method=False, inplace=True, deterministic=False,
             doc="Fill self with integers in [from, to), by default all that the dtype holds "
                 "from 0 on.  Raises RuntimeError for an empty range or one out of bounds."))


# -- new tensors ---------------------------------------------------------------------------------
def _made(size: Any, dtype: Any, device: Any) -> Any:
    return ops.empty_memory.call((ints(size), dtype, None, device, None), None)


def _memory_check(call: Any) -> None:
    if call["dtype"].category < 2:
        raise call.error(NotImplementedError, f"random real numbers are not implemented for "
                                              f"'{call['dtype'].name}'", "use a float dtype")


def _filler(name: str, numbers: tuple[Any, ...]) -> tuple[Any, Any]:
    """The function that makes a tensor, and the call of one launch that sizes come down to."""
    drawn = define(Entry(
        f"{name}_memory(int[] size, dtype dtype, device? device=None, Generator? generator=None)",
        RANDOM, shape=lambda call: [(call["dtype"], ints(call["size"]))], method=False, path="",
        deterministic=False, check=_memory_check, doc=f"A new tensor filled as {name}_() fills.",
    ), cpu=_filling(name, numbers), cuda="random.fill")

    def make(size: Any, *options: Any) -> Any:
        generator, dtype, _, device, requires_grad, _ = options
        if type(size) is not int:
            size = ints(size)
        made = drawn.call((size, dtype or promotion.defaults.dtype, device, generator), None)
        return made.requires_grad_(True) if requires_grad else made

    def memory(size: Any) -> Any:
        return drawn, (size, promotion.defaults.dtype, None, None)

    return make, memory


def _filler_like(name: str) -> Any:
    def make(self: Any, *options: Any) -> Any:
        generator, dtype, _, device, requires_grad, _, memory_format = options
        made = _made_like(self, dtype, device, memory_format)
        getattr(ops, name).call_inplace((made,), {"generator": generator})
        return made.requires_grad_(True) if requires_grad else made

    return make


def _made_like(self: Any, dtype: Any, device: Any, memory_format: Any) -> Any:
    return ops.empty_like.call((self,), {"dtype": dtype, "device": device,
                                         "memory_format": memory_format})


def creation(signature: str, function: Any, doc: str, **facts: Any) -> None:
    """An entry of a function that makes random tensors."""
    define(Entry(signature, COMPOUND, function=pinning(signature, function),
                 path=signature.partition("(")[0], method=False, deterministic=False, doc=doc,
                 **facts))


GENERATOR = "Generator? generator=None"
for _name, _law, _doc in (("rand", "uniform", "Numbers uniform in [0, 1)."),
                          ("randn", "normal", "Normal numbers of mean 0 and variance 1.")):
    _make, _memory = _filler(_law, (0.0, 1.0))
    creation(f"{_name}(int... size, *, {GENERATOR}, {TAIL})", _make, _doc, memory=_memory)
creation(f"rand_like(Tensor self, *, {GENERATOR}, {TAIL}, any memory_format=None)",
         _filler_like("uniform"), "Numbers uniform in [0, 1), laid out as self.")
creation(f"randn_like(Tensor self, *, {GENERATOR}, {TAIL}, any memory_format=None)",
         _filler_like("normal"), "Normal numbers, laid out as self.")


def _integers(made: Any, low: Any, high: Any, generator: Any, requires_grad: bool) -> Any:
    low, high = int(low), int(high)
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= "
                           f"to={high}")
    _check_range("random_", low, high, made.spec.dtype)
    ops.random_integers.call_inplace((made, low, high), {"generator": generator})
    return made.requires_grad_(True) if requires_grad else made


def _randint(low: Any, high: Any, size: Any, *options: Any) -> Any:
    """randint(high, size) and randint(low, high, size)."""
    if size is None:
        if not isinstance(high, (tuple, list)):
            raise TypeError("randint(): argument 'size' must be tuple of ints, not "
                            f"{type(high).__name__}")
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    generator, dtype, _, device, requires_grad, _ = options
    return _integers(_made(size, dtype or dtypes.int64, device), low, high, generator,
                     requires_grad)


def _randint_like(self: Any, low: Any, high: Any, *options: Any) -> Any:
    generator, dtype, _, device, requires_grad, _, memory_format = options
    if high is None:
        low, high = 0, low
    made = _made_like(self, dtype, device, memory_format)
    return _integers(made, low, high, generator, requires_grad)


creation(f"randint(any low=0, any high=None, any size=None, *, {GENERATOR}, {TAIL})", _randint,
         "Integers in [low, high), int64 by default: randint(high, size), randint(low, high, "
         "size).  Raises RuntimeError for an empty range or one that the dtype cannot hold.")
creation(f"randint_like(Tensor self, any low, any high=None, *, {GENERATOR}, {TAIL}, "
         "any memory_format=None)", _randint_like, "Integers in [low, high), laid out as self.")


def _permutation(plan: Plan, call: Any) -> Kernel:
    kernel = kernels.FillKernel("permutation")
    draws = philox.draws(plan.out_spec.numel, dtypes.int64, "permutation")
    return _drawing(plan, call, kernel, draws, ())


define(Entry("permutation(int n, device? device=None, *, Generator? generator=None)", RANDOM,
             shape=lambda call: [(dtypes.int64, (call["n"],))], method=False, path="",
             deterministic=False, doc="The numbers below n in random order, as int64."),
       cpu=Candidate("philox permutation", _permutation), cuda="random.permutation")


def _randperm(n: Any, *options: Any) -> Any:
    generator, dtype, _, device, requires_grad, _ = options
    if n < 0:
        raise RuntimeError(f"n must be non-negative, got{n}")
    dtype = dtype or dtypes.int64
    if n - 1 > _bounds(dtype)[1]:
        raise RuntimeError(f"n is too large for result tensor type: '{dtype.name}'")
    made = ops.cast.call((ops.permutation.call((n, device), {"generator": generator}), dtype), None)
    return made.requires_grad_(True) if requires_grad else made


creation(f"randperm(int n, *, {GENERATOR}, {TAIL})", _randperm,
         "The numbers 0 to n - 1 in random order, int64 by default.")


def _normal(mean: Any, std: Any, size: Any, *options: Any) -> Any:
    """normal(mean, std) of tensors or numbers; normal(number, number, size)."""
    generator, dtype, _, device, requires_grad, _ = options
    tensors = [value for value in (mean, std) if isinstance(value, TensorBase)]
    if size is not None or not tensors:
        if size is None or tensors:
            raise TypeError("normal() takes mean and std, at least one of them a tensor, or two "
                            "numbers and size")
        made = _made(size, dtype, device)
        ops.normal.call_inplace((made, mean, std), {"generator": generator})
        return made.requires_grad_(True) if requires_grad else made
    (_check_std if isinstance(std, TensorBase) else _check_deviation)(std)
    shape = broadcast_shapes(*[each.spec.shape for each in tensors])
    made = _made(shape, promotion.result_type(tensors), tensors[0].spec.device)
    ops.normal.call_inplace((made,), {"generator": generator})
    return ops.add.call2(ops.mul.call2(made, std), mean)


def _check_std(std: Any) -> None:
    if std.spec.dtype.is_complex:
        raise RuntimeError("normal expects standard deviation to be non-complex")
    if std.spec.numel and std.spec.device.type != "meta" and not bool((std.detach() >= 0).all()):
        raise RuntimeError(f"normal expects all elements of std >= 0.0: {std.spec!r} has negative "
                           "ones or nan\n  mend: std.abs(), or softplus or exp of what it is "
                           "made of")


_OF = f"normal_of(any mean=0.0, any std=1.0, any size=None, *, {GENERATOR}, {TAIL})"
define(Entry(_OF, COMPOUND, function=pinning(_OF, _normal), path="normal", method=False,
             deterministic=False, waits="data",
             doc="Normal numbers of means and deviations: tensors, which are broadcast, or "
                 "numbers with a size.  Raises RuntimeError for a negative std."))


# -- multinomial ---------------------------------------------------------------------------------
def _multinomial_check(call: Any) -> None:
    spec, count = call.spec("self"), call["num_samples"]
    if not spec.dtype.is_floating_point:
        raise call.error(RuntimeError, "multinomial only supports floating-point dtypes for input, "
                                       f"got: {spec.dtype.name}")
    if not 1 <= spec.ndim <= 2:
        raise call.error(RuntimeError, "prob_dist must be 1 or 2 dim")
    if not spec.shape[-1]:
        raise call.error(RuntimeError, "cannot sample from no categories")
    if count <= 0:
        raise call.error(RuntimeError, "cannot sample n_sample <= 0 samples")
    if not call["replacement"] and count > spec.shape[-1]:
        raise call.error(RuntimeError, "cannot sample n_sample > prob_dist.size(-1) samples "
                                       "without replacement")


def _multinomial(plan: Plan, call: Any) -> Kernel:
    replacement = bool(call["replacement"])
    numel = plan.out_spec.numel if replacement else call.spec("self").numel
    draws = philox.draws(numel, dtypes.float64, "uniform")
    return _drawing(plan, call, kernels.MultinomialKernel(replacement), draws, ())


define(Entry("multinomial(Tensor self, int num_samples, bool replacement=False, *, "
             "Generator? generator=None)", RANDOM,
             shape=lambda call: [(dtypes.int64,
                                  (*call.spec("self").shape[:-1], call["num_samples"]))],
             path="multinomial", out=True, deterministic=False, check=_multinomial_check,
             doc="Indices drawn with the weights of self's rows, which need not sum to 1.  Raises "
                 "RuntimeError for weights that are negative, not finite or all zero."),
       cpu=Candidate("multinomial", _multinomial), cuda="random.multinomial")
