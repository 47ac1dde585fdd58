"""A program in CUDA C++: its types, operands, numbers and steps, whatever the schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from slipstream.core.fuse.classes import C_TYPES, Number, to_class
from slipstream.core.fuse.primitives import PRIMITIVES, cast_expression
from slipstream.core.kernels.cuda.briefs import BRIEF, GROWN, SPREAD
from slipstream.core.kernels.cuda.stages import FOLDS, PLACES, UNIFORM, Stages
from slipstream.core.vocab.dtypes import DType
from slipstream.core.vocab.programs import Program, Step

STORED = {"bool": "uint8_t", "float16": "slip_float16", "bfloat16": "slip_bfloat16",
          "float32": "float", "float64": "double", "complex64": "slip_c64",
          "complex128": "slip_c128"}
# Types that carry any bits of a size: copies between equal dtypes do not look at values.
RAW = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t", 16: "slip_c128"}
# What a class's number is as parameters of a kernel.
PARAMETERS = {"b1": ("int64_t",), "i64": ("int64_t",), "f32": ("double",), "f64": ("double",),
              "c64": ("double", "double"), "c128": ("double", "double")}
# The class in which the launch packs a number of each class.
PACKED = {"b1": "b1", "i64": "i64", "f32": "f64", "f64": "f64", "c64": "c128", "c128": "c128"}
# Primitives for which the device has an instruction, or the prelude a shorter way.
DEVICE_EXPRESSIONS = {
    ("maximum", "f32"): "slip_maximum_f32({0}, {1})", ("amax", "f32"): "slip_maximum_f32({0}, {1})",
    ("minimum", "f32"): "slip_minimum_f32({0}, {1})", ("amin", "f32"): "slip_minimum_f32({0}, {1})",
    ("exp16", "f32"): "slip_exp16_f32({0})",
    ("ndtr16", "f32"): "slip_ndtr16_f32({0})",
    ("argmax", "f32"): "(!({1} <= {0}) && {0} == {0})",
    ("argmin", "f32"): "(!({1} >= {0}) && {0} == {0})",
}
SIZES = {"b1": 1, "i64": 8, "f32": 4, "f64": 8, "c64": 8, "c128": 16}
LONGEST_NAME = 72


class Lines:
    """Source text that grows line by line, indented by what is open."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def add(self, *lines: str) -> None:
        """Lines at the present depth."""
        self.lines += ["    " * self.depth + line for line in lines]

    def open(self, head: str) -> None:
        """A line that opens a block."""
        self.add(head + " {")
        self.depth += 1

    def loop(self, head: str, unroll: str = "#pragma unroll") -> None:
        """A loop, with what its compiler should know."""
        if unroll:
            self.lines.append(unroll)
        self.open(head)

    def close(self, count: int = 1) -> None:
        """The ends of blocks."""
        for _ in range(count):
            self.depth -= 1
            self.add("}")

    def text(self) -> str:
        """All lines."""
        return "\n".join(self.lines) + "\n"


