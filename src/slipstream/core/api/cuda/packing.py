"""Packs of kernels made ahead of time: what the catalogue commonly asks for, without a card.

Nobody lists the common kinds: the samples of every entry run on a driver that launches nothing,
and what they ask to be compiled is noted.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.core.api.interop import tensor
from slipstream.core.api.tensor import Tensor
from slipstream.core.catalog.table import ops, table
from slipstream.core.dispatch.entry import FORMULA_KINDS
from slipstream.core.dispatch.op import Op
from slipstream.core.launch.cuda.modules import kept_path, key_of, modules, pack_folder, read_kept
from slipstream.core.launch.cuda.packs import Pack, Packed, write_pack
from slipstream.core.launch.door import backends
from slipstream.core.native.driver import CompileError
from slipstream.core.native.drivers import drivers
from slipstream.core.native.recording import RecordingDriver, Source, capability_of
from slipstream.core.vocab import dtypes, optional
from slipstream.core.vocab.dtypes import DType
from slipstream.core.vocab.settings import settings

DTYPES = (dtypes.float32, dtypes.bfloat16, dtypes.float16)
# Of ops that take no floats.
OTHERS = {"bool": dtypes.bool_, "int": dtypes.int64, "complex": dtypes.complex64}
# How many times as large as in the samples the sizes of a formula's operands are: kernels of rows
# and of whole vectors are others than those of a few elements.  Sizes of 0 and 1 stay.
SCALES = (1, 64, 256)
MISSING = "kernels are compiled by NVRTC, which is missing: {}\n  mend: {}"
# What an op raises for a sample in a dtype or size that it does not take.
REFUSALS = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, OverflowError)
Exercise = Callable[[str, Any], None]
Progress = Callable[[int, int, str], None]


@dataclass
class Built:
    """What `build` did: kernels in the pack, how many were compiled now, which did not compile."""

    path: Path
    kernels: int = 0
    compiled: int = 0
    nbytes: int = 0
    failed: list[CompileError] = field(default_factory=list)


def find_compiler() -> Any:
    """NVRTC, without card or driver; raises RuntimeError with the mend where it is missing."""
    mend = optional.install_command("cuda")
    try:
        compiler = optional.load("core.native.real.compiler").Compiler()
        compiler.compiler_version()
    except (ImportError, OSError, RuntimeError) as error:
        raise RuntimeError(MISSING.format(str(error).strip() or type(error).__name__,
                                          mend)) from error
    return compiler


def check_architectures(names: Sequence[str]) -> tuple[str, ...]:
    """Architectures such as sm_90, each once; raises ValueError for what NVRTC does not compile."""
    chosen = tuple(dict.fromkeys(names))
    known = optional.load("core.native.real.compiler").supported()
    for name in chosen:
        capability_of(name)
        if name not in known:
            raise ValueError(f"NVRTC does not compile for {name}: it knows {', '.join(known)}")
    return chosen


@contextmanager
def recorded(architectures: Sequence[str]) -> Iterator[RecordingDriver]:
    """Put a driver that launches nothing under everything: device n is of architecture n.

    Raises RuntimeError in a process that has used a CUDA device: what it knows of its devices
    would be wrong.  For the same reason the process can use none afterwards.
    """
    if any(device.type == "cuda" for device in backends):
        raise RuntimeError("this process has used a CUDA device already: record kernels in a "
                           "process of their own, as `slipstream kernels build` does")
    driver = RecordingDriver(tuple(architectures))
    before = settings.memo
    settings.memo = False
    drivers.use(driver)
    try:
        yield driver
    finally:
        settings.memo = before
        driver.closed = True


def common_sources(architectures: Sequence[str], names: Sequence[str] | None = None,
                   exercise: Exercise | None = None) -> list[Source]:
    """What the catalogue's samples ask to be compiled, in order.

    float32, bfloat16 and float16; sizes as in the samples and larger ones; with gradients where
    there are any.  ``names``: those ops alone; ``exercise(device, dtype)``: what else runs.
    """
    with recorded(architectures) as driver:
        for place in range(len(architectures)):
            for name in sorted(table) if names is None else names:
                run_samples(table[name], f"cuda:{place}")
            for dtype in DTYPES if exercise is not None else ():
                exercise(f"cuda:{place}", dtype)  # type: ignore[misc]
        return list(driver.sources)


def run_samples(op: Op, device: str, floats: tuple[DType, ...] = DTYPES) -> None:
    """Call an op as its samples do, in every common kind; ``floats``: the dtypes of floats."""
    if not op.entry.samples or op.entry.host:
        return
    kinds = floats if "float" in op.entry.dtypes else tuple(
        [OTHERS[kind] for kind in op.entry.dtypes])
    scales = SCALES if op.entry.kind in FORMULA_KINDS else SCALES[:1]
    for sample, dtype, scale in itertools.product(op.entry.samples(), kinds, scales):
        for gradients in (False, True):
            run_sample(op, Sampled(sample, dtype, device, scale), gradients)


class Sampled:
    """A sample as a call: its arrays as tensors of a dtype on a device, grown ``scale`` times."""

    def __init__(self, sample: Any, dtype: Any, device: str, scale: int) -> None:
        self.args, self.kwargs = sample
        self.dtype = dtype
        self.device = device
        self.scale = scale

    def call(self, op: Op, gradients: bool) -> list[Any]:
        """Call an op; the tensors among its results."""
        given = {**dict(zip(op.names, self.args, strict=False)), **self.kwargs}
        wanted = (op.entry.gradient or op.names) if gradients else ()
        made = {name: self.made(value, name in wanted) for name, value in given.items()}
        if "device" in op.names and "self" not in op.names:
            made["device"] = self.device
        results = op.call(tuple([made.pop(name) for name, _ in zip(op.names, self.args,
                                                                  strict=False)]), made)
        found = results if isinstance(results, tuple | list) else [results]
        return [each for each in found if isinstance(each, Tensor)]

    def made(self, value: Any, gradient: bool) -> Any:
        """An argument: arrays become tensors."""
        if isinstance(value, list) and any(isinstance(each, np.ndarray) for each in value):
            return [self.made(each, gradient) for each in value]
        if not isinstance(value, np.ndarray | np.generic):
            return value
        array = np.asarray(value)
        floats = array.dtype == np.float64
        made = self.grown(array, floats) if self.scale > 1 else self.copied(array, floats)
        return made.requires_grad_() if gradient and made.is_floating_point() else made

    def copied(self, array: np.ndarray, floats: bool) -> Any:
        """A tensor of an array's elements: what is read of indices and sizes is right."""
        kept = array.astype(self.dtype.numpy) if floats else array
        return tensor(kept, device=self.device)

    def grown(self, array: np.ndarray, floats: bool) -> Any:
        """A tensor that nobody fills."""
        shape = tuple([size if size < 2 else size * self.scale for size in array.shape])
        dtype = self.dtype if floats else dtypes.BY_NUMPY[array.dtype]
        return ops.empty.call((shape,), {"dtype": dtype, "device": self.device})


