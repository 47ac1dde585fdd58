"""The tokens of CUDA C++, which can be replaced in place: lines stay where they are."""

from __future__ import annotations

import functools
import re

TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<directive>\#[^\n]*(?:(?<=\\)\n[^\n]*)*)
    |(?P<text>R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<word>[A-Za-z_]\w*)
    |(?P<number>\.?\d(?:[eEpP][+-]|[\w.'])*)
    |(?P<sign>->\*?|<<=|>>=|::|&&|\|\||[-+*/%&|^=!<>]=|<<|\+\+|--|.)""",
    re.VERBOSE | re.DOTALL,
)
LINE = re.compile(r'#\s*(?:line\s+)?(\d+)(?:\s+".*")?\s*')
OPEN, CLOSE = {"(", "[", "{"}, {")", "]", "}"}
QUALIFIERS = {"const", "volatile", "unsigned", "signed", "long", "short", "struct", "typename"}
AFTER_STAR = {"const", "volatile", "__restrict__", "__restrict", "restrict"}
# Words that are no types.
NO_TYPES = {
    "return", "else", "delete", "throw", "case", "goto", "new", "sizeof", "using", "typedef",
    "operator", "template", "class", "enum", "if", "for", "while", "do", "switch", "static",
    "extern", "inline", "this", "__shared__", "__device__", "__global__", "__constant__",
}


class Tokens:
    """The tokens of a source that are no space, by number; what is shown for each can be changed.

    ``text`` and ``kind`` tell of the source as it came, whatever is shown.
    """

    def __init__(self, source: str) -> None:
        self.all: list[str] = []
        self.places: list[int] = []
        self.texts: list[str] = []
        self.kinds: list[str] = []
        for match in TOKEN.finditer(source):
            kind = match.lastgroup or "sign"
            if kind not in ("space", "directive"):
                self.places.append(len(self.all))
                self.texts.append(match[0])
                self.kinds.append(kind)
            self.all.append(match[0])
        self.count = len(self.texts)
        self.source = tuple(self.all)
        # Where casts in the old form end: an operand follows.
        self.cast_ends: set[int] = set()

    def text(self, n: int) -> str:
        """The n-th token; empty outside the source."""
        return self.texts[n] if 0 <= n < self.count else ""

    def kind(self, n: int) -> str:
        """What the n-th token is: word, number, text or sign."""
        return self.kinds[n] if 0 <= n < self.count else ""

    def result(self) -> str:
        """The whole text as it is shown."""
        return "".join(self.all)

    @functools.cached_property
    def lines(self) -> list[int]:
        """The line on which each piece of the source begins, as a compiler would call it."""
        found, number = [], 1
        for text in self.source:
            found.append(number)
            given = LINE.fullmatch(text)
            number = int(given[1]) - 1 if given else number + text.count("\n")
        return found

    def line(self, n: int) -> int:
        """The line of the n-th token."""
        return self.lines[self.places[n]]

    def show(self, n: int, text: str) -> None:
        """Show another text for a token."""
        place = self.places[n]
        self.all[place] = self.all[place].replace(self.texts[n], text, 1)

    def prefix(self, n: int, text: str) -> None:
        """Show a text before a token."""
        self.all[self.places[n]] = text + self.all[self.places[n]]

    def suffix(self, n: int, text: str) -> None:
        """Show a text after a token."""
        self.all[self.places[n]] += text

    def wrap(self, first: int, end: int, opening: str, closing: str = ")") -> None:
        """Show texts around the tokens from the first to before the end."""
        self.prefix(first, opening)
        self.suffix(end - 1, closing)

    def blank(self, first: int, end: int) -> None:
        """Show nothing for the tokens from the first to before the end; the lines stay."""
        for place in range(self.places[first], self.places[end - 1] + 1):
            kept = self.all[place]
            self.all[place] = "\n" * kept.count("\n") or (" " if kept.isspace() else "")

    def joined(self, first: int, end: int) -> str:
        """The source from the first to before the end, with single spaces."""
        return " ".join(self.texts[first:end])

    def closing(self, n: int) -> int:
        """Where the bracket that the n-th token opens is closed."""
        depth = 0
        while n < self.count:
            depth += (self.texts[n] in OPEN) - (self.texts[n] in CLOSE)
            if depth == 0:
                return n
            n += 1
        return n

    def opening(self, n: int) -> int:
        """Where the bracket that the n-th token closes is opened."""
        depth = 0
        while n >= 0:
            depth += (self.texts[n] in CLOSE) - (self.texts[n] in OPEN)
            if depth == 0:
                return n
            n -= 1
        return n

    def closing_angle(self, n: int) -> int:
        """Where the < at the n-th token is closed; the token itself where it is no bracket."""
        depth, start = 0, n
        while n < min(self.count, start + 64):
            text = self.texts[n]
            depth += {"<": 1, ">": -1, "<<": 2}.get(text, 0)
            if text in (";", "{", "}", "&&", "||"):
                return start
            n = self.closing(n) if text in OPEN else n
            if depth == 0:
                return n
            n += 1
        return start

    def expression_end(self, n: int, stops: tuple[str, ...]) -> int:
        """The first token from the n-th that is one of ``stops`` outside of all brackets."""
        while n < self.count and self.texts[n] not in stops and self.texts[n] not in CLOSE:
            n = (self.closing(n) if self.texts[n] in OPEN else n) + 1
        return n

    def arguments(self, opening: int) -> list[tuple[int, int]]:
        """Where the parts between the commas of a bracket begin and end."""
        found = []
        end = self.closing(opening)
        start = n = opening + 1
        while n < end:
            if self.texts[n] == ",":
                found.append((start, n))
                start = n + 1
            if self.texts[n] in OPEN:
                n = self.closing(n)
            elif self.texts[n] == "<":
                n = self.closing_angle(n)
            n += 1
        return [*found, (start, end)] if end > start else found

    def type_end(self, n: int) -> int:
        """Where a type without stars that begins at the n-th token ends; n where none does."""
        start = n
        named = False
        while n < self.count:
            text = self.texts[n]
            if text in QUALIFIERS:
                named = named or text not in ("const", "volatile", "struct", "typename")
            elif self.kinds[n] == "word" and text not in NO_TYPES and not named:
                named = True
                if self.text(n + 1) == "<":
                    n = self.closing_angle(n + 1)
                if self.text(n + 1) == "::":
                    named, n = False, n + 1
            elif not (text in ("int", "char", "double") and named):
                break
            n += 1
        return n if named else start

    def stars_end(self, n: int) -> int:
        """Where the stars, with their qualifiers, that begin at the n-th token end."""
        while self.text(n) == "*" or (self.text(n) in AFTER_STAR and self.text(n - 1) != ";"):
            n += 1
        return n
