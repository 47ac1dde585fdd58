# cython: annotation_typing=False
"""Symbols: what a formula is called with instead of tensors, to be written down as a graph.

A symbol has the operators and methods of a tensor, under PyTorch's names and with its meaning,
as far as they are primitives or a few lines of them.  Anything else raises ``NotAFormula``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from slipstream.core.fuse import classes as compute
from slipstream.core.fuse.graph import SCALAR, Graph
from slipstream.core.fuse.primitives import PRIMITIVES, Primitive
from slipstream.core.vocab.dtypes import DType
from slipstream.core.vocab.programs import FULL, ROW

Dims = int | Sequence[int] | None
Operand = Any

# Methods that are the primitive of the same name; other names that PyTorch has for them.
_DIRECT = frozenset(
    "mul neg exp expm1 log log1p log2 sin cos tan tanh erf erfc exp16 ndtr16 sign atan2 "
    "maximum minimum eq ne lt le gt ge logical_and logical_or logical_xor logical_not "
    "bitwise_and bitwise_or bitwise_xor bitwise_not floor_divide remainder fmod sqrt abs".split())
_ALIASES = {
    "multiply": "mul", "negative": "neg", "absolute": "abs", "divide": "div", "true_divide": "div",
    "subtract": "sub", "not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt",
    "greater_equal": "ge", "arctan2": "atan2", "clip": "clamp", "type": "to",
}
_TO_CLASS = {"bool": "b1", "long": "i64", "float": "f32", "double": "f64"}
_ROUNDING = {None: "div", "floor": "floor_divide", "trunc": "trunc_divide"}


class NotAFormula(AttributeError):
    """The function uses something that no formula has, so its ops must be called one by one."""


def _binary(name: str, reflected: bool = False) -> Callable[[Symbol, Operand], Symbol]:
    """The operator that applies primitive ``name``."""
    def method(self: Symbol, other: Operand) -> Symbol:
        left, right = (lift(self.graph, other), self) if reflected else (self, other)
        return _power(left, right) if name == "pow" else operate(name, left, right)
    return method


def _unary(name: str) -> Callable[[Symbol], Symbol]:
    def method(self: Symbol) -> Symbol:
        return operate(name, self)
    return method


class Symbol:
    """A value of a formula.

    ``cls`` is its compute class, ``level`` full, row or scalar, ``rank`` the number of dims that it
    has before any ``keepdim=False``.  A ``weak`` symbol stands for a Python number and takes the
    class of what it meets.  A ``squeezed`` one lost its reduced dims and can hardly be combined.
    """

    __slots__ = ("cls", "graph", "level", "narrow", "rank", "squeezed", "value", "weak")

    def __init__(self, graph: Graph, value: int, rank: int, *, weak: bool = False,
                 squeezed: bool = False, narrow: DType | None = None) -> None:
        node = graph.nodes[value]
        self.graph = graph
        self.value = value
        self.cls = node.result
        self.level = node.level
        self.rank = rank
        self.weak = weak
        self.squeezed = squeezed
        self.narrow = narrow

    def __getattr__(self, name: str) -> Any:
        if name in _ALIASES:
            return getattr(self, _ALIASES[name])
        if name in _DIRECT:
            return partial(operate, name, self)
        if name in ("floor", "ceil", "trunc", "round"):
            return partial(_round, name, self)
        if name in ("isnan", "isinf", "isfinite"):
            return partial(_classify, name, self)
        if name in _TO_CLASS:
            return partial(self.to_class, _TO_CLASS[name])
        raise NotAFormula(f"'{name}' is no primitive of formulas, or not for class {self.cls}")

    def __repr__(self) -> str:
        return f"Symbol(v{self.value}: {self.cls}, {self.level}, rank {self.rank})"

    def __bool__(self) -> bool:
        raise TypeError("a formula cannot branch on the value of a symbol: it is called once, "
                        "without data; choose between values with where(condition, a, b)")

    def __getitem__(self, index: object) -> Symbol:
        raise NotAFormula("indexing is no primitive of formulas")

    def __matmul__(self, other: object) -> Symbol:
        raise NotAFormula("matmul is no primitive of formulas")

    __add__, __radd__ = _binary("add"), _binary("add", reflected=True)
    __sub__, __rsub__ = _binary("sub"), _binary("sub", reflected=True)
    __mul__, __rmul__ = _binary("mul"), _binary("mul", reflected=True)
    __truediv__, __rtruediv__ = _binary("div"), _binary("div", reflected=True)
    __pow__, __rpow__ = _binary("pow"), _binary("pow", reflected=True)
    __floordiv__, __rfloordiv__ = _binary("floor_divide"), _binary("floor_divide", reflected=True)
    __mod__, __rmod__ = _binary("remainder"), _binary("remainder", reflected=True)
    __and__, __rand__ = _binary("bitwise_and"), _binary("bitwise_and", reflected=True)
    __or__, __ror__ = _binary("bitwise_or"), _binary("bitwise_or", reflected=True)
    __xor__, __rxor__ = _binary("bitwise_xor"), _binary("bitwise_xor", reflected=True)
    __eq__ = _binary("eq")  # type: ignore[assignment]
    __ne__ = _binary("ne")  # type: ignore[assignment]
    __lt__ = _binary("lt")
    __le__ = _binary("le")
    __gt__ = _binary("gt")
    __ge__ = _binary("ge")
    __neg__, __invert__, __abs__ = _unary("neg"), _unary("bitwise_not"), _unary("abs")
    __rmatmul__ = __matmul__
    __iter__ = None
    __hash__ = object.__hash__

    # Arithmetic.

    def add(self, other: Operand, *, alpha: Operand = 1) -> Symbol:
        """self + alpha * other."""
        return operate("add", self, _scaled(self.graph, other, alpha))

    def sub(self, other: Operand, *, alpha: Operand = 1) -> Symbol:
        """self - alpha * other."""
        return operate("sub", self, _scaled(self.graph, other, alpha))

    def div(self, other: Operand, *, rounding_mode: str | None = None) -> Symbol:
        """self / other, rounded to an integer if ``rounding_mode`` is "floor" or "trunc"."""
        return operate(_ROUNDING[rounding_mode], self, other)

    def pow(self, exponent: Operand) -> Symbol:
        """self ** exponent; small literal exponents become products and roots."""
        return _power(self, exponent)

    def fma(self, factor: Operand, addend: Operand) -> Symbol:
        """self * factor + addend, rounded once where the class is float."""
        cls = common_class((self, factor, addend))
        if cls in PRIMITIVES["fma"].classes:
            return operate("fma", self, factor, addend)
        return self.mul(factor).add(addend)

    def square(self) -> Symbol:
        """self * self."""
        return operate("mul", self, self)

    def reciprocal(self) -> Symbol:
        """1 / self."""
        return self._real_or("reciprocal", lambda: operate("div", 1, self))

    def rsqrt(self) -> Symbol:
        """1 / sqrt(self)."""
        return self._real_or("rsqrt", lambda: operate("div", 1, self.sqrt()))

    def sigmoid(self) -> Symbol:
        """1 / (1 + exp(-self))."""
        return self._real_or("sigmoid", lambda: operate("div", 1, (-self).exp() + 1))

    def _real_or(self, name: str, formula: Callable[[], Symbol]) -> Symbol:
        return formula() if compute.category(self.cls) == 3 else operate(name, self)

    def relu(self) -> Symbol:
        """max(self, 0); nan stays nan."""
        return operate("maximum", self, 0)

    def clamp(self, min: Operand = None, max: Operand = None) -> Symbol:
        """self limited to [min, max]; nan stays nan."""
        result = self if min is None else operate("maximum", self, min)
        return result if max is None else operate("minimum", result, max)

    def clamp_min(self, min: Operand) -> Symbol:
        """self, or ``min`` where that is larger."""
        return self.clamp(min)

    def clamp_max(self, max: Operand) -> Symbol:
        """self, or ``max`` where that is smaller."""
        return self.clamp(None, max)

    def where(self, condition: Operand, other: Operand) -> Symbol:
        """self where ``condition``, else ``other``."""
        return select(condition, self, other)

    def masked_fill(self, mask: Operand, value: Operand) -> Symbol:
        """``value`` where ``mask``, else self, in the class of self."""
        return select(mask, value, self).to_class(self.cls)

    def conj(self) -> Symbol:
        """The complex conjugate; a real value itself."""
        return operate("conj", self) if self.is_complex() else self

    @property
    def real(self) -> Symbol:
        """The real part; a real value itself."""
        return operate("real", self) if self.is_complex() else self

    @property
    def imag(self) -> Symbol:
        """The imaginary part of a complex value."""
        if not self.is_complex():
            raise NotAFormula("imag is not defined for a real value")
        return operate("imag", self)

    # Conversion and description.

    def to_class(self, cls: str) -> Symbol:
        """self in compute class ``cls``."""
        value = self.graph.cast(self.value, cls)
        return Symbol(self.graph, value, self.rank, squeezed=self.squeezed)

    def to(self, dtype: DType) -> Symbol:
        """self as ``dtype``.  A dtype narrower than its class is possible only for itself."""
        self.graph.typed = True
        if self.narrow is dtype and self.cls == dtype.compute:
            return self
        if compute.natural_dtype(dtype.compute) is not dtype:
            raise NotAFormula(f"rounding to {dtype!r} within a formula is no primitive")
        return self.to_class(dtype.compute)

    def is_narrow(self) -> bool:
        """Whether all results of the formula are stored as floats of 16 bits."""
        self.graph.typed = True
        return self.graph.narrow and self.cls == "f32"

    @property
    def ndim(self) -> int:
        """Number of dims."""
        lost = len(self.graph.reduced or ()) if self.squeezed else 0
        return self.rank - lost

    def dim(self) -> int:
        """Number of dims."""
        return self.ndim

    def is_floating_point(self) -> bool:
        """Whether the class is f32 or f64."""
        return compute.category(self.cls) == 2

    def is_complex(self) -> bool:
        """Whether the class is c64 or c128."""
        return compute.category(self.cls) == 3

    # Reductions.

    def sum(self, dim: Dims = None, keepdim: bool = False) -> Symbol:
        """Sum over ``dim`` (None: all dims); bools are counted."""
        return reduce("sum", self, dim, keepdim)

    def prod(self, dim: Dims = None, keepdim: bool = False) -> Symbol:
        """Product over ``dim``."""
        return reduce("prod", self, dim, keepdim)

    def mean(self, dim: Dims = None, keepdim: bool = False) -> Symbol:
        """Sum divided by count."""
        source = self.to_class("f32") if compute.category(self.cls) < 2 else self
        return source.sum(dim, keepdim) / source.count(dim, keepdim)

    def amax(self, dim: Dims = None, keepdim: bool = False) -> Symbol:
        """Largest element; nan wins."""
        return reduce("amax", self, dim, keepdim)

    def amin(self, dim: Dims = None, keepdim: bool = False) -> Symbol:
        """Smallest element; nan wins."""
        return reduce("amin", self, dim, keepdim)

    def argmax(self, dim: Dims = None, keepdim: bool = False) -> Symbol:
        """Index of the first largest element, or of the first nan."""
        return reduce("argmax", self, dim, keepdim)

    def argmin(self, dim: Dims = None, keepdim: bool = False) -> Symbol:
        """Index of the first smallest element, or of the first nan."""
        return reduce("argmin", self, dim, keepdim)

    def any(self, dim: Dims = None, keepdim: bool = False) -> Symbol:
        """Whether any element is true."""
        return reduce("any", self, dim, keepdim)

    def all(self, dim: Dims = None, keepdim: bool = False) -> Symbol:
        """Whether all elements are true."""
        return reduce("all", self, dim, keepdim)

    def count(self, dim: Dims = None, keepdim: bool = False) -> Symbol:
        """Number of elements that a reduction over ``dim`` takes together, in self's class."""
        return reduce("count", self, dim, keepdim)


