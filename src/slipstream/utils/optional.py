"""The one door to packages that are not installed with Slipstream itself."""

from __future__ import annotations

import importlib
from types import ModuleType


def require(name: str, extra: str) -> ModuleType:
    """Import the optional package ``name``, which the extra ``extra`` brings.

    Raises ImportError with the command that installs it.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.partition(".")[0]:
            raise
        raise ImportError(
            f"this needs the package {error.name}: pip install 'slipstream[{extra}]'"
        ) from error
