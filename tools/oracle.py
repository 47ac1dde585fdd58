"""Runs the oracle, PyTorch's own tests of operators, modules and optimizers, and reads its reports.

A check that does not pass counts as an exception where the entry of its operator, or the list
conformance/exceptions.txt, gives a reason; else it is a fault.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipstream.core.catalog.table import table
from slipstream.core.dispatch.entry import Entry

ROOT = Path(__file__).resolve().parent.parent
LISTS = ROOT / "conformance"
REPORTS = ROOT / "build" / "reports"
KINDS = ("forward", "method", "inplace", "alias", "grad", "error", "layout")
NARROW = ("float16", "bfloat16", "complex64")
# The words under which entries give reasons: kinds of checks, and dtypes beside the main ones.
REASONS = (*KINDS, *NARROW)


@dataclass
class Part:
    """One part of conformance: how many checks pass, and what does not and why.

    cells: operator -> column of the page -> (passed, checks).
    exceptions: (what, key) -> how many checks a reason excuses; faults: what no reason excuses.
    """

    title: str
    passed: int = 0
    cells: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    exceptions: dict[tuple[str, str], int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    failed: int = 0

    @property
    def excepted(self) -> int:
        """How many checks do not pass for a reason that is given."""
        return sum(self.exceptions.values())

    @property
    def checks(self) -> int:
        """How many checks there were."""
        return self.passed + self.excepted + self.failed

    def fault(self, what: str, count: int = 1) -> None:
        """Note checks that fail for no reason that is given."""
        self.faults.append(what)
        self.failed += count


def names_in(kind: str) -> list[str]:
    """The first words of the lines of all lists of ``ops`` or of ``cases``."""
    text = "\n".join(path.read_text() for path in sorted(LISTS.glob(f"*_{kind}.txt")))
    lines = (line.split("#")[0].split() for line in text.splitlines())
    return [words[0] for words in lines if words]


def paths_of(entry: Entry) -> Iterator[str]:
    """Every name under which users find an op."""
    yield from (entry.name, entry.path or entry.name, *entry.aliases)


def entries_by_path() -> dict[str, Entry]:
    """The entries by each of their names."""
    return {path: op.entry for op in table.values() for path in paths_of(op.entry)}


def entry_of(operator: str) -> Entry | None:
    """The entry of an operator of the database, whose names have variants, as std.unbiased."""
    entries = entries_by_path()
    return next((entries[name] for name in stems(operator) if name in entries), None)


def stems(operator: str) -> Iterator[str]:
    """The name, and what is left of it without its last parts."""
    yield operator
    while "." in operator:
        operator = operator.rpartition(".")[0]
        yield operator


def listed_reasons() -> dict[tuple[str, str], str]:
    """(What, key) -> reason, from conformance/exceptions.txt, for what has no entry."""
    lines = (LISTS / "exceptions.txt").read_text().splitlines()
    rows = (line.split(" | ") for line in lines if line and not line.startswith("#"))
    return {(what.strip(), key.strip()): reason.strip()
            for what, keys, reason in rows for key in keys.split(", ")}


def reasons() -> dict[tuple[str, str], str]:
    """Every reason that is given: (operator or part, kind, dtype or pattern) -> reason."""
    entries = {entry.path or entry.name: entry for entry in entries_by_path().values()}
    found = {(name, key): reason for name, entry in sorted(entries.items())
             for key, reason in entry.exceptions.items() if key in REASONS}
    return found | listed_reasons()


def place_of(operator: str) -> str:
    """The name under which reasons for an operator stand: its entry's, or that in the list."""
    entry = entry_of(operator)
    if entry is not None:
        return entry.path or entry.name
    listed = {what for what, _ in listed_reasons()}
    return next((name for name in stems(operator) if name in listed), operator)


def environment() -> dict[str, str]:
    """An environment in which slipstream is imported from the sources of the checkout."""
    paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def run(python: Path, script: Path, report: str, *options: str) -> dict[str, Any] | None:
    """Run a script of the oracle; its report, or None where it wrote none."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    path = REPORTS / report
    path.unlink(missing_ok=True)
    command = [str(python), str(script), "--module", "slipstream", "--json", str(path), *options]
    subprocess.run(command, env=environment())
    return json.loads(path.read_text()) if path.exists() else None


def operators(python: Path, oracle: Path, dtype: str = "", *options: str) -> Part:
    """Run the operators in the main dtypes with strides, or in one of the narrow ones."""
    wanted = REPORTS / "conformance_ops.txt"
    REPORTS.mkdir(parents=True, exist_ok=True)
    wanted.write_text("\n".join(names_in("ops")) + "\n")
    narrow = ["--dtypes", dtype] if dtype else ["--layout"]
    report = run(python, oracle / "opinfo_run.py", f"conformance{dtype and '_' + dtype}.json",
                 "--ops-file", str(wanted), "--quiet", *narrow, *options)
    title = f"operators in {dtype}" if dtype else "operators in float32, float64, int64 and bool"
    part = Part(title)
    if report is None:
        part.fault(f"{title}: no report")
        return part
    read_operators(part, report, dtype)
    return part


def read_operators(part: Part, report: dict[str, Any], dtype: str) -> None:
    """Count the checks of a report; an operator that is missing is a fault too."""
    if report["meta"]["imports_torch"]:
        part.fault("importing slipstream imports torch")
    for name, operator in report["ops"].items():
        if not operator["found"] or operator["gave_up"]:
            part.fault(f"{name}: {'gave up' if operator['found'] else 'missing'}")
        cells = part.cells.setdefault(name, {})
        for kind, statuses in operator["counts"].items():
            checks = sum(statuses.values()) - statuses.get("skip", 0)
            judge(part, name, dtype or kind, statuses.get("ok", 0), checks)
            before = cells.get(dtype or kind, (0, 0))
            cells[dtype or kind] = (before[0] + statuses.get("ok", 0), before[1] + checks)


def judge(part: Part, name: str, key: str, passed: int, checks: int) -> None:
    """Count one operator's checks of a kind."""
    part.passed += passed
    if checks == passed:
        return
    place = (place_of(name), key)
    if place in reasons():
        part.exceptions[place] = part.exceptions.get(place, 0) + checks - passed
    else:
        part.fault(f"{name}: {key}: {checks - passed} of {checks} checks differ", checks - passed)


def modules(python: Path, oracle: Path) -> Part:
    """Run the modules: outputs, gradients, names of the state."""
    report = run(python, oracle / "nn_check.py", "conformance_nn.json")
    return read_cases(Part("modules"), report)


def optimizers(python: Path, oracle: Path) -> Part:
    """Run optimizers, schedulers, clipping and the scaler."""
    report = run(python, oracle / "optim_check.py", "conformance_optim.json")
    return read_cases(Part("optimizers and schedulers"), report)


def read_cases(part: Part, report: dict[str, Any] | None) -> Part:
    """Count the checks of a report of cases, each (check, status, detail)."""
    if report is None:
        part.fault(f"{part.title}: no report")
        return part
    for case, checks in report["cases"].items():
        for check, status, detail in checks:
            if status == "ok":
                part.passed += 1
            elif status != "skip":
                excuse(part, f"{case} {check}", detail)
    return part


def excuse(part: Part, name: str, detail: str) -> None:
    """Count a check that does not pass as an exception or as a fault."""
    for place in listed_reasons():
        if place[0] == part.title and re.search(place[1], name):
            part.exceptions[place] = part.exceptions.get(place, 0) + 1
            return
    part.fault(f"{name}: {detail}")
