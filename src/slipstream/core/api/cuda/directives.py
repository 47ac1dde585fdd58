"""What the preprocessor leaves of a source, as far as that can be told without compiling it.

Conditions on names that the source or its options define are decided, as are 0 and 1; code under
any other condition may be there or not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from slipstream.core.api.cuda.tokens import Token, tokens_of

DIRECTIVE = re.compile(r"(\w*)\s*(.*)", re.DOTALL)
DEFINITION = re.compile(r"(\w*)(\(?)\s*(.*)", re.DOTALL)
WORDS = re.compile(r"\w+|&&|\|\||[=!<>]=|\S")
# Loosest first.
BINARY: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"==": lambda a, b: a == b, "!=": lambda a, b: a != b},
    {"<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b,
     ">=": lambda a, b: a >= b},
    {"+": lambda a, b: a + b, "-": lambda a, b: a - b}, {"*": lambda a, b: a * b})
# What says nothing of a parameter's type.
SILENT = frozenset(("const", "__restrict__", "__restrict", "restrict", "volatile"))
# What NVRTC defines; its value is not known here.
COMPILER = frozenset(("__CUDACC__", "__CUDACC_RTC__", "__CUDA_ARCH__", "__cplusplus"))
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


class Branches:
    """The branches of one condition.

    ``here``: whether the present one is compiled, None where that is not known; ``before``: the
    same of all before it together.
    """

    def __init__(self, here: bool | None) -> None:
        self.here = here
        self.before: bool | None = False

    def turn(self, condition: bool | None) -> None:
        """Begin the next branch, which is compiled if ``condition`` and none before it was."""
        self.before = either(self.before, self.here)
        self.here = False if self.before is True or condition is False else (
            None if self.before is None else condition)


def either(first: bool | None, second: bool | None) -> bool | None:
    """Whether one of two is true; None where that is not known."""
    if first or second:
        return True
    return None if first is None or second is None else False


class Meaning(NamedTuple):
    """What a name stands for from a place on: tokens, or None for nothing; ``sure``: certainly."""

    start: int
    tokens: list[Token] | None
    sure: bool


class UnclearError(Exception):
    """What a name stands for at a place is for the compiler to find out."""


class Condition:
    """A condition of #if, read once.

    ``number`` gives a name's value, ``defined`` whether it has one; both are None where
    that is not known.
    """

    def __init__(self, text: str, number: Callable[[str], int | None],
                 defined: Callable[[str], bool | None]) -> None:
        self.words = WORDS.findall(text)[::-1]
        self.number, self.defined = number, defined

    def value(self) -> bool | None:
        """What it says; None where that is not known, or it is not understood."""
        try:
            found = self._either()
        except IndexError:
            return None
        return None if self.words or found is None else bool(found)

    def _next(self) -> str:
        return self.words[-1] if self.words else ""

    def _either(self) -> int | None:
        found = self._both()
        while self._next() == "||":
            self.words.pop()
            other = self._both()
            found = 1 if found or other else (0 if (found, other) == (0, 0) else None)
        return found

    def _both(self) -> int | None:
        found = self._binary(0)
        while self._next() == "&&":
            self.words.pop()
            other = self._binary(0)
            found = 0 if 0 in (found, other) else (None if None in (found, other) else 1)
        return found

    def _binary(self, level: int) -> int | None:
        if level == len(BINARY):
            return self._single()
        found = self._binary(level + 1)
        while self._next() in BINARY[level]:
            act = BINARY[level][self.words.pop()]
            other = self._binary(level + 1)
            found = None if found is None or other is None else int(act(found, other))
        return found

    def _single(self) -> int | None:
        word = self.words.pop()
        if word == "!":
            found = self._single()
            return None if found is None else int(not found)
        if word == "-":
            found = self._single()
            return None if found is None else -found
        if word == "(":
            found = self._either()
            return found if self.words.pop() == ")" else None
        if word == "defined":
            name = self.words.pop()
            if name == "(":
                name = self.words.pop()
                self.words.pop()
            known = self.defined(name)
            return None if known is None else int(known)
        return whole(word) if word[0].isdigit() else self.number(word)


def whole(word: str) -> int | None:
    """The value of an integer's text; None for what is none."""
    try:
        return int(word.rstrip("uUlL"), 0)
    except ValueError:
        return None


