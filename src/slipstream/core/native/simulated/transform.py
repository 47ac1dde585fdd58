"""Makes CUDA C++ readable for the host's C++ compiler over our header.

What the header cannot do by itself is done on the text: pointer parameters of kernels become
checked pointers, and so do local pointers, casts and addresses made of them.  Lines stay where they
are, so that the compiler's messages name the user's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<directive>\#[^\n]*(?:(?<=\\)\n[^\n]*)*)
    |(?P<text>R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<word>[A-Za-z_]\w*)
    |(?P<number>\.?\d(?:[eEpP][+-]|[\w.'])*)
    |(?P<sign>->\*?|<<=|>>=|::|&&|\|\||[-+*/%&|^=!<>]=|<<|\+\+|--|.)""",
    re.VERBOSE | re.DOTALL,
)
OPEN, CLOSE = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}
QUALIFIERS = {"const", "volatile", "unsigned", "signed", "long", "short", "struct", "typename"}
RESTRICT = {"__restrict__", "__restrict", "restrict", "__grid_constant__"}
# Words after which a name starts no declaration.
NO_TYPES = {"return", "else", "delete", "throw", "case", "goto", "new", "sizeof", "using", "typedef",
            "operator", "template", "class", "struct", "enum"}


@dataclass
class KernelText:
    """A kernel of a source: its name, and the C++ expression of its largest block ("0": any)."""

    name: str
    max_threads: str = "0"
    template: bool = False


class Tokens:
    """The tokens of a source; ``at`` are the places of those that are no space."""

    def __init__(self, source: str) -> None:
        self.texts: list[str] = []
        self.kinds: list[str] = []
        for match in TOKEN.finditer(source):
            self.texts.append(match[0])
            self.kinds.append(match.lastgroup or "sign")
        self.at = [n for n, kind in enumerate(self.kinds) if kind not in ("space", "directive")]

    def text(self, n: int) -> str:
        """The n-th token that is no space; empty outside the source."""
        return self.texts[self.at[n]] if 0 <= n < len(self.at) else ""

    def kind(self, n: int) -> str:
        """What the n-th token is."""
        return self.kinds[self.at[n]] if 0 <= n < len(self.at) else ""

    def set(self, n: int, text: str) -> None:
        """Put other text in the n-th token's place."""
        self.texts[self.at[n]] = text

    def blank(self, first: int, last: int) -> None:
        """Take tokens away, from the first to before the last; the lines stay."""
        for place in range(self.at[first], self.at[last - 1] + 1):
            kept = self.texts[place]
            self.texts[place] = "\n" * kept.count("\n") or (" " if kept.isspace() else "")

    def closing(self, n: int) -> int:
        """Where the bracket that the n-th token opens is closed."""
        depth = 0
        while n < len(self.at):
            text = self.text(n)
            depth += (text in OPEN) - (text in CLOSE)
            if depth == 0:
                return n
            n += 1
        return n

    def closing_angle(self, n: int) -> int:
        """Where the < at the n-th token is closed; the token itself where it is no bracket."""
        depth, start = 0, n
        while n < len(self.at) and n < start + 64:
            text = self.text(n)
            depth += {"<": 1, ">": -1, "<<": 2}.get(text, 0)
            if text in OPEN:
                n = self.closing(n)
            if depth == 0:
                return n
            if text in (";", "{", "}", "&&", "||"):
                return start
            n += 1
        return start

    def joined(self, first: int, last: int) -> str:
        """The text from the first to before the last token."""
        return " ".join(self.text(n) for n in range(first, last))


def transform(source: str) -> tuple[str, list[KernelText]]:
    """The text for the host's compiler, and the kernels it defines."""
    tokens = Tokens(source)
    kernels = []
    n = 0
    while n < len(tokens.at):
        if tokens.text(n) == "__global__":
            kernels.append(_kernel(tokens, n))
        elif tokens.text(n) == "__shared__":
            _dynamic_shared(tokens, n)
        n += 1
    return "".join(tokens.texts), unique(kernels)


