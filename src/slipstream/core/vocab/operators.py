"""Operators of a compiled class: what Python finds under their names is their C slot itself."""

# The .pxd defines the C function.
# mypy: disable-error-code="name-defined"

from __future__ import annotations

import cython


def expose(cls: type, model: type) -> None:
    """Let subclasses of a compiled class inherit the slots of ``+ - * / @`` as they are.

    To be called before there are any.  ``model``: a class of C that has wrappers of these
    operators, to take their kind from.
    """
    if cython.compiled:
        slip_expose_slots(cls, model)  # noqa: F821
