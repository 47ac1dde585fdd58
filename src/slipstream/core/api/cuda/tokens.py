"""The tokens of CUDA C++, with their places: as much as reading signatures takes."""

from __future__ import annotations

import re
from dataclasses import dataclass

TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<directive>\#(?:\\\n|[^\n])*)
    |(?P<string>R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<word>[A-Za-z_]\w*)
    |(?P<number>\.?\d(?:[eEpP][+-]|[\w.'])*)
    |(?P<sign><<<|>>>|->\*?|::|\.\.\.|&&|\|\||.)""",
    re.VERBOSE | re.DOTALL,
)
OPENING = {"(": ")", "[": "]", "{": "}"}
CLOSING = {")", "]", "}"}


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the source: ``kind`` is word, number, string, sign or directive."""

    text: str
    kind: str
    start: int

    @property
    def end(self) -> int:
        """Where it ends in the source."""
        return self.start + len(self.text)


def tokens_of(source: str) -> list[Token]:
    """All tokens but space and comments, in order."""
    return [Token(match[0], match.lastgroup or "sign", match.start())
            for match in TOKEN.finditer(source) if match.lastgroup != "space"]


def closing(tokens: list[Token], place: int) -> int:
    """Where the bracket that the token at ``place`` opens is closed; past the end if nowhere."""
    depth = 0
    while place < len(tokens):
        if tokens[place].kind == "sign":
            depth += (tokens[place].text in OPENING) - (tokens[place].text in CLOSING)
        if depth == 0:
            return place
        place += 1
    return place


def split(tokens: list[Token], separator: str = ",") -> list[list[Token]]:
    """Tokens between separators that stand outside brackets; nothing for no tokens."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        if token.kind == "sign":
            depth += (token.text in OPENING) - (token.text in CLOSING)
            if depth == 0 and token.text == separator:
                parts.append([])
                continue
        parts[-1].append(token)
    return parts if len(parts) > 1 or parts[0] else []


def line_and_column(source: str, place: int) -> tuple[int, int]:
    """The line, from 1, and the column, from 0, of a place in the source."""
    before = source[:place]
    return before.count("\n") + 1, place - (before.rfind("\n") + 1)


def point_at(source: str, line: int, column: int | None, name: str = "") -> str:
    """The source's line under a heading such as ``add.cu:3:``, with a caret under the column."""
    lines = source.split("\n")
    text = lines[line - 1] if 0 < line <= len(lines) else ""
    shown = f"  {name + ':' if name else 'line '}{line}:\n    {text.expandtabs(4)}"
    if column is None or not text:
        return shown
    return f"{shown}\n    {' ' * len(text[:column].expandtabs(4))}^"


class SourceError(ValueError):
    """A source that cannot be used: what is wrong, and the user's line with a caret.

    ``line`` counts from 1, ``column`` from 0.
    """

    def __init__(self, rule: str, source: str, place: int, mend: str = "") -> None:
        self.line, self.column = line_and_column(source, place)
        self.rule = rule
        text = f"{rule}\n{point_at(source, self.line, self.column)}"
        super().__init__(f"{text}\n  mend: {mend}" if mend else text)
