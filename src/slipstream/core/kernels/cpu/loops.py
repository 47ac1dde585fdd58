"""Prints the typed C loops of the CPU from the table of primitives; runs when the core is built.

There is one loop for each primitive and compute class over contiguous operands, a family of loops
for each reducing primitive and class, and strided loops that load each stored dtype as each class
and store it back.  Every instruction set gets a file of its own with the same loops; ``runner.c``
picks one when the process starts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from string import Template

from slipstream.core.fuse.classes import C_TYPES
from slipstream.core.fuse.primitives import EVERY, PRIMITIVES, Primitive, cast_expression
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.dtypes import DType

HERE = Path(__file__).resolve().parent
# Written by hand and compiled together with what is printed here.
WRITTEN = ("prelude.h", "runner.h", "runner.c", "geometry.c", "pool.c")
# Name of the table and what the compiler may use, in the spelling of its target attribute.
INSTRUCTION_SETS = {
    "base": "",
    "avx2": "avx2,fma,bmi,bmi2",
    "avx512": "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi,bmi2",
}
# How a class lies in memory.  A bool is any byte: other code may have written 2 there.
MEMORY = {**C_TYPES, "b1": "uint8_t"}
STORED = {"bool": "uint8_t", "float16": "slip_float16", "bfloat16": "slip_bfloat16",
          "float32": "float", "float64": "double", "complex64": "slip_c64",
          "complex128": "slip_c128"}
# Types that carry any bits of a size: copies between equal dtypes do not look at values.
RAW = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t", 16: "slip_c128"}
# Single precision is accumulated in double; a sum in double carries what its additions lose.
WIDER = {"f32": "f64", "c64": "c128"}
CARRIED = ("f64", "c128")
# Independent accumulators of a reduction: their number fixes its order, whatever the vectors.
LANES = {"b1": 64, "i64": 32, "f32": 64, "f64": 32, "c64": 16, "c128": 16}

BANNER = "/* Printed by slipstream/core/kernels/cpu/loops.py from the table of primitives. */\n"

HEAD = Template("""\
#include "runner.h"
#if defined(__x86_64__) && defined(__GNUC__) || $always
#include <complex.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>
#if defined(__clang__)
$clang
#elif defined(__GNUC__)
/* Nobody looks at floating-point flags: this lets comparisons be vectorised, no result changes. */
#pragma GCC optimize("no-trapping-math")
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
$gcc
#endif
#include "prelude.h"
""")

LOOP = Template("""
static void $name(int64_t n, void *dst, const void *a, const void *b, const void *c) {
    $memory *r = dst;
$pointers
    SLIP_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
$values
        r[i] = $expression;
    }
}
""")

LOAD = Template("""
static void $name(int64_t n, void *dst, const void *src, int64_t stride) {
    $memory *r = dst;
    const $stored *s = src;
    if (stride == 1) {
        SLIP_INDEPENDENT
        for (int64_t i = 0; i < n; i++) { const $stored x = s[i]; r[i] = $value; }
    } else if (stride == 0 && n > 0) {
        const $stored x = s[0];
        const $memory same = $value;
        for (int64_t i = 0; i < n; i++) r[i] = same;
    } else {
        SLIP_INDEPENDENT
        for (int64_t i = 0; i < n; i++) { const $stored x = s[i * stride]; r[i] = $value; }
    }
}
""")

STORE = Template("""
static void $name(int64_t n, void *dst, int64_t stride, const void *src) {
    $stored *r = dst;
    const $memory *s = src;
    if (stride == 1) {
        SLIP_INDEPENDENT
        for (int64_t i = 0; i < n; i++) { const $type x = $element; r[i] = $value; }
    } else {
        for (int64_t i = 0; i < n; i++) { const $type x = $element; r[i * stride] = $value; }
    }
}
""")

# A block is combined in $lanes accumulators, folded in halves.
BLOCK = Template("""
SLIP_INLINE $acc ${name}_join($acc p, $acc q) {
    const $type u = $unpack_p, v = $unpack_q;
    return $combine;
}
SLIP_INLINE $acc ${name}_lanes(const int count, int64_t n, const $memory *x) {
    $acc lanes[$lanes];
    int64_t i = count;
    for (int k = 0; k < count; k++) { const $memory e = x[k]; lanes[k] = $widen; }
    for (; i + count <= n; i += count) {
        for (int k = 0; k < count; k++) {
            const $memory e = x[i + k];
            lanes[k] = ${name}_join(lanes[k], $widen);
        }
    }
    for (int k = 0; k < n - i; k++) {
        const $memory e = x[i + k];
        lanes[k] = ${name}_join(lanes[k], $widen);
    }
    for (int half = count / 2; half; half /= 2) {
        for (int k = 0; k < half; k++) lanes[k] = ${name}_join(lanes[k], lanes[k + half]);
    }
    return lanes[0];
}
static $acc ${name}_block(int64_t n, const $memory *x) {
    if (n >= $lanes) return ${name}_lanes($lanes, n, x);
    if (n >= 8) return ${name}_lanes(8, n, x);
    $acc total = $identity;
    for (int64_t i = 0; i < n; i++) {
        const $memory e = x[i];
        total = ${name}_join(total, $widen);
    }
    return total;
}
""")

# States are one array of accumulators and, $plane bytes a column further on, a second one.
REDUCTION = Template("""
static void ${name}_begin(int64_t columns, void *state) {
    $acc *s = state;
    $acc *t = SLIP_SECOND(state, columns);
    for (int64_t j = 0; j < columns; j++) { s[j] = $identity; t[j] = $zero; }
}
static void ${name}_rows(int64_t rows, int64_t width, int64_t columns, void *state,
                         const void *a, int64_t base) {
    $acc *s = state;
    $acc *t = SLIP_SECOND(state, columns);
    const $memory *x = a;
    (void)t; (void)base;
    for (int64_t j = 0; j < rows; j++) {
        const $acc value = ${name}_block(width, x + j * width);
        $update;
    }
}
static void ${name}_columns(int64_t steps, int64_t columns, void *state, const void *a,
                            int64_t base) {
    $acc *s = state;
    $acc *t = SLIP_SECOND(state, columns);
    const $memory *x = a;
    (void)t; (void)base;
    for (int64_t i = 0; i < steps; i++) {
        SLIP_INDEPENDENT
        for (int64_t j = 0; j < columns; j++) {
            const $memory e = x[i * columns + j];
            const $acc value = $widen;
            $update;
        }
    }
}
static void ${name}_merge(int64_t columns, void *state, const void *other) {
    $acc *s = state;
    $acc *t = SLIP_SECOND(state, columns);
    const $acc *o = other;
    const $acc *lost = SLIP_SECOND(other, columns);
    for (int64_t j = 0; j < columns; j++) {
        const $acc value = o[j];
        $update;
        $merge_lost;
    }
    (void)t; (void)lost;
}
static void ${name}_finish(int64_t columns, void *dst, const void *state) {
    $memory *r = dst;
    const $acc *s = state;
    const $acc *t = SLIP_SECOND(state, columns);
    (void)t;
    for (int64_t j = 0; j < columns; j++) { const $accumulated x = $settle; r[j] = $narrow; }
}
""")

# The extreme of a block is found first; only if it beats the best is its place looked for.
PLACE = Template("""
static void ${name}_begin(int64_t columns, void *state) {
    $memory *s = state;
    int64_t *t = SLIP_SECOND(state, columns);
    for (int64_t j = 0; j < columns; j++) { s[j] = $identity; t[j] = 0; }
}
SLIP_INLINE bool ${name}_beats($memory best, $memory other) {
    const $type u = $unpack_best, v = $unpack_other;
    return $replaces;
}
static void ${name}_rows(int64_t rows, int64_t width, int64_t columns, void *state,
                         const void *a, int64_t base) {
    $memory *s = state;
    int64_t *t = SLIP_SECOND(state, columns);
    for (int64_t j = 0; j < rows; j++) {
        const $memory *x = (const $memory *)a + j * width;
        const $memory value = ${extreme}_block(width, x);
        if (width == 0 || !${name}_beats(s[j], value)) continue;
        int64_t i = 0;
        while (i < width - 1 && !(x[i] == value || (value != value && x[i] != x[i]))) i++;
        s[j] = value;
        t[j] = base + i;
    }
}
static void ${name}_columns(int64_t steps, int64_t columns, void *state, const void *a,
                            int64_t base) {
    $memory *s = state;
    int64_t *t = SLIP_SECOND(state, columns);
    for (int64_t i = 0; i < steps; i++) {
        const $memory *x = (const $memory *)a + i * columns;
        SLIP_INDEPENDENT
        for (int64_t j = 0; j < columns; j++) {
            const bool beats = ${name}_beats(s[j], x[j]);
            s[j] = beats ? x[j] : s[j];
            t[j] = beats ? base + i : t[j];
        }
    }
}
static void ${name}_merge(int64_t columns, void *state, const void *other) {
    $memory *s = state;
    int64_t *t = SLIP_SECOND(state, columns);
    const $memory *o = other;
    const int64_t *place = SLIP_SECOND(other, columns);
    for (int64_t j = 0; j < columns; j++) {
        if (!${name}_beats(s[j], o[j])) continue;
        s[j] = o[j];
        t[j] = place[j];
    }
}
static void ${name}_finish(int64_t columns, void *dst, const void *state) {
    memcpy(dst, SLIP_SECOND(state, columns), (size_t)columns * sizeof(int64_t));
}
""")

REDUCTION_ENTRY = Template(
    '    {"$name", ${name}_begin, ${name}_rows, ${name}_columns, ${name}_merge, ${name}_finish},\n')

TABLE = Template("""
static const slip_loop_entry loops[] = {
$loops    {0, 0}
};
static const slip_load_entry loads[] = {
$loads    {0, 0}
};
static const slip_store_entry stores[] = {
$stores    {0, 0}
};
static const slip_reduction reductions[] = {
$reductions    {0, 0, 0, 0, 0, 0}
};
const slip_table slip_table_$set = {loops, loads, stores, reductions};
#endif
""")

Text = tuple[str, str]


def _element(cls: str, text: str) -> str:
    """An element in memory as a value of its class."""
    return f"({text} != 0)" if cls == "b1" else text


def source_classes(primitive: Primitive, cls: str) -> tuple[str, ...]:
    """The classes of the operands of a primitive that computes in ``cls``."""
    if primitive.name == "where":
        return ("b1", cls, cls)
    return (cls,) * primitive.arity


def _loop(name: str, expression: str, sources: tuple[str, ...], result: str) -> Text:
    """Name and text of a loop over contiguous operands."""
    pointers = [f"    const {MEMORY[cls]} *{x} = {p};"
                for cls, x, p in zip(sources, "xyz", "abc", strict=False)]
    pointers += [f"    (void){p};" for p in "abc"[len(sources):]]
    values = [f"        const {C_TYPES[cls]} {v} = {_element(cls, f'{x}[i]')};"
              for cls, x, v in zip(sources, "xyz", "uvw", strict=False)]
    return name, LOOP.substitute(
        name=name, memory=MEMORY[result], pointers="\n".join(pointers), values="\n".join(values),
        expression=expression.format("u", "v", "w"))


def _all_loops() -> Iterator[Text]:
    for primitive in PRIMITIVES.values():
        if primitive.reduction or primitive.name == "cast":
            continue
        for cls in primitive.classes:
            yield _loop(f"{primitive.name}_{cls}", primitive.expression(cls),
                        source_classes(primitive, cls), primitive.result_class(cls))
    for source in EVERY:
        for target in EVERY:
            yield _loop(f"cast_{source}_{target}", cast_expression(source, target), (source,),
                        target)


def _stored(dtype: DType) -> str:
    return STORED.get(dtype.name, f"{dtype.name}_t")


def _widened(dtype: DType, cls: str) -> str:
    """The stored element ``x`` as a value of class ``cls``."""
    text = {"bool": "(x != 0)", "float16": "slip_widen_float16(x)",
            "bfloat16": "slip_widen_bfloat16(x)"}.get(dtype.name, "x")
    if dtype.kind == "int":
        text = "(int64_t)x"
    return cast_expression(dtype.compute, cls).format(text)


def _narrowed(cls: str, dtype: DType) -> str:
    """The value ``x`` of class ``cls`` as it is stored; 16-bit floats are rounded once."""
    half = dtype.name in ("float16", "bfloat16")
    middle = "f64" if half and cls in ("f64", "c128") else dtype.compute
    text = cast_expression(cls, middle).format("x")
    if dtype.kind == "int":
        return f"({_stored(dtype)})({text})"
    return f"slip_narrow_{dtype.name}_{middle}({text})" if half else text


def _all_loads() -> Iterator[Text]:
    for dtype in dtypes.ALL:
        for cls in EVERY:
            name = f"load_{dtype.name}_{cls}"
            yield name, LOAD.substitute(name=name, memory=MEMORY[cls], stored=_stored(dtype),
                                        value=_widened(dtype, cls))
    for size, raw in RAW.items():
        name = f"load_raw_{size}"
        yield name, LOAD.substitute(name=name, memory=raw, stored=raw, value="x")


def _all_stores() -> Iterator[Text]:
    for cls in EVERY:
        for dtype in dtypes.ALL:
            name = f"store_{cls}_{dtype.name}"
            yield name, STORE.substitute(
                name=name, stored=_stored(dtype), memory=MEMORY[cls], type=C_TYPES[cls],
                element=_element(cls, "s[i]"), value=_narrowed(cls, dtype))
    for size, raw in RAW.items():
        name = f"store_raw_{size}"
        yield name, STORE.substitute(name=name, stored=raw, memory=raw, type=raw, element="s[i]",
                                     value="x")


def _literal(cls: str, value: complex) -> str:
    """A neutral element in C."""
    if cls in ("c64", "c128"):
        return f"slip_make_{cls}({complex(value).real!r}, 0.0)"
    real = complex(value).real
    if cls == "i64" and abs(real) > 1:
        return "INT64_MIN" if real < 0 else "INT64_MAX"
    if abs(real) == float("inf"):
        return "-INFINITY" if real < 0 else "INFINITY"
    return repr(int(real))


def _reduction(primitive: Primitive, cls: str) -> Text:
    """Name and text of the loops of a reduction whose result is a combination of elements."""
    name = f"{primitive.name}_{cls}"
    wide = WIDER.get(cls, cls) if primitive.name in ("sum", "prod") else cls
    carried = primitive.name == "sum" and cls in CARRIED
    text = {
        "name": name, "memory": MEMORY[cls], "acc": MEMORY[wide], "type": C_TYPES[wide],
        "accumulated": C_TYPES[wide], "lanes": str(LANES[cls]),
        "unpack_p": _element(wide, "p"), "unpack_q": _element(wide, "q"),
        "combine": primitive.expression(wide).format("u", "v"),
        "widen": cast_expression(cls, wide).format(_element(cls, "e")),
        "identity": _literal(wide, primitive.identity[cls]), "zero": _literal(wide, 0),
        "narrow": cast_expression(wide, cls).format("x"),
        "update": f"s[j] = {name}_join(s[j], value)", "merge_lost": "",
        "settle": _element(wide, "s[j]"),
    }
    if carried:
        text["update"] = f"slip_carry_{cls}(&s[j], &t[j], value)"
        text["merge_lost"] = (
            f"slip_carry_{cls}(&s[j], &t[j], slip_finite_{cls}(lost[j]))")
        text["settle"] = f"slip_settle_{cls}(s[j], t[j])"
    return name, BLOCK.substitute(text) + REDUCTION.substitute(text)


def _place(primitive: Primitive, cls: str) -> Text:
    """Name and text of the loops of argmax or argmin."""
    name = f"{primitive.name}_{cls}"
    return name, PLACE.substitute(
        name=name, memory=MEMORY[cls], type=C_TYPES[cls],
        extreme=f"a{primitive.name.removeprefix('arg')}_{cls}",
        identity=_literal(cls, primitive.identity[cls]),
        unpack_best=_element(cls, "best"), unpack_other=_element(cls, "other"),
        replaces=primitive.expression(cls).format("u", "v"))


def _all_reductions() -> Iterator[Text]:
    for primitive in PRIMITIVES.values():
        if not primitive.reduction or primitive.name == "count":
            continue
        for cls in primitive.classes:
            place = primitive.name.startswith("arg")
            yield _place(primitive, cls) if place else _reduction(primitive, cls)


def _head(target: str) -> str:
    """Includes, and the pragmas that let what follows use an instruction set."""
    if not target:
        return HEAD.substitute(always="1", clang="", gcc="")
    clang = (f'#pragma clang attribute push(__attribute__((target("{target}"))), '
             "apply_to=function)")
    # Whole registers: the default of GCC for AVX-512 is half of them.
    wide = ",prefer-vector-width=512" if "avx512" in target else ""
    return HEAD.substitute(always="0", clang=clang, gcc=f'#pragma GCC target("{target}{wide}")')


def _entries(names: Iterator[str] | list[str]) -> str:
    return "".join(f'    {{"{name}", {name}}},\n' for name in names)


def _file(name: str, target: str) -> str:
    """One file of C: every loop for one instruction set, and the table of them."""
    families = [list(family()) for family in (_all_loops, _all_loads, _all_stores,
                                              _all_reductions)]
    loops, loads, stores, reductions = [[entry for entry, _ in family] for family in families]
    body = "".join(text for family in families for _, text in family)
    table = TABLE.substitute(
        set=name, loops=_entries(loops), loads=_entries(loads), stores=_entries(stores),
        reductions="".join(REDUCTION_ENTRY.substitute(name=entry) for entry in reductions))
    if target:
        table = table.replace("#endif\n", _pop(), 1)
    return BANNER + _head(target) + body + table


def _pop() -> str:
    return "#if defined(__clang__)\n#pragma clang attribute pop\n#endif\n#endif\n"


def print_loops() -> dict[str, str]:
    """The C files of the CPU's kernels: names and texts, headers and sources."""
    files = {name: (HERE / name).read_text() for name in WRITTEN}
    for name, target in INSTRUCTION_SETS.items():
        files[f"loops_{name}.c"] = _file(name, target)
    return files


def main(path: str) -> None:
    """Write the files into the folder ``path``."""
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in print_loops().items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main(sys.argv[1])
