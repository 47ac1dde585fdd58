"""The flags of `slipstream.backends`, and the levels of float32 products."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import slipstream as ss
from slipstream import backends


@pytest.fixture(autouse=True)
def _exact() -> Iterator[None]:
    yield
    ss.set_float32_matmul_precision("highest")


def test_products_are_exact_by_default():
    assert ss.get_float32_matmul_precision() == "highest"
    assert backends.cuda.matmul.allow_tf32 is False
    assert backends.cuda.matmul.fp32_precision == "ieee"


@pytest.mark.parametrize(("level", "allowed"), [("highest", False), ("high", True),
                                                ("medium", True)])
def test_levels_and_flags_are_one_thing(level, allowed):
    ss.set_float32_matmul_precision(level)
    assert ss.get_float32_matmul_precision() == level
    assert backends.cuda.matmul.allow_tf32 is allowed
    backends.cuda.matmul.allow_tf32 = not allowed
    assert ss.get_float32_matmul_precision() == ("highest" if allowed else "high")
    backends.cuda.matmul.fp32_precision = "tf32" if allowed else "ieee"
    assert backends.cuda.matmul.allow_tf32 is allowed


def test_wrong_values_are_refused():
    with pytest.raises(RuntimeError, match="highest"):
        ss.set_float32_matmul_precision("low")
    with pytest.raises(TypeError, match="bool"):
        backends.cuda.matmul.allow_tf32 = "yes"
    with pytest.raises(RuntimeError, match="Invalid precision"):
        backends.cuda.matmul.fp32_precision = "half"
    with pytest.raises(AttributeError, match="Unknown attribute"):
        backends.cuda.matmul.allow_tf64 = True
    with pytest.raises(AttributeError, match="Unknown attribute"):
        _ = backends.cuda.matmul.allow_tf64


def test_reduced_reductions_are_kept():
    name = "allow_bf16_reduced_precision_reduction"
    assert getattr(backends.cuda.matmul, name) is False
    setattr(backends.cuda.matmul, name, True)
    assert getattr(backends.cuda.matmul, name) is True
    setattr(backends.cuda.matmul, name, False)


def test_flags_of_cudnn():
    assert not backends.cudnn.is_available()
    assert backends.cudnn.version() is None
    before = backends.cudnn.benchmark
    with backends.cudnn.flags(enabled=False, benchmark=True, deterministic=True):
        assert (backends.cudnn.enabled, backends.cudnn.benchmark) == (False, True)
    assert (backends.cudnn.enabled, backends.cudnn.benchmark) == (True, before)
    backends.cudnn.benchmark = True
    assert backends.cudnn.benchmark is True
    backends.cudnn.benchmark = before


def test_what_is_not_here_says_so():
    for part in (backends.mps, backends.mkl, backends.mkldnn, backends.openmp):
        assert part.is_available() is False
    assert backends.mps.is_built() is False
    assert backends.cuda.is_built() is True
    assert backends.cpu.get_cpu_capability() in ("AVX512", "AVX2", "SVE256", "DEFAULT")


def test_flags_of_attention():
    for name in ("flash", "mem_efficient", "math", "cudnn"):
        enabled = getattr(backends.cuda, f"{name}_sdp_enabled")
        assert enabled()
        getattr(backends.cuda, f"enable_{name}_sdp")(False)
        assert not enabled()
        getattr(backends.cuda, f"enable_{name}_sdp")(True)
