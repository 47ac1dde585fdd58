"""Slipstream under the name ``torch``: what ``slipstream run`` registers for its process.

``import torch.a.b`` gives a module named ``torch.a.b`` that looks every name up in
``slipstream.a.b``: classes and functions are the very same objects under both names.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import slipstream
from slipstream.core.vocab.optional import load

OURS, THEIRS = "slipstream", "torch"
DIFFERENCES = "docs/differences.md in Slipstream's sources lists what differs from PyTorch"
# The version whose names and semantics are followed: scripts compare against it.
VERSION = f"2.13.0+slipstream.{slipstream.__version__}"
# Parts of ours that have no counterpart there, under a name that could mislead.
NOT_SHOWN = frozenset({"cli", "core", "named_torch", "torch_names"})
# Holds a package ``torch`` that calls `install`: spawned processes get it with our sys.path.
FOLDER = Path(__file__).resolve().parent / "named_torch"


class TorchModule(ModuleType):
    """A module named ``torch...`` whose names are those of its counterpart in slipstream."""

    def __init__(self, name: str, counterpart: ModuleType) -> None:
        super().__init__(name, counterpart.__doc__)
        self.__dict__["_counterpart"] = counterpart

    def __getattr__(self, name: str) -> Any:
        """Look ``name`` up in the counterpart, once; AttributeError says what is missing."""
        full = f"{self.__name__}.{name}"
        try:
            value = self._value(name)
        except AttributeError:
            # Dunders are asked for by tools that want no lecture.
            told = "" if name.startswith("__") else f": Slipstream has no {full}; {DIFFERENCES}"
            text = f"module '{self.__name__}' has no attribute '{name}'{told}"
            raise AttributeError(text, name=name, obj=self) from None
        if isinstance(value, ModuleType) and value.__name__ == counterpart_of(full):
            value = named(full, value)
        self.__dict__[name] = value
        return value

    def _value(self, name: str) -> Any:
        if self.__name__ == THEIRS and name in NOT_SHOWN:
            raise AttributeError(name)
        if name == "__version__" and self.__name__ == f"{THEIRS}.version":
            return VERSION
        return getattr(self._counterpart, name)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *dir(self._counterpart)} - NOT_SHOWN)


class Finder(Loader):
    """Finds ``torch`` and all below it; ModuleNotFoundError says what Slipstream lacks."""

    def find_spec(self, name: str, path: Sequence[str] | None = None,
                  target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec of the counterpart under ``name``, or None for what is not PyTorch's."""
        if name != THEIRS and not name.startswith(THEIRS + "."):
            return None
        counterpart = find_counterpart(name)
        # Always a package: only then does `from torch.x import y` ask here for what x lacks.
        spec = ModuleSpec(name, self, origin=getattr(counterpart, "__file__", None),
                          is_package=True)
        spec.loader_state = counterpart
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module; its names are found when they are asked for."""
        return TorchModule(spec.name, spec.loader_state)

    def exec_module(self, module: ModuleType) -> None:
        """Give the top its version; nothing else has to run."""
        if module.__name__ == THEIRS:
            module.__dict__["__version__"] = VERSION


def counterpart_of(name: str) -> str:
    """Return the name in slipstream of ``torch...``."""
    return OURS + name.removeprefix(THEIRS)


def find_counterpart(name: str) -> ModuleType:
    """Return the module of ours that ``name`` stands for, or raise ModuleNotFoundError."""
    ours = counterpart_of(name)
    if ours == OURS:
        return slipstream
    part = ours.removeprefix(OURS + ".")
    if part.partition(".")[0] not in NOT_SHOWN:
        try:
            return load(part)
        except ModuleNotFoundError as error:
            if not error.name or not (ours + ".").startswith(error.name + "."):
                raise
    # Without a name, or `from torch import y` would replace the text by its own.
    raise ModuleNotFoundError(f"no '{name}': Slipstream has no such name; {DIFFERENCES}")


def named(name: str, counterpart: ModuleType) -> ModuleType:
    """Return the module ``name``, made where nothing imported it yet."""
    if name not in sys.modules:
        spec = ModuleSpec(name, finder, is_package=True)
        spec.loader_state = counterpart
        module = finder.create_module(spec)
        module.__dict__.update(__spec__=spec, __loader__=finder, __path__=[], __package__=name)
        sys.modules[name] = module
    return sys.modules[name]


def explain_missing(error: BaseException) -> None:
    """Note where the differences are listed on an error about a name that our classes lack."""
    owner = getattr(error, "obj", None)
    kind = owner if isinstance(owner, type) else type(owner)
    if not isinstance(error, AttributeError) or DIFFERENCES in str(error):
        return
    if kind.__module__.partition(".")[0] == OURS:
        error.add_note(f"Slipstream's {kind.__name__} has no {error.name}; {DIFFERENCES}")


finder = Finder()


def install() -> None:
    """Register slipstream under the name ``torch``, in this process and those it spawns.

    Raises ImportError where PyTorch itself was imported before.
    """
    present = sys.modules.get(THEIRS)
    stub = getattr(present, "__file__", None) == str(FOLDER / THEIRS / "__init__.py")
    if present is not None and not stub and not isinstance(present, TorchModule):
        raise ImportError("PyTorch was imported before: its name is taken")
    if finder not in sys.meta_path:
        sys.meta_path.insert(0, finder)
    if str(FOLDER) not in sys.path:
        sys.path.insert(1, str(FOLDER))
    if not isinstance(present, TorchModule):
        sys.modules.pop(THEIRS, None)
        named(THEIRS, slipstream).__dict__["__version__"] = VERSION
