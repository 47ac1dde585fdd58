"""Runs PyTorch's own operator tests, cases from public bug reports, and scripts for PyTorch.

The harness is not part of this repository: it is looked for in ../shared/oracle and
../shared/cases beside the checkout (--shared says where else).  What is run is listed in
conformance/.  Usage: python tools/conformance.py [--samples N] [--ops REGEX] [--shared FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import peer

ROOT = Path(__file__).resolve().parent.parent
LISTS = ROOT / "conformance"
REPORTS = ROOT / "build" / "reports"


def names_in(kind: str) -> list[str]:
    """Return the first words of the lines of all lists of ``ops`` or of ``cases``."""
    text = "\n".join(path.read_text() for path in sorted(LISTS.glob(f"*_{kind}.txt")))
    lines = (line.split("#")[0].split() for line in text.splitlines())
    return [words[0] for words in lines if words]


def environment() -> dict[str, str]:
    """Return an environment in which slipstream is imported from the sources of the checkout."""
    paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def run_operators(oracle: Path, options: argparse.Namespace) -> tuple[int, int]:
    """Run the operators; return how many checks passed and how many did not."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    report = REPORTS / "conformance.json"
    report.unlink(missing_ok=True)
    wanted = REPORTS / "conformance_ops.txt"
    wanted.write_text("\n".join(names_in("ops")) + "\n")
    python = options.peer or peer.prepare()
    command = [str(python), str(oracle / "opinfo_run.py"), "--module", "slipstream",
               "--ops-file", str(wanted), "--json", str(report),
               "--samples", str(options.samples)]
    command += ["--ops", options.ops] if options.ops else []
    command += ["--layout"] if options.layout else []
    subprocess.run(command, env=environment())
    return read_operators(report) if report.exists() else (0, 1)


def read_operators(report: Path) -> tuple[int, int]:
    """Return the counts of a report: an operator that is missing is a failure too."""
    data = json.loads(report.read_text())
    totals, operators = data["totals"], data["ops"].values()
    missing = sum(not operator["found"] or operator["gave_up"] for operator in operators)
    if data["meta"]["imports_torch"]:
        print("importing slipstream imports torch")
        missing += 1
    return totals["checks_passed"], totals["checks"] - totals["checks_passed"] + missing


def run_cases(cases: Path) -> tuple[int, int]:
    """Run the cases, each in a process of its own; return how many hold and how many do not."""
    results = [run_case(cases, name) for name in names_in("cases")]
    return sum(results), len(results) - sum(results)


def run_case(cases: Path, name: str) -> bool:
    """Run one case and say how it went."""
    code = (
        "import runpy, sys, slipstream\n"
        f"runpy.run_path({str(cases / name)!r} + '.py')[{name!r}](slipstream)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True,
                          text=True, timeout=120)
    fault = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
    print(f"{name:34} {fault if done.returncode else 'ok'}")
    return done.returncode == 0


def run_scripts(peer_python: Path | None) -> tuple[int, int]:
    """Run the scripts written for PyTorch on both; return how many agree and how many do not."""
    python = peer_python or peer.prepare()
    namespace = runpy.run_path(str(LISTS / "scripts.py"))
    return namespace["run_all"](sys.executable, python)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--samples", type=int, default=8, help="samples an operator; 0: all")
    parser.add_argument("--ops", help="regular expression that operators' names have to contain")
    parser.add_argument("--layout", action="store_true", help="compare strides and views too")
    parser.add_argument("--peer", type=Path, help="a Python that has PyTorch (default: own venv)")
    parser.add_argument("--fetch", action="store_true",
                        help="install PyTorch for the scripts alone, where there is no harness")
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    return parser.parse_args()


def main() -> int:
    """Run what is there; the status tells whether everything passed."""
    options = parse_arguments()
    oracle, cases = options.shared / "oracle", options.shared / "cases"
    if not oracle.exists() and not options.peer and not peer.ready():
        print(f"no harness in {oracle} (--shared FOLDER names another place): what is left are the "
              "scripts of conformance/, beside PyTorch, which has to be downloaded.  To run "
              "these: make conformance ARGS=--fetch", file=sys.stderr)
        if not options.fetch:
            return 2
    counts = [] if options.ops else [run_scripts(options.peer)]
    if oracle.exists():
        counts.append(run_operators(oracle, options))
    else:
        print(f"no harness in {oracle}: scripts alone (--shared FOLDER names another place)")
    if cases.exists() and not options.ops:
        counts.append(run_cases(cases))
    passed, failed = (sum(column) for column in zip((0, 0), *counts, strict=True))
    print(f"{passed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
