"""Walks over a tree of modules: its members by name, in the order of registration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import slipstream as ss
from slipstream.nn.modules.registry import Registry
from slipstream.nn.parameter import Parameter

Members = Iterable[tuple[str, Any]]


class Traversal(Registry):
    """Iteration and look-up by dotted name; what occurs several times is given once."""

    def named_children(self) -> Iterator[tuple[str, Any]]:
        """The direct submodules with their names."""
        seen: set[int] = set()
        for name, module in self._modules.items():
            if module is not None and id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def children(self) -> Iterator[Any]:
        """The direct submodules."""
        for _, module in self.named_children():
            yield module

    def named_modules(self, memo: set[Any] | None = None, prefix: str = "",
                      remove_duplicate: bool = True) -> Iterator[tuple[str, Any]]:
        """This module and all below it, each with its dotted name."""
        memo = set() if memo is None else memo
        if remove_duplicate and self in memo:
            return
        memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, join(prefix, name), remove_duplicate)

    def modules(self) -> Iterator[Any]:
        """This module and all below it."""
        for _, module in self.named_modules():
            yield module

    def _named_members(self, members_of: Callable[[Any], Members], prefix: str = "",
                       recurse: bool = True, remove_duplicate: bool = True,
                       ) -> Iterator[tuple[str, Any]]:
        """What ``members_of`` gives for this module, and for those below it if ``recurse``."""
        own = [(prefix, self)]
        walk = self.named_modules(None, prefix, remove_duplicate) if recurse else own
        seen: set[int] = set()
        for path, module in walk:
            for name, member in members_of(module):
                if member is None or id(member) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(member))
                yield join(path, name), member

    def named_parameters(self, prefix: str = "", recurse: bool = True,
                         remove_duplicate: bool = True) -> Iterator[tuple[str, Parameter]]:
        """Parameters with their dotted names; of this module alone unless ``recurse``."""
        return self._named_members(own_parameters, prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Parameters; of this module alone unless ``recurse``."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(self, prefix: str = "", recurse: bool = True,
                      remove_duplicate: bool = True) -> Iterator[tuple[str, ss.Tensor]]:
        """Buffers, persistent or not, with their dotted names."""
        return self._named_members(own_buffers, prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[ss.Tensor]:
        """Buffers, persistent or not."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def get_submodule(self, target: str) -> Any:
        """The module with dotted name ``target``; "" is this one.

        Raises AttributeError where there is no such attribute or it is no module.
        """
        here: Any = self
        for part in target.split(".") if target else ():
            here = _member(here, part, Registry, "an nn.Module")
        return here

    def set_submodule(self, target: str, module: Any, strict: bool = False) -> None:
        """Put ``module`` in the place of the module named ``target``.

        Raises ValueError if ``target`` is empty or ``module`` is no module; AttributeError where
        the module that would hold it does not exist or, if ``strict``, ``target`` itself does not.
        """
        path, _, name = target.rpartition(".")
        if not name or not isinstance(module, Registry):
            raise ValueError("set_submodule needs the name of a submodule and a module for it")
        parent = self.get_submodule(path)
        if strict or hasattr(parent, name):
            _member(parent, name, Registry, "an nn.Module")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter with dotted name ``target``; raises AttributeError where there is none."""
        path, _, name = target.rpartition(".")
        return _member(self.get_submodule(path), name, Parameter, "an nn.Parameter")

    def get_buffer(self, target: str) -> ss.Tensor:
        """The buffer with dotted name ``target``; raises AttributeError where there is none."""
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        buffer = _member(parent, name, ss.Tensor, "a buffer")
        if name not in parent._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return buffer


def _member(module: Any, name: str, kind: type, description: str) -> Any:
    if not hasattr(module, name):
        raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
    member = getattr(module, name)
    if not isinstance(member, kind):
        raise AttributeError(f"`{name}` is not {description}")
    return member


def own_parameters(module: Any) -> Members:
    """The parameters that ``module`` itself holds."""
    return module._parameters.items()


def own_buffers(module: Any) -> Members:
    """The buffers that ``module`` itself holds."""
    return module._buffers.items()


def join(prefix: str, name: str) -> str:
    """``name`` below ``prefix``."""
    return f"{prefix}.{name}" if prefix else name