def lift(graph: Graph, operand: Operand) -> Symbol:
    """A symbol for ``operand``: a symbol itself, or a literal, which is weak.

    Raises NotAFormula for anything that is neither a symbol nor a number.
    """
    if isinstance(operand, Symbol):
        return operand
    if isinstance(operand, np.generic):
        operand = operand.item()
    if not isinstance(operand, compute.Number):
        raise NotAFormula(f"a {type(operand).__name__} is no operand of a formula")
    cls = compute.class_of_number(operand)
    return Symbol(graph, graph.constant(operand, cls), 0, weak=True)


def _lift_all(operands: Sequence[Operand]) -> list[Symbol]:
    for operand in operands:
        if isinstance(operand, Symbol):
            graph = operand.graph
            return [lift(graph, each) for each in operands]
    raise NotAFormula("no operand is a symbol")


def common_class(operands: Sequence[Operand]) -> str:
    """The class in which ``operands`` meet: tensors by promotion, numbers giving way to them."""
    symbols = _lift_all(operands)
    strong: str | None = None
    weak = "b1"
    for symbol in symbols:
        if symbol.weak:
            weak = compute.promote(weak, symbol.cls)
        else:
            strong = symbol.cls if strong is None else compute.promote(strong, symbol.cls)
    return weak if strong is None else compute.promote_weak(strong, weak)