class Formula:
    """The parts of a program's text that no schedule changes.

    Pointers are called out0, out1, ..., in0, in1, ...; values x0, x1, ... (inputs and numbers)
    and v5, v6, ... (steps, by their number); ``prefix`` goes before them, and before those of the
    numbers as parameters, n0, n1, ..., where a kernel holds several programs.
    """

    def __init__(self, program: Program, prefix: str = "") -> None:
        self.program = program
        self.prefix = prefix
        self.stages = Stages(program)
        self.raw = _is_copy(program)
        self.outputs = len(program.outputs)
        self.dtypes = [output.dtype for output in program.outputs]
        self.dtypes += [operand.dtype for operand in program.inputs]
        self.pointers = [f"out{place}" for place in range(self.outputs)]
        self.pointers += [f"in{place}" for place in range(len(program.inputs))]
        self.values = self._value_names()
        self.counts = any(step.primitive == "count" for step in program.steps)

    def _value_names(self) -> list[str]:
        program = self.program
        first = len(program.inputs) + len(program.numbers)
        names = [f"{self.prefix}x{place}" for place in range(first)]
        names += [literal(constant.value, constant.cls) for constant in program.constants]
        return names + [f"{self.prefix}v{program.first_step() + place}"
                        for place in range(len(program.steps))]

    @cached_property
    def name(self) -> str:
        """A C name that tells what the program computes."""
        words = [step.primitive for step in self.program.steps] or ["copy"]
        dtypes = list(dict.fromkeys(_short(dtype) for dtype in self.dtypes))
        if self.raw:
            dtypes = [str(self.dtypes[0].itemsize)]
        name = "_".join(words)
        if len(name) > LONGEST_NAME:
            name = f"{name[:LONGEST_NAME].rpartition('_')[0]}_of_{len(words)}"
        return "_".join([name, *dtypes])

    def stored(self, place: int) -> str:
        """The C type of the elements of an operand; outputs come first."""
        dtype = self.dtypes[place]
        if self.raw:
            return RAW[dtype.itemsize]
        return STORED.get(dtype.name, f"{dtype.name}_t")

    def type_of(self, value: int) -> str:
        """The C type of a value."""
        if self.raw:
            return self.stored(self.outputs + value)
        return C_TYPES[self.program.class_of(value)]

    def loaded(self, value: int, element: str) -> str:
        """The element of input number ``value`` as a value of its class."""
        operand = self.program.inputs[value]
        return element if self.raw else widened(operand.dtype, operand.cls, element)

    def narrowed(self, place: int, value: str) -> str:
        """A value as an element of output number ``place``."""
        output = self.program.outputs[place]
        if self.raw:
            return value
        return narrowed(self.program.class_of(output.value), output.dtype, value)

    def expression(self, value: int, names: Mapping[int, str] | Sequence[str]) -> str:
        """What a step computes from values of the given names."""
        step = self.stages.step(value)
        operands = [names[source] for source in step.sources]
        if step.primitive == "count":
            return cast_expression("i64", step.cls).format("tail.inner")
        if step.primitive == "cast":
            source = self.program.class_of(step.sources[0])
            return cast_expression(source, step.cls).format(*operands)
        return _text_of(step).format(*operands)

    def parameters(self, more: Sequence[str] = ()) -> str:
        """The parameters of the kernel: pointers, what a schedule adds, numbers, the tail."""
        parts = [("" if place < self.outputs else "const ") + f"{self.stored(place)}* {name}"
                 for place, name in enumerate(self.pointers)]
        return ", ".join([*parts, *more, *self.number_parameters(), "const tail_words tail"])

    def number_name(self, place: int) -> str:
        """The name of a run-time number as a parameter."""
        return f"{self.prefix}n{place}"

    def number_parameters(self) -> list[str]:
        """The parameters that are run-time numbers."""
        parts = []
        for place, cls in enumerate(self.program.numbers):
            types = PARAMETERS[cls]
            suffixes = ("",) if len(types) == 1 else ("_re", "_im")
            parts += [f"const {kind} {self.number_name(place)}{suffix}"
                      for kind, suffix in zip(types, suffixes, strict=True)]
        return parts

    def add_uniform(self, lines: Lines) -> None:
        """What is the same in the whole domain: numbers, and what depends on nothing else."""
        first = len(self.program.inputs)
        for place, cls in enumerate(self.program.numbers):
            number = _number(cls, self.number_name(place))
            lines.add(f"const {C_TYPES[cls]} {self.values[first + place]} = {number};")
        for value in range(self.stages.base, len(self.values)):
            if self.stages.level[value] == UNIFORM:
                self.add_step(lines, value)

    def add_step(self, lines: Lines, value: int) -> None:
        """The declaration of a step's value."""
        text = self.expression(value, self.values)
        lines.add(f"const {self.type_of(value)} {self.values[value]} = {text};")

    def fold_type(self, value: int) -> str:
        """The C type in which a reduction's results are joined."""
        step = self.stages.step(value)
        own = C_TYPES[step.cls]
        if step.primitive in BRIEF:
            return f"slip_{'spread' if step.primitive == SPREAD else 'grown'}<{own}>"
        return own

    def fold_bytes(self, value: int) -> int:
        """How many bytes that type has."""
        step = self.stages.step(value)
        size = self.part_bytes(value)
        return max(size, 8) + 8 if step.primitive in PLACES else size

    def part_bytes(self, value: int) -> int:
        """How many bytes of it are left in scratch memory, without the place of an extreme."""
        step = self.stages.step(value)
        parts = {SPREAD: 4, **dict.fromkeys(GROWN.values(), 2)}
        return SIZES[step.cls] * parts.get(step.primitive, 1)

    def folds_text(self, wide: bool) -> str:
        """The reductions as structs: neutral element and how results are joined.

        ``wide``: places take 64 bits.
        """
        index = "int64_t" if wide else "int32_t"
        return "".join(self._fold_text(value, index) for value in self.stages.fold_values)

    def _fold_text(self, value: int, index: str) -> str:
        step = self.stages.step(value)
        assert step.primitive in FOLDS
        if step.primitive == SPREAD:
            return _SPREAD.format(name=f"fold_{self.values[value]}", type=C_TYPES[step.cls])
        if step.primitive in BRIEF:
            return self._grown_text(value)
        template = _PLACE if step.primitive in PLACES else _FOLD
        primitive = PRIMITIVES[step.primitive]
        expression = _text_of(step)
        return template.format(
            name=f"fold_{self.values[value]}", type=C_TYPES[step.cls], what=step.primitive,
            index=index, identity=literal(primitive.identity[step.cls], step.cls),
            join=expression.format("u", "v"), replaces=expression.format("u.value", "v.value"),
            keeps=expression.format("v.value", "u.value"), enters=expression.format("u", "x"),
            extreme=_extreme_of(step).format("u", "v"))


    def _grown_text(self, value: int) -> str:
        step = self.stages.step(value)
        summed = next(name for name, brief in GROWN.items() if brief == step.primitive)
        single = step.cls == "f32"
        lowest = np.finfo(np.float32 if single else np.float64).min
        return _GROWN.format(
            name=f"fold_{self.values[value]}", type=C_TYPES[step.cls], what=step.primitive,
            lowest=_real(lowest, single),
            grow=_text_of(step._replace(primitive=summed)).format("x"))


