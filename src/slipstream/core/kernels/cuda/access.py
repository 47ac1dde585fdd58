# cython: annotation_typing=False
"""How operands walk through a space of dims: kinds of access, dividers, and the words they take."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import cython

Ints = tuple[int, ...]
Words = dict[str, list[int]]

# Kinds of access of an operand, for the elements of one vector:
FLAT = "flat"      # the space's elements follow each other: the place is the element's number
ONCE = "once"      # the same element everywhere
VECTOR = "vector"  # neighbours in memory, the first one found through its coordinates
REPEAT = "repeat"  # one element, found through the first one's coordinates
STEP = "step"      # a fixed step apart, the first one found through its coordinates
EVERY = "every"    # every element through its own coordinates

# What is counted and multiplied in 32 bits stays below this.
NARROW = 2**31
WIDEST = 16


def contiguous(sizes: Sequence[int]) -> Ints:
    """Row-major strides."""
    steps = []
    step = 1
    for size in reversed(sizes):
        steps.append(step)
        step *= size
    return tuple(reversed(steps))


def divider(size: int) -> int:
    """A word by which the device divides numbers below 2**31: multiplier and shift.

    With shift = ceil(log2(size)) and multiplier = 2**32 (2**shift - size) / size + 1 (rounded
    down), n / size is (n * multiplier / 2**32 + n) / 2**shift, each division rounded down.
    """
    if size >= NARROW:
        return 0
    shift = (size - 1).bit_length()
    multiplier = (((1 << shift) - size) << 32) // size + 1
    return multiplier | shift << 32


def power_of_two(number: int, limit: int) -> int:
    """The largest power of two up to ``limit`` that divides a number (all divide 0)."""
    found = limit
    while number % found:
        found //= 2
    return found


def rounded_up(number: int) -> int:
    """The smallest power of two that is not below a number."""
    return 1 << max(number - 1, 0).bit_length()


def reach(sizes: Sequence[int], steps: Sequence[int]) -> int:
    """How far an operand's elements lie from the first one at most."""
    return sum([(size - 1) * abs(step) for size, step in zip(sizes, steps, strict=True)])


def is_flat(sizes: Sequence[int], steps: Sequence[int]) -> bool:
    """Whether the elements follow each other in the order of the space."""
    if len(steps) != len(sizes):
        return False
    step: cython.longlong = 1
    dim: cython.Py_ssize_t
    for dim in range(len(sizes) - 1, -1, -1):
        if steps[dim] != step:
            return False
        step *= sizes[dim]
    return True


def elements_of(itemsizes: Sequence[int]) -> int:
    """Elements of a vector: the widest operand fills an access of 16 bytes."""
    return max(WIDEST // max(itemsizes, default=WIDEST), 1)


def struct_text(words: Words) -> str:
    """The tail as a struct."""
    fields = "".join(f"    int64_t {name}{f'[{len(values)}]' if _is_list(name) else ''};\n"
                     for name, values in words.items())
    return "struct tail_words {\n" + fields + "};\n"


def _is_list(name: str) -> bool:
    return name.startswith("step") or name.endswith(("_sizes", "_dividers"))


def packed(words: Words) -> list[int]:
    """The tail's words in order."""
    return [word for values in words.values() for word in values]


def space_words(sizes: Sequence[int], name: str) -> Words:
    """Sizes and dividers of the dims below the outermost one, innermost first."""
    inner = list(reversed(sizes[1:]))
    if not inner:
        return {}
    return {f"{name}_sizes": inner, f"{name}_dividers": [divider(size) for size in inner]}


def coordinates(name: str, rank: int, number: str, wide: bool) -> list[str]:
    """Lines that take an element's number apart into coordinates name0 (outermost), name1, ..."""
    kind = "int64_t" if wide else "uint32_t"
    if rank == 1:
        return [f"const {kind} {name}0 = ({kind})({number});"]
    lines = [f"{kind} {name}_rest = ({kind})({number});"]
    for dim in range(rank - 1, 0, -1):
        place = rank - 1 - dim
        lines.append(f"const {kind} {name}{dim} = slip_take({name}_rest, "
                     f"tail.{name}_sizes[{place}], tail.{name}_dividers[{place}]);")
    return [*lines, f"const {kind} {name}0 = {name}_rest;"]


def offset(name: str, rank: int, operand: int, wide: bool, first: int = 0) -> str:
    """The place of an element with known coordinates; the operand's steps start at ``first``."""
    kind = "int64_t" if wide else "int"
    return " + ".join(f"({kind}){name}{dim} * ({kind})tail.step{operand}s[{first + dim}]"
                      for dim in range(rank)) or "0"


def count_of(sizes: Sequence[int]) -> int:
    """Elements of a space."""
    return prod(sizes)
