"""Parameters that are computed from others: ``module.weight`` becomes ``f(original)``."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import slipstream as ss
from slipstream.nn.modules.container import ModuleDict, ModuleList
from slipstream.nn.modules.module import Module
from slipstream.nn.parameter import Parameter

__all__ = ["ParametrizationList", "cached", "is_parametrized", "register_parametrization",
           "remove_parametrizations"]


class _Cache(threading.local):
    """Computed tensors by (module, name), while a scope of `cached` is open in this thread."""

    def __init__(self) -> None:
        self.depth = 0
        self.values: dict[tuple[int, str], ss.Tensor] = {}


_cache = _Cache()


@contextmanager
def cached() -> Iterator[None]:
    """A scope in which each parametrized tensor is computed once."""
    _cache.depth += 1
    try:
        yield
    finally:
        _cache.depth -= 1
        if not _cache.depth:
            _cache.values.clear()


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, first to last, and what it is computed from.

    That is ``original``, or ``original0``, ``original1``, ... where the first parametrization's
    right_inverse gives several.
    """

    def __init__(self, parametrization: Module, tensor: Any) -> None:
        super().__init__([parametrization])
        with ss.no_grad():
            found = _inverse(parametrization, tensor.detach())
        found = tensor if found is None else found
        self.single = isinstance(found, ss.Tensor)
        if self.single:
            _check_same_kind(found, tensor)
            # The tensor itself stays: an optimizer may already hold it.
            self._register("original", tensor)
            if found is not tensor:
                tensor.data = found.detach()
            return
        for place, value in enumerate(found):
            self._register(f"original{place}", Parameter(value, tensor.requires_grad)
                           if isinstance(tensor, Parameter) else value)

    def _register(self, name: str, tensor: ss.Tensor) -> None:
        if isinstance(tensor, Parameter):
            self.register_parameter(name, tensor)
        else:
            self.register_buffer(name, tensor)

    def originals(self) -> list[ss.Tensor]:
        """What the tensor is computed from."""
        if self.single:
            return [self.original]
        held: dict[str, Any] = {**self._parameters, **self._buffers}
        return [held[f"original{place}"] for place in range(len(held))]

    def forward(self) -> ss.Tensor:
        """The tensor, computed."""
        first, *others = self
        value = first(*self.originals())
        for each in others:
            value = each(value)
        return value

    def right_inverse(self, value: ss.Tensor) -> None:
        """Set the originals so that the tensor becomes ``value``.

        RuntimeError where a parametrization has no right_inverse.
        """
        with ss.no_grad():
            found: Any = value
            for each in reversed(list(self)):
                if not hasattr(each, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(each).__name__} does not implement "
                                       "right_inverse.")
                found = each.right_inverse(found)
            for original, new in zip(self.originals(), [found] if self.single else found,
                                     strict=True):
                original.copy_(new)


def _inverse(parametrization: Module, value: ss.Tensor) -> Any:
    """What a parametrization would make ``value`` of; None where it has no right_inverse."""
    inverse = getattr(parametrization, "right_inverse", None)
    if inverse is None:
        return None
    try:
        found = inverse(value)
    except NotImplementedError:
        return None
    if not isinstance(found, ss.Tensor | Sequence):
        raise ValueError("'right_inverse' must return a Tensor or a Sequence of tensors (list, "
                         f"tuple...). Got {type(found).__name__}")
    return found


def _check_same_kind(found: ss.Tensor, tensor: ss.Tensor) -> None:
    for what in ("dtype", "device"):
        before, after = getattr(tensor, what), getattr(found, what)
        if before != after:
            raise ValueError("When `right_inverse` outputs one tensor, it may not change the "
                             f"{what}: {before} became {after}")


def _computed(module: Module, name: str) -> ss.Tensor:
    if not is_parametrized(module, name):
        # A copy shares its class: what is parametrized there may be an own parameter here.
        raise AttributeError(name)
    parametrization = module.parametrizations[name]
    if not _cache.depth:
        return parametrization()
    key = (id(module), name)
    if key not in _cache.values:
        _cache.values[key] = parametrization()
    return _cache.values[key]


