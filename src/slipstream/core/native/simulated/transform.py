"""Makes CUDA C++ readable for the host's C++ compiler over our header.

What the header cannot do by itself is done on the text: pointer parameters of kernels become
checked pointers, and so do those of plain device functions, local pointers, casts and addresses
made of them.  Lines stay where they are, so that the compiler's messages name the user's.
"""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.core.native.simulated.checking import check_body, check_pointer
from slipstream.core.native.simulated.tokens import Tokens

# Functions of our own prelude begin so; they take care of their pointers themselves.
OWN = "slip_"
TYPES = {"struct", "class", "union", "enum"}
NO_FUNCTIONS = {"if", "for", "while", "switch", "catch", "__attribute__", "__align__", "alignas",
                "__launch_bounds__", "__cluster_dims__", "decltype", "operator"}


@dataclass
class KernelText:
    """A kernel of a source: its name, and C++ expressions.

    ``max_threads``: of its largest block, "0" for any; ``cluster``: how many blocks run together.
    """

    name: str
    max_threads: str = "0"
    cluster: str = "1"
    template: bool = False


def transform(source: str) -> tuple[str, list[KernelText]]:
    """The text for the host's compiler, and the kernels it defines."""
    tokens = Tokens(source)
    kernels: dict[str, KernelText] = {}
    inside: set[int] = set()
    start = n = 0
    while n < tokens.count:
        text = tokens.text(n)
        if text == "(" and tokens.kind(n - 1) == "word" and tokens.text(n - 1) not in NO_FUNCTIONS:
            kernel = _function(tokens, start, n)
            if kernel is not None:
                kernels[kernel.name] = kernel
            end = _after_function(tokens, tokens.closing(n))
            inside.update(range(n, end))
            n = start = end
            continue
        if text in TYPES and tokens.text(n - 1) not in ("<", ","):
            n = tokens.expression_end(n, (";", "{"))
            n = tokens.closing(n) if tokens.text(n) == "{" else n
        if text in (";", "{", "}"):
            start = n + 1
        n += 1
    for n in range(tokens.count):
        if tokens.text(n) == "__shared__":
            _dynamic_shared(tokens, n, n in inside)
    return tokens.result(), list(kernels.values())


def _after_function(tokens: Tokens, n: int) -> int:
    """The token after a function's body, or after its declaration."""
    n = tokens.expression_end(n + 1, (";", "{", "="))
    if tokens.text(n) == "=":
        n = tokens.expression_end(n, (";",))
    return (tokens.closing(n) if tokens.text(n) == "{" else n) + 1


def _function(tokens: Tokens, start: int, opening: int) -> KernelText | None:
    """Rewrite the function whose parameters begin at ``opening``; what it is, if a kernel."""
    words = [tokens.text(n) for n in range(start, opening)]
    if "=" in words or "operator" in words:
        return None
    is_kernel = "__global__" in words
    template = "template" in words
    if not is_kernel and tokens.text(opening - 1).startswith(OWN):
        return None
    if template and not is_kernel:
        _twice(tokens, start, opening)
        return None
    _check(tokens, opening)
    if is_kernel:
        return _kernel(tokens, start, opening, template)
    _result(tokens, start, opening)
    return None


def _check(tokens: Tokens, opening: int) -> None:
    """Rewrite a function's parameters and body."""
    for first, end in tokens.arguments(opening):
        check_pointer(tokens, first, end)
    body = tokens.expression_end(tokens.closing(opening) + 1, (";", "{"))
    if tokens.text(body) == "{":
        check_body(tokens, body, tokens.closing(body))


def _twice(tokens: Tokens, start: int, opening: int) -> None:
    """A template that takes pointers gets a twin that takes checked ones: both can be deduced."""
    pointers = "*" in tokens.texts[opening : tokens.closing(opening)]
    if not pointers or tokens.texts[start : start + 3] == ["template", "<", ">"]:
        return
    end = tokens.expression_end(tokens.closing(opening) + 1, (";", "{"))
    if tokens.text(end) == "{":
        end = tokens.closing(end)
    twin = Tokens("".join(tokens.all[tokens.places[start] : tokens.places[end] + 1]))
    _check(twin, opening - start)
    _result(twin, 0, opening - start)
    first, last = tokens.line(start), tokens.line(end)
    tokens.suffix(end, f"\n#line {first}\n{twin.result()}\n#line {last}\n")


def _result(tokens: Tokens, start: int, opening: int) -> None:
    """A device function that returns a pointer returns a checked one."""
    if tokens.text(opening - 2) != "*":
        return
    first = opening - 2
    while first > start and tokens.type_end(first - 1) > first - 1:
        first -= 1
    if first < opening - 2:
        tokens.prefix(first, "slip_pointer<")
        tokens.show(opening - 2, "> ")


def _kernel(tokens: Tokens, start: int, opening: int, template: bool) -> KernelText:
    """Rename a kernel, so that it meets no function of the header."""
    name = tokens.text(opening - 1)
    kernel = KernelText(name, template=template)
    tokens.show(opening - 1, f"slip_global_{name}")
    for n in range(start, opening):
        if tokens.text(n) == "extern" and tokens.kind(n + 1) == "text":
            tokens.blank(n, n + 2)
        if tokens.text(n) == "__launch_bounds__":
            first, end = tokens.arguments(n + 1)[0]
            kernel.max_threads = tokens.joined(first, end)
        if tokens.text(n) == "__cluster_dims__":
            first, end = tokens.arguments(n + 1)[0]
            kernel.cluster = tokens.joined(first, end)
    return kernel


def _dynamic_shared(tokens: Tokens, n: int, local: bool) -> None:
    """`extern __shared__ T name[];` becomes a pointer to the block's dynamic memory.

    One in a function is checked; one for all functions is made before there is a launch.
    """
    end = tokens.expression_end(n, (";",))
    if "extern" not in (tokens.text(n - 1), tokens.text(n + 1)) or tokens.text(end - 1) != "]":
        return
    first = n + 1 + (tokens.text(n + 1) == "extern")
    while tokens.text(first) in ("__align__", "alignas"):
        first = tokens.closing(first + 1) + 1
    base, name = tokens.joined(first, end - 3), tokens.text(end - 3)
    start = n - (tokens.text(n - 1) == "extern")
    tokens.blank(start, end)
    if local:
        tokens.prefix(start, f"const auto {name} = slip_shared<{base}>()")
    else:
        tokens.prefix(start, f"static {base}* const {name} = ({base}*)slip_shared_memory")