def _allowed_class(primitive: Primitive, cls: str, floating: str) -> str:
    """The first class from ``cls`` upwards that the primitive computes in."""
    if primitive.classes == ("b1",) or cls in primitive.classes:
        return primitive.classes[0] if len(primitive.classes) == 1 else cls
    upwards = {"b1": ("i64", floating), "i64": (floating,)}.get(cls, ())
    for wider in upwards:
        if wider in primitive.classes:
            return wider
    raise NotAFormula(f"{primitive.name} is not defined for class {cls}")


def operate(name: str, *operands: Operand) -> Symbol:
    """Primitive ``name`` of symbols and numbers, after bringing them to one class.

    Raises NotAFormula if the primitive is not defined for that class or the wrong number of
    operands is given.
    """
    primitive = PRIMITIVES[name]
    if len(operands) != primitive.arity:
        raise NotAFormula(f"{name} takes {primitive.arity} operands here, not {len(operands)}")
    symbols = _lift_all(operands)
    weak = all(symbol.weak for symbol in symbols)
    cls = _allowed_class(primitive, common_class(symbols), "f64" if weak else "f32")
    return _append(name, cls, symbols, [cls] * len(symbols))


def select(condition: Operand, a: Operand, b: Operand) -> Symbol:
    """a where ``condition``, else b."""
    symbols = _lift_all((condition, a, b))
    cls = common_class(symbols[1:])
    if symbols[1].weak and symbols[2].weak and not symbols[0].weak:
        # Two numbers chosen by a tensor make a tensor, of the default dtype of their kind.
        cls = {"f64": "f32", "c128": "c64"}.get(cls, cls)
    return _append("where", cls, symbols, ["b1", cls, cls])


