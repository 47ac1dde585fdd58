"""Where a module keeps its parameters, buffers and submodules, and how attributes reach them."""

from __future__ import annotations

from typing import Any

import slipstream as ss
from slipstream.nn.modules.lookup import Lookup
from slipstream.nn.parameter import Buffer, Parameter

Tables = dict[str, Any]


class Registry(Lookup):
    """An object whose tensors and submodules are kept in tables, apart from other attributes.

    ``_parameters``, ``_buffers`` and ``_modules`` map names to values; assigning a Parameter, a
    Buffer or a module registers it, and reading an attribute finds it there.
    """

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, ss.Tensor | None]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Parameter):
            self._require_tables("parameters")
            self._forget(name, self._parameters)
            self.register_parameter(name, value)
        elif isinstance(value, Registry):
            self._require_tables("modules")
            self._forget(name, self._modules)
            self._modules[name] = value
        elif isinstance(value, Buffer):
            self._require_tables("buffers")
            self._forget(name, self._buffers)
            self.register_buffer(name, value, value.persistent)
        else:
            self._set_plain(name, value)

    def _set_plain(self, name: str, value: Any) -> None:
        """Assign what is neither Parameter nor module."""
        attributes = self.__dict__
        if name in attributes.get("_parameters", ()):
            self._require(value is None, value, "parameter", name, "Parameter")
            self._parameters[name] = None
        elif name in attributes.get("_modules", ()):
            self._require(value is None, value, "child module", name, "Module")
            self._modules[name] = None
        elif name in attributes.get("_buffers", ()):
            fits = value is None or isinstance(value, ss.Tensor)
            self._require(fits, value, "buffer", name, "Tensor")
            self._buffers[name] = value
        else:
            object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        if not self._remove(name):
            object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        names = {*super().__dir__(), *self._parameters, *self._buffers, *self._modules}
        return sorted(name for name in names if not name[:1].isdigit())

    def _remove(self, name: str) -> bool:
        """Take ``name`` out of the tables; tell whether it was in one."""
        for table in (self._parameters, self._buffers, self._modules):
            if name in table:
                del table[name]
                self._non_persistent_buffers_set.discard(name)
                return True
        return False

    def _forget(self, name: str, keep: Tables) -> None:
        """Make room for a new value: a name lives in one place only.

        The table ``keep`` is spared: a new value there takes the old one's place in the order.
        """
        self.__dict__.pop(name, None)
        for table in (self._parameters, self._buffers, self._modules):
            if table is not keep and name in table:
                del table[name]
        self._non_persistent_buffers_set.discard(name)

    def _require_tables(self, what: str) -> None:
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")

    @staticmethod
    def _require(fits: bool, value: object, what: str, name: str, kind: str) -> None:
        if not fits:
            raise TypeError(f"cannot assign '{typename(value)}' as {what} '{name}' "
                            f"({kind} or None expected)")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter, or None for one that is absent but has a name.

        Raises KeyError for a name that is empty, has a dot or is taken, TypeError if ``param`` is
        no Parameter, ValueError if it is the result of an operation.
        """
        self._require_tables("parameter")
        self._check_name("parameter", name, self._parameters)
        self._require(param is None or isinstance(param, Parameter), param, "parameter", name,
                      "Parameter")
        if param is not None and param.grad_fn is not None:
            raise ValueError(f"cannot assign a tensor with a history as parameter '{name}': "
                             "a parameter has to be a leaf")
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: ss.Tensor | None,
                        persistent: bool = True) -> None:
        """Add a tensor that moves with the module but is not trained.

        A persistent buffer is part of ``state_dict()``.  Raises KeyError for a name that is empty,
        has a dot or is taken, TypeError if ``tensor`` is no tensor.
        """
        self._require_tables("buffer")
        self._check_name("buffer", name, self._buffers)
        fits = tensor is None or isinstance(tensor, ss.Tensor)
        self._require(fits, tensor, "buffer", name, "Tensor")
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Registry | None) -> None:
        """Add a submodule.

        Raises KeyError for a name that is empty, has a dot or is taken, TypeError if ``module`` is
        no module.
        """
        self._require_tables("module")
        if module is not None and not isinstance(module, Registry):
            raise TypeError(f"{typename(module)} is not a Module subclass")
        self._check_name("module", name, self._modules)
        self._modules[name] = module

    def register_module(self, name: str, module: Registry | None) -> None:
        """Another name of ``add_module``."""
        self.add_module(name, module)

    def _check_name(self, what: str, name: str, table: Tables) -> None:
        if not isinstance(name, str):
            raise TypeError(f"{what} name should be a string, not {typename(name)}")
        if "." in name:
            raise KeyError(f'{what} name can\'t contain ".", got "{name}"')
        if name == "":
            raise KeyError(f'{what} name can\'t be empty string ""')
        if hasattr(self, name) and name not in table:
            raise KeyError(f"attribute '{name}' already exists")


def typename(value: object) -> str:
    """The qualified name of ``value``'s type, as error messages show it."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else (
        f"{kind.__module__}.{kind.__qualname__}")
