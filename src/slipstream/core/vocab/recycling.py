"""Memory of released records, kept for the next of their class.

A training step makes some hundreds of nodes, records and tensors between forward and backward.
Python counts every object that it allocates, and after 700 more than were released it looks
through all young ones for cycles: in nearly every step, for a fifth of its time.  What comes from
here was allocated once and is not counted again.  Cycles are still found: their objects do not come
back here, so that the next ones are allocated, and counted.
"""

# The .pxd defines the C functions.
# mypy: disable-error-code="name-defined"

from __future__ import annotations

import cython

# How many of a class: a step of a model of some hundred layers.
MOST = 2048


def recycle(cls: type) -> bool:
    """Keep the memory of a class's released objects; tell whether that was begun.

    Of this class alone: its subclasses are allocated as Python does it.
    """
    if not cython.compiled:
        return False
    return bool(slip_recycle(cls, MOST))  # noqa: F821


def kept(cls: type) -> int:
    """How many released objects of a class have their memory here; -1 where none is kept."""
    if not cython.compiled:
        return -1
    return int(slip_kept(cls))  # noqa: F821