class Preprocessed:
    """The tokens that are compiled or may be, and what names stand for in them.

    ``defined``: what options define, each name with its tokens.
    """

    def __init__(self, tokens: list[Token], defined: dict[str, list[Token]]) -> None:
        self.tokens: list[Token] = []
        self._meanings = {name: [Meaning(0, inside, True)] for name, inside in defined.items()}
        # What is defined by now; None for a name of which that is not known.
        self._known: dict[str, bool | None] = dict.fromkeys(defined, True)
        self._open: list[Branches] = []
        self._included = False
        for token in tokens:
            if token.kind == "directive":
                self._direct(token)
            elif self._here() is not False:
                self.tokens.append(token)

    def meaning(self, name: str, place: int) -> list[Token] | None:
        """The tokens that a name stands for at a place of the source; None where it is itself.

        Raises UnclearError where conditions decide that which are not known.
        """
        found: list[Token] | None = None
        clear = True
        for each in self._meanings.get(name, ()):
            if each.start > place:
                break
            # Where it may not be defined at all, it stands for this or is no type.
            clear = each.sure or (clear and (found is None or texts(found) == texts(each.tokens)))
            found = each.tokens
        if not clear:
            raise UnclearError(name)
        return found

    def _here(self) -> bool | None:
        found = [each.here for each in self._open]
        return False if False in found else None if None in found else True

    def _direct(self, token: Token) -> None:
        text = COMMENT.sub(" ", token.text[1:].replace("\\\n", " ")).strip()
        word, rest = DIRECTIVE.fullmatch(text).groups()  # type: ignore[union-attr]  # all match
        if word == "include" and rest.startswith('"') and self._here() is not False:
            # A header of the user's own may define what it likes.
            self._included = True
        if word in ("if", "ifdef", "ifndef"):
            self._open.append(Branches(self._condition(word, rest.strip())))
        elif word in ("elif", "else") and self._open:
            self._open[-1].turn(self._condition("if", rest.strip()) if word == "elif" else True)
        elif word == "endif" and self._open:
            self._open.pop()
        elif word in ("define", "undef") and self._here() is not False:
            self._define(token.start, word, rest.strip())

    def _condition(self, word: str, text: str) -> bool | None:
        if word != "if":
            found = self._is_defined(text)
            return found if word == "ifdef" or found is None else not found
        return Condition(text, self._number, self._is_defined).value()

    def _number(self, name: str) -> int | None:
        if name in ("true", "false"):
            return int(name == "true")
        if self._known.get(name) is not True:
            # A name that is not defined is 0.
            return 0 if self._is_defined(name) is False else None
        last = self._meanings.get(name, [Meaning(0, None, False)])[-1]
        if not last.sure or not last.tokens:
            # -DNAME alone is 1.
            return 1 if last.sure and last.tokens is not None else None
        return whole(last.tokens[0].text) if len(last.tokens) == 1 else None

    def _is_defined(self, name: str) -> bool | None:
        # The compiler defines names of its own, and so may what is included.
        unknown = name.startswith("_") or self._included
        return self._known.get(name, True if name in COMPILER else None if unknown else False)

    def _define(self, start: int, word: str, text: str) -> None:
        plain, opening, inside = DEFINITION.fullmatch(text).groups()  # type: ignore[union-attr]
        sure = self._here() is True
        if word == "undef":
            self._known[plain] = False if sure else None
        else:
            self._known[plain] = True if sure or self._known.get(plain) else None
        if opening and word == "define":
            return
        tokens = [each for each in tokens_of(inside) if each.kind != "directive"]
        self._meanings.setdefault(plain, []).append(Meaning(start, tokens or None, sure))


def texts(tokens: list[Token] | None) -> list[str]:
    """What tokens say of a type."""
    return [each.text for each in tokens or () if each.text not in SILENT]