_FOLD = """
struct {name} {{  // {what}
    typedef {type} type;
    static __device__ __forceinline__ type identity() {{ return {identity}; }}
    static __device__ __forceinline__ type join(type u, type v) {{ return {join}; }}
}};
"""

_PLACE = """
struct {name} {{  // {what}
    typedef slip_place<{type}, {index}> type;
    static __device__ __forceinline__ type place({type} value, int64_t index) {{
        return slip_make_place<{type}, {index}>(value, ({index})index);
    }}
    static __device__ __forceinline__ type identity() {{ return place({identity}, 0); }}
    // Of equal extremes the first one counts.
    static __device__ __forceinline__ type join(type u, type v) {{
        const bool later = v.index >= u.index;
        if (later ? {replaces} : !{keeps}) return v;
        return u;
    }}
    template <class I> static __device__ __forceinline__ void enter({type}& u, I& at, {type} x,
                                                                    I where) {{
        if ({enters}) {{
            u = x;
            at = where;
        }}
    }}
    // The same of a vector's extreme: the vector is kept.
    template <class I, class V> static __device__ __forceinline__ void enter(
        {type}& u, I& at, V& kept, {type} x, I where, const V& held) {{
        if ({enters}) {{
            u = x;
            at = where;
            kept = held;
        }}
    }}
    static __device__ __forceinline__ {type} extreme({type} u, {type} v) {{ return {extreme}; }}
}};
"""

_SPREAD = """
struct {name} {{  // spread
    typedef slip_spread<{type}> type;
    static __device__ __forceinline__ type identity() {{
        return slip_make_spread<{type}>(0, 0, 0, 0);
    }}
    static __device__ __forceinline__ type join(type u, type v) {{
        return slip_join_spreads(u, v);
    }}
}};
"""

