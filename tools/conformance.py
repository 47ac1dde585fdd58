"""Runs PyTorch's own tests of operators, modules and optimizers, cases, scripts and the encoder.

The harness is not part of this repository: it is looked for in ../shared/oracle and
../shared/cases beside the checkout (--shared says where else).  What is run is listed in
conformance/.  A whole run writes docs/conformance.md.
Usage: python tools/conformance.py [--ops REGEX] [--samples N] [--shared FOLDER] [--peer PYTHON]
"""

from __future__ import annotations

import argparse
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import conformance_page
import oracle
import peer
from oracle import LISTS, NARROW, ROOT, Part, environment, names_in

VERSION = "2.13.0"


def run_cases(cases: Path) -> Part:
    """Run the cases from bug reports, each in a process of its own."""
    part = Part("cases from bug reports")
    for name in names_in("cases"):
        fault = run_case(cases, name)
        print(f"{name:34} {fault or 'ok'}", flush=True)
        part.passed += not fault
        if fault:
            part.fault(f"{name}: {fault}")
    return part


def run_case(cases: Path, name: str) -> str:
    """Run one case; return what is wrong, or ""."""
    code = (
        "import runpy, sys, slipstream\n"
        f"runpy.run_path({str(cases / name)!r} + '.py')[{name!r}](slipstream)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True,
                          text=True, timeout=120)
    last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
    return last if done.returncode else ""


def run_scripts(python: Path) -> Part:
    """Run the scripts written for PyTorch on both."""
    part = Part("scripts written for PyTorch")
    namespace = runpy.run_path(str(LISTS / "scripts.py"))
    part.passed, failed = namespace["run_all"](sys.executable, python)
    if failed:
        part.fault("scripts differ from PyTorch's runs", failed)
    return part


def run_comparison(python: Path, title: str, script: str) -> Part:
    """Run a script of conformance/ that prints a line a check, "ok" in it if it passes."""
    part = Part(title)
    done = subprocess.run([str(python), str(LISTS / script)], env=environment(),
                          capture_output=True, text=True)
    print(done.stdout, end="", flush=True)
    for line in done.stdout.splitlines():
        part.passed += " ok" in line
        if " ok" not in line:
            part.fault(line)
    if done.returncode and not part.failed:
        part.fault(f"{script}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
    return part


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--samples", type=int, default=0, help="samples an operator; 0: all")
    parser.add_argument("--ops", help="regular expression that operators' names have to contain: "
                                      "runs operators alone and writes no page")
    parser.add_argument("--peer", type=Path, help="a Python that has PyTorch (default: own venv)")
    parser.add_argument("--fetch", action="store_true",
                        help="install PyTorch for the scripts alone, where there is no harness")
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    return parser.parse_args()


def from_harness(python: Path, options: argparse.Namespace) -> Iterator[Part]:
    """Run what the harness has."""
    folder = options.shared / "oracle"
    some = ["--ops", options.ops] if options.ops else []
    some += ["--samples", str(options.samples)]
    for dtype in ("", *NARROW):
        yield oracle.operators(python, folder, dtype, *some)
    if not options.ops:
        yield oracle.modules(python, folder)
        yield oracle.optimizers(python, folder)
        yield run_cases(options.shared / "cases")


def from_here(python: Path) -> Iterator[Part]:
    """Run what this repository has."""
    yield run_scripts(python)
    yield run_comparison(python, "the sentence encoder", "encoder.py")
    yield run_comparison(python, "autocast", "autocast.py")
    yield run_comparison(python, "reasons that are shown: fused optimizers", "fused.py")
    yield run_comparison(python, "reasons that are shown: last bits", "last_bits.py")


def main() -> int:
    """Run what is there; the status tells whether everything passed."""
    options = parse_arguments()
    there = (options.shared / "oracle").exists()
    if not there and not options.peer and not peer.ready():
        print(f"no harness in {options.shared} (--shared FOLDER names another place): what is left "
              "are the scripts of conformance/, beside PyTorch, which has to be downloaded.  To "
              "run these: make conformance ARGS=--fetch", file=sys.stderr)
        if not options.fetch:
            return 2
    python = options.peer or peer.prepare()
    parts = list(from_harness(python, options)) if there else []
    parts += [] if options.ops else list(from_here(python))
    for fault in (fault for part in parts for fault in part.faults):
        print(f"FAULT {fault}")
    if not there:
        print(f"no harness in {options.shared}: scripts and encoder alone, no page is written")
    elif not options.ops and not options.samples:
        conformance_page.PAGE.write_text(conformance_page.page(parts, VERSION))
    for part in parts:
        print(f"{part.title:46} {part.passed} passed, {part.excepted} exceptions, "
              f"{part.failed} failed")
    failed = sum(part.failed for part in parts)
    print(f"{sum(part.passed for part in parts)} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
