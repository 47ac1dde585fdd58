"""What points up the layers is listed in `core/wiring.py`, and only there is it set."""

from __future__ import annotations

import ast
from importlib import import_module

from sources import CORE, none_of, parse, sources, spot

from slipstream.core import wiring


def holder_of(dotted: str) -> object:
    """The object that a name of the list stands for."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        path = CORE.joinpath(*parts[:length])
        if path.with_suffix(".py").exists():
            found = import_module("slipstream.core." + ".".join(parts[:length]))
            for name in parts[length:]:
                found = getattr(found, name)
            return found
    raise AssertionError(f"{dotted} stands for nothing")


def written() -> set[str]:
    """What `wire` assigns to or hands to setattr, as written: ``tape.tensor_class``."""
    found = set()
    for node in ast.walk(parse(CORE / "wiring.py")):
        targets = node.targets if isinstance(node, ast.Assign) else []
        found.update(ast.unparse(each) for each in targets if isinstance(each, ast.Attribute))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr":
            found.add(ast.unparse(node.args[0]) + ".*")
    return found


def covered(target: str) -> bool:
    """Whether an assignment's holder is on the list."""
    holder = target.rpartition(".")[0]
    listed = {each.split(".", 1)[1] for each in wiring.WIRED}
    ends = {holder, target}
    return any(each == end or each.endswith("." + end) for each in listed for end in ends)


def test_every_listed_name_exists() -> None:
    for dotted in wiring.WIRED:
        assert holder_of(dotted) is not None


def test_everything_that_is_wired_is_listed() -> None:
    assert written()
    none_of([target for target in sorted(written()) if not covered(target)])


def test_nothing_listed_is_idle() -> None:
    used = written()
    for dotted in wiring.WIRED:
        tail = dotted.split(".", 1)[1]
        ends = [tail.split(".", n)[-1] for n in range(tail.count(".") + 1)]
        assert any(target == end or target.rpartition(".")[0] == end
                   for target in used for end in ends), dotted


def test_every_slot_of_the_door_and_the_operators_is_filled() -> None:
    for holder in (holder_of("dispatch.op.wiring"), holder_of("vocab.records.slots")):
        names = [name for name in dir(holder) if not name.startswith("_")]
        assert [name for name in names if getattr(holder, name) is None] == []


def test_nobody_else_sets_them() -> None:
    holders = {"wiring.special", "slots.tensor_class", "tape.tensor_class", "hooks.copy_of",
               "hooks.formula_builder", "operations.accumulate"}
    faults = [
        f"{spot(path, node)}: {ast.unparse(target)}"
        for path in sources("src/slipstream/core")
        if path != CORE / "wiring.py"
        for node in ast.walk(parse(path))
        for target in (node.targets if isinstance(node, ast.Assign) else [])
        if ast.unparse(target) in holders
    ]
    none_of(faults)
