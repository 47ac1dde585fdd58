"""Runs the core from its Python sources although compiled modules lie beside them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType

from slipstream.core.vocab.settings import settings

PREFIX = "slipstream."


class SourceFinder:
    """Finds modules of ours as sources only, ahead of the finder that prefers compiled ones."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the source of ``name``, or None for what is not ours."""
        if not name.startswith(PREFIX):
            return None
        for folder in path or ():
            spec = FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(name, target)
            if spec is not None and spec.loader is not None:
                return spec
        return None


def install() -> None:
    """Load modules of ours from source from here on."""
    if not any(isinstance(finder, SourceFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, SourceFinder())


def wanted() -> bool:
    """Tell whether SLIPSTREAM_CORE asks for the uncompiled core."""
    return settings.core == "uncompiled"


if wanted():
    install()
