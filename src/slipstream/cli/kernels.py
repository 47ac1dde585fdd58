"""``slipstream kernels``: compiled kernels, made ahead of time, listed, counted and removed."""

from __future__ import annotations

import argparse
import inspect
import itertools
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import slipstream as ss
from slipstream import optim
from slipstream.core.api.cuda.keeping import clear, kept_kernels, kept_statistics
from slipstream.core.api.cuda.packing import Built, build, check_architectures, find_compiler
from slipstream.core.vocab.optional import require
from slipstream.nn.utils import clip_grad_norm_

SUMMARY = "compile the catalogue's kernels without a card; list, count and remove compiled kernels"
DEFAULT = "sm_80,sm_90,sm_100"
# What every optimizer is made with, as far as it takes it; flags that are off come one at a time.
SETTINGS: tuple[dict[str, float], ...] = (
    {}, {"weight_decay": 0.01}, {"momentum": 0.9}, {"momentum": 0.9, "weight_decay": 0.01})
UNCOMMON = ("differentiable", "capturable", "fused", "foreach")
STEPS = 2
SHOWN_FAILURES = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    made = actions.add_parser("build", help="compile the common kinds of every op into a pack")
    made.add_argument("--arch", default=DEFAULT, metavar="NAMES",
                      help=f"architectures, separated by commas (default: {DEFAULT})")
    made.add_argument("--out", help="the file (default: where it is found by itself)")
    made.add_argument("--jobs", type=positive, default=os.cpu_count() or 1,
                      help="how many kernels are compiled at a time (default: one a core)")
    actions.add_parser("list", help="every compiled kernel: name, architecture, bytes, file")
    removed = actions.add_parser("clear", help="remove the kept kernels")
    removed.add_argument("--packs", action="store_true", help="and the packs beside them")
    counted = actions.add_parser("stats", help="how many kernels there are, and how large")
    counted.add_argument("--json", action="store_true", help="as JSON")


def positive(text: str) -> int:
    """An argument that is a positive integer."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return number


def run(arguments: argparse.Namespace) -> int:
    """Carry out the action; 1 where it failed or some kernels did not compile."""
    actions = {"build": run_build, "list": run_list, "clear": run_clear, "stats": run_stats}
    try:
        return actions[arguments.action](arguments)
    except BrokenPipeError:
        # Whoever reads the list has seen enough.
        raise
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        print(f"slipstream kernels: {error}", file=sys.stderr)
        return 1


def run_build(arguments: argparse.Namespace) -> int:
    """Compile a pack, with a bar that shows how far it is."""
    rich = require("rich.progress", "demo")
    find_compiler()
    names = check_architectures(arguments.arch.split(","))
    print(f"looking for the common kernels of {', '.join(names)} ...", flush=True)
    with rich.Progress(rich.TextColumn("{task.description:<40.40}"), rich.BarColumn(),
                       rich.MofNCompleteColumn(), rich.TimeRemainingColumn()) as progress:
        bar = progress.add_task("compiling", total=None)

        def show(done: int, total: int, name: str) -> None:
            progress.update(bar, completed=done, total=total, description=name or "compiling")

        built = build(names, arguments.out, arguments.jobs, show, exercise=exercise_optimizers)
    return report(built)


def report(built: Built) -> int:
    """Say what was built; 1 where kernels did not compile."""
    print(f"{built.kernels} kernels, {built.compiled} of them compiled now, "
          f"{built.nbytes / 2**20:.1f} MiB, in {built.path}")
    for error in built.failed[:SHOWN_FAILURES]:
        print(f"slipstream kernels: {error}", file=sys.stderr)
    if built.failed:
        print(f"slipstream kernels: {len(built.failed)} kernels do not compile and were left out",
              file=sys.stderr)
    return int(bool(built.failed))


def run_list(arguments: argparse.Namespace) -> int:
    """Print a line for each kernel on disk."""
    for each in kept_kernels():
        print(f"{each.name or '?':<48} {each.arch or '-':<7} {each.nbytes:>9}  {each.file}")
    return 0


def run_clear(arguments: argparse.Namespace) -> int:
    """Remove what was kept."""
    files, nbytes = clear(arguments.packs)
    print(f"removed {files} files, {nbytes / 2**20:.1f} MiB")
    return 0


def run_stats(arguments: argparse.Namespace) -> int:
    """Print counts and sizes."""
    found = kept_statistics()
    if arguments.json:
        print(json.dumps(found, indent=2))
        return 0
    print(f"kept   {found['kernels']} kernels, {found['nbytes'] / 2**20:.1f} MiB, "
          f"{found['damaged']} damaged, in {found['folder']}")
    for pack in found["packs"]:
        counts = ", ".join(f"{arch} {count}" for arch, count in sorted(pack["kernels"].items()))
        facts = (counts or "no kernels", f"{pack['nbytes'] / 2**20:.1f} MiB",
                 f"{pack['damaged']} damaged")
        state = ", ".join(facts) if pack["sound"] else "is no pack, or damaged"
        if not pack["there"]:
            state = "is not there (SLIPSTREAM_PACKS names it)"
        print(f"pack   {pack['path']}: {state}")
    return 0


# -- optimizers, whose kernels no op's samples ask for -------------------------------------------
def exercise_optimizers(device: str, dtype: Any) -> None:
    """A few steps of every optimizer, in every usual way, on parameters of a dtype."""
    for name in optim.__all__:
        kind = getattr(optim, name)
        if not inspect.isclass(kind) or kind is optim.Optimizer:
            continue
        for options in variants(kind):
            try:
                take_steps(kind, options, device, dtype)
            except (RuntimeError, TypeError, ValueError):
                # An optimizer refuses some options together, and some dtypes.
                continue


def variants(kind: Any) -> Iterator[dict[str, Any]]:
    """The settings that an optimizer takes, with each of its flags on."""
    parameters = inspect.signature(kind).parameters
    flags = [name for name, each in parameters.items()
             if each.default is False and name not in UNCOMMON]
    ways = [{}, {"foreach": False}] if "foreach" in parameters else [{}]
    chosen = [each for each in SETTINGS if all(name in parameters for name in each)]
    for options, flag, way in itertools.product(chosen, ["", *flags], ways):
        yield {**options, **({flag: True} if flag else {}), **way}


def take_steps(kind: Any, options: dict[str, Any], device: str, dtype: Any) -> None:
    """Two steps, for some updates have another formula at the first."""
    parameters = [ss.ones(shape, dtype=dtype, device=device).requires_grad_()
                  for shape in ((5,), (64, 64), (64, 64))]
    try:
        optimizer = kind(parameters, **options)
    except ValueError:
        # Some take matrices only.
        parameters = parameters[1:]
        optimizer = kind(parameters, **options)

    def closure() -> Any:
        optimizer.zero_grad()
        for each in parameters:
            each.grad = ss.ones_like(each)
        return ss.zeros((), device=device)

    for _ in range(STEPS):
        closure()
        clip_grad_norm_(parameters, 1.0)
        optimizer.step(closure)
