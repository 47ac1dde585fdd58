"""The .pxd of a core module and its .py declare the same classes, fields and methods."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sources import PACKAGE, parse

PAIRS = sorted(path for path in PACKAGE.rglob("*.pxd") if "cdef class" in path.read_text())
CLASS = re.compile(r"cdef class (\w+)(?:\((\w+)\))?:")
FIELD = re.compile(r"    cdef (?:public |readonly )?[^(]*?((?:\w+, )*\w+)(?:\[\d+\])?$")
METHOD = re.compile(r"    cp?def [^(]*?(\w+)\(")
# Fields whose type only C knows (`cdef unsigned long long words[64]`), or that Python never sees.
UNSEEN = {"__weakref__"}


def declared(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield (class, "field" or "method", name) of what a .pxd declares."""
    name = ""
    for line in path.read_text().splitlines():
        head = CLASS.match(line)
        if head:
            name = head[1]
        elif line and not line.startswith(" "):
            name = ""
        elif name and METHOD.match(line):
            yield name, "method", METHOD.match(line)[1]
        elif name and FIELD.match(line):
            for field in FIELD.match(line)[1].split(", "):
                yield name, "field", field


def classes(path: Path) -> dict[str, ast.ClassDef]:
    """Return the classes of a source by name."""
    return {node.name: node for node in parse(path).body if isinstance(node, ast.ClassDef)}


def fields(node: ast.ClassDef) -> set[str]:
    """Return the fields that a class declares: annotations of its body that have no value."""
    return {each.target.id for each in node.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)}


def methods(node: ast.ClassDef) -> set[str]:
    """Return the names of a class's methods."""
    return {each.name for each in node.body if isinstance(each, ast.FunctionDef)}


def assigned(node: ast.ClassDef) -> set[str]:
    """Return the attributes of ``self`` that the methods of a class assign."""
    return {each.attr for each in ast.walk(node)
            if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
            and getattr(each.value, "id", "") == "self"}


@pytest.mark.parametrize("path", PAIRS, ids=lambda path: path.stem)
def test_classes_and_methods_exist(path: Path) -> None:
    known = classes(path.with_suffix(".py"))
    for name, kind, member in declared(path):
        assert name in known
        assert kind == "field" or member in methods(known[name]), f"{name}.{member}"


@pytest.mark.parametrize("path", PAIRS, ids=lambda path: path.stem)
def test_declared_fields_are_the_same(path: Path) -> None:
    known = classes(path.with_suffix(".py"))
    found: dict[str, set[str]] = {}
    for name, kind, member in declared(path):
        if kind == "field" and member not in UNSEEN:
            found.setdefault(name, set()).add(member)
    for name, node in known.items():
        # A class that declares its fields for checkers declares all of them, and no others.
        if fields(node) and name in found:
            assert fields(node) == found[name], name


@pytest.mark.parametrize("path", PAIRS, ids=lambda path: path.stem)
def test_assigned_fields_are_declared(path: Path) -> None:
    known = classes(path.with_suffix(".py"))
    parents = dict(CLASS.findall(path.read_text()))
    found: dict[str, set[str]] = {}
    for name, kind, member in declared(path):
        if kind == "field":
            found.setdefault(name, set()).add(member)
    for name, parent in parents.items():
        # What a parent of another module declares is that module's.
        if not parent:
            assert assigned(known[name]) <= found.get(name, set()), name
