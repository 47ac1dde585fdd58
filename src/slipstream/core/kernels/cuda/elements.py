"""Elements as the kernels of the families see them: how each dtype is stored, added and converted.

A kernel's source begins with the lines of `typed`, and uses ``item_t`` (as stored), ``wide_t`` (as
computed), WIDEN, NARROW, PLUS, TIMES, FUSED (c + a * b, rounded once), LESS.
"""

from __future__ import annotations

from typing import Any

from slipstream.core.vocab.dtypes import DType

# Stored as: C type.  Narrow floats are structures of the prelude.
STORED = {
    "bool": "uint8_t", "uint8": "uint8_t", "int8": "int8_t", "int16": "int16_t",
    "int32": "int32_t", "int64": "int64_t", "float16": "slip_float16",
    "bfloat16": "slip_bfloat16", "float32": "float", "float64": "double",
    "complex64": "slip_c64", "complex128": "slip_c128",
}
# Elements that are only moved, by size in bytes.
MOVED = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t", 16: "slip_pair"}
PAIR = "struct slip_pair { uint64_t low, high; };\n"
# Computed as: C type by compute class.
COMPUTED = {"b1": "bool", "i64": "uint64_t", "f32": "float", "f64": "double",
            "c64": "slip_c64", "c128": "slip_c128"}

_ARITHMETIC = {
    "b1": ("((a) || (b))", "((a) && (b))", "((c) || ((a) && (b)))"),
    "i64": ("((a) + (b))", "((a) * (b))", "((c) + (a) * (b))"),
    "f32": ("((a) + (b))", "((a) * (b))", "fmaf(a, b, c)"),
    "f64": ("((a) + (b))", "((a) * (b))", "fma(a, b, c)"),
    "c64": ("slip_add_c64(a, b)", "slip_mul_c64(a, b)", "slip_fused_c64(a, b, c)"),
    "c128": ("slip_add_c128(a, b)", "slip_mul_c128(a, b)", "slip_fused_c128(a, b, c)"),
}
_FUSED_COMPLEX = """
SLIP_DEVICE {0} slip_fused_{1}({0} a, {0} b, {0} c) {{
    return slip_make_{1}({2}(-a.im, b.im, {2}(a.re, b.re, c.re)),
                         {2}(a.im, b.re, {2}(a.re, b.im, c.im)));
}}
"""


def moved(itemsize: int) -> str:
    """The lines of a kernel that only moves elements."""
    return f"{PAIR}typedef {MOVED[itemsize]} item_t;\n"


def typed(dtype: DType) -> str:
    """The lines of a kernel that computes with elements of a dtype."""
    plus, times, fused = _ARITHMETIC[dtype.compute]
    lines = [f"typedef {STORED[dtype.name]} item_t;", f"typedef {COMPUTED[dtype.compute]} wide_t;",
             f"#define WIDEN(x) ({widened(dtype, 'x')})",
             f"#define NARROW(x) ({stored(dtype, dtype.compute, 'x')})",
             f"#define PLUS(a, b) {plus}", f"#define TIMES(a, b) {times}",
             f"#define FUSED(a, b, c) {fused}"]
    if dtype.is_complex:
        fma = "fmaf" if dtype.compute == "c64" else "fma"
        lines.append(_FUSED_COMPLEX.format(COMPUTED[dtype.compute], dtype.compute, fma))
    return "\n".join(lines) + "\n"


def widened(dtype: DType, value: str) -> str:
    """A stored element as its compute class has it."""
    if dtype.name in ("float16", "bfloat16"):
        return f"slip_widen_{dtype.name}({value})"
    if dtype.compute == "b1":
        return f"({value}) != 0"
    if dtype.compute == "i64":
        return f"(uint64_t)(int64_t)({value})"
    return value


def stored(dtype: DType, cls: str, value: str) -> str:
    """A value of a compute class as a dtype stores it."""
    if dtype.is_complex:
        return converted(dtype.compute, cls, value)
    if cls in ("c64", "c128"):
        cls, value = {"c64": "f32", "c128": "f64"}[cls], f"({value}).re"
    kind = STORED[dtype.name]
    if dtype.name == "bool":
        return f"({kind})(({value}) != 0)"
    if dtype.name in ("float16", "bfloat16"):
        wide, way = (f"({value})", "f64") if cls == "f64" else (
            f"(float)({signed(cls, value)})", "f32")
        return f"slip_narrow_{dtype.name}_{way}({wide})"
    if dtype.kind == "int" and cls in ("f32", "f64"):
        return f"({kind})slip_cast_i64_f64((double)({value}))"
    return f"({kind})({signed(cls, value)})"


def signed(cls: str, value: str) -> str:
    """Integers are computed modulo 2**64 and read as signed."""
    return f"(int64_t)({value})" if cls == "i64" else value


def converted(to: str, cls: str, value: str) -> str:
    """A value of one compute class in another."""
    if to == cls:
        return value
    value = signed(cls, value)
    if to in ("c64", "c128") or cls in ("c64", "c128"):
        return f"slip_cast_{to}_{cls}({value})"
    if to == "b1":
        return f"({value}) != 0"
    if to == "i64" and cls != "b1":
        return f"(uint64_t)slip_cast_i64_f64((double)({value}))"
    return f"({COMPUTED[to]})({value})"


# Run-time numbers: how the parameters of each class are declared, and the value they give.
_NUMBERS = {
    "b1": ("int64_t {0}", "({0} != 0)"), "i64": ("int64_t {0}", "(uint64_t){0}"),
    "f64": ("double {0}", "{0}"),
    "c128": ("double {0}_re, double {0}_im", "slip_make_c128({0}_re, {0}_im)"),
}


def number_class(value: Any) -> str:
    """The class of a Python number."""
    if isinstance(value, bool):
        return "b1"
    if isinstance(value, int):
        return "i64"
    return "c128" if isinstance(value, complex) else "f64"


def number(name: str, cls: str, to: str) -> tuple[str, str]:
    """The declaration of a run-time number, and the expression of it in a compute class."""
    declared, value = _NUMBERS[cls]
    return declared.format(name), converted(to, cls, value.format(name))
