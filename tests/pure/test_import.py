"""What ``import slipstream`` brings with it, and what it does not start."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import slipstream as ss
from slipstream.core.catalog import norms

CODE = """
import json, os, sys
import numpy, ml_dtypes
before, tasks = set(sys.modules), len(os.listdir("/proc/self/task"))
import slipstream
started = len(os.listdir("/proc/self/task")) - tasks
print(json.dumps({"added": sorted(set(sys.modules) - before), "started": started}))
"""
NEVER = ("torch", "scipy", "rich", "cuda", "Cython.Compiler", "sklearn", "safetensors", "jax")
MOST_MODULES = 220


def facts() -> dict:
    """Return what a fresh process sees when it imports slipstream."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_import_is_small_and_starts_nothing() -> None:
    seen = facts()
    heavy = [m for m in seen["added"] if any(m == n or m.startswith(n + ".") for n in NEVER)]
    assert heavy == []
    assert seen["started"] == 0
    assert len(seen["added"]) <= MOST_MODULES


def test_compiled_modules_see_a_name_that_is_set_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    # Their look-ups are kept until the module's dict says that it changed.
    dtypes = (ss.float32, ss.float16, ss.float16)
    for _ in range(2):
        assert norms._rest_of(dtypes) == dtypes[1:]
        with monkeypatch.context() as changed:
            changed.setattr(norms, "RESTS", {dtypes: "set anew"})
            assert norms._rest_of(dtypes) == "set anew"
            vars(norms)["RESTS"] = {dtypes: "and once more"}
            assert norms._rest_of(dtypes) == "and once more"
