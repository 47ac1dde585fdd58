"""The text that the compiler gets for a user's source, and its complaints in the user's lines."""

from __future__ import annotations

import re
from pathlib import Path

from slipstream.core.api.cuda.signatures import Reader, Signature
from slipstream.core.api.cuda.tokens import SourceError, line_and_column, point_at, tokens_of
from slipstream.core.native.driver import CompileError

PRELUDE = Path(__file__).with_name("kernel_prelude.h")
# The prelude has of these what a kernel uses.
PROVIDED = {
    "cuda.h", "cuda_runtime.h", "cuda_runtime_api.h", "device_launch_parameters.h", "cuda_fp16.h",
    "cuda_bf16.h", "cuComplex.h", "math_constants.h", "stdint.h", "cstdint", "stddef.h", "cstddef",
    "math.h", "cmath", "float.h", "cfloat", "limits.h", "climits",
}
INCLUDE = re.compile(r"#\s*include\s*[<\"]([^>\"]+)[>\"]")
# What compilers write: g++ and clang++, then NVRTC.
COMPLAINTS = (
    re.compile(r"^(?P<file>[^\s:(]+):(?P<line>\d+):(?:(?P<column>\d+):)?\s*"
               r"(?P<kind>fatal error|error): (?P<text>.*)$"),
    re.compile(r"^(?P<file>[^\s(]+)\((?P<line>\d+)\):\s*(?P<kind>catastrophic error|error)"
               r"(?: #[\w-]+)?: (?P<text>.*)$"),
)
QUOTED = re.compile(r"[‘'\"]([^‘’'\"]+)[’'\"]")
MOST_ERRORS = 5
DEFINES = ("--define-macro=", "-D")
# The host's compiler sees other names than the user wrote.
SIMULATED_NAMES = re.compile(r"slip_global_|slip_pointer<([^<>]*)>")


class Source:
    """A user's CUDA C++: its kernels, and the text to compile."""

    def __init__(self, text: str, options: tuple[str, ...]) -> None:
        self.text = text
        self.defined = [each for each in options if each.startswith(DEFINES)]
        self.options = tuple(each for each in options if not each.startswith(DEFINES))
        self.kernels = Reader(text, options).kernels()
        self.edits = sorted(
            {*self._includes(), *(edit for each in self.kernels for edit in each.edits)})

    def _includes(self) -> list[tuple[int, int, str]]:
        if any(each.startswith(("-I", "--include-path", "-include")) for each in self.options):
            return []
        edits = []
        for token in tokens_of(self.text):
            match = INCLUDE.match(token.text) if token.kind == "directive" else None
            if match is None:
                continue
            if match[1] not in PROVIDED:
                raise SourceError(
                    f"there is no header {match[1]}: kernels from a string are compiled without "
                    "the toolkit's headers", self.text, token.start + match.start(1),
                    "leave it out, or name its folder in options=(\"-I...\",)")
            edits.append((token.start, len(token.text), ""))
        return edits

    def named(self, name: str | None) -> Signature:
        """The kernel of a name, or the only one; raises ValueError where there is none."""
        known = ", ".join(each.name for each in self.kernels)
        if not self.kernels:
            raise ValueError("the source has no kernel: a kernel is a function marked __global__, "
                             "such as\n    __global__ void scale(float* x, int n) { ... }")
        if name is None and len(self.kernels) > 1:
            raise ValueError(f"the source has several kernels: {known}\n"
                             f"  mend: name one of them, as name={self.kernels[0].name!r}")
        for each in self.kernels:
            if name in (None, each.name):
                return each
        raise ValueError(f"the source has no kernel named {name!r}; it has {known}")

    def compiled_text(self, file: str) -> str:
        """What goes to the compiler: the prelude, then the source with its lines numbered."""
        parts = []
        place = 0
        for start, taken, text in self.edits:
            parts += [self.text[place:start], text]
            place = start + taken
        parts.append(self.text[place:])
        return "".join(['#line 1 "prelude.h"\n', PRELUDE.read_text(), *self._definitions(),
                        f'#line 1 "{file}"\n', *parts])

    def _definitions(self) -> list[str]:
        """What options define, after the prelude: a user's T is not the prelude's."""
        found = []
        for option in self.defined:
            name, equals, value = option.removeprefix(DEFINES[0]).removeprefix(
                DEFINES[1]).strip().partition("=")
            found.append(f"#define {name} {value if equals else 1}\n")
        return found

    def user_column(self, line: int, column: int) -> int:
        """The column in the user's line of a column in the compiled one; from 0."""
        for start, taken, text in self.edits:
            at, first = line_and_column(self.text, start)
            if at == line and first < column:
                column = max(first, column - len(text) + taken)
        return column


def explained(error: CompileError, file: str, source: Source) -> CompileError:
    """The compiler's complaints with the user's lines under them."""
    found = complaints(error.log, file)
    if not found:
        return error
    parts = []
    for line, column, text in found[:MOST_ERRORS]:
        place = None if column is None else source.user_column(line, column)
        parts.append(f"{text}\n{pointed(source.text, (line, place), text, file)}")
    more = len(found) - MOST_ERRORS
    if more > 0:
        parts.append(f"and {more} more errors")
    made = CompileError(error.name, "\n".join(parts))
    made.log = error.log
    return made


def pointed(source: str, at: tuple[int, int | None], text: str, file: str) -> str:
    """The line with a caret under what a complaint quotes, or under the compiler's column."""
    line, column = at
    lines = source.split("\n")
    shown = lines[line - 1] if 0 < line <= len(lines) else ""
    places = [match.start() for word in QUOTED.findall(text)
              for match in re.finditer(rf"(?<!\w){re.escape(word.strip())}(?!\w)", shown)]
    if places:
        column = min(places, key=lambda each: abs(each - (column or 0)))
    return point_at(source, line, column, file)


def complaints(log: str, file: str) -> list[tuple[int, int | None, str]]:
    """(line from 1, column from 0 or None, text) of each error of a file in a compiler's log."""
    found = []
    lines = log.split("\n")
    for number, line in enumerate(lines):
        match = next(filter(None, (each.match(line) for each in COMPLAINTS)), None)
        if match is None or match["file"] != file:
            continue
        given = match.groupdict().get("column")
        column = int(given) - 1 if given else _caret(lines[number + 1:number + 4])
        text = SIMULATED_NAMES.sub(lambda each: f"{each[1]}*" if each[1] else "", match["text"])
        found.append((int(match["line"]), column, f"{match['kind']}: {text}"))
    return found


def _caret(lines: list[str]) -> int | None:
    """The column of the caret that a compiler drew under the source's line."""
    for line in lines:
        if line.strip() == "^":
            return line.index("^")
    return None