def run_sample(op: Op, sample: Sampled, gradients: bool) -> None:
    """Call an op, and backward through it; what an op refuses asks for no kernel."""
    with warnings.catch_warnings(), suppress(*REFUSALS):
        warnings.simplefilter("ignore")
        for result in sample.call(op, gradients):
            if result.requires_grad:
                upstream = ops.empty_like.call((result.detach(),), {})
                result.backward(upstream, retain_graph=True)


def build(architectures: Sequence[str], out: str | Path | None = None, jobs: int | None = None,
          progress: Progress | None = None, **what: Any) -> Built:
    """Compile what the catalogue commonly asks for and write it as a pack.

    ``out``: the file, by default ``common.pack`` in the cache folder, where it is found by itself;
    what it holds of other architectures stays, and nothing known is compiled again.  ``jobs``: how
    many threads compile.  ``progress(done, in all, kernel's name)`` is called from this thread.
    ``what``: ``compiler`` in NVRTC's place, and what `common_sources` takes.

    Raises RuntimeError with the mend where NVRTC is missing, OSError where the file cannot be
    written.  Kernels that do not compile are left out and listed.
    """
    compiler = what.pop("compiler", None) or find_compiler()
    modules.prelude = optional.load("core.kernels.cuda.prelude").PRELUDE
    sources = common_sources(architectures, **what)
    built = Built(Path(out) if out is not None else pack_folder() / "common.pack")
    kernels = kept_kernels(built.path, architectures)
    old = Pack(built.path)
    wanted = {key_of(compiler, each.text, each.options, each.arch): each for each in sources}
    missing = {}
    for key, source in wanted.items():
        packed = old.read(key)
        image = packed.image if packed is not None else read_kept(kept_path(key), key)
        if image is None:
            missing[key] = source
        else:
            kernels.append(Packed(key, source.name, source.arch, image))
    kernels += compiled_kernels(built, compiler, missing, jobs or os.cpu_count() or 1,
                                Report(progress, len(wanted)))
    built.kernels = len(kernels)
    built.nbytes = write_pack(built.path, kernels)
    return built


def kept_kernels(path: Path, architectures: Sequence[str]) -> list[Packed]:
    """What a pack that is written again holds of other architectures."""
    return [each for each in Pack(path).kernels() if each.arch not in architectures]


class Report:
    """Tells how far a build is: what was known already counts as done."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress = progress
        self.total = total
        self.done = 0

    def advance(self, count: int, name: str) -> None:
        """So many kernels more are there, ``name`` the last of them."""
        self.done += count
        if self.progress is not None:
            self.progress(self.done, self.total, name)


def compiled_kernels(built: Built, compiler: Any, missing: dict[str, Source], jobs: int,
                     report: Report) -> list[Packed]:
    """Compile several at a time, in any order; those that fail are noted."""
    report.advance(report.total - len(missing), "")
    found = []
    workers = ThreadPoolExecutor(jobs)
    try:
        tasks = {workers.submit(compiler.compile, each.text, each.name, each.options,
                                each.arch): key for key, each in missing.items()}
        for task in as_completed(tasks):
            key = tasks[task]
            source = missing[key]
            try:
                found.append(Packed(key, source.name, source.arch, task.result()))
            except CompileError as error:
                built.failed.append(error)
            report.advance(1, source.name)
    finally:
        workers.shutdown(cancel_futures=True)
    built.compiled = len(found)
    return found
