"""Reads our own sources: what each module imports, how large its parts are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "slipstream"
CORE = PACKAGE / "core"
Function = ast.FunctionDef | ast.AsyncFunctionDef
CIMPORT = re.compile(r"\s*(?:from\s+(slipstream[\w.]*)\s+)?c?import\s+(slipstream[\w.]*)?")
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)


@cache
def parse(path: Path) -> ast.Module:
    """Return the tree of a source."""
    return ast.parse(path.read_text(), str(path))


def sources(*folders: str) -> list[Path]:
    """Return the Python files of folders of the checkout, without what is generated."""
    found = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return sorted(path for path in found if "__pycache__" not in path.parts)


def module_name(path: Path) -> str:
    """Return the dotted name of a module of the package."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def all_modules() -> frozenset[str]:
    """Return the names of all modules of the package."""
    return frozenset(module_name(path) for path in sources("src/slipstream"))


@cache
def layer_order() -> list[str]:
    """Return the layers from top to bottom, as core/README.md lists them."""
    return re.findall(r"^\d+\. `(\w+)/`", (CORE / "README.md").read_text(), re.MULTILINE)


def layer_of(module: str) -> str | None:
    """Return the layer a module belongs to, None outside the core's layers."""
    parts = module.split(".")
    if parts[:2] == ["slipstream", "core"] and len(parts) > 2 and parts[2] in layer_order():
        return parts[2]
    return None


def imported(node: ast.AST) -> list[str]:
    """Return the modules of ours that an import statement names."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        longer = [f"{node.module}.{alias.name}" for alias in node.names]
        inner = [name for name in longer if name in all_modules()]
        names = inner if len(inner) == len(longer) else [*inner, node.module]
    else:
        names = []
    return [name for name in names if name.split(".")[0] == "slipstream"]


@cache
def imports_of(path: Path) -> list[tuple[int, str]]:
    """Return line and module for every import of ours in a source and in the .pxd beside it."""
    found = [(node.lineno, name) for node in ast.walk(parse(path)) for name in imported(node)]
    return found + list(cimports_of(path))


def cimports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and module for every import of ours in the .pxd beside a source."""
    pxd = path.with_suffix(".pxd")
    lines = pxd.read_text().splitlines() if pxd.exists() else []
    for number, line in enumerate(lines, 1):
        match = CIMPORT.match(line)
        if match and (match[1] or match[2]):
            yield number, match[1] or match[2]


@cache
def functions(path: Path) -> list[Function]:
    """Return the functions and methods of a source."""
    return [
        node
        for node in ast.walk(parse(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def length(node: ast.stmt) -> int:
    """Return how many lines a statement takes."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def arguments(function: Function) -> int:
    """Return how many named arguments a function takes, self and cls not counted."""
    spec = function.args
    names = [arg.arg for arg in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)]
    return len(names) - (bool(names) and names[0] in ("self", "cls"))


def nesting(node: ast.AST) -> int:
    """Return the depth of nested blocks; an elif is as deep as its if."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        deeper = isinstance(child, BLOCKS) and not is_elif
        deepest = max(deepest, nesting(child) + deeper)
    return deepest


def none_of(faults: list[str]) -> None:
    """Fail with one line for each fault."""
    assert not faults, "\n" + "\n".join(faults)


def spot(path: Path, node: ast.AST | int) -> str:
    """Return where a fault is, for a message."""
    line = node if isinstance(node, int) else getattr(node, "lineno", 0)
    return f"{path.relative_to(ROOT)}:{line}"
