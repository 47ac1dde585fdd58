"""Modules that hold other modules or parameters in order or by name."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, islice
from typing import Any

import slipstream as ss
from slipstream.nn.modules.module import Module, described, indented
from slipstream.nn.parameter import Parameter

# What calling a module does where neither its class nor anybody else replaced it.
_PLAIN_CALL = Module.__call__


class _Numbered(Module):
    """A list of modules, whose names are their places."""

    def _set_all(self, modules: Iterable[Any]) -> None:
        self._modules.clear()
        for place, module in enumerate(modules):
            self.add_module(str(place), module)

    def _key(self, index: int) -> str:
        """The name of the module at ``index``, which may count from the end."""
        place = operator.index(index)
        if not -len(self) <= place < len(self):
            raise IndexError(f"index {place} is out of range")
        return next(islice(self._modules, place % len(self), None))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._sliced(list(self._modules.items())[index])
        return self._modules[self._key(index)]

    def _sliced(self, items: list[tuple[str, Any]]) -> Any:
        raise NotImplementedError

    def __setitem__(self, index: int, module: Any) -> None:
        setattr(self, self._key(index), module)

    def __delitem__(self, index: int | slice) -> None:
        modules = list(self._modules.values())
        if isinstance(index, slice):
            del modules[index]
        else:
            del self._modules[self._key(index)]
            modules = list(self._modules.values())
        self._set_all(modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def append(self, module: Any) -> Any:
        """Add a module at the end; return this container."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Any]) -> Any:
        """Add modules at the end; return this container.  Raises TypeError for no iterable."""
        if not isinstance(modules, Iterable):
            raise TypeError("extend takes an iterable of modules, "
                            f"not {type(modules).__name__}")
        for module in tuple(modules):
            self.append(module)
        return self

    def pop(self, key: int) -> Any:
        """Remove the module at ``key`` and return it."""
        module = self[key]
        del self[key]
        return module


