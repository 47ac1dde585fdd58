"""The laws that the sources themselves keep: layers, imports, sizes, one place for settings."""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Iterator
from pathlib import Path

from sources import (
    CORE,
    PACKAGE,
    ROOT,
    Function,
    all_modules,
    arguments,
    functions,
    imports_of,
    layer_of,
    layer_order,
    length,
    module_name,
    nesting,
    none_of,
    parse,
    sources,
    spot,
)

OURS = sources("src/slipstream")
BUDGETED = [*sources("src", "tools", "benchmarks", "tour", "examples"), ROOT / "setup.py"]
EVERYTHING = [*BUDGETED, *sources("tests")]
# The one lazy door: optional packages, and parts of ours, are imported there when first wanted.
LATE_IMPORTS = {CORE / "vocab" / "optional.py"}
READS_ENVIRONMENT = {CORE / "vocab" / "settings.py"}
# Functions whose signature is PyTorch's may take more; clients' public ones all have PyTorch's.
PYTORCH_SIGNATURES = {"_load_from_state_dict"}
LIMITS = {
    "file": 600, "class": 300, "function": 50, "arguments": 6, "nesting": 3, "columns": 100,
}
# Outside the core's layers, but for the core: the switch, and the stub of Tensor's methods.
ROOTS = ("slipstream._uncompiled", "slipstream._tensor_methods")
CLIENTS_MAY_IMPORT = ("slipstream.core.api", "slipstream.core.vocab")


def within(name: str, prefixes: tuple[str, ...]) -> bool:
    """Tell whether a module is one of ``prefixes`` or lies under one."""
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def is_client(path: Path) -> bool:
    """Tell whether a source stands outside the core, like a user's code."""
    return CORE not in path.parents and path.parent != PACKAGE


def test_the_readme_lists_every_layer() -> None:
    folders = {path.name for path in CORE.iterdir() if (path / "__init__.py").exists()}
    assert set(layer_order()) == folders


def test_imports_point_down_the_layers() -> None:
    order, faults = layer_order(), []
    for path in OURS:
        mine = layer_of(module_name(path))
        for line, name in imports_of(path):
            other = layer_of(name)
            if mine and other and order.index(other) < order.index(mine):
                faults.append(f"{spot(path, line)}: {mine} imports {name}")
    none_of(faults)


def test_core_does_not_import_what_stands_on_it() -> None:
    faults = [
        f"{spot(path, line)}: {name}"
        for path in OURS
        if CORE in path.parents
        for line, name in imports_of(path)
        if not within(name, ("slipstream.core", *ROOTS))
    ]
    none_of(faults)


def test_layers_do_not_import_the_wiring() -> None:
    faults = [
        f"{spot(path, line)}: {name}"
        for path in OURS
        if layer_of(module_name(path))
        for line, name in imports_of(path)
        if not layer_of(name) and not within(name, ROOTS)
    ]
    none_of(faults)


def test_vocab_imports_nothing_else_of_ours() -> None:
    faults = [
        f"{spot(path, line)}: {name}"
        for path in OURS
        if layer_of(module_name(path)) == "vocab"
        for line, name in imports_of(path)
        if not within(name, ("slipstream.core.vocab",))
    ]
    none_of(faults)


def test_clients_use_what_a_user_could_use() -> None:
    faults = [
        f"{spot(path, line)}: {name}"
        for path in OURS
        if is_client(path)
        for line, name in imports_of(path)
        if within(name, ("slipstream.core",)) and not within(name, CLIENTS_MAY_IMPORT)
    ]
    none_of(faults)


def import_graph() -> dict[str, set[str]]:
    """Return which module imports which; the front package, which clients use, is left out."""
    graph: dict[str, set[str]] = {}
    for path in OURS:
        name = module_name(path)
        known = {target for _, target in imports_of(path) if target in all_modules()}
        graph[name] = known - {name, "slipstream"}
    return graph


def find_cycle(graph: dict[str, set[str]]) -> list[str]:
    """Return one import cycle, or an empty list; modules that import nothing left are peeled."""
    left = {name: set(targets) for name, targets in graph.items()}
    while True:
        leaves = [name for name, targets in left.items() if not targets & left.keys()]
        if not leaves:
            return sorted(left)
        for name in leaves:
            del left[name]


