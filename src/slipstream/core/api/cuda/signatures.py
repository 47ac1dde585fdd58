"""The signatures of kernels, read from CUDA C++: what each parameter is and where it lies.

Parameters of a kernel are pointers to numbers, and numbers.  They lie one after the other, each
aligned to its own size.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

from slipstream.core.api.cuda.directives import Preprocessed, UnclearError
from slipstream.core.api.cuda.tokens import SourceError, Token, closing, split, tokens_of
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.dtypes import DType

POINTER, INTEGER, FLOATING, TRUTH = "pointer", "integer", "floating", "truth"
LONG = ctypes.sizeof(ctypes.c_long)
# Words of a type that say nothing of its size.
IGNORED = {"volatile", "register", "typename", "struct", "__restrict__", "__restrict", "restrict",
           "__grid_constant__", "inline", "std", "::"}
BUILT_IN = {"unsigned", "signed", "long", "short", "int", "char", "float", "double", "bool"}
# (bytes, signed) of integer types that have one name.
INTEGERS = {
    "int8_t": (1, True), "int16_t": (2, True), "int32_t": (4, True), "int64_t": (8, True),
    "uint8_t": (1, False), "uint16_t": (2, False), "uint32_t": (4, False), "uint64_t": (8, False),
    "size_t": (8, False), "ptrdiff_t": (8, True), "intptr_t": (8, True), "uintptr_t": (8, False),
    "uchar": (1, False), "ushort": (2, False), "uint": (4, False), "ulong": (LONG, False),
}
# There are no unsigned tensors but uint8: such pointers take the signed dtype of the same size.
INTEGER_DTYPES = {
    (1, True): (dtypes.int8,), (1, False): (dtypes.uint8, dtypes.bool_),
    (2, True): (dtypes.int16,), (2, False): (dtypes.int16, dtypes.float16, dtypes.bfloat16),
    (4, True): (dtypes.int32,), (4, False): (dtypes.int32,),
    (8, True): (dtypes.int64,), (8, False): (dtypes.int64,),
}
HALVES = {"__half": dtypes.float16, "half": dtypes.float16, "__nv_bfloat16": dtypes.bfloat16,
          "nv_bfloat16": dtypes.bfloat16}
COMPLEX = {"cuFloatComplex": (dtypes.complex64,), "cuComplex": (dtypes.complex64,),
           "cuDoubleComplex": (dtypes.complex128,)}
LANES = {"float": dtypes.float32, "double": dtypes.float64, "int": dtypes.int32,
         "short": dtypes.int16, "char": dtypes.int8, "uchar": dtypes.uint8, "uint": dtypes.int32,
         "longlong": dtypes.int64}
SUPPORTED = ("pointers to float, double, __half, __nv_bfloat16, bool, integers and their vectors, "
             "and numbers: integers, float, double, __half, __nv_bfloat16, bool")


@dataclass(frozen=True, slots=True)
class Element:
    """What a pointer points to, or what a number is.

    ``dtypes``: those that a tensor may have (none: any); ``count``: how many of its elements make
    one; ``size`` and ``alignment`` in bytes; ``kind`` of a number.
    """

    dtypes: tuple[DType, ...]
    size: int
    alignment: int
    count: int = 1
    kind: str = ""
    signed: bool = True


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a kernel: ``place`` is where it lies in the parameter block, in bytes.

    ``constant``: a pointer through which nothing is written; ``start``: where it is declared.
    """

    name: str
    text: str
    kind: str
    element: Element
    place: int
    constant: bool
    start: int

    @property
    def width(self) -> int:
        """Bytes that it takes in the parameter block."""
        return 8 if self.kind == POINTER else self.element.size

    def limits(self) -> tuple[int, int]:
        """The least and greatest integer that it holds."""
        bits = 8 * self.element.size
        if self.element.signed:
            return -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        return 0, (1 << bits) - 1


@dataclass(slots=True)
class Signature:
    """A kernel of a source; ``nbytes`` of parameters, ``start`` of its declaration.

    ``threads``: the largest block that ``__launch_bounds__`` names, 0 for none; ``edits``: what to
    put at places of the source so that its name is plain: (place, bytes taken away, text).
    """

    name: str
    parameters: list[Parameter]
    nbytes: int
    start: int
    threads: int = 0
    edits: list[tuple[int, int, str]] = field(default_factory=list)

    def layout(self) -> list[tuple[str, Element, int]]:
        """What a call has to pass."""
        return [(each.kind, each.element, each.place) for each in self.parameters]

    def __str__(self) -> str:
        inside = ", ".join(each.text for each in self.parameters)
        return f"{self.name}({inside})"