def unique(kernels: list[KernelText]) -> list[KernelText]:
    """The kernels, those that are first declared and then defined once."""
    return list({kernel.name: kernel for kernel in kernels}.values())


def _kernel(tokens: Tokens, n: int) -> KernelText:
    """Rename a kernel, so that it meets no function of the header, and check its pointers."""
    kernel = KernelText("")
    before = n - 1
    while tokens.text(before) in ("static", "inline", "C", '"C"', "extern"):
        if tokens.text(before) == "extern":
            tokens.blank(before, before + 2)
        before -= 1
    kernel.template = tokens.text(before) == ">"
    n += 1
    while n < len(tokens.at) and tokens.text(n + 1) != "(" or tokens.text(n) == "__launch_bounds__":
        if tokens.text(n) == "__launch_bounds__":
            end = tokens.closing(n + 1)
            kernel.max_threads = _first_argument(tokens, n + 2, end)
            n = end
        n += 1
    kernel.name = tokens.text(n)
    tokens.set(n, f"slip_global_{kernel.name}")
    for first, last in _arguments(tokens, n + 1):
        _parameter(tokens, first, last)
    return kernel


def _first_argument(tokens: Tokens, first: int, end: int) -> str:
    last = first
    while last < end and tokens.text(last) != ",":
        last = tokens.closing(last) + 1 if tokens.text(last) in OPEN else last + 1
    return tokens.joined(first, last)


def _arguments(tokens: Tokens, opening: int) -> list[tuple[int, int]]:
    """The places of what is between commas in a bracket."""
    found, start, n = [], opening + 1, opening + 1
    end = tokens.closing(opening)
    while n < end:
        if tokens.text(n) in OPEN:
            n = tokens.closing(n)
        elif tokens.text(n) == "<":
            n = tokens.closing_angle(n)
        elif tokens.text(n) == ",":
            found.append((start, n))
            start = n + 1
        n += 1
    return [*found, (start, end)] if end > start else found


def _parameter(tokens: Tokens, first: int, last: int) -> None:
    """`T* name` becomes `slip_pointer<T> name`; `T name[]` too."""
    stars = [n for n in range(first, last) if tokens.text(n) == "*"]
    if any(tokens.text(n) == "(" for n in range(first, last)):
        return
    if stars:
        star = stars[-1]
        tokens.set(first, f"slip_pointer<{tokens.text(first)}")
        tokens.set(star, ">")
        if star + 1 < last - 1:
            tokens.blank(star + 1, last - 1)
        if star == last - 1 or tokens.text(last - 1) in RESTRICT | {"const"}:
            return
        tokens.set(last - 1, f" {tokens.text(last - 1)}")
    elif tokens.text(last - 1) == "]":
        opening = next(n for n in range(first, last) if tokens.text(n) == "[")
        tokens.set(first, f"slip_pointer<{tokens.text(first)}")
        tokens.set(opening - 1, f"> {tokens.text(opening - 1)}")
        tokens.blank(opening, last)


def _dynamic_shared(tokens: Tokens, n: int) -> None:
    """`extern __shared__ T name[];` becomes a pointer to the block's dynamic memory."""
    end = n
    while end < len(tokens.at) and tokens.text(end) != ";":
        end += 1
    if "extern" not in (tokens.text(n - 1), tokens.text(n + 1)) or tokens.text(end - 1) != "]":
        return
    first = n + 1 + (tokens.text(n + 1) == "extern")
    while tokens.text(first) in ("__align__", "alignas"):
        closing = tokens.closing(first + 1)
        tokens.blank(first, closing + 1)
        first = closing + 1
    if tokens.text(n - 1) == "extern":
        tokens.blank(n - 1, n)
    base = tokens.joined(first, end - 3)
    name = tokens.text(end - 3)
    tokens.blank(n, end)
    tokens.set(n, f"{base}* {name} = ({base}*)slip_shared_memory")
