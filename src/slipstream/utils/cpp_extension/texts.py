"""Splits a .cu text: what the host's compiler gets, what the card's; rewrites launches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from slipstream.core.api.cuda.tokens import SourceError, Token, closing, split, tokens_of

SUBSET = "docs/custom_kernels.md lists what load_inline offers"
# Headers for which our own text stands.
REPLACED = re.compile(r"(torch|ATen|c10|pybind11)/|cuda(_runtime|_runtime_api|_fp16|_bf16)?\.h$"
                      r"|device_launch_parameters\.h$")
STANDARD = re.compile(r"[a-z_]+(\.h)?$")
INCLUDE = re.compile(r"#\s*include\s*[<\"]([^>\"]+)[>\"]")
# Words whose declarations are the host's alone.
HOST_WORDS = {"torch", "at", "c10", "std", "py", "pybind11", "cudaStream_t", "TORCH_CHECK"}
OUTSIDE = re.compile(
    r"AT_DISPATCH_\w+|\w*[pP]acked_?[aA]ccessor\w*|TORCH_LIBRARY\w*|thrust|cub|cublas\w*|cudnn\w*"
    r"|cooperative_groups|cuda(Malloc|Free|Memcpy|Memset|LaunchKernel|LaunchCooperative|Stream"
    r"Create|EventCreate|Graph)\w*|autograd|TensorAccessor|RestrictPtrTraits")
# What of a PYBIND11_MODULE asks for more than functions: words, and the sign before or behind them.
NAMESPACES, BINDERS = {"py", "pybind11"}, {"attr", "def_submodule"}


@dataclass(frozen=True, slots=True)
class Item:
    """A declaration at the top of a source, or a directive: from ``start`` to ``end``."""

    tokens: tuple[Token, ...]
    device: bool
    host: bool

    @property
    def start(self) -> int:
        """Where it starts in the source."""
        return self.tokens[0].start

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.tokens[-1].end


@dataclass(slots=True)
class Parts:
    """A source's two texts, lines kept, and the functions that a PYBIND11_MODULE names."""

    host: str
    device: str
    bindings: dict[str, str]


def parts_of(source: str) -> Parts:
    """Split a source; raises SourceError for what is outside the subset."""
    tokens = tokens_of(source)
    for token in tokens:
        if token.kind == "word" and OUTSIDE.fullmatch(token.text):
            raise outside(token.text, source, token.start)
    bindings: dict[str, str] = {}
    host, device = list(source), list(source)
    for item in items(tokens):
        if item.tokens[0].text == "PYBIND11_MODULE":
            bindings.update(bound(list(item.tokens), source))
            item = Item(item.tokens, False, False)
        if item.tokens[0].kind == "directive":
            item = directive(item, source)
        if not item.host:
            blank(host, item)
        elif any(token.text == "<<<" for token in item.tokens):
            rewrite(host, item.tokens, source)
        if not item.device:
            blank(device, item)
    return Parts("".join(host), "".join(device), bindings)


def bound(tokens: list[Token], source: str) -> dict[str, str]:
    """The functions by the names that the tokens of a PYBIND11_MODULE give them.

    Raises SourceError for what a binding says beyond a name, a function and its documentation.
    """
    found: dict[str, str] = {}
    for place, token in enumerate(tokens):
        before, after = [tokens[each].text if 0 <= each < len(tokens) else ""
                         for each in (place - 1, place + 1)]
        if (token.text in NAMESPACES and after == "::") or (
                token.text in BINDERS and before == "."):
            what = "".join([each.text for each in tokens[place:place + 3]
                            if each.kind == "word" or each.text == "::"])
            raise outside(what, source, token.start)
    for place, token in enumerate(tokens):
        if token.text != "def" or tokens[place - 1].text != ".":
            continue
        parts = split(tokens[place + 2:closing(tokens, place + 1)])
        function = [each for each in parts[1] if each.text != "&"] if len(parts) > 1 else []
        beyond = [each for part in parts[2:] for each in part if each.kind != "string"]
        if (not parts or len(parts[0]) != 1 or parts[0][0].kind != "string" or not function
                or beyond or any(each.kind != "word" and each.text != "::" for each in function)):
            raise outside("a binding of anything but a function", source, token.start)
        found[parts[0][0].text[1:-1]] = "".join([each.text for each in function])
    return found


