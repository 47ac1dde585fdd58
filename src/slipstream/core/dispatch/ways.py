"""Calls met before, told by the addresses of what they are given: no key is made for them.

A tensor stands for its spec, and any other argument for itself, if it is of a kind that cannot
change.  What is held cannot be at another address, nor something else at its own.
"""

# The .pxd declares the C functions.
# mypy: disable-error-code="name-defined"

from __future__ import annotations

from typing import Any

import cython

from slipstream.core.engine.tape import Tape, tape
from slipstream.core.vocab.dtypes import DType
from slipstream.core.vocab.modes import ModeState
from slipstream.core.vocab.records import Plan, Spec, TensorBase

__all__ = ["Spec", "Tape", "Way", "Ways"]

# Places of an op's table: a power of two, and the bits of an address's mix that are left for it.
PLACES = 32
SHIFT = 59
# How often a way that is used withstands one that would take its place.
STAMINA = 8


class Way:
    """One call met before.

    ``given``: the spec or argument of each place, then of each keyword its name and value;
    ``count``: how many of these are no keywords'; ``flags``: which tensors want gradients;
    ``places``: where the keywords' values go.
    """

    plan: Plan
    given: tuple[Any, ...]
    count: int
    flags: int
    places: tuple[int, ...]
    stamina: int

    def bound(self, values: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """All arguments in order; ``values``: the positional ones and the others' defaults."""
        found: list = list(values)
        at: cython.Py_ssize_t = 0
        for value in kwargs.values():
            place: cython.Py_ssize_t = self.places[at]
            found[place] = value
            at += 1
        return tuple(found)


class Ways:
    """The calls of one op."""

    table: list[Way | None]

    def __init__(self) -> None:
        self.table = [None] * PLACES

    def clear(self) -> None:
        """Forget all: a plan was dropped."""
        self.table = [None] * PLACES

    def find(self, state: ModeState, args: tuple[Any, ...],
             kwargs: dict[str, Any] | None) -> Way | None:
        """The way of a call, or None."""
        flags: cython.int = 0
        place: cython.Py_ssize_t = _mixed(state, args, kwargs, cython.address(flags))
        found = self.table[place]
        if found is None:
            return None
        way: Way = cython.cast(Way, found)
        if way.flags != flags or way.count != len(args):
            return None
        at: cython.Py_ssize_t
        tensor: TensorBase
        given: tuple = way.given
        for at in range(len(args)):
            value = args[at]
            if isinstance(value, TensorBase):
                tensor = cython.cast(TensorBase, value)
                if tensor.spec is not given[at]:
                    return None
            elif value is not given[at]:
                return None
        at = len(args)
        if len(given) != at + (2 * len(kwargs) if kwargs else 0):
            return None
        if kwargs:
            for name, value in kwargs.items():
                if name is not given[at] or value is not given[at + 1]:
                    return None
                at += 2
        if way.stamina < STAMINA:
            way.stamina += 1
        return way

    def note(self, plan: Plan, state: ModeState, args: tuple[Any, ...],
             kwargs: dict[str, Any] | None, places: tuple[int, ...] | None) -> None:
        """Take in a call that was found by its key; what may change keeps it out."""
        flags: cython.int = 0
        place: cython.Py_ssize_t = _mixed(state, args, kwargs, cython.address(flags))
        old = self.table[place]
        way: Way
        if old is not None:
            way = old
            way.stamina -= 1
            # Other numbers for the same plan may never be met again.
            if way.stamina > 0 or way.plan is plan:
                return
        given: list = []
        tensor: TensorBase
        for value in args:
            if isinstance(value, TensorBase):
                tensor = cython.cast(TensorBase, value)
                given.append(tensor.spec)
            elif _lasts(value):
                given.append(value)
            else:
                return
        if kwargs:
            if places is None or len(places) != len(kwargs):
                return
            for name, value in kwargs.items():
                if not _lasts(value):
                    return
                given.append(name)
                given.append(value)
        way = Way()
        way.plan = plan
        way.given = tuple(given)
        way.count = len(args)
        way.flags = flags
        way.places = places or ()
        way.stamina = 1
        self.table[place] = way


class Keywords:
    """The keywords of an op's last call that gave any: as a rule the next one gives the same.

    ``known``: how many positional arguments came before them, the keywords, and where the value of
    each goes; None where that is not known.
    """

    known: tuple[int, tuple[str, ...], tuple[int, ...]] | None

    def __init__(self) -> None:
        self.known = None

    def bound(self, args: tuple[Any, ...], tails: tuple[tuple[Any, ...], ...],
              kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        """All arguments in order, ``tails`` being the defaults; None for other keywords."""
        known: tuple | None = self.known
        if known is None:
            return None
        after: cython.Py_ssize_t = known[0]
        names: tuple = known[1]
        places: tuple = known[2]
        if after != len(args) or len(names) != len(kwargs):
            return None
        values: list = list(args + tails[after])
        at: cython.Py_ssize_t = 0
        place: cython.Py_ssize_t
        for name, value in kwargs.items():
            if name is not names[at]:
                return None
            place = places[at]
            values[place] = value
            at += 1
        return tuple(values)

    def note(self, places: tuple[int, ...], after: int, kwargs: dict[str, Any]) -> None:
        """Take in the keywords of a call that fitted."""
        self.known = (after, tuple(kwargs), places)


def _lasts(value: Any) -> bool:
    """Whether a value is what it is for good."""
    if value is None or value is True or value is False:
        return True
    if type(value) is int or type(value) is float or type(value) is str or type(value) is DType:
        return True
    if type(value) is not tuple:
        return False
    lasts = True
    for each in value:
        lasts = lasts and _lasts(each)
    return lasts


def _mixed(state: ModeState, args: tuple[Any, ...], kwargs: dict[str, Any] | None,
           flags: Any) -> int:
    """The place of a call in a table, from the addresses of what it is given; sets ``flags``."""
    if not cython.compiled:
        return 0
    mixed: cython.ulonglong = len(args)
    wants: cython.int = 0
    at: cython.Py_ssize_t
    tensor: TensorBase
    prime: cython.ulonglong = 1099511628211
    for at in range(len(args)):
        value = args[at]
        if isinstance(value, TensorBase):
            tensor = cython.cast(TensorBase, value)
            mixed = mixed * prime + slip_address(tensor.spec)  # noqa: F821
            if ((tensor.record is not None or tensor.base is not None)
                    and state.grad_enabled and at < 31 and tape.requires_grad(tensor)):
                wants |= 1 << at
        else:
            mixed = mixed * prime + slip_address(value)  # noqa: F821
    if kwargs:
        for name, value in kwargs.items():
            mixed = mixed * prime + slip_address(name)  # noqa: F821
            mixed = mixed * prime + slip_address(value)  # noqa: F821
    flags[0] = wants
    golden: cython.ulonglong = 11400714819323198485
    mixed *= golden
    return mixed >> SHIFT
