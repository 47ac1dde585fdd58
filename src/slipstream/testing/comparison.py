"""Comparing tensors in tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import slipstream as ss

# How far apart numbers of a dtype may be by default: (rtol, atol).
TOLERANCES = {
    "float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7), "complex64": (1.3e-6, 1e-5), "complex128": (1e-7, 1e-7),
}
Message = str | Callable[[str], str] | None


class Options:
    """What a comparison looks at, and how far apart numbers may be."""

    def __init__(self, rtol: float | None, atol: float | None, equal_nan: bool,
                 checks: Mapping[str, bool]) -> None:
        if (rtol is None) != (atol is None):
            raise ValueError("rtol and atol must both be specified or both be unspecified, but got "
                             f"no {'rtol' if rtol is None else 'atol'}")
        self.rtol = rtol
        self.atol = atol
        self.equal_nan = equal_nan
        self.checks = checks

    def tolerances(self, *dtypes: str) -> tuple[float, float]:
        """The given ones, else the widest of those of the dtypes."""
        if self.rtol is not None and self.atol is not None:
            return self.rtol, self.atol
        known = [TOLERANCES.get(dtype, (0.0, 0.0)) for dtype in dtypes]
        return max(rtol for rtol, _ in known), max(atol for _, atol in known)


def assert_close(actual: Any, expected: Any, *, allow_subclasses: bool = True,
                 rtol: float | None = None, atol: float | None = None, equal_nan: bool = False,
                 check_device: bool = True, check_dtype: bool = True, check_layout: bool = True,
                 check_stride: bool = False, msg: Message = None) -> None:
    """Raise AssertionError unless both are close: |actual - expected| <= atol + rtol |expected|.

    Tensors, arrays, numbers, None, and sequences and mappings of these.  Without tolerances those
    of the dtype are used; both or none must be given (ValueError).  TypeError for what cannot be
    compared.
    ``msg`` replaces the message, or makes another of it.
    """
    checks = {"device": check_device, "dtype": check_dtype, "stride": check_stride}
    options = Options(rtol, atol, equal_nan, checks)
    if not allow_subclasses and type(actual) is not type(expected):
        raise TypeError(f"no exact match of types: {type(actual)} and {type(expected)}")
    text = difference(actual, expected, options)
    if text is None:
        return
    raise AssertionError(msg(text) if callable(msg) else text if msg is None else msg)


def difference(actual: Any, expected: Any, options: Options) -> str | None:
    """What is wrong, or None."""
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        return _mappings(actual, expected, options)
    if _is_sequence(actual) and _is_sequence(expected):
        return _sequences(actual, expected, options)
    if actual is None or expected is None:
        return None if actual is expected else f"{actual} is not {expected}"
    if isinstance(actual, np.ndarray) and isinstance(expected, np.ndarray):
        actual, expected = ss.from_numpy(actual), ss.from_numpy(expected)
    if isinstance(actual, ss.Tensor) or isinstance(expected, ss.Tensor):
        return _tensors(actual, expected, options)
    if _is_number(actual) and _is_number(expected):
        return _numbers(actual, expected, options)
    raise TypeError(f"cannot compare {type(actual)} with {type(expected)}")


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | complex | np.number | np.bool_)


def _mappings(actual: Any, expected: Any, options: Options) -> str | None:
    if set(actual) != set(expected):
        return (f"The keys of the mappings do not match: missing {set(expected) - set(actual)}, "
                f"additional {set(actual) - set(expected)}")
    for key in expected:
        text = difference(actual[key], expected[key], options)
        if text is not None:
            return f"{text}\n\nThe failure occurred for item [{key!r}]"
    return None


def _sequences(actual: Any, expected: Any, options: Options) -> str | None:
    if len(actual) != len(expected):
        return f"The length of the sequences mismatch: {len(actual)} != {len(expected)}"
    for place, (one, other) in enumerate(zip(actual, expected, strict=True)):
        text = difference(one, other, options)
        if text is not None:
            return f"{text}\n\nThe failure occurred for item [{place}]"
    return None


def _tensors(actual: Any, expected: Any, options: Options) -> str | None:
    if not (isinstance(actual, ss.Tensor) and isinstance(expected, ss.Tensor)):
        raise TypeError(f"cannot compare {type(actual)} with {type(expected)}")
    if actual.shape != expected.shape:
        return (f"The values for attribute 'shape' do not match: {tuple(actual.shape)} != "
                f"{tuple(expected.shape)}.")
    for name in ("device", "dtype"):
        one, other = getattr(actual, name), getattr(expected, name)
        if options.checks[name] and one != other:
            return f"The values for attribute '{name}' do not match: {one} != {other}."
    if options.checks["stride"] and actual.stride() != expected.stride():
        return (f"The values for attribute 'stride()' do not match: {actual.stride()} != "
                f"{expected.stride()}.")
    rtol, atol = options.tolerances(actual.dtype.name, expected.dtype.name)
    wide = ss.promote_types(actual.dtype, expected.dtype)
    arrays = [_host(tensor.detach().to(wide)) for tensor in (actual, expected)]
    return _arrays(arrays[0], arrays[1], (rtol, atol), options.equal_nan)


def _host(tensor: Any) -> np.ndarray:
    """A tensor's elements, floats in a dtype wide enough to compare them."""
    array = tensor.cpu().numpy()
    if array.dtype.kind in "biu":
        return array
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _arrays(actual: np.ndarray, expected: np.ndarray, tolerances: tuple[float, float],
            equal_nan: bool) -> str | None:
    rtol, atol = tolerances
    with np.errstate(all="ignore"):
        if actual.dtype.kind in "biu" and not rtol and not atol:
            close = actual == expected
        else:
            close = np.isclose(actual, expected, rtol, atol, equal_nan)
        if close.all():
            return None
        far = np.abs(actual * 1.0 - expected * 1.0)
        share = far / np.abs(expected)
    wrong = int((~close).sum())
    head = "Scalars" if not actual.ndim else "Tensor-likes"
    kind = "equal" if not rtol and not atol else "close"
    lines = [f"{head} are not {kind}!", "",
             f"Mismatched elements: {wrong} / {close.size} ({100 * wrong / close.size:.1f}%)"]
    for name, values, allowed in (("absolute", far, atol), ("relative", share, rtol)):
        shown = np.where(close, 0, np.where(np.isnan(values), math.inf, values))
        place = tuple(int(each) for each in np.unravel_index(int(shown.argmax()), shown.shape))
        lines.append(f"Greatest {name} difference: {values[place]} at index {place} "
                     f"(up to {allowed} allowed)")
    return "\n".join(lines)


