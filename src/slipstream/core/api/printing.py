"""How tensors print: the digits, the columns, what is left out, and the facts at the end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

PREFIX = "tensor("

PROFILES: dict[str, dict[str, float]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
}

# Beyond these, digits after the point are lost or columns grow wide: scientific notation.
LARGEST_FIXED = 1e8
SMALLEST_FIXED = 1e-4
WIDEST_RATIO = 1000.0


@dataclass
class PrintOptions:
    """How tensors print.

    ``precision``: digits after the point.  ``threshold``: number of elements beyond which only
    ``edgeitems`` at both ends of each dim are shown.  ``linewidth``: characters a line.
    ``sci_mode``: scientific notation always (True), never (False), or where fixed would lose
    digits (None).
    """

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


class Facts(NamedTuple):
    """What is printed of a tensor besides its values; ``device`` None where it is the default."""

    dtype_name: str
    default_dtype_name: str = "float32"
    device: str | None = None
    requires_grad: bool = False
    grad_fn_name: str | None = None
    prefix: str = PREFIX


current = PrintOptions()


def set_printoptions(
    precision: int | None = None, threshold: float | None = None, edgeitems: int | None = None,
    linewidth: int | None = None, profile: str | None = None, sci_mode: bool | None = None,
) -> None:
    """Set how tensors print from now on; see `PrintOptions`.

    ``profile`` ("default", "short" or "full") sets all numbers first.  ``sci_mode`` is set by
    every call, to None where it is not given.  ValueError for other profiles.
    """
    if profile is not None and profile not in PROFILES:
        raise ValueError(f"profile must be one of {', '.join(PROFILES)}, got {profile!r}")
    wanted = dict(PROFILES[profile]) if profile is not None else {}
    given = {
        "precision": precision, "threshold": threshold, "edgeitems": edgeitems,
        "linewidth": linewidth,
    }
    wanted.update({name: value for name, value in given.items() if value is not None})
    for name, value in wanted.items():
        setattr(current, name, value)
    current.sci_mode = sci_mode


def get_printoptions() -> dict[str, Any]:
    """The options now in force, by name."""
    return asdict(current)


@contextmanager
def printoptions(**options: Any) -> Iterator[None]:
    """Within the block, print with these options (the arguments of `set_printoptions`)."""
    before = replace(current)
    set_printoptions(**options)
    try:
        yield
    finally:
        for name, value in asdict(before).items():
            setattr(current, name, value)


def format_tensor(array: np.ndarray, facts: Facts, options: PrintOptions | None = None) -> str:
    """The text of a tensor whose values are ``array`` (any shape; bfloat16 as ml_dtypes has it)."""
    options = current if options is None else options
    suffixes = _device(facts)
    hides_size = options.edgeitems == 0 if array.size else array.ndim != 1
    if hides_size:
        suffixes.append(f"size={_listed(array.shape)}")
    # No value shows the kind of an empty tensor: only the default dtype goes without saying.
    usual = facts.dtype_name == facts.default_dtype_name
    if not usual and not (array.size and _is_usual(facts)):
        suffixes.append(_dtype(facts))
    body = _Layout(array, options).block(array, len(facts.prefix)) if array.size else "[]"
    return _assemble(facts, body, [*suffixes, *_history(facts)], options.linewidth)


def format_without_data(
    shape: Sequence[int], facts: Facts, options: PrintOptions | None = None,
) -> str:
    """The text of a tensor that has no values (device "meta")."""
    options = current if options is None else options
    suffixes = [*_device(facts), f"size={_listed(shape)}"]
    if facts.dtype_name != facts.default_dtype_name:
        suffixes.append(_dtype(facts))
    return _assemble(facts, "...", [*suffixes, *_history(facts)], options.linewidth)


def _listed(shape: Sequence[int]) -> str:
    return str(tuple(shape))


def _device(facts: Facts) -> list[str]:
    return [] if facts.device is None else [f"device='{facts.device}'"]


def _dtype(facts: Facts) -> str:
    return f"dtype=slipstream.{facts.dtype_name}"


def _history(facts: Facts) -> list[str]:
    if facts.grad_fn_name is not None:
        return [f"grad_fn=<{facts.grad_fn_name}>"]
    return ["requires_grad=True"] if facts.requires_grad else []


def _is_usual(facts: Facts) -> bool:
    """Whether the dtype is what the printed values would give if typed in."""
    usual_complex = "complex128" if facts.default_dtype_name == "float64" else "complex64"
    return facts.dtype_name in (facts.default_dtype_name, usual_complex, "int64", "bool")


def _assemble(facts: Facts, body: str, suffixes: list[str], linewidth: int) -> str:
    """Prefix, values and suffixes, with a new line before a suffix that would not fit."""
    parts = [facts.prefix, body]
    # A one-line body counts with its prefix, and one more for the bracket.
    text = facts.prefix + body
    used = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if used + len(suffix) + 2 > linewidth:
            parts.append(",\n" + " " * len(facts.prefix) + suffix)
            used = len(facts.prefix) + len(suffix)
        else:
            parts.append(", " + suffix)
            used += len(suffix) + 2
    return "".join([*parts, ")"])


class _Column:
    """How one kind of number prints in all of a tensor: notation, and a common width."""

    def __init__(self, values: np.ndarray, options: PrintOptions) -> None:
        self.notation = "plain"
        self.precision = options.precision
        self.width = 1
        if values.dtype.kind in "biu":
            texts = map(str, values.ravel().tolist())
            self.width = max(map(len, texts), default=1)
            return
        values = values.astype(np.float64).ravel()
        telling = values[np.isfinite(values) & (values != 0)]
        self.notation = _notation(telling, options.sci_mode)
        self.width = max((len(self._digits(value)) for value in telling.tolist()), default=1)

    def _digits(self, value: float) -> str:
        if self.notation == "plain":
            return str(value)
        if self.notation == "scientific":
            return f"{value:.{self.precision}e}"
        if self.notation == "fixed":
            return f"{value:.{self.precision}f}"
        return f"{value:.0f}" + ("." if math.isfinite(value) else "")

    def text(self, value: float) -> str:
        return self._digits(value).rjust(self.width)


def _notation(telling: np.ndarray, sci_mode: bool | None) -> str:
    """Notation of floats, by those that are finite and not zero.

    Unless ``sci_mode`` says, it is "scientific" where numbers are large, small or far apart;
    otherwise whole numbers print without decimals ("whole").
    """
    if telling.size == 0:
        return "whole"
    sizes = np.abs(telling)
    least, most = float(sizes.min()), float(sizes.max())
    if sci_mode is None:
        far = most / least > WIDEST_RATIO
        sci_mode = far or most > LARGEST_FIXED or least < SMALLEST_FIXED
    if sci_mode:
        return "scientific"
    return "whole" if bool((telling == np.ceil(telling)).all()) else "fixed"


class _Layout:
    """Places the values of one tensor in lines and blocks."""

    def __init__(self, array: np.ndarray, options: PrintOptions) -> None:
        self.options = options
        self.edge = options.edgeitems
        self.summarized = array.size > options.threshold
        # Numbers that are not shown do not widen the columns.
        shown = self._shown(array) if self.summarized else array
        if array.dtype.kind == "c":
            self.columns = [_Column(shown.real, options), _Column(shown.imag, options)]
        else:
            self.columns = [_Column(shown, options)]

    def _shown(self, array: np.ndarray) -> np.ndarray:
        for dim, size in enumerate(array.shape):
            if size > 2 * self.edge:
                kept = chain(range(self.edge), range(size - self.edge, size))
                array = np.take(array, list(kept), axis=dim)
        return array

    def block(self, array: np.ndarray, indent: int) -> str:
        """The text of an array whose first line starts at column ``indent``."""
        if array.ndim == 0:
            return self._number(array[()])
        if array.ndim == 1:
            return self._vector(array, indent)
        if self._cuts(array):
            blocks = [self.block(row, indent + 1) for row in array[:self.edge]]
            blocks.append("...")
            blocks += [self.block(row, indent + 1) for row in array[len(array) - self.edge:]]
        else:
            blocks = [self.block(row, indent + 1) for row in array]
        gap = "," + "\n" * (array.ndim - 1) + " " * (indent + 1)
        return "[" + gap.join(blocks) + "]"

    def _cuts(self, array: np.ndarray) -> bool:
        return self.summarized and len(array) > 2 * self.edge

    def _vector(self, array: np.ndarray, indent: int) -> str:
        # Each number takes its width, a comma and a space; a complex one a sign as well.
        taken = sum(column.width for column in self.columns) + 1 + len(self.columns)
        per_line = max(1, (self.options.linewidth - indent) // taken)
        if self._cuts(array):
            ends = array[:self.edge], array[len(array) - self.edge:]
            dots = " ..." if self.edge else "..."
            items = [*map(self._number, ends[0]), dots, *map(self._number, ends[1])]
        else:
            items = list(map(self._number, array))
        lines = [
            ", ".join(items[first:first + per_line]) for first in range(0, len(items), per_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"

    def _number(self, value: Any) -> str:
        if len(self.columns) == 1:
            return self.columns[0].text(value.item())
        real = self.columns[0].text(value.real.item())
        imaginary = self.columns[1].text(value.imag.item()).lstrip()
        return real + ("" if imaginary[0] in "+-" else "+") + imaginary + "j"
