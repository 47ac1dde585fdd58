"""Running an update rule: a formula from old values to new ones, written in place.

A rule is a pure function of one namespace that holds tensors and numbers under their names.  It
uses operators and methods that tensors and symbols of formulas share, never branches on a value,
and returns the new values of its targets in their order.  One kernel carries it out.
"""

from __future__ import annotations

from slipstream.core.api.updates import apply_update

__all__ = ["apply_update"]