def _numbers(actual: Any, expected: Any, options: Options) -> str | None:
    # NumPy's numbers stand for Python's of their kind.
    actual, expected = [each.item() if isinstance(each, np.generic) else each
                        for each in (actual, expected)]
    if options.checks["dtype"] and type(actual) is not type(expected):
        return (f"The values for attribute 'type' do not match: {type(actual)} != "
                f"{type(expected)}.")
    kinds = ["complex128" if isinstance(each, complex) else "float64" if isinstance(each, float)
             else "int64" for each in (actual, expected)]
    return _arrays(np.asarray(actual), np.asarray(expected), options.tolerances(*kinds),
                   options.equal_nan)


def make_tensor(*shape: Any, dtype: Any, device: Any = "cpu", low: Any = None, high: Any = None,
                requires_grad: bool = False, noncontiguous: bool = False) -> Any:
    """A tensor of uniform random numbers in [low, high), by default [-9, 9), or 0 and 1 of bools.

    ``noncontiguous``: every second element of a larger one.
    """
    sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
    drawn = [*sizes[:-1], 2 * sizes[-1]] if noncontiguous and sizes else list(sizes)
    if dtype is ss.bool:
        made = ss.randint(0, 2, tuple(drawn), device=device).to(ss.bool)
    else:
        first, last = (-9 if low is None else low), (9 if high is None else high)
        if dtype is ss.uint8:
            first = max(first, 0)
        wide = ss.float64 if dtype not in (ss.complex64, ss.complex128) else ss.complex128
        made = ss.rand(tuple(drawn), dtype=ss.float64, device=device) * (last - first) + first
        made = (made.floor() if dtype.kind == "int" else made).to(wide).to(dtype)
    made = made[..., ::2] if noncontiguous and sizes else made
    return made.detach().requires_grad_(requires_grad)

