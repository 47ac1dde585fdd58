"""What every call of a module and every look-up of a submodule goes through, compiled.

A step asks a model for its submodules as often as it launches kernels.
"""

# The .pxd declares the C function.
# mypy: disable-error-code="name-defined"

from __future__ import annotations

from typing import Any

import cython

Tables = dict[str, Any]
NONE: Tables = {}


class Lookup:
    """An object that finds attributes in the tables ``_modules``, ``_parameters``, ``_buffers``."""

    @classmethod
    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cython.compiled:
            slip_ask_quietly(cls, Lookup.__dict__["__getattr__"])  # noqa: F821

    def __getattr__(self, name: str) -> Any:
        # Called only for what is no ordinary attribute; submodules are what forward asks for.
        attributes: dict
        if cython.compiled:
            attributes = PyObject_GenericGetDict(self, cython.NULL)  # noqa: F821
        else:
            attributes = self.__dict__
        modules = attributes.get("_modules", NONE)
        if name in modules:
            return modules[name]
        parameters = attributes.get("_parameters", NONE)
        if name in parameters:
            return parameters[name]
        buffers = attributes.get("_buffers", NONE)
        if name in buffers:
            return buffers[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")


class Called:
    """An object whose call runs ``forward``, and the hooks around it where there are any."""

    _hooked: bool
    forward: Any
    _call_hooked: Any

    @classmethod
    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cython.compiled:
            slip_call_directly(cls, Called.__dict__["__call__"])  # noqa: F821

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run ``forward`` and the hooks around it."""
        if self._hooked:
            return self._call_hooked(args, kwargs)
        if len(args) == 1 and not kwargs:
            # The usual call, without containers.
            return self.forward(args[0])
        return self.forward(*args, **kwargs)
