"""Rewrites the bodies of device functions, so that checked pointers go where pointers went."""

from __future__ import annotations

from slipstream.core.native.simulated.tokens import AFTER_STAR, Tokens

STATEMENT_STARTS = {";", "{", "}", ""}
HEADS = {"for", "if", "while", "switch"}
NO_CALLS = HEADS | {"return", "sizeof", "alignof", "decltype", "catch", "slip_pointer", "alignas",
                    "__align__", "static_assert", "__launch_bounds__", "__cluster_dims__",
                    "defined"}
# Signs and words before an operand: what follows is no binary operator.
BEFORE_OPERANDS = set("(,=!?:;{}&|+-*/%<>~^[") | {
    "&&", "||", "==", "!=", "<=", ">=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<",
    "<<=", ">>=", "return", "else", "case", "do", ""}
CASTS = {"reinterpret_cast", "static_cast", "const_cast"}
STORAGE = {"static", "__shared__", "constexpr"}


def check_body(tokens: Tokens, first: int, end: int) -> None:
    """Rewrite what lies between two tokens, the body of a function."""
    for n in range(first, end):
        text = tokens.text(n)
        if text in CASTS:
            _named_cast(tokens, n)
        elif text == "(":
            if not _cast(tokens, n):
                _call(tokens, n)
        elif text == "&":
            _address(tokens, n)
        elif text == "?":
            _choice(tokens, n)
        elif tokens.kind(n) == "word" and _starts_statement(tokens, n):
            _declaration(tokens, n)


def check_pointer(tokens: Tokens, first: int, end: int) -> None:
    """`T* name` between two tokens becomes `slip_pointer<T> name`; `T name[]` too."""
    stars = [n for n in range(first, end) if tokens.text(n) == "*"]
    if any(tokens.text(n) in ("(", "&") for n in range(first, end)):
        return
    if stars:
        _replace_star(tokens, first, stars[-1])
        qualifiers = stars[-1] + 1
        while qualifiers < end and tokens.text(qualifiers) in AFTER_STAR:
            tokens.show(qualifiers, "")
            qualifiers += 1
    elif tokens.text(end - 1) == "]":
        opening = next(n for n in range(first, end) if tokens.text(n) == "[")
        tokens.prefix(first, "slip_pointer<")
        tokens.prefix(opening - 1, "> ")
        tokens.blank(opening, end)


def _replace_star(tokens: Tokens, first: int, star: int) -> None:
    tokens.prefix(first, "slip_pointer<")
    tokens.show(star, "> ")


def _starts_statement(tokens: Tokens, n: int) -> bool:
    before = tokens.text(n - 1)
    if before in STORAGE:
        return _starts_statement(tokens, n - 1)
    return before in STATEMENT_STARTS or (before == "(" and tokens.text(n - 2) in HEADS)


def _declaration(tokens: Tokens, n: int) -> None:
    """Local pointers become checked; references and `auto` do not keep an element's proxy."""
    type_end = tokens.type_end(n)
    if type_end == n:
        return
    sign = tokens.text(type_end)
    if sign == "*":
        name = tokens.stars_end(type_end)
        if tokens.kind(name) == "word" and tokens.text(name + 1) in ("=", ";", ","):
            _local_pointers(tokens, n, type_end, name)
    elif sign in ("&", "&&") and tokens.text(type_end + 2) == "=" and tokens.text(n) != "const":
        tokens.blank(n, type_end + 1)
        tokens.prefix(n, "auto&& ")
    elif tokens.text(type_end - 1) == "auto" and tokens.text(type_end + 1) == "=":
        first = type_end + 2
        end = tokens.expression_end(first, (",", ";"))
        if end > first and tokens.text(first) not in ("[", "{"):
            tokens.wrap(first, end, "slip_plain(")


