"""The one door through which modules are imported late: parts of ours, and optional packages."""

from __future__ import annotations

import importlib
from types import ModuleType

# The parts that were imported.
loaded: dict[str, ModuleType] = {}


def install_command(extra: str) -> str:
    """How to install an extra: Slipstream is installed from its sources."""
    return f".venv/bin/pip install -e '.[{extra}]' in the checkout"


def load(name: str) -> ModuleType:
    """Import a part of Slipstream at its first use: ``import slipstream`` stays small."""
    found = loaded.get(name)
    if found is None:
        found = loaded[name] = importlib.import_module(f"slipstream.{name}")
    return found


def standard(name: str) -> ModuleType:
    """Import a module of the standard library that few processes need at its first use."""
    return importlib.import_module(name)


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
            f"this needs the package {error.name}: {install_command(extra)}"
        ) from error