class Sequential(_Numbered):
    """Modules that pass their output on; made from modules or from an OrderedDict of names.

    ``forward(input)`` gives the last module's output.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            self._set_all(args)

    def _sliced(self, items: list[tuple[str, Any]]) -> Sequential:
        return type(self)(OrderedDict(items))

    def forward(self, input: Any) -> Any:
        """Send ``input`` through all modules."""
        for module in self._modules.values():
            if type(module).__call__ is _PLAIN_CALL and not module._hooked:
                # What the call would do, without a call more: once a layer and step.
                input = module.forward(input)
            else:
                input = module(input)
        return input

    def insert(self, index: int, module: Module) -> Sequential:
        """Put a module before the one at ``index``; return this container.

        Raises TypeError if ``module`` is no module, IndexError for an index out of range.
        """
        if not isinstance(module, Module):
            raise TypeError(f"module should be of type: {Module}")
        if not -len(self) <= index <= len(self):
            raise IndexError(f"index {index} is out of range")
        modules = list(self)
        modules.insert(index, module)
        self._set_all(modules)
        return self

    def __add__(self, other: Sequential) -> Sequential:
        _require_sequential(other)
        return Sequential(*self, *other)

    def __iadd__(self, other: Sequential) -> Sequential:
        _require_sequential(other)
        return self.extend(other)

    def __mul__(self, count: int) -> Sequential:
        _require_count(count)
        return Sequential(*(list(self) * count))

    __rmul__ = __mul__

    def __imul__(self, count: int) -> Sequential:
        _require_count(count)
        return self.extend(list(self) * (count - 1))


def _require_sequential(other: object) -> None:
    if not isinstance(other, Sequential):
        raise ValueError(f"only a Sequential can be added to one, not {type(other).__name__}")


def _require_count(count: object) -> None:
    if not isinstance(count, int):
        raise TypeError(f"a Sequential is multiplied by an int, not {type(count).__name__}")
    if count <= 0:
        raise ValueError(f"a Sequential is multiplied by a positive int, not {count}")


class ModuleList(_Numbered):
    """Modules in a list, without a ``forward`` of its own."""

    def __init__(self, modules: Iterable[Any] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def _sliced(self, items: list[tuple[str, Any]]) -> ModuleList:
        return type(self)(module for _, module in items)

    def insert(self, index: int, module: Any) -> None:
        """Put a module before the one at ``index``, as ``list.insert`` does."""
        modules = list(self)
        modules.insert(index, module)
        self._set_all(modules)

    def __add__(self, other: Iterable[Any]) -> ModuleList:
        return ModuleList([*self, *other])

    def __iadd__(self, other: Iterable[Any]) -> ModuleList:
        return self.extend(other)

    def __repr__(self) -> str:
        """Equal neighbours are shown once, with their range and count."""
        children = []
        first = 0
        for text, run in groupby(map(repr, self)):
            count = len(list(run))
            if count == 1:
                children.append(f"({first}): {indented(text)}")
            else:
                children.append(f"({first}-{first + count - 1}): {count} x {indented(text)}")
            first += count
        return described(self._get_name(), [], children)


class ModuleDict(Module):
    """Modules by name, in the order of insertion."""

    def __init__(self, modules: Mapping[str, Any] | Iterable[Any] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Any) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Remove all modules."""
        self._modules.clear()

    def pop(self, key: str) -> Any:
        """Remove the module of this name and return it; raises KeyError where there is none."""
        return self._modules.pop(key)

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and modules."""
        return self._modules.items()

    def values(self) -> Iterable[Any]:
        """The modules."""
        return self._modules.values()

    def update(self, modules: Mapping[str, Any] | Iterable[Any]) -> None:
        """Add or replace modules from a mapping or from pairs.

        Raises TypeError for anything else, ValueError for an item that is no pair.
        """
        _update(self, modules)


def _update(target: Any, items: Any) -> None:
    """Put items of a mapping, or pairs, into ``target``."""
    if not isinstance(items, Iterable):
        raise TypeError(f"update takes a mapping or pairs, not {type(items).__name__}")
    if hasattr(items, "items"):
        items = items.items()
    for item in items:
        if not isinstance(item, Iterable):
            raise TypeError(f"update takes pairs, not {type(item).__name__}")
        pair = tuple(item)
        if len(pair) != 2:
            raise ValueError(f"update takes pairs, not {len(pair)} values")
        target[pair[0]] = pair[1]


class ParameterList(Module):
    """Parameters in a list; tensors become parameters, other values are kept as they are."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def _key(self, index: int) -> str:
        place = operator.index(index)
        if not -self._size <= place < self._size:
            raise IndexError(f"index {place} is out of range")
        return str(place % self._size)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(getattr(self, str(i)) for i in range(*index.indices(self._size)))
        return getattr(self, self._key(index))

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, self._key(index), as_parameter(value))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter(self[place] for place in range(self._size))

    def __iadd__(self, values: Iterable[Any]) -> ParameterList:
        return self.extend(values)

    def append(self, value: Any) -> ParameterList:
        """Add a value at the end; return this list."""
        place = self._size
        self._size += 1
        self[place] = value
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add values at the end; return this list.  Raises TypeError for no iterable."""
        if not isinstance(values, Iterable) or isinstance(values, ss.Tensor):
            raise TypeError(f"extend takes an iterable of values, not {type(values).__name__}")
        for value in tuple(values):
            self.append(value)
        return self

    def pop(self, index: int = -1) -> Any:
        """Remove the value at ``index`` and return it."""
        values = list(self)
        popped = values.pop(index)
        for place in range(self._size):
            delattr(self, str(place))
        self._size = 0
        self.extend(values)
        return popped

    def extra_repr(self) -> str:
        """What the printed list or dict says of its values."""
        return described_values(enumerate(self))


class ParameterDict(Module):
    """Parameters by name; tensors become parameters, other values are kept as they are."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        self._keys[key] = None
        setattr(self, key, as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._keys.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and values."""
        return ((key, self[key]) for key in self._keys)

    def values(self) -> Iterable[Any]:
        """The values."""
        return (self[key] for key in self._keys)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of this name, or ``default``."""
        return getattr(self, key) if key in self._keys else default

    def pop(self, key: str) -> Any:
        """Remove the value of this name and return it; raises KeyError where there is none."""
        value = self[key]
        del self[key]
        return value

    def clear(self) -> None:
        """Remove all values."""
        for key in list(self._keys):
            del self[key]

    def update(self, parameters: Any) -> None:
        """Add or replace values from a mapping or from pairs."""
        _update(self, parameters)

    def extra_repr(self) -> str:
        """What the printed list or dict says of its values."""
        return described_values(self.items())


def as_parameter(value: Any) -> Any:
    """A tensor as a Parameter; anything else as it is."""
    if isinstance(value, ss.Tensor) and not isinstance(value, Parameter):
        return Parameter(value)
    return value


def described_values(items: Iterable[tuple[Any, Any]]) -> str:
    """One line about each value of a ParameterList or ParameterDict."""
    return "\n".join(f"  ({key}): {describe_value(value)}" for key, value in items)


def describe_value(value: Any) -> str:
    """One line about a value."""
    if not isinstance(value, ss.Tensor):
        return f"Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    size = "x".join(map(str, value.shape))
    where = f" ({value.device})" if value.device.type == "cuda" else ""
    return f"{kind} containing: [{value.dtype} of size {size}{where}]"