def _append(name: str, cls: str, symbols: Sequence[Symbol], targets: Sequence[str]) -> Symbol:
    graph = symbols[0].graph
    values = tuple(graph.cast(symbol.value, target)
                   for symbol, target in zip(symbols, targets, strict=True))
    rank = max(symbol.rank for symbol in symbols)
    weak = all(symbol.weak for symbol in symbols)
    squeezed = _squeezed(graph, symbols)
    return Symbol(graph, graph.step(name, cls, values), rank, weak=weak, squeezed=squeezed)


def _squeezed(graph: Graph, symbols: Sequence[Symbol]) -> bool:
    """Whether a combination of ``symbols`` lacks the reduced dims.

    Where the reduced dims are the leading ones, broadcasting puts them back.
    """
    shaped = [symbol for symbol in symbols if symbol.level != SCALAR]
    lacking = [symbol for symbol in shaped if symbol.squeezed]
    if len(lacking) == len(shaped):
        return bool(lacking)
    dims, first = graph.reduced or (), -(graph.reduced_rank or 0)
    leading = dims == tuple(range(first, first + len(dims)))
    if lacking and not leading:
        raise NotAFormula("a reduction with keepdim=False can only be an output; use keepdim=True")
    return False


def _scaled(graph: Graph, other: Operand, alpha: Operand) -> Symbol:
    if not isinstance(alpha, Symbol) and alpha == 1:
        return lift(graph, other)
    return operate("mul", lift(graph, other), alpha)


