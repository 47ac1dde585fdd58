"""Writes docs/conformance.md: each operator, each check, and what differs for which reason.

Usage: python tools/conformance_page.py --check     whether the page agrees with the catalogue;
``make conformance`` writes it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence

from oracle import (
    KINDS,
    NARROW,
    ROOT,
    Part,
    entries_by_path,
    names_in,
    place_of,
    reasons,
)

PAGE = ROOT / "docs" / "conformance.md"
# The share of the checks that may differ on purpose.
MOST_EXCEPTIONS = 0.02
COLUMNS = (*KINDS, *NARROW)
HEAD = """# Conformance

Written by `make conformance`: do not edit. Each part runs the same calls on slipstream and on \
PyTorch {version} (CPU) and compares.

## Parts

"""
OPERATORS = """
## Operators

A cell says how many checks pass, or how many of how many. `forward` to `layout` are checks in \
float32, float64, int64 and bool: values, the method, the in-place form, other names, gradients \
(float64), errors, strides and aliasing. The last columns are all checks but gradients and \
strides in a narrow dtype.

"""
EXCEPTIONS = """
## Exceptions

Checks that do not pass on purpose: the `exceptions` of the operators' entries, and \
`conformance/exceptions.txt` for what has no entry. At most 2 % of all checks may be exceptions.

"""
OWN = """
## Left out of our own tests

Entries whose samples are not compared with NumPy, as their `exceptions` say.

"""


def table_of(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |\n"
                   for line in lines)


def cell(passed: int, checks: int) -> str:
    """What a cell says of its checks."""
    return "" if not checks else str(passed) if passed == checks else f"{passed} of {checks}"


def page(parts: Sequence[Part], version: str) -> str:
    """The page of all parts."""
    return "".join([HEAD.format(version=version), table_of(*parts_rows(parts)), OPERATORS,
                    table_of(("operator", *COLUMNS), operator_rows(parts)), EXCEPTIONS,
                    table_of(("what", "checks", "count", "reason"), exception_rows(parts)), OWN,
                    table_of(("op", "reason"), own_rows())])


def parts_rows(parts: Sequence[Part]) -> tuple[Sequence[str], list[Sequence[object]]]:
    """Head and rows of the table of parts, with a sum."""
    rows: list[Sequence[object]] = [
        (part.title, part.checks, part.passed, part.excepted, part.failed) for part in parts]
    sums = [sum(column) for column in zip(*[row[1:] for row in rows], strict=True)]
    return ("part", "checks", "pass", "exceptions", "fail"), [*rows, ("all", *sums)]


def operator_rows(parts: Sequence[Part]) -> Iterator[Sequence[object]]:
    """A row for every variant of every operator."""
    cells: dict[str, dict[str, tuple[int, int]]] = {}
    for part in parts:
        for name, found in part.cells.items():
            cells.setdefault(name, {}).update(found)
    for name in sorted(cells):
        yield (f"`{name}`", *(cell(*cells[name].get(column, (0, 0))) for column in COLUMNS))


def exception_rows(parts: Sequence[Part]) -> Iterator[Sequence[object]]:
    """A row for every reason, with how many checks it excuses."""
    counts = {place: count for part in parts for place, count in part.exceptions.items()}
    for (what, key), reason in reasons().items():
        yield what, f"`{key}`", counts.get((what, key), 0), reason


def own_rows() -> list[Sequence[object]]:
    """A row for every entry whose samples have no reference."""
    entries = {entry.name: entry for entry in entries_by_path().values()}
    return [(f"`{name}`", entry.exceptions["samples"])
            for name, entry in sorted(entries.items()) if "samples" in entry.exceptions]


def rows_under(text: str, title: str) -> list[list[str]]:
    """The rows of the table under a heading of the page, without its head."""
    section = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in section.splitlines()
            if line.startswith("|")]
    return [[value.strip().replace("\\|", "|") for value in row] for row in rows[2:]]


def disagreements(text: str) -> Iterator[str]:
    """What the page says otherwise than the lists and the catalogue do."""
    yield from wrong_operators(rows_under(text, "Operators"), rows_under(text, "Exceptions"))
    yield from wrong_exceptions(rows_under(text, "Exceptions"))
    yield from wrong_sums(rows_under(text, "Parts"), rows_under(text, "Exceptions"))
    if rows_under(text, "Left out of our own tests") != [list(row) for row in own_rows()]:
        yield "the ops left out of our own tests are not those of the catalogue"


def wrong_operators(rows: list[list[str]], exceptions: list[list[str]]) -> Iterator[str]:
    """Operators of the lists that are not there, and cells that no exception explains."""
    shown = {row[0].strip("`") for row in rows}
    for name in names_in("ops"):
        if not any(each == name or each.startswith(f"{name}.") for each in shown):
            yield f"{name} is in the lists and not on the page"
    excused = {(row[0], row[1].strip("`")) for row in exceptions if row[2] != "0"}
    for name, *cells in rows:
        path = place_of(name.strip("`"))
        for column, value in zip(COLUMNS, cells, strict=True):
            if "of" in value and (path, column) not in excused:
                yield f"{name}: {column}: {value} without a reason"


def wrong_exceptions(rows: list[list[str]]) -> Iterator[str]:
    """Reasons that are given and not on the page, and the other way round."""
    shown = {(what, key.strip("`")): reason for what, key, _, reason in rows}
    given = reasons()
    for what, key in {*shown, *given}:
        if shown.get((what, key)) != given.get((what, key)):
            yield f"the exception {key} of {what} is not the one that is given"


def wrong_sums(parts: list[list[str]], exceptions: list[list[str]]) -> Iterator[str]:
    """Checks that fail, sums that are not sums, and more exceptions than may be."""
    numbers = [[int(value) for value in row[1:]] for row in parts]
    *rows, total = numbers or [[0] * 4]
    if not rows or total != [sum(column) for column in zip(*rows, strict=True)]:
        yield "the last row of the parts is not their sum"
    if total[3] or total[0] != sum(total[1:]):
        yield f"{total[3]} checks fail"
    if total[2] != sum(int(row[2]) for row in exceptions):
        yield "the exceptions do not add up to those of the parts"
    if total[2] > MOST_EXCEPTIONS * total[0]:
        yield f"{total[2]} of {total[0]} checks are exceptions: more than 2 %"


def main() -> int:
    """Check the page."""
    if sys.argv[1:] != ["--check"]:
        print(__doc__)
        return 2
    found = list(disagreements(PAGE.read_text()))
    for line in found:
        print(f"docs/conformance.md: {line}\n  mend: make conformance", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