class Reader:
    """Reads the kernels of a source; ``options`` may define names, as ``-DT=float``."""

    def __init__(self, source: str, options: tuple[str, ...] = ()) -> None:
        self.source = source
        defined: dict[str, list[Token]] = {}
        for option in options:
            if option.startswith(("-D", "--define-macro=")):
                name, _, text = option.removeprefix("--define-macro=").removeprefix(
                    "-D").strip().partition("=")
                defined[name] = tokens_of(text)
        self.macros = Preprocessed(tokens_of(source), defined)
        self.tokens = self.macros.tokens
        self.aliases: dict[str, list[Token]] = {}
        self._typedefs()

    def kernels(self) -> list[Signature]:
        """Every kernel that is defined, in order."""
        found: dict[str, Signature] = {}
        for place, token in enumerate(self.tokens):
            if token.text == "__global__":
                kernel = self._kernel(place)
                held = found.setdefault(kernel.name, kernel)
                self._check_alike(held, kernel)
                if held is not kernel:
                    # Declared before it is defined: both get a plain name.
                    kernel.edits = [*held.edits, *kernel.edits]
                    found[kernel.name] = kernel
        return list(found.values())

    def _check_alike(self, first: Signature, second: Signature) -> None:
        if first.layout() != second.layout():
            raise SourceError(
                f"the source has two kernels {first.name} whose parameters differ", self.source,
                second.start, "give them names of their own, or say in options which is "
                'compiled, as options=("-DWIDE",)')

    # -- other names of types --

    def _typedefs(self) -> None:
        tokens = self.tokens
        for place, token in enumerate(tokens):
            if token.text not in ("typedef", "using") or token.kind != "word":
                continue
            end = place
            while end < len(tokens) and tokens[end].text not in (";", "{"):
                end += 1
            inside = tokens[place + 1:end]
            if token.text == "using" and len(inside) > 2 and inside[1].text == "=":
                self.aliases[inside[0].text] = inside[2:]
            elif token.text == "typedef" and len(inside) > 1:
                self.aliases[inside[-1].text] = inside[:-1]

    def _expanded(self, tokens: list[Token], depth: int = 0, place: int = -1) -> list[Token]:
        """Tokens with the names of types in place of their aliases, as they are used at a place."""
        made: list[Token] = []
        for token in tokens:
            at = token.start if place < 0 else place
            alias = self._alias(token.text, at) if token.kind == "word" else None
            if alias is None or depth > 8:
                made.append(token)
            else:
                made += self._expanded(alias, depth + 1, at)
        return made

    def _alias(self, name: str, place: int) -> list[Token] | None:
        try:
            return self.macros.meaning(name, place) or self.aliases.get(name)
        except UnclearError:
            raise SourceError(
                f"{name}, of which a kernel's parameters are made, is defined under a condition "
                "that only the compiler can decide", self.source, place,
                f'define it once, or by options=("-D{name}=...",) alone') from None

    # -- one kernel --

    def _kernel(self, place: int) -> Signature:
        tokens = self.tokens
        first, edits = self._plain_name(place)
        threads = 0
        name = place + 1
        while name + 1 < len(tokens) and (
                tokens[name + 1].text != "(" or tokens[name].text.startswith("__")):
            if tokens[name + 1].text == "(":
                end = closing(tokens, name + 1)
                if tokens[name].text == "__launch_bounds__":
                    threads = self._bound(tokens[name + 2:end])
                name = end
            name += 1
        if name + 1 >= len(tokens):
            raise SourceError("a __global__ function has no parameter list", self.source,
                              tokens[place].start)
        end = closing(tokens, name + 1)
        parameters, nbytes = self._parameters(tokens[name + 2:end])
        return Signature(tokens[name].text, parameters, nbytes, tokens[first].start, threads, edits)

    def _plain_name(self, place: int) -> tuple[int, list[tuple[int, int, str]]]:
        """Where the declaration starts, and the edits that give the kernel a plain name."""
        tokens = self.tokens
        first = place
        edits = []
        plain = False
        while first > 0 and tokens[first - 1].text in ("static", "inline", "void", '"C"', "extern",
                                                       "__forceinline__"):
            first -= 1
            if tokens[first].text in ("static", "inline", "__forceinline__"):
                edits.append((tokens[first].start, len(tokens[first].text), ""))
            plain = plain or tokens[first].text == '"C"'
        if first > 0 and tokens[first - 1].text in (">", ">>>"):
            raise SourceError(
                "a kernel that is a template has no name to call it by", self.source,
                tokens[place].start,
                'write it for a type of its own, such as T, and say options=("-DT=float",)')
        if not plain:
            edits.append((tokens[first].start, 0, 'extern "C" '))
        return first, edits

    def _bound(self, tokens: list[Token]) -> int:
        # The most threads of a block come first.
        found = self._expanded((split(tokens) or [[]])[0])
        text = found[0].text if len(found) == 1 else ""
        return int(text) if text.isdigit() else 0

    def _parameters(self, tokens: list[Token]) -> tuple[list[Parameter], int]:
        parts = split(tokens)
        if len(parts) == 1 and [each.text for each in parts[0]] == ["void"]:
            parts = []
        made: list[Parameter] = []
        place = 0
        for number, part in enumerate(parts):
            kind, element, constant = self._type(part)
            width = 8 if kind == POINTER else element.size
            place = -(-place // width) * width
            last = part[-1]
            named = last.kind == "word" and len(part) > 1 and not self._is_type(last.text)
            if last.text == "]":
                last = next(each for at, each in enumerate(part) if part[at + 1].text == "[")
                named = True
            name = last.text if named else f"argument {number + 1}"
            text = " ".join(self.source[part[0].start:part[-1].end].split())
            made.append(Parameter(name, text, kind, element, place, constant, part[0].start))
            place += width
        return made, place

    def _is_type(self, text: str) -> bool:
        return text in BUILT_IN or text in IGNORED or text in INTEGERS or text == "const"

    def _type(self, part: list[Token]) -> tuple[str, Element, bool]:
        """(kind, element, whether it is a pointer to const) of a parameter's tokens."""
        tokens = self._expanded(part)
        signs = [each.text for each in tokens if each.kind == "sign" and each.text != "::"]
        stars = signs.count("*") + ("[" in signs)
        for sign, what in (("&", "a reference"), ("&&", "a reference"), ("(", "a function"),
                           ("=", "a default value"), ("...", "an open list"), ("<", "a template"),
                           (",", "a macro of several parameters")):
            if sign in signs:
                raise self._refused(part, what)
        if stars > 1:
            raise self._refused(part, "a pointer to pointers")
        end = next((at for at, each in enumerate(tokens) if each.text in ("*", "[")), len(tokens))
        words = [each.text for each in tokens[:end] if each.kind == "word"]
        if not stars or tokens[end].text == "[":
            words = self._without_name(words)
        element = element_of([word for word in words if word not in IGNORED | {"const"}])
        if element is None or (not stars and not element.kind):
            raise self._refused(part, f"of type {' '.join(words) or 'unknown'}")
        if stars:
            return POINTER, element, "const" in words
        return element.kind, element, False

    def _without_name(self, words: list[str]) -> list[str]:
        types = [word for word in words if word not in IGNORED | {"const"}]
        last = words[-1] if words else ""
        if len(types) > 1 and last == types[-1] and last not in BUILT_IN:
            return words[:-1]
        return words

    def _refused(self, part: list[Token], what: str) -> SourceError:
        return SourceError(f"the kernel's parameter is {what}; a kernel takes {SUPPORTED}",
                           self.source, part[0].start if part else 0)


def element_of(words: list[str]) -> Element | None:
    """The element of a type's words; None for a type that is not known."""
    if words and all(word in BUILT_IN for word in words):
        return _built_in(words)
    if len(words) != 1:
        return None
    name = words[0]
    if name in INTEGERS:
        return _integer(*INTEGERS[name])
    if name == "void":
        return Element((), 1, 1)
    if name in HALVES:
        return Element((HALVES[name],), 2, 2, kind=FLOATING)
    if name in COMPLEX:
        size = COMPLEX[name][0].itemsize
        return Element(COMPLEX[name], size, size)
    return _vector(name)


def _built_in(words: list[str]) -> Element | None:
    if "double" in words:
        return Element((dtypes.float64,), 8, 8, kind=FLOATING)
    if "float" in words:
        return Element((dtypes.float32,), 4, 4, kind=FLOATING)
    if "bool" in words:
        return Element((dtypes.bool_,), 1, 1, kind=TRUTH)
    signed = "unsigned" not in words
    if "char" in words:
        return _integer(1, signed)
    if "short" in words:
        return _integer(2, signed)
    longs = words.count("long")
    return _integer((4, LONG, 8)[min(longs, 2)], signed)


def _integer(size: int, signed: bool) -> Element:
    return Element(INTEGER_DTYPES[size, signed], size, size, kind=INTEGER, signed=signed)


def _vector(name: str) -> Element | None:
    """A vector type such as float4, whose elements are four of a tensor's."""
    if name in ("half2", "__half2"):
        return Element((dtypes.float16,), 4, 4, 2)
    if name in ("nv_bfloat162", "__nv_bfloat162"):
        return Element((dtypes.bfloat16,), 4, 4, 2)
    dtype = LANES.get(name[:-1])
    if dtype is None or name[-1:] not in "1234":
        return None
    count = int(name[-1])
    size = count * dtype.itemsize
    alignment = dtype.itemsize if count == 3 else min(size, 16)
    return Element((dtype,), size, alignment, count)
