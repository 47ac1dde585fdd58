# cython: boundscheck=False, wraparound=False
"""Calls met before, told by the addresses of what they are given: no key is made for them.

A tensor stands for its spec, a number that plans do not depend on for its type, and any other
argument for itself, if it is of a kind that cannot change.  What is held cannot be at another
address, nor something else at its own.

All places that are read here are there: those of tables and ways are counted beforehand.
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

    ``given``: the spec, type or argument of each place, then of each keyword its name and value;
    ``count``: how many of these are no keywords'; ``flags``: which tensors want gradients;
    ``typed``: which numbers are told by their types; ``places``: where the keywords' values go;
    ``form``: that of the call, whose ``out`` stands behind its other arguments; ``short``: the
    arguments that were given are all that is needed.
    """

    plan: Plan
    given: tuple[Any, ...]
    count: int
    flags: int
    typed: int
    places: tuple[int, ...]
    stamina: int
    form: int
    short: bool

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
    """The calls of one op.

    ``numeric``: the places of numbers that plans do not depend on, as bits; ``defaults``: of all
    parameters; a plan may hold a number that was left at its default.
    """

    table: list[Way | None]
    numeric: int
    defaults: tuple[Any, ...]

    def __init__(self, numeric: int, defaults: tuple[Any, ...]) -> None:
        self.table = [None] * PLACES
        self.numeric = numeric
        self.defaults = defaults

    def clear(self) -> None:
        """Forget all: a plan was dropped."""
        self.table = [None] * PLACES

    def find(self, state: ModeState, args: tuple[Any, ...],
             kwargs: dict[str, Any] | None, form: int) -> Way | None:
        """The way of a call, or None."""
        flags: cython.int = 0
        place: cython.Py_ssize_t = _mixed(self, state, args, kwargs, form, cython.address(flags))
        found = self.table[place]
        if found is None:
            return None
        way: Way = cython.cast(Way, found)
        if way.flags != flags or way.count != len(args) or way.form != form:
            return None
        at: cython.Py_ssize_t
        tensor: TensorBase
        given: tuple = way.given
        typed: cython.int = way.typed
        for at in range(len(args)):
            value = args[at]
            if isinstance(value, TensorBase):
                tensor = cython.cast(TensorBase, value)
                if tensor.spec is not given[at]:
                    return None
            elif typed and at < 31 and typed >> at & 1:
                if type(value) is not given[at] or value is self.defaults[at]:
                    return None
            elif value is not given[at]:
                return None
        if len(given) != len(args) + (2 * len(kwargs) if kwargs else 0):
            return None
        if kwargs and not self.has_keywords(way, kwargs):
            return None
        if way.stamina < STAMINA:
            way.stamina += 1
        return way

    def has_keywords(self, way: Way, kwargs: dict[str, Any]) -> cython.bint:
        """Whether the keywords of a call are a way's, and as many."""
        at: cython.Py_ssize_t = way.count
        number: cython.Py_ssize_t = 0
        place: cython.Py_ssize_t
        given: tuple = way.given
        for name, value in kwargs.items():
            if name is not given[at]:
                return False
            if type(value) is float and type(value) is given[at + 1]:
                place = way.places[number]
                if value is self.defaults[place]:
                    return False
            elif value is not given[at + 1] or type(value) is type:
                # A type stands for numbers of its own.
                return False
            number += 1
            at += 2
        return True

    def note(self, plan: Plan, state: ModeState, args: tuple[Any, ...],
             kwargs: dict[str, Any] | None, places: tuple[int, ...], form: int) -> Way | None:
        """Take in a call that was found by its key; what may change keeps it out: None."""
        flags: cython.int = 0
        place: cython.Py_ssize_t = _mixed(self, state, args, kwargs, form, cython.address(flags))
        old = self.table[place]
        way: Way
        if old is not None:
            way = old
            way.stamina -= 1
            # Other numbers for the same plan may never be met again.
            if way.stamina > 0 or way.plan is plan:
                return None
        for value in args:
            if not isinstance(value, TensorBase) and not _lasts(value):
                return None
        way = Way()
        given: list = self.told(way, args)
        if kwargs:
            if len(places) != len(kwargs):
                return None
            for name, value in kwargs.items():
                if not _lasts(value):
                    return None
                typed = type(value) is float and self.told_by_type(
                    places[len(given) - len(args) >> 1], value)
                given.append(name)
                given.append(type(value) if typed else value)
        way.plan = plan
        way.given = tuple(given)
        way.count = len(args)
        way.flags = flags
        way.places = places
        way.stamina = 1
        way.form = form
        self.table[place] = way
        return way

    def told(self, way: Way, args: tuple[Any, ...]) -> list[Any]:
        """What a way compares arguments with; sets its ``typed``."""
        given: list = []
        tensor: TensorBase
        at: cython.Py_ssize_t
        way.typed = 0
        for at in range(len(args)):
            value = args[at]
            if isinstance(value, TensorBase):
                tensor = cython.cast(TensorBase, value)
                given.append(tensor.spec)
            elif self.told_by_type(at, value):
                way.typed |= 1 << at
                given.append(type(value))
            else:
                given.append(value)
        return given

    def told_by_type(self, place: cython.Py_ssize_t, value: Any) -> cython.bint:
        """Whether all numbers of a type make the same call."""
        if place > 30 or not self.numeric >> place & 1:
            return False
        return (type(value) is float or type(value) is int) and value is not self.defaults[place]


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


def _mixed(ways: Ways, state: ModeState, args: tuple[Any, ...], kwargs: dict[str, Any] | None,
           form: int, flags: Any) -> int:
    """The place of a call, from the addresses of what it is given; sets ``flags``."""
    if not cython.compiled:
        return 0
    mixed: cython.ulonglong = 64 * form + len(args)
    wants: cython.int = 0
    at: cython.Py_ssize_t
    tensor: TensorBase
    prime: cython.ulonglong = 1099511628211
    numeric: cython.int = ways.numeric
    for at in range(len(args)):
        value = args[at]
        if isinstance(value, TensorBase):
            tensor = cython.cast(TensorBase, value)
            mixed = mixed * prime + slip_address(tensor.spec)  # noqa: F821
            if ((tensor.record is not None or tensor.base is not None)
                    and state.grad_enabled and at < 31 and tape.requires_grad(tensor)):
                wants |= 1 << at
        elif numeric and at < 31 and numeric >> at & 1 and ways.told_by_type(at, value):
            mixed = mixed * prime + slip_kind(value)  # noqa: F821
        else:
            mixed = mixed * prime + slip_address(value)  # noqa: F821
    if kwargs:
        for name, value in kwargs.items():
            mixed = mixed * prime + slip_address(name)  # noqa: F821
            if type(value) is float:
                mixed = mixed * prime + slip_kind(value)  # noqa: F821
            else:
                mixed = mixed * prime + slip_address(value)  # noqa: F821
    flags[0] = wants
    golden: cython.ulonglong = 11400714819323198485
    mixed *= golden
    return mixed >> SHIFT
