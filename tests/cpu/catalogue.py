"""Every op of the catalogue with its samples, as tensors of a dtype, layout and device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import slipstream as ss
from slipstream.core.catalog.table import table
from slipstream.core.dispatch import promotion
from slipstream.core.dispatch.op import Op

# Names of ops, and of those that have samples and a reference.
NAMES = sorted(table)
SAMPLED = [name for name in NAMES if table[name].entry.samples]

DTYPES = {
    "bool": (ss.bool,), "int": (ss.uint8, ss.int8, ss.int32, ss.int64),
    "float": (ss.float16, ss.bfloat16, ss.float32, ss.float64),
    "complex": (ss.complex64, ss.complex128),
}
LAYOUTS = ("contiguous", "transposed", "stepped", "reversed", "offset", "expanded")
INVERTING = ("inverse", "matrix_power", "solve")
# Kinds of numbers that an op takes only in part of their range: the samples are folded into it.
FOLDS: dict[tuple[str, str], Callable[[Any], Any]] = {("pow", "int"): np.abs}


class Case(NamedTuple):
    """A call: tensors for the op, arrays of the same elements for the reference."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    arrays: tuple[Any, ...]


def dtypes_of(op: Op) -> list[Any]:
    """The dtypes that the entry says it takes."""
    return [dtype for kind in op.entry.dtypes for dtype in DTYPES[kind]]


def main_dtype(op: Op) -> Any:
    """float32 where the op takes floats, else the first dtype that it takes."""
    return ss.float32 if "float" in op.entry.dtypes else dtypes_of(op)[-1]


def is_sampled_number(value: Any) -> bool:
    """Whether a sample's value is an array of floats, which stands for any dtype."""
    return isinstance(value, (np.ndarray, np.generic)) and value.dtype == np.float64


def depends_on_dtype(sample: Any) -> bool:
    """Whether a sample holds floats, so that other dtypes make other cases of it."""
    return any(is_sampled_number(each) for value in sample[0]
               for each in (value if isinstance(value, list) else [value]))


def kind_of(dtype: Any) -> str:
    """The entry's word for a dtype's kind."""
    return ("bool", "int", "float", "complex")[dtype.category]


def converted(name: str, value: Any, dtype: Any) -> np.ndarray:
    """A sample's array in a dtype, folded into the range that the op takes."""
    value = np.asarray(value)
    if value.dtype != np.float64:
        return value
    kind = kind_of(dtype)
    if kind == "bool":
        return value > 0
    if kind == "int":
        value = np.round(value * 3)
        value = np.abs(value) if dtype is ss.uint8 else value
    if kind == "complex":
        value = value + 0.5j * np.roll(value, 1)
    return np.asarray(FOLDS.get((name, kind), lambda x: x)(value)).astype(dtype.numpy)


def layouts_of(op: Op) -> tuple[str, ...]:
    """The layouts that the op takes: some views refuse strides, see the tests of geometry."""
    if op.name in ("view", "view_as"):
        return "contiguous", "offset"
    # Expanded rows are all the same: such matrices have no inverse.
    return LAYOUTS[:-1] if op.name in INVERTING else LAYOUTS


def wide(array: np.ndarray) -> np.ndarray:
    """The same elements in the widest dtype of their kind."""
    kinds = {"b": np.bool_, "i": np.int64, "u": np.int64, "c": np.complex128}
    return array.astype(kinds.get(array.dtype.kind, np.float64))


def placed(array: np.ndarray, device: str) -> Any:
    """A new tensor of the elements on a device; without elements on meta."""
    made = ss.tensor(array)
    if device == "meta":
        return ss.empty(array.shape, dtype=made.dtype, device="meta")
    return made.to(device)


def laid_out(array: np.ndarray, layout: str, device: str) -> tuple[Any, np.ndarray]:
    """A tensor in a layout, and its elements: expanded ones repeat the first row."""
    if layout == "contiguous" or not array.ndim or not array.size:
        return placed(array, device), array
    return _LAYOUTS[layout](array, device)