def _local_pointers(tokens: Tokens, first: int, star: int, name: int) -> None:
    """`T *a = x, *b = y;`: every declarator is a pointer, or all stay as they are."""
    stars = []
    n = tokens.expression_end(name, (",", ";"))
    while tokens.text(n) == ",":
        if tokens.text(n + 1) != "*":
            return
        stars.append(n + 1)
        n = tokens.expression_end(n + 1, (",", ";"))
    last = max(m for m in range(star, name) if tokens.text(m) == "*")
    _replace_star(tokens, first, last)
    for qualifier in range(last + 1, name):
        tokens.show(qualifier, "")
    for each in stars:
        tokens.show(each, "")


def _named_cast(tokens: Tokens, n: int) -> None:
    """reinterpret_cast<T*>(x) and static_cast<T*>(x)."""
    if tokens.text(n + 1) != "<":
        return
    end = tokens.closing_angle(n + 1)
    last = end - 1 - (tokens.text(end - 1) in AFTER_STAR)
    if tokens.text(last) == "*" or tokens.text(n) == "reinterpret_cast":
        tokens.show(n, "slip_recast")
        tokens.suffix(end, "::of")


def _cast(tokens: Tokens, n: int) -> bool:
    """(T*)x becomes `slip_to<T>() ->* x`, which binds as tightly as the grammar allows."""
    before = tokens.text(n - 1)
    if before not in BEFORE_OPERANDS and before != ")":
        return False
    type_end = tokens.type_end(n + 1)
    stars_end = tokens.stars_end(type_end)
    if type_end == n + 1 or stars_end == type_end or tokens.text(stars_end) != ")":
        return False
    after = tokens.text(stars_end + 1)
    if before == ")" or not (tokens.kind(stars_end + 1) in ("word", "number")
                             or after in ("(", "&", "*")):
        return False
    last = max(m for m in range(type_end, stars_end) if tokens.text(m) == "*")
    tokens.cast_ends.add(stars_end)
    tokens.show(n, "slip_to<")
    tokens.show(last, ">() ->*")
    for other in range(last + 1, stars_end + 1):
        tokens.show(other, " ")
    return True


def _call(tokens: Tokens, n: int) -> None:
    """Elements handed to a function are plain values: templates deduce the element's type."""
    if tokens.kind(n - 1) != "word" or tokens.text(n - 1) in NO_CALLS:
        return
    for first, end in tokens.arguments(n):
        if _is_element(tokens, first, end):
            tokens.wrap(first, end, "slip_plain(")


def _is_element(tokens: Tokens, first: int, end: int) -> bool:
    """Whether tokens are `name[...]` or `*name`, which may be an element behind a proxy."""
    if tokens.text(first) == "*":
        return end > first + 1
    if tokens.kind(first) != "word" or tokens.text(first + 1) != "[":
        return False
    n = first + 1
    while tokens.text(n) == "[" and n < end:
        n = tokens.closing(n) + 1
    return n == end


def _address(tokens: Tokens, n: int) -> None:
    """&x[i], where x is a name, keeps the block of x."""
    unary = tokens.text(n - 1) in BEFORE_OPERANDS or n - 1 in tokens.cast_ends
    if not unary or tokens.kind(n + 1) != "word" or tokens.text(n + 2) != "[":
        return
    end = tokens.closing(n + 2)
    if tokens.text(end + 1) in ("[", ".", "->", "("):
        return
    tokens.show(n, "slip_address(")
    tokens.show(n + 2, ", ")
    tokens.show(end, ")")


def _choice(tokens: Tokens, n: int) -> None:
    """c ? p[i] : 0 has the type that CUDA gives it, whatever a proxy converts to."""
    colon = n + 1
    depth = 0
    while colon < tokens.count and (depth or tokens.text(colon) != ":"):
        text = tokens.text(colon)
        depth += {"?": 1, ":": -1}.get(text, 0)
        colon = (tokens.closing(colon) if text in ("(", "[", "{") else colon) + 1
    end = tokens.expression_end(colon + 1, (",", ";", ":", "?"))
    for first, last in ((n + 1, colon), (colon + 1, end)):
        if tokens.text(last) != "?" and _is_element(tokens, first, last):
            tokens.wrap(first, last, "slip_plain(")
