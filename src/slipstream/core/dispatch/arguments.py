# cython: annotation_typing=False
"""Binding arguments the long way: keywords, variadic sizes, and what is wrong with a call."""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.core.dispatch.places import restate_devices
from slipstream.core.dispatch.signature import (
    NUMBER,
    OPTIONAL_TENSOR,
    STATIC,
    STATIC_NUMBER,
    TENSOR,
    TENSOR_OR_NUMBER,
    TENSORS,
    Parameter,
)
from slipstream.core.fuse.symbols import NotAFormula
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.dtypes import DType, spelled
from slipstream.core.vocab.errors import restate
from slipstream.core.vocab.records import TensorBase

# NumPy's names for the same parameters, which PyTorch accepts too.
SYNONYMS = {"input": "self", "axis": "dim", "keepdims": "keepdim", "x": "self", "x1": "self",
            "x2": "other", "value": "src"}


# (op, number of positional arguments, *keywords): where the keywords' values go, of calls that fit.
places_of: dict[tuple[Any, ...], tuple[int, ...]] = {}
MOST = 4096


def bind_arguments(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """All arguments in order; raises TypeError as PyTorch does where they do not fit."""
    key = (op, len(args), *kwargs)
    places = places_of.get(key)
    if places is None:
        return _bound_anew(op, args, kwargs, key)
    op.keywords.note(places, len(args), kwargs)
    values = list(args + op.tails[len(args)])
    at = 0
    for value in kwargs.values():
        values[places[at]] = value
        at += 1
    return tuple(values)


def _bound_anew(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
                key: tuple[Any, ...]) -> tuple[Any, ...]:
    names = op.names
    if op.variadic >= 0 and len(args) > op.variadic + 1:
        args = (*args[:op.variadic], tuple(args[op.variadic:]))
    if len(args) > op.positional:
        raise TypeError(f"{op.name}() takes {_count(op.positional, 'positional argument')} "
                        f"but {len(args)} were given")
    values = list(args) + list(op.defaults[len(args):])
    given = set(names[:len(args)])
    places = []
    for word, value in kwargs.items():
        name = word if word in names else SYNONYMS.get(word, word)
        if name not in names:
            raise TypeError(f"{op.name}() got an unexpected keyword argument '{word}'")
        if name in given:
            raise TypeError(f"{op.name}() got multiple values for argument '{word}'")
        given.add(name)
        places.append(names.index(name))
        values[places[-1]] = spelled(value) if name == "dtype" else value
    missing = [p.name for p in op.signature.parameters if p.required and p.name not in given]
    if missing and not (op.variadic >= 0 and missing == [names[op.variadic]]):
        listed = ", ".join(f"'{name}'" for name in missing)
        raise TypeError(f"{op.name}() missing {len(missing)} required positional arguments: "
                        f"{listed}")
    if missing:
        values[op.variadic] = ()
    elif op.variadic < 0 and "dtype" not in given and len(places_of) < MOST:
        places_of[key] = tuple(places)
    return tuple(values)


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def is_number(value: Any) -> bool:
    """Whether a value is a Python or NumPy number (bool included)."""
    return isinstance(value, (int, float, complex, np.number, np.bool_))


def check_types(op: Any, values: Any) -> None:
    """Raise TypeError for an argument that is not of its parameter's type."""
    kinds = op.kinds
    for place, parameter in enumerate(op.signature.parameters):
        value = values[place]
        if value is parameter.default or (kinds[place] == TENSOR and isinstance(value, TensorBase)):
            continue
        # What is plainly of the type, without more words.
        if type(value) is _PLAIN.get(parameter.type):
            continue
        if not _fits(parameter, value):
            raise TypeError(
                f"{op.name}(): argument '{parameter.name}' must be {_wanted(parameter)}, "
                f"not {_type_name(value)}"
            )


def blame(op: Any, values: Any, failure: Exception) -> None:
    """After a failure inside a compound op: say it in terms of the op that was called.

    Raises TypeError if an argument of a wrong type can have been the cause: only now, for then it
    costs calls that are right nothing.
    """
    if isinstance(failure, (AttributeError, TypeError)) and not isinstance(failure, NotAFormula):
        check_types(op, values)
    restate(failure, op.name, _given(op, values))
    restate_devices(failure, op.name, _given(op, values))


def blame_launch(op: Any, values: Any, failure: Exception) -> None:
    """After a failure inside a kernel: name the op and its operands."""
    restate(failure, op.entry.shown or op.name, _given(op, values), anew=True)


def shown_call(op: Any, values: Any) -> tuple[str, dict[str, Any]]:
    """Name and arguments of a call as an error shows them."""
    if op.entry.shown:
        return op.entry.shown, _given(op, values)
    return op.name, _given(op, values)


def _given(op: Any, values: Any) -> dict[str, Any]:
    """The arguments by name, but for those left at their defaults."""
    return {parameter.name: value
            for parameter, value in zip(op.signature.parameters, values, strict=False)
            if (parameter.required or value is not parameter.default)
            and not (op.entry.shown and parameter.type == "any")}


def _type_name(value: Any) -> str:
    if isinstance(value, (tuple, list)) and value:
        return f"{type(value).__name__} of {type(value[0]).__name__}"
    return type(value).__name__


def _wanted(parameter: Parameter) -> str:
    names = {"Tensor|Number": "Tensor or Number", "Tensor|Static": "Tensor or Number",
             "Tensor[]": "tuple of Tensors", "Tensor...": "tuple of Tensors",
             "int[]": "tuple of ints", "int...": "tuple of ints",
             "dtype|int...": "dtype or tuple of ints", "int[]?": "tuple of ints",
             "Tensor?": "Tensor"}
    return names.get(parameter.type, parameter.type.rstrip("?"))


_PLAIN: dict[str, type] = {"int": int, "int?": int, "bool": bool, "bool?": bool, "float": float,
                           "str": str, "dtype": DType, "dtype?": DType, "device": Device,
                           "device?": Device}


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _is_ints(value: Any) -> bool:
    if not isinstance(value, (tuple, list)):
        return _is_int(value)
    return not [each for each in value if type(each) is not int and not _is_int(each)]


def _is_tensors(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and all(isinstance(v, TensorBase) for v in value)


_CHECKS: dict[str, Any] = {
    "int": _is_int, "int[]": _is_ints, "int...": _is_ints, "Offset": _is_ints,
    "dtype|int...": lambda v: isinstance(v, DType) or _is_ints(v),
    "bool": lambda v: isinstance(v, (bool, np.bool_, int)),
    "float": is_number, "str": lambda v: isinstance(v, str),
    "dtype": lambda v: isinstance(v, DType),
    "device": lambda v: isinstance(v, (str, Device, int)),
    "any": lambda v: True, "Generator": lambda v: True,
}


def _fits(parameter: Parameter, value: Any) -> bool:
    kind = parameter.kind
    if value is None and (parameter.default is None or parameter.type == "any"):
        return True
    if kind == TENSOR:
        return isinstance(value, TensorBase)
    if kind == OPTIONAL_TENSOR:
        return value is None or isinstance(value, TensorBase)
    if kind in (TENSOR_OR_NUMBER, STATIC_NUMBER):
        return isinstance(value, TensorBase) or is_number(value)
    if kind == TENSORS:
        single = parameter.type == "Tensor..." and isinstance(value, TensorBase)
        return single or _is_tensors(value)
    if kind == NUMBER:
        return is_number(value) or (value is None and parameter.type.endswith("?"))
    if value is None:
        return parameter.type.endswith("?") or parameter.default is None
    return bool(_CHECKS[parameter.type.rstrip("?")](value))


def ints(value: Any) -> tuple[int, ...]:
    """An int or a sequence of ints as a tuple of Python ints."""
    if isinstance(value, (tuple, list)):
        return tuple([int(each) for each in value])
    return (int(value),)


class NumPyScalarError(TypeError):
    """A static argument holds a NumPy scalar, which stands for a Python number."""


def without_numpy(op: Any, values: Any) -> tuple[Any, ...]:
    """The arguments, numbers and what is static in Python's numbers."""
    return tuple([_plain(value) if op.kinds[place] in (STATIC, NUMBER, TENSOR_OR_NUMBER) else value
                  for place, value in enumerate(values)])


def _plain(value: Any) -> Any:
    if type(value) is tuple or type(value) is list:
        return tuple([_plain(each) for each in value])
    return value.item() if isinstance(value, np.generic) else value