def outside(what: str, source: str, place: int) -> SourceError:
    """The error that says that something is outside the subset."""
    return SourceError(f"{what} is outside the subset of load_inline", source, place, SUBSET)


def blank(characters: list[str], item: Item) -> None:
    """Take an item away; the lines stay."""
    for place in range(item.start, item.end):
        if characters[place] != "\n":
            characters[place] = ""


def directive(item: Item, source: str) -> Item:
    """Which texts a directive goes to; raises SourceError for a header that is not there."""
    match = INCLUDE.match(item.tokens[0].text)
    if match is None:
        return Item(item.tokens, not item.tokens[0].text[1:].lstrip().startswith("pragma"), True)
    if REPLACED.search(match[1]):
        return Item(item.tokens, False, False)
    if not STANDARD.fullmatch(match[1]):
        raise outside(f"the header {match[1]}", source, item.start + match.start(1))
    return Item(item.tokens, False, True)


def items(tokens: list[Token]) -> Iterator[Item]:
    """The declarations at the top of a source, also inside namespaces, and the directives."""
    place = start = 0
    while place < len(tokens):
        token = tokens[place]
        if token.kind == "directive":
            if start < place:
                # Inside a declaration: it goes where that goes.
                place += 1
                continue
            yield Item((token,), True, True)
            start = place = place + 1
            continue
        if token.text == "{" and opens_scope(tokens[start:place]):
            yield Item(tuple(tokens[start:place + 1]), True, True)
            start = place = place + 1
            continue
        if token.text == "}":
            yield Item((token,), True, True)
            start = place = place + 1
            continue
        if token.text in ("(", "[", "{"):
            end = min(closing(tokens, place), len(tokens) - 1)
            function = token.text == "{" and is_function(tokens[start:place])
            place = end + 1
            if function:
                yield classified(tokens[start:place])
                start = place
            continue
        place += 1
        if token.text == ";":
            yield classified(tokens[start:place])
            start = place
    if start < len(tokens):
        yield classified(tokens[start:])


def opens_scope(head: list[Token]) -> bool:
    """Whether a brace opens a namespace or an extern "C" block."""
    texts = [token.text for token in head if token.kind != "directive"]
    return bool(texts) and (texts[0] == "namespace" or texts == ["extern", '"C"'])


def is_function(head: list[Token]) -> bool:
    """Whether what stands before a brace declares a function."""
    texts = [token.text for token in head]
    return "(" in texts and not any(each in ("=", "struct", "class", "enum", "union")
                                    for each in texts[:texts.index("(")])


def classified(tokens: list[Token]) -> Item:
    """A declaration with the texts that it goes to."""
    texts = [token.text for token in tokens]
    end = texts.index("{") if "{" in texts else len(texts)
    head, words = set(texts[:end]), set(texts)
    body = "{" in texts and is_function(tokens[:end])
    if "__global__" in head or "__constant__" in head:
        return Item(tuple(tokens), True, False)
    if "__device__" in words:
        return Item(tuple(tokens), True, "__host__" in words)
    if words & HOST_WORDS:
        return Item(tuple(tokens), False, True)
    declares = "(" in texts and not head & {"struct", "class", "typedef", "using", "=", "enum"}
    if (body or declares) and "constexpr" not in head:
        return Item(tuple(tokens), False, True)
    return Item(tuple(tokens), True, True)


def rewrite(characters: list[str], tokens: tuple[Token, ...], source: str) -> None:
    """`name<<<grid, block>>>(...)` becomes a call of our launcher."""
    for place, token in enumerate(tokens):
        if token.text != "<<<":
            continue
        name = tokens[place - 1]
        if name.kind != "word":
            raise outside("a launch of a template", source, name.start)
        end = next((each for each in tokens[place:] if each.text == ">>>"), None)
        if end is None:
            raise SourceError("a launch has no >>>", source, token.start)
        characters[name.start:name.end] = [
            f'slip::launcher("{name.text}", ', *[""] * (name.end - name.start - 1)]
        characters[token.start:token.end] = [""] * 3
        characters[end.start:end.end] = [")", "", ""]
        first = place
        while first >= 2 and tokens[first - 2].text == "::":
            # The namespace of the kernel goes: names are plain.
            for part in (tokens[first - 2], tokens[first - 3]):
                characters[part.start:part.end] = [""] * len(part.text)
            first -= 2