def _transposed(array: np.ndarray, device: str) -> tuple[Any, np.ndarray]:
    return placed(array.T.copy(), device).permute(*range(array.ndim - 1, -1, -1)), array


def _stepped(array: np.ndarray, device: str) -> tuple[Any, np.ndarray]:
    return placed(np.repeat(array, 2, -1), device)[..., ::2], array


def _reversed(array: np.ndarray, device: str) -> tuple[Any, np.ndarray]:
    turned = (slice(None, None, -1),) * array.ndim
    return placed(array[turned].copy(), device)[turned], array


def _offset(array: np.ndarray, device: str) -> tuple[Any, np.ndarray]:
    flat = np.concatenate([np.zeros(1, array.dtype), array.reshape(-1)])
    return placed(flat, device)[1:].view(array.shape), array


def _expanded(array: np.ndarray, device: str) -> tuple[Any, np.ndarray]:
    return (placed(array[:1].copy(), device).expand(array.shape),
            np.broadcast_to(array[:1], array.shape))


_LAYOUTS = {"transposed": _transposed, "stepped": _stepped, "reversed": _reversed,
            "offset": _offset, "expanded": _expanded}


def computes_in_floats(op: Op) -> bool:
    """Whether integers and bools are made floats first; NumPy would take a float of their size."""
    return op.entry.promotion is promotion.floating


def case_of(op: Op, sample: Any, dtype: Any, layout: str = "contiguous",
            device: str = "cpu") -> Case:
    """A sample as a call of the op."""

    def made(value: Any) -> tuple[Any, Any]:
        if isinstance(value, list) and any(isinstance(v, np.ndarray) for v in value):
            both = [made(each) for each in value]
            return [tensor for tensor, _ in both], [array for _, array in both]
        if not isinstance(value, (np.ndarray, np.generic)):
            return value, value
        tensor, array = laid_out(converted(op.name, value, dtype), layout, device)
        return tensor, wide(array) * 1.0 if computes_in_floats(op) else wide(array)

    args, kwargs = sample
    both = [made(value) for value in args]
    keywords = dict(kwargs)
    if "device" in op.names and "self" not in op.names:
        keywords["device"] = device
    return Case(tuple([tensor for tensor, _ in both]), keywords,
                tuple([array for _, array in both]))


def cases(op: Op, dtype: Any = None, **place: str) -> Iterator[Case]:
    """All samples of an op as calls."""
    for sample in op.entry.samples():
        yield case_of(op, sample, dtype or main_dtype(op), **place)


def results_of(value: Any) -> list[Any]:
    """The tensors that a call returned."""
    return list(value) if isinstance(value, (tuple, list)) else [value]


def host(tensor: Any) -> np.ndarray:
    """A tensor's elements."""
    return tensor.detach().cpu().numpy()


def precision(dtype: Any) -> float:
    """The distance from 1 to the next number of a dtype; 0 for integers."""
    digits = {ss.float16: 2.0 ** -10, ss.bfloat16: 2.0 ** -7, ss.float32: 2.0 ** -23,
              ss.complex64: 2.0 ** -23, ss.float64: 2.0 ** -52, ss.complex128: 2.0 ** -52}
    return digits.get(dtype, 0.0)


def assert_near(tensor: Any, expected: Any, ulps: float = 16.0) -> None:
    """Compare a result with the reference's, which was computed in a wide dtype."""
    expected = np.asarray(expected)
    assert tuple(tensor.shape) == expected.shape
    found = host(tensor)
    near = precision(tensor.dtype)
    if not near:
        np.testing.assert_array_equal(found, expected.astype(found.dtype))
        return
    found = wide(found)
    finite = np.abs(expected[np.isfinite(expected)])
    scale = max(1.0, float(finite.max())) if finite.size else 1.0
    np.testing.assert_allclose(found, expected, rtol=ulps * near, atol=ulps * near * scale)


def spec_of(tensor: Any) -> tuple[Any, ...]:
    """What a result is, without its elements and its device."""
    return tuple(tensor.shape), tensor.dtype, tensor.stride()