def _power(base: Operand, exponent: Operand) -> Symbol:
    """base ** exponent, with PyTorch's exact rewritings of literal exponents."""
    if isinstance(exponent, Symbol) or not isinstance(exponent, int | float):
        return operate("pow", base, exponent)
    if isinstance(exponent, float) and compute.category(base.cls) < 2:
        base = base.to_class("f64" if base.weak else "f32")
    inexact = compute.category(base.cls) >= 2
    if exponent in (1, 2, 3) and base.cls != "b1":
        square = operate("mul", base, base)
        return {1: base, 2: square, 3: operate("mul", square, base)}[int(exponent)]
    if inexact and exponent in (0.5, -0.5, -1):
        return base.sqrt() if exponent == 0.5 else (
            base.rsqrt() if exponent == -0.5 else base.reciprocal())
    return operate("pow", base, exponent)


def _round(name: str, symbol: Symbol) -> Symbol:
    """Round a float to an integer; an integer is itself."""
    return symbol if compute.category(symbol.cls) < 2 else operate(name, symbol)


def _classify(name: str, symbol: Symbol) -> Symbol:
    """isnan, isinf, isfinite: known for integers."""
    if compute.category(symbol.cls) < 2:
        return operate("eq" if name == "isfinite" else "ne", symbol, symbol)
    return operate(name, symbol)


def normalise(dim: Dims, rank: int) -> tuple[int, ...]:
    """``dim`` as sorted dims counted from the right; None and () mean all.

    Raises IndexError if a dim is out of range and RuntimeError if one occurs twice.
    """
    dims = (dim,) if isinstance(dim, int) else tuple(dim or ())
    limit = max(rank, 1)
    for each in dims:
        if not -limit <= each < limit:
            raise IndexError(f"Dimension out of range (expected to be in range of "
                             f"[{-limit}, {limit - 1}], but got {each})")
    normal = sorted(each - limit if each >= 0 else each for each in dims)
    if len(set(normal)) < len(normal):
        raise RuntimeError("a dim appears twice in the list of dims to reduce")
    if rank == 0:
        return ()
    return tuple(normal) or tuple(range(-rank, 0))


def reduce(name: str, symbol: Symbol, dim: Dims, keepdim: bool) -> Symbol:
    """Reduction ``name`` of ``symbol`` over ``dim``.

    Raises NotAFormula if the formula reduces over other dims already.
    """
    graph = symbol.graph
    dims = normalise(dim, symbol.ndim)
    if symbol.level == SCALAR or symbol.squeezed:
        raise NotAFormula(f"{name} of a number or of a squeezed reduction")
    if (graph.reduced, graph.reduced_rank) not in ((None, None), (dims, symbol.rank)):
        raise NotAFormula(f"two domains: the formula reduces over dims {graph.reduced} of rank "
                          f"{graph.reduced_rank} and over dims {dims} of rank {symbol.rank}")
    graph.reduced, graph.reduced_rank = dims, symbol.rank
    cls = "b1" if name in ("any", "all") else _allowed_class(PRIMITIVES[name], symbol.cls, "f32")
    source = symbol.to_class(cls)
    if symbol.level == ROW:
        row = _reduce_row(name, source)
        return Symbol(graph, row.value, symbol.rank, squeezed=not keepdim)
    sources = () if name == "count" else (source.value,)
    return Symbol(graph, graph.step(name, cls, sources), symbol.rank, squeezed=not keepdim)


def _reduce_row(name: str, row: Symbol) -> Symbol:
    """A reduction of what was reduced before: each row has one element left."""
    if name in ("argmax", "argmin", "count"):
        cls = row.cls if name == "count" else "i64"
        return select(row.eq(row), int(name == "count"), 0).to_class(cls)
    return row


def tensor_symbol(graph: Graph, name: str, cls: str, rank: int, *, level: str = FULL,
                  narrow: DType | None = None) -> Symbol:
    """The symbol of tensor operand ``name``, stored as dtype ``narrow``."""
    return Symbol(graph, graph.input(name, cls, level), rank, narrow=narrow)

