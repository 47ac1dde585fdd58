"""Compares autocast with PyTorch's: which ops it knows on CPU and CUDA, and the dtypes they give.

Runs in the peer's environment, a line for each check, without a card: PyTorch tells what it
registered for CUDA's autocast.  Usage: PYTHONPATH=src python conformance/autocast.py
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import torch

import slipstream
from slipstream.core.catalog.table import table

# PyTorch's names of operators, where ours are others.
THEIRS = {
    "addmm_activation": "_addmm_activation", "cross_entropy": "cross_entropy_loss",
    "eigh": "linalg_eigh", "eigvalsh": "linalg_eigvalsh",
    "matrix_norm": "linalg_matrix_norm", "matrix_rank": "linalg_matrix_rank",
    "multi_dot": "linalg_multi_dot", "pinv": "pinverse", "solve": "linalg_solve",
    "svdvals": "linalg_svdvals", "vector_norm": "linalg_vector_norm",
}
# Functions of listed operators there, one op here.
COMPOSED = {"cuda": {"cross_entropy", "general_norm", "square"}, "cpu": set()}
KEYS = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}
KINDS = ("wide", "narrow", "mixed")


def registered(device: str) -> set[str]:
    """Operators of which PyTorch's autocast knows, without their overloads."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return {name.removeprefix("aten::").partition(".")[0]
            for name in torch._C._dispatch_get_all_op_names()
            if name.startswith("aten::") and has(name, KEYS[device])}


def lists(device: str) -> list[str]:
    """Where the lists differ."""
    theirs = registered(device)
    faults = []
    for name, op in table.items():
        mine = op.policies.get(device, "asleep") != "asleep"
        if mine != (THEIRS.get(name, name) in theirs) and name not in COMPOSED[device]:
            faults.append(f"{device} {name}: ours {op.policies}, PyTorch's {not mine}")
    return faults


def arguments(values: Any, kind: str, module: Any) -> list[Any]:
    """A sample's arguments; of "mixed" ones the first float is narrow."""
    seen: list[Any] = []

    def made(value: Any) -> Any:
        if isinstance(value, list):
            return [made(each) for each in value]
        if isinstance(value, slipstream.dtype):
            return getattr(module, value.name)
        if not isinstance(value, np.ndarray):
            return value.item() if isinstance(value, np.generic) else value
        tensor = module.from_numpy(value.copy())
        if value.dtype != np.float64:
            return tensor
        seen.append(value)
        narrow = kind == "narrow" or (kind == "mixed" and len(seen) == 1)
        return tensor.to(module.bfloat16 if narrow else module.float32)

    return [made(value) for value in values]


def dtypes(function: Any, sample: Any, kind: str, module: Any) -> list[str]:
    """The names of the results' dtypes under the CPU's autocast."""
    args, kwargs = sample
    with module.autocast("cpu", dtype=module.bfloat16):
        found = function(*arguments(args, kind, module),
                         **dict(zip(kwargs, arguments(kwargs.values(), kind, module),
                                    strict=True)))
    several = found if isinstance(found, (tuple, list)) else (found,)
    return [str(each.dtype).rpartition(".")[2] for each in several]


def differing(name: str, path: str) -> list[str]:
    """Where an op's results have other dtypes; calls that PyTorch refuses count for nothing."""
    functions = []
    for module in (slipstream, torch):
        found: Any = module
        for part in path.split("."):
            found = getattr(found, part)
        functions.append(found)
    faults = []
    for sample in table[name].entry.samples():
        for kind in KINDS:
            try:
                theirs = dtypes(functions[1], sample, kind, torch)
            except (RuntimeError, TypeError, NotImplementedError):
                continue
            mine = dtypes(functions[0], sample, kind, slipstream)
            if mine != theirs:
                faults.append(f"{name}, {kind}: {mine}, PyTorch's {theirs}")
    return faults


def main() -> int:
    """Compare, a line for each check; the status is 1 where anything differs."""
    warnings.simplefilter("ignore")
    checks = {f"the list of {device}": lists(device) for device in KEYS}
    for name, op in table.items():
        entry = op.entry
        if not entry.samples or not entry.path or entry.kind == "random":
            continue
        try:
            checks[name] = differing(name, entry.path)
        except AttributeError:
            # PyTorch has no such function.
            continue
    for name, faults in checks.items():
        print(f"autocast {name}:", "; ".join(faults) or "ok")
    return int(any(checks.values()))


if __name__ == "__main__":
    sys.exit(main())