_GROWN = """
struct {name} {{  // {what}
    typedef slip_grown<{type}> type;
    static __device__ __forceinline__ {type} grow({type} x) {{ return {grow}; }}
    static __device__ __forceinline__ type identity() {{
        return slip_make_grown<{type}>({lowest}, 0);
    }}
    static __device__ __forceinline__ void enter(type& u, {type} x) {{
        const {type} step = x - u.largest, grown = grow(slip_below(step));
        u.total = step > 0 ? slip_fused(u.total, grown, ({type})1) : u.total + grown;
        u.largest = step > 0 ? x : u.largest;
    }}
    static __device__ __forceinline__ type join(type u, type v) {{
        const {type} step = v.largest - u.largest, grown = grow(slip_below(step));
        return slip_make_grown<{type}>(step > 0 ? v.largest : u.largest,
                                       step > 0 ? slip_fused(u.total, grown, v.total)
                                                : slip_fused(v.total, grown, u.total));
    }}
}};
"""


def _extreme_of(step: Step) -> str:
    """The expression of the larger, or smaller, of two for the place of an extreme."""
    name = {"argmax": "maximum", "argmin": "minimum"}.get(step.primitive)
    return _text_of(step._replace(primitive=name)) if name else ""


def _text_of(step: Step) -> str:
    """A step's expression, with holes for its operands."""
    known = DEVICE_EXPRESSIONS.get((step.primitive, step.cls))
    return known or PRIMITIVES[step.primitive].expression(step.cls)


def _is_copy(program: Program) -> bool:
    """Whether every output is an input of the same dtype: then bits are moved, not values."""
    inputs = program.inputs
    if program.steps:
        return False
    return all(output.value < len(inputs) and inputs[output.value].dtype is output.dtype
               for output in program.outputs)


def _short(dtype: DType) -> str:
    letters = {"float": "f", "int": "i", "uint": "u", "bfloat": "bf", "complex": "c", "bool": "b"}
    word = dtype.name.rstrip("0123456789")
    return letters[word] + dtype.name[len(word):]


def _number(cls: str, name: str) -> str:
    if cls == "b1":
        return f"({name} != 0)"
    if cls == "c64":
        return f"slip_make_c64((float){name}_re, (float){name}_im)"
    if cls == "c128":
        return f"slip_make_c128({name}_re, {name}_im)"
    return f"(float){name}" if cls == "f32" else name


def literal(value: Number, cls: str) -> str:
    """A constant in C++, to the bit."""
    number = to_class(value, cls)
    if cls in ("c64", "c128"):
        parts = [_real(part, cls == "c64") for part in (number.real, number.imag)]
        return f"slip_make_{cls}({', '.join(parts)})"
    if cls == "b1":
        return "true" if number else "false"
    if cls == "i64":
        text = "INT64_MIN" if number == -(2**63) else f"{int(number)}ll"
    else:
        text = _real(number, cls == "f32")
    return f"({text})" if text.startswith("-") else text


def _real(number: np.floating, single: bool) -> str:
    if np.isnan(number):
        return "NAN" if single else "(double)NAN"
    if np.isinf(number):
        return ("-" if number < 0 else "") + ("INFINITY" if single else "(double)INFINITY")
    # The shortest text that reads back as the same number of its width.
    text = str(np.float32(number)) if single else repr(float(number))
    return text + "f" if single else text


def widened(dtype: DType, cls: str, element: str) -> str:
    """A stored element as a value of class ``cls``."""
    text = {"bool": f"({element} != 0)", "float16": f"slip_widen_float16({element})",
            "bfloat16": f"slip_widen_bfloat16({element})"}.get(dtype.name, element)
    if dtype.kind == "int":
        text = f"(int64_t){element}"
    return cast_expression(dtype.compute, cls).format(text)


def narrowed(cls: str, dtype: DType, value: str) -> str:
    """A value of class ``cls`` as it is stored; 16-bit floats are rounded once."""
    half = dtype.name in ("float16", "bfloat16")
    middle = "f64" if half and cls in ("f64", "c128") else dtype.compute
    text = cast_expression(cls, middle).format(value)
    if dtype.kind == "int":
        return f"({dtype.name}_t)({text})"
    return f"slip_narrow_{dtype.name}_{middle}({text})" if half else text
