"""The kernels' texts: the same in every process, told by their primitives, and real CUDA C++."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slipstream as ss
from gpu.compiling import uncached
from gpu.kernels.formulas import Formula, Run, cuda, numbers
from slipstream.core.kernels.cuda.prelude import PRELUDE
from slipstream.core.vocab import optional

F32, BF16 = ss.float32, ss.bfloat16


def softmax_of(x: Any, dims: Any) -> Any:
    """A chain of two reductions and maps."""
    raised = (x - x.amax(dims, keepdim=True)).exp()
    return raised / raised.sum(dims, keepdim=True)


def runs() -> dict[str, Run]:
    """A kernel of each schedule."""
    wide, tall = cuda(numbers([6, 64], BF16)), cuda(numbers([1000, 33]))
    return {
        "flat": Run(Formula(lambda a, b: a * b + 1, [F32]), a=tall, b=tall),
        "broadcast": Run(Formula(lambda a, b: a * b, [F32]), a=tall, b=tall[0]),
        "copy": Run(Formula(lambda a: a, [F32]), a=tall.transpose(0, 1)),
        "steps": Run(Formula(lambda a: a, [F32]), a=tall[:, ::2]),
        "short rows": Run(Formula(lambda x: x.sum(-1), [F32]), x=cuda(np.ones([70000, 32],
                                                                              np.float32))),
        "split place": Run(Formula(lambda x: (x.argmax(-1), x.sum(-1)), [ss.int64, F32]),
                           x=cuda(numbers([1, 70000]))),
        "row": Run(Formula(lambda x: softmax_of(x, -1), [BF16]), x=wide),
        "long row": Run(Formula(lambda x: softmax_of(x, -1), [BF16]),
                        x=cuda(numbers([2, 40000], BF16))),
        "split row": Run(Formula(lambda x: softmax_of(x, -1), [F32]), x=cuda(numbers([1, 70000]))),
        "column": Run(Formula(lambda x: softmax_of(x, 0), [F32]), x=tall),
        "split column": Run(Formula(lambda x: x.sum(0), [F32]), x=cuda(numbers([20000, 8]))),
        "place": Run(Formula(lambda x: x.argmax(-1), [ss.int64]), x=wide),
        "double": Run(Formula(lambda x: x.sum(-1), [ss.complex128]),
                      x=cuda(np.ones([3, 50], np.complex128))),
    }


def test_texts_are_the_same_every_time() -> None:
    first, second = [{name: run.launch().source() for name, run in runs().items()}
                     for _ in range(2)]
    assert first == second
    assert len(set(first.values())) == len(first)


def test_kernels_are_named_after_their_primitives() -> None:
    made = runs()
    assert "mul_add_f32(" in made["flat"].launch().source()
    assert "amax_sub_exp_sum_div_bf16(" in made["row"].launch().source()
    assert "copy_4(" in made["copy"].launch().source()


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_100"])
def test_nvrtc_compiles_them(arch: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    # Compiling needs neither a card nor its driver.
    compiler = optional.load("core.native.real.compiler").Compiler()
    for run in runs().values():
        bound = run.launch().binding
        for stage in getattr(bound, "stages", [None]):
            code = (bound if stage is None else stage.launch).code
            assert compiler.compile(PRELUDE + code.source, code.name, (), arch)


def backward_of(g: Any, y: Any) -> Any:
    """The gradient of a softmax."""
    return (g - (g * y).sum(-1, keepdim=True)) * y


def busy_runs() -> list[Run]:
    """Kernels that ask for much at once: no value of theirs may leave the registers."""
    found = []
    for dtype in (F32, BF16):
        long, odd = [cuda(numbers(shape, dtype)) for shape in ((2, 50304), (2, 50257))]
        flat = cuda(numbers([70000], dtype))
        tall = cuda(numbers([2000, 768], dtype))
        found += [Run(Formula(lambda x: softmax_of(x, -1), [dtype]), x=each)
                  for each in (long, odd)]
        found += [Run(Formula(backward_of, [dtype]), g=each, y=each) for each in (long, odd)]
        both = Formula(lambda x: (x.sum(0), x.argmax(0)), [dtype, ss.int64])
        found += [Run(Formula(lambda x: x.sum(0), [dtype]), x=flat), Run(both, x=tall)]
        found += [Run(Formula(lambda x: x.argmax(0), [ss.int64]), x=flat)]
        found += [Run(Formula(lambda x: x, [dtype]), x=tall.transpose(0, 1))]
    return found


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_nothing_is_spilled(arch: str) -> None:
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc")
    options = [f"--gpu-architecture={arch}".encode(), b"--fmad=false", b"--std=c++17",
               b"--device-as-default-execution-space", b"--ptxas-options=-v", *uncached(nvrtc)]
    for run in busy_runs():
        bound = run.launch().binding
        first = bound.stages[0].launch if hasattr(bound, "stages") else bound
        source = (PRELUDE + first.code.source).encode()
        _, program = nvrtc.nvrtcCreateProgram(source, b"kernel.cu", 0, [], [])
        done, = nvrtc.nvrtcCompileProgram(program, len(options), options)
        assert done == nvrtc.nvrtcResult.NVRTC_SUCCESS
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = bytes(size)
        nvrtc.nvrtcGetProgramLog(program, log)
        nvrtc.nvrtcDestroyProgram(program)
        assert b" 0 bytes spill stores" in log, log.decode()
