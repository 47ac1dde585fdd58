"""Warnings at the user's line, whichever of our functions call each other, compiled or not."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

from slipstream.core.vocab.modes import ROOT


def warn_caller(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line outside slipstream; Python's filters apply as to any warning."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(ROOT):
        frame = frame.f_back
    if frame is None:
        warnings.warn(text, category, stacklevel=2)
        return
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, category, frame.f_code.co_filename, frame.f_lineno,
                           frame.f_globals.get("__name__"), registry)
