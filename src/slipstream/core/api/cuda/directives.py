"""What the preprocessor leaves of a source, as far as that can be told without compiling it.

Conditions on names that the source or its options define are decided, as are 0 and 1; code under
any other condition may be there or not.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from slipstream.core.api.cuda.tokens import Token, tokens_of

DEFINED = re.compile(r"(?P<no>!?)\s*defined\s*(?:\(\s*(?P<name>\w+)\s*\)|\s(?P<bare>\w+))\s*$")
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
            clear = each.sure or (clear and (not found or texts(found) == texts(each.tokens)))
            found = each.tokens
        if not clear:
            raise UnclearError(name)
        return found

    def _here(self) -> bool | None:
        found = [each.here for each in self._open]
        return False if False in found else None if None in found else True

    def _direct(self, token: Token) -> None:
        text = COMMENT.sub(" ", token.text[1:].replace("\\\n", " ")).strip()
        word, _, rest = text.partition(" ")
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
        if text in ("0", "1"):
            return text == "1"
        match = DEFINED.match(text)
        if match is None:
            return None
        found = self._is_defined(match["name"] or match["bare"])
        return found if not match["no"] or found is None else not found

    def _is_defined(self, name: str) -> bool | None:
        # The compiler defines names of its own.
        return self._known.get(name, None if name.startswith("__") else False)

    def _define(self, start: int, word: str, text: str) -> None:
        name, _, inside = text.partition(" ")
        sure = self._here() is True
        plain = name.partition("(")[0]
        if word == "undef":
            self._known[plain] = False if sure else None
        else:
            self._known[plain] = True if sure or self._known.get(plain) else None
        if plain != name:
            return
        tokens = [each for each in tokens_of(inside) if each.kind != "directive"]
        self._meanings.setdefault(name, []).append(Meaning(start, tokens or None, sure))


def texts(tokens: list[Token] | None) -> list[str]:
    """What tokens say."""
    return [each.text for each in tokens or ()]