def _set_tensor(module: Any, name: str, value: Any) -> None:
    """``module.name = value`` of a parametrized class: its tensors are set by their inverses."""
    if name in module.__dict__.get("_modules", {}).get("parametrizations", ()):
        module.parametrizations[name].right_inverse(value)
    else:
        super(type(module), module).__setattr__(name, value)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a tensor of the module, or any of them, is computed from others."""
    found = module._modules.get("parametrizations")
    if found is None:
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def register_parametrization(module: Module, tensor_name: str, parametrization: Module, *,
                             unsafe: bool = False) -> Module:
    """Compute a parameter or buffer by ``parametrization`` from now on; returns the module.

    Several follow one another.  ValueError where there is no such tensor, or where the result has
    another shape or dtype and ``unsafe`` is not set.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        value = getattr(module, tensor_name)
        _check(parametrization(value), value, unsafe)
        found = _inverse(parametrization, value.detach())
        if found is not None and not unsafe:
            _check(found, value, unsafe)
        module.parametrizations[tensor_name].append(parametrization)
        return module
    held = {**module._parameters, **module._buffers}
    if held.get(tensor_name) is None:
        raise ValueError(f"Module '{module}' does not have a parameter, a buffer, or a "
                         f"parametrized element with name '{tensor_name}'")
    tensor: Any = held[tensor_name]
    before = tensor.detach()
    computed = ParametrizationList(parametrization, tensor)
    try:
        with ss.no_grad():
            _check(computed(), before, unsafe)
    except Exception:
        tensor.data = before
        raise
    _become_parametrized(module)
    delattr(module, tensor_name)
    module.parametrizations[tensor_name] = computed
    setattr(type(module), tensor_name, property(lambda each: _computed(each, tensor_name)))
    return module


def _check(found: Any, wanted: Any, unsafe: bool) -> None:
    if unsafe:
        return
    if not isinstance(found, ss.Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(found).__name__}.")
    if found.dtype is not wanted.dtype or found.shape != wanted.shape:
        raise ValueError("Registering a parametrization may not change the shape or dtype of the "
                         f"tensor, unless `unsafe` flag is enabled: {wanted.spec!r} became "
                         f"{found.spec!r}")


def _become_parametrized(module: Module) -> None:
    """Give the module a class of its own, which holds the properties."""
    if "parametrizations" in module._modules:
        return
    base = type(module)
    module.__class__ = type(f"Parametrized{base.__name__}", (base,), {
        "__setattr__": _set_tensor, "__module__": base.__module__, "__doc__": base.__doc__})
    module.parametrizations = ModuleDict()


def remove_parametrizations(module: Module, tensor_name: str,
                            leave_parametrized: bool = True) -> Module:
    """Make the tensor the module's own again, with its value, or its original; returns the module.

    ValueError where it is not parametrized, or has several originals and its value is not wanted.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    held = module.parametrizations[tensor_name]
    if not leave_parametrized and not held.single:
        raise ValueError("Cannot leave unparametrized (`leave_parametrized=False`) a tensor that "
                         "is parametrized in terms of a sequence of tensors.")
    value = _left(held, leave_parametrized)
    del module.parametrizations[tensor_name]
    if not len(module.parametrizations):
        module.__class__ = type(module).__bases__[0]
        del module._modules["parametrizations"]
    if isinstance(value, Parameter):
        module.register_parameter(tensor_name, value)
    else:
        module.register_buffer(tensor_name, value)
    return module


def _left(held: ParametrizationList, leave_parametrized: bool) -> ss.Tensor:
    """What the module has when nothing computes the tensor any more."""
    if not held.single:
        value = held()
        return Parameter(value.detach()) if value.requires_grad else value
    original: ss.Tensor = held.original
    if leave_parametrized:
        with ss.no_grad():
            value = held()
        if value.dtype is not original.dtype:
            raise ValueError(f"The parametrization changes the dtype of the tensor from "
                             f"{original.dtype} to {value.dtype}, so it cannot be left "
                             "parametrized (`leave_parametrized=True`).")
        # The same object with another value, so that an optimizer goes on training it.
        original.data = value.detach()
    return original