def test_no_import_cycle() -> None:
    assert find_cycle(import_graph()) == []


def late_imports(path: Path) -> Iterator[str]:
    """Yield the imports inside functions, in whatever way they are written."""
    for function in functions(path):
        for node in ast.walk(function):
            called = getattr(node, "func", None)
            name = getattr(called, "attr", getattr(called, "id", ""))
            late = isinstance(node, ast.Import | ast.ImportFrom)
            if late or name in ("import_module", "__import__"):
                yield spot(path, node)


def test_no_import_inside_a_function() -> None:
    faults = [place for path in OURS if path not in LATE_IMPORTS for place in late_imports(path)]
    none_of(faults)


def test_there_is_one_lazy_door() -> None:
    assert sum(path.exists() for path in LATE_IMPORTS) <= 1


def test_settings_alone_read_the_environment() -> None:
    faults = [
        spot(path, node)
        for path in OURS
        if path not in READS_ENVIRONMENT
        for node in ast.walk(parse(path))
        if getattr(node, "attr", getattr(node, "id", "")) in ("environ", "environb", "getenv")
    ]
    none_of(faults)


def test_files_are_short() -> None:
    sizes = {path: path.read_text().count("\n") for path in EVERYTHING}
    none_of([f"{path}: {size}" for path, size in sizes.items() if size > LIMITS["file"]])


def test_classes_are_short() -> None:
    faults = [
        f"{spot(path, node)} {node.name}: {length(node)}"
        for path in EVERYTHING
        for node in ast.walk(parse(path))
        if isinstance(node, ast.ClassDef) and length(node) > LIMITS["class"]
    ]
    none_of(faults)


def test_functions_are_short() -> None:
    faults = [
        f"{spot(path, function)} {function.name}: {length(function)}"
        for path in EVERYTHING
        for function in functions(path)
        if length(function) > LIMITS["function"]
    ]
    none_of(faults)


def test_most_functions_are_very_short() -> None:
    sizes = [length(function) for path in OURS for function in functions(path)]
    assert sum(size <= 20 for size in sizes) >= 0.9 * len(sizes)


def has_pytorch_signature(path: Path, function: Function) -> bool:
    """Tell whether a function stands for one of PyTorch's, which fixes its arguments."""
    public = not function.name.startswith("_") or function.name == "__init__"
    in_client = PACKAGE in path.parents and is_client(path)
    return function.name in PYTORCH_SIGNATURES or (in_client and public)


def test_functions_take_few_arguments() -> None:
    faults = [
        f"{spot(path, function)} {function.name}: {arguments(function)}"
        for path in BUDGETED
        for function in functions(path)
        if arguments(function) > LIMITS["arguments"] and not has_pytorch_signature(path, function)
    ]
    none_of(faults)


def test_blocks_are_not_deep() -> None:
    faults = [
        f"{spot(path, function)} {function.name}: {nesting(function)}"
        for path in BUDGETED
        for function in functions(path)
        if nesting(function) > LIMITS["nesting"]
    ]
    none_of(faults)


def test_lines_are_short() -> None:
    files = [*EVERYTHING, *PACKAGE.rglob("*.pxd")]
    faults = [
        f"{spot(path, number)}: {len(line)}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > LIMITS["columns"]
    ]
    none_of(faults)


def joined_lines(path: Path) -> Iterator[str]:
    """Yield where a line holds more than one statement."""
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.OP and token.string == ";":
                yield spot(path, token.start[0])
    for node in ast.walk(parse(path)):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and getattr(node, "lineno", 0) == body[0].lineno:
            yield spot(path, node)


def is_stub_body(path: Path, place: str) -> bool:
    """Tell whether a one-line body is a bare ellipsis, as protocols and overloads write it."""
    line = path.read_text().splitlines()[int(place.rsplit(":", 1)[1]) - 1]
    return line.rstrip().endswith(": ...")


def test_one_statement_a_line() -> None:
    faults = [
        place
        for path in EVERYTHING
        for place in joined_lines(path)
        if not is_stub_body(path, place)
    ]
    none_of(faults)
