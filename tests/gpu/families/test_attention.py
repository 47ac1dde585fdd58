"""Attention in tiles, forward and backward, against NumPy in double precision.

What no score matrix may cost is counted: launches, bytes that the tape holds, bytes at the peak.
"""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import numpy as np
import pytest
from catalogue import host

import slipstream as ss
from gpu.compiling import uncached
from gpu.families.attention_cases import (
    HALVES,
    NEAR,
    Case,
    assert_near,
    attention,
    cuda,
    mask_of,
    numbers,
    reference,
)
from slipstream.core.catalog.table import ops
from slipstream.core.dispatch.plans import drop_plans
from slipstream.core.kernels.cuda.prelude import PRELUDE

# -- results --------------------------------------------------------------------------------------
SIZES = {
    "ragged": (2, 2, 2, 70, 90, 64, 64), "one query": (1, 2, 2, 1, 75, 32, 32),
    "odd widths": (1, 3, 1, 21, 18, 20, 7), "tiny": (1, 1, 1, 3, 2, 1, 1),
    "groups": (1, 4, 2, 33, 70, 16, 48), "wide": (1, 2, 1, 40, 35, 128, 128),
    "widest": (1, 2, 1, 20, 36, 256, 256), "fewer keys": (1, 1, 1, 90, 40, 80, 72),
    "long": (1, 1, 1, 140, 150, 96, 128),
}


# Each kind of tiles both ways, and its other dtype one way.
WAYS = [(ss.bfloat16, False), (ss.bfloat16, True), (ss.float32, False), (ss.float32, True),
        (ss.float16, True), (ss.float64, True)]


@pytest.mark.parametrize(("dtype", "causal"), WAYS)
@pytest.mark.parametrize("name", SIZES)
def test_results_and_gradients(name: str, dtype: Any, causal: bool) -> None:
    Case(SIZES[name], dtype, is_causal=causal).check()


@pytest.mark.parametrize("dtype", NEAR, ids=lambda each: each.name)
@pytest.mark.parametrize("kind", ["bool", "added"])
def test_masks(kind: str, dtype: Any) -> None:
    case = Case((2, 2, 1, 37, 45, 24, 24), dtype)
    out = case.check(mask_of(kind, 37, 45))
    assert not host(out.detach())[:, :, 1].any()


@pytest.mark.parametrize("shape", [(2, 1, 37, 45), (1, 2, 1, 45), (37, 1), (45,), (2, 2, 37, 45)])
def test_masks_are_broadcast(shape: tuple[int, ...]) -> None:
    random = np.random.RandomState(3)
    for mask in (random.rand(*shape) > 0.3, random.randn(*shape).astype(np.float32)):
        Case((2, 2, 2, 37, 45, 16, 16), ss.float32).check(mask)


@pytest.mark.parametrize("scale", [0.5, -0.3, 0.0, 1e-50])
@pytest.mark.parametrize("dtype", [ss.float32, ss.bfloat16], ids=lambda each: each.name)
def test_scales(dtype: Any, scale: float) -> None:
    Case((1, 1, 1, 30, 40, 16, 16), dtype, scale=scale).check(mask_of("bool", 30, 40))


def test_large_scores_do_not_overflow() -> None:
    case = Case((1, 1, 1, 20, 70, 16, 16), ss.float32, scale=100.0)
    found = host(attention(*case.operands(), scale=100.0).detach())
    q, k, v, g = case.arrays
    # Scores are rounded before they are exponents.
    scores = float(np.abs(q @ np.swapaxes(k, -1, -2)).max()) * 100.0
    assert scores > 800.0
    wanted = reference(q, k, v, g, scale=100.0)[0]
    assert np.abs(found - wanted).max() < scores * 2.0 ** -22 * np.abs(v).max()


@pytest.mark.parametrize("dtype", [ss.float32, ss.bfloat16], ids=lambda each: each.name)
def test_what_is_not_finite_comes_through(dtype: Any) -> None:
    q, k, v = [ss.ones(1, 1, 20, 16, dtype=dtype, device="cuda") for _ in range(3)]
    q[0, 0, 3, 2] = math.nan
    v[0, 0, 5, 1] = math.inf
    found = host(attention(q, k, v))[0, 0]
    assert np.isnan(found[3]).all()
    assert np.isinf(np.delete(found, 3, 0)[:, 1]).all()
    np.testing.assert_array_equal(np.delete(np.delete(found, 3, 0), 1, 1), 1)


@pytest.mark.parametrize("model", ["T4", "A100", "L4", "H100"])
def test_tiles_fit_every_card(model: str, restart: Any) -> None:
    restart(model=model)
    tiled = 0
    for dtype, width in itertools.product((ss.bfloat16, ss.float32, ss.float64), (64, 128, 256)):
        drop_plans(ops.attention)
        Case((1, 1, 1, 20, 20, width, width), dtype, is_causal=True).check()
        tiled += len(ops.attention.plans)
    # A T4 has no bfloat16 and little shared memory; float64 of the widest heads asks for much.
    assert tiled == {"T4": 0, "A100": 9, "L4": 8, "H100": 9}[model]


# -- far from zero, and what is no number ---------------------------------------------------------
ROUNDED = [ss.float32, ss.bfloat16, ss.float16]


def on_both(arrays: list[np.ndarray], dtype: Any, mask: Any = None, **facts: Any) -> list[Any]:
    """The result and its three gradients on the CPU, which keeps all scores, and on the device."""
    results = []
    for device in ("cpu", "cuda"):
        operands = [ss.tensor(each).to(dtype).to(device).requires_grad_() for each in arrays[:3]]
        given = None if mask is None else mask.to(device)
        out = attention(*operands, given, **facts)
        out.backward(ss.tensor(arrays[3]).to(dtype).to(device))
        results.append([host(each).astype(np.float64)
                        for each in (out.detach(), *[x.grad for x in operands])])
    return results


@pytest.mark.parametrize("lowest", [-1e9, -1e5, "min"])
@pytest.mark.parametrize("dtype", ROUNDED, ids=lambda each: each.name)
def test_rows_whose_mask_is_far_below_zero(dtype: Any, lowest: Any) -> None:
    case = Case((1, 2, 1, 70, 40, 16, 32), dtype)
    far = ss.finfo(dtype).min if lowest == "min" else lowest
    # Scores are lost in the mask: the weights of such a row are equal.
    case.arrays[0][:, :, ::3] = 0
    mask = ss.zeros(70, 40)
    mask[:, 5:9] = far
    mask[::3] = far
    for kind in {ss.float32, dtype if far >= ss.finfo(dtype).min else ss.float32}:
        wanted, found = on_both(case.arrays, dtype, mask.to(kind), enable_gqa=True)
        np.testing.assert_allclose(found[0][:, :, ::3], np.broadcast_to(
            case.arrays[2].mean(-2, keepdims=True), (1, 2, 24, 32)), atol=NEAR[dtype])
        for each, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(each, other, atol=NEAR[dtype] * np.abs(other).max())


@pytest.mark.parametrize("facts", [{}, {"is_causal": True}, {"scale": -0.5}, "bool", "added"],
                         ids=str)
@pytest.mark.parametrize("dtype", ROUNDED, ids=lambda each: each.name)
def test_scores_beyond_what_is_exact(dtype: Any, facts: Any) -> None:
    # Sums of small numbers times a power of 2 are the same in any order; the largest are met often.
    random, unit = np.random.RandomState(2), 2.0 ** (14 if dtype is ss.float16 else 30)
    q, k = [random.randint(-1, 2, (1, 2, length, 16)) * unit for length in (70, 90)]
    v, g = [random.randint(-2, 3, (1, 2, length, 16)) / 64 for length in (90, 70)]
    mask = None
    if isinstance(facts, str):
        kept = mask_of("bool", 70, 90)
        mask = ss.tensor(kept if facts == "bool" else
                         np.where(kept, 0, -np.inf).astype(np.float32))
        facts = {}
    wanted, found = on_both([q, k, v, g], dtype, mask, **facts)
    for each, other in zip(found, wanted, strict=True):
        assert np.isfinite(other).all()
        assert other.any()
        np.testing.assert_allclose(each, other, atol=NEAR[dtype] * np.abs(other).max())


@pytest.mark.parametrize("kind", ["none", "causal", "bool", "added", "dead", "dead added"])
@pytest.mark.parametrize("dtype", ROUNDED, ids=lambda each: each.name)
def test_what_is_no_number_is_where_it_is_on_the_cpu(dtype: Any, kind: str) -> None:
    case = Case((1, 1, 1, 12, 14, 16, 16), dtype)
    mask = None
    if kind not in ("none", "causal"):
        array = mask_of("bool" if kind == "dead" else kind.rsplit(maxsplit=1)[-1], 12, 14)
        mask = ss.tensor(np.full_like(array, 0 if kind == "dead" else -np.inf)
                         if "dead" in kind else array)
    if "dead" not in kind:
        case.arrays[0][0, 0, 3, 2] = math.nan
    wanted, found = on_both(case.arrays, dtype, mask, is_causal=kind == "causal")
    if "dead" in kind:
        assert not any(each.any() for each in found)
    # The CPU's `where` gives no slope to keys that a row does not see; here, as with PyTorch, a row
    # that is no number has none that is one.
    assert np.isnan(found[2])[np.isnan(wanted[2])].all()
    wanted[2][np.isnan(found[2])] = math.nan
    for each, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(each, other, atol=NEAR[dtype] * 8, equal_nan=True)


# -- operands as they lie -------------------------------------------------------------------------
COUNTED = ("kernel_launches", "graph_kernel_nodes")


def kernels(call: Any) -> tuple[int, Any]:
    """How many kernels a call launches, and what it gives."""
    ss.cuda.synchronize()
    before = ss.cuda.driver_stats()
    result = call()
    ss.cuda.synchronize()
    after = ss.cuda.driver_stats()
    return sum(after[name] - before[name] for name in COUNTED), result


@pytest.mark.parametrize("dtype", [ss.float32, ss.bfloat16], ids=lambda each: each.name)
@pytest.mark.parametrize("width", [16, 20])
def test_heads_of_rows_are_not_copied(dtype: Any, width: int) -> None:
    case = Case((2, 3, 3, 18, 18, width, width), dtype)
    packed = cuda(np.stack([each.transpose(0, 2, 1, 3) for each in case.arrays[:3]], 2), dtype)
    operands = [packed[:, :, n].transpose(1, 2).detach().requires_grad_() for n in range(3)]
    count, out = kernels(lambda: attention(*operands))
    assert count == 1
    # Heads are joined again as they lie.
    assert out.transpose(1, 2).is_contiguous()
    case.check(operands=operands)


def test_rows_that_begin_anywhere() -> None:
    sizes, results = (1, 2, 2, 21, 30, 16, 16), []
    for shift in (0, 1):
        case = Case(sizes, ss.bfloat16)
        operands = []
        for array in case.arrays[:3]:
            flat = cuda(np.concatenate([np.zeros(shift), array.reshape(-1)]), ss.bfloat16)
            operands.append(flat[shift:].view(array.shape).requires_grad_())
        out = case.check(operands=operands)
        results.append([host(x) for x in (out.detach(), *[each.grad for each in operands])])
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(first.view(np.uint16), second.view(np.uint16))


def test_columns_that_are_not_neighbours() -> None:
    case = Case((1, 2, 2, 19, 23, 16, 16), ss.float32)
    case.check(operands=[cuda(np.swapaxes(each, -1, -2).copy(), ss.float32).transpose(-2, -1)
                         .detach().requires_grad_() for each in case.arrays[:3]])


@pytest.mark.parametrize("shapes", [
    ((5, 8), (7, 8), (7, 4)), ((3, 5, 8), (3, 7, 8), (3, 7, 8)),
    ((2, 3, 5, 8), (1, 3, 7, 8), (2, 1, 7, 8)), ((2, 2, 3, 5, 8), (2, 2, 3, 7, 8), (2, 2, 3, 7, 8)),
    ((2, 3, 5, 8), (7, 8), (7, 8)), ((2, 1, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8)),
])
def test_any_leading_dims(shapes: Any) -> None:
    results = {}
    for device in ("cpu", "cuda"):
        operands = [ss.tensor(numbers(n, shape, ss.float64)).to(device).requires_grad_()
                    for n, shape in enumerate(shapes)]
        out = attention(*operands)
        out.sum().backward()
        results[device] = [host(x) for x in (out.detach(), *[each.grad for each in operands])]
    for found, wanted in zip(results["cuda"], results["cpu"], strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("shapes", [((1, 3, 264), (1, 5, 264), (1, 5, 4)), ((1, 0, 8), (1, 5, 8),
                                    (1, 5, 8)), ((1, 3, 8), (1, 0, 8), (1, 0, 8))])
def test_what_the_kernel_does_not_take(shapes: Any) -> None:
    operands = [numbers(n, shape, ss.float64) for n, shape in enumerate(shapes)]
    found, wanted = [host(attention(*[ss.tensor(each).to(device) for each in operands]))
                     for device in ("cuda", "cpu")]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_a_mask_gets_its_gradient() -> None:
    results = {}
    for device in ("cpu", "cuda"):
        operands = [ss.tensor(numbers(n, shape, ss.float64)).to(device).requires_grad_()
                    for n, shape in enumerate(((1, 2, 5, 8), (1, 2, 7, 8), (1, 2, 7, 8), (5, 7)))]
        attention(*operands).sum().backward()
        results[device] = host(operands[3].grad)
    np.testing.assert_allclose(results["cuda"], results["cpu"], rtol=1e-9, atol=1e-12)


# -- dropout --------------------------------------------------------------------------------------
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", NEAR, ids=lambda each: each.name)
@pytest.mark.parametrize("keys", [40, 41])
def test_dropout_drops_the_same_weights_forward_and_backward(keys: int, dtype: Any,
                                                             causal: bool) -> None:
    case = Case((2, 4, 2, 35, keys, 32, 16), dtype, dropout_p=0.3, is_causal=causal)
    ss.manual_seed(11)
    drawn = ops.bernoulli_mask.call((ss.empty(2, 4, 35, keys, device="cuda"), 0.7), None)
    ss.manual_seed(11)
    case.check(kept=host(drawn) / 0.7)


def test_dropout_of_all_and_of_none() -> None:
    case = Case((1, 1, 1, 8, 8, 16, 16), ss.float32, dropout_p=1.0)
    case.check(kept=0.0)
    state = ss.cuda.get_rng_state()
    Case((1, 1, 1, 8, 8, 16, 16), ss.float32, dropout_p=0.0).check()
    assert ss.equal(state, ss.cuda.get_rng_state())


def test_dropout_keeps_the_sum() -> None:
    q, k = [ss.rand(1, 2, 256, 16, device="cuda", dtype=ss.bfloat16) for _ in range(2)]
    ones = ss.ones(1, 2, 256, 16, device="cuda", dtype=ss.bfloat16)
    sums = host(attention(q, k, ones, dropout_p=0.25)).astype(np.float64)[..., 0]
    # A sum of 256 weights near 1 / 256, each kept with p = 0.75: its deviation is near 0.036.
    assert abs(sums.mean() - 1) < 0.01
    assert 0.025 < sums.std() < 0.05


def test_a_graph_draws_anew_and_the_same_for_both_directions() -> None:
    q, k, v = [ss.rand(1, 1, 40, 16, device="cuda").requires_grad_() for _ in range(3)]
    with ss.no_grad():
        v.fill_(1.0)
    graph = ss.cuda.CUDAGraph()
    with ss.cuda.graph(graph):
        out = attention(q, k, v, dropout_p=0.5)
        (slope,) = ss.autograd.grad(out, v, ss.ones_like(out))
    seen = []
    for _ in range(3):
        graph.replay()
        # Each weight that was kept is in both sums.
        seen.append(out[..., 0].sum().item())
        assert slope[..., 0].sum().item() == pytest.approx(seen[-1], rel=1e-5)
    assert len(set(seen)) == 3


def test_graphs_of_both_directions_drop_the_same() -> None:
    x = ss.rand(1, 1, 40, 16, device="cuda").requires_grad_()
    ones = ss.ones(1, 1, 40, 16, device="cuda").requires_grad_()

    def call(values: Any) -> Any:
        return attention(x.detach(), x.detach(), values, dropout_p=0.5)

    graphed = ss.cuda.make_graphed_callables(call, (ones,))
    seen = []
    for _ in range(3):
        ones.grad = None
        out = graphed(ones)
        out.backward(ss.ones_like(out))
        seen.append(out[..., 0].sum().item())
        assert ones.grad[..., 0].sum().item() == pytest.approx(seen[-1], rel=1e-5)
    assert len(set(seen)) == 3


def test_a_gradient_waits_for_the_graph_that_drew() -> None:
    x = ss.rand(1, 1, 8, 16, device="cuda").requires_grad_()
    first, second = ss.cuda.CUDAGraph(), ss.cuda.CUDAGraph()
    with ss.cuda.graph(first):
        out = attention(x, x, x, dropout_p=0.5)
    given = ss.ones(1, 1, 8, 16, device="cuda")
    with ss.cuda.graph(second):
        (slope,) = ss.autograd.grad(out, x, given)
    with pytest.raises(RuntimeError, match="replay that one first"):
        second.replay()
    first.replay()
    second.replay()
    assert host(slope).any()


# -- gradients of gradients -----------------------------------------------------------------------
@pytest.mark.parametrize("facts", [{}, {"is_causal": True}, {"dropout_p": 0.4}],
                         ids=["plain", "causal", "dropout"])
def test_double_backward(facts: dict[str, Any]) -> None:
    inputs = [cuda(numbers(n, shape, ss.float64), ss.float64).requires_grad_()
              for n, shape in enumerate(((1, 2, 4, 3), (1, 1, 5, 3), (1, 1, 5, 2)))]

    def call(*operands: Any) -> Any:
        ss.manual_seed(3)
        return attention(*operands, enable_gqa=True, **facts)

    assert ss.autograd.gradcheck(call, inputs)
    assert ss.autograd.gradgradcheck(call, inputs)


# -- what it costs --------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [ss.float32, ss.bfloat16], ids=lambda each: each.name)
@pytest.mark.parametrize("facts", [{}, {"is_causal": True}, {"dropout_p": 0.1}],
                         ids=["plain", "causal", "dropout"])
def test_launches(dtype: Any, facts: dict[str, Any]) -> None:
    case = Case((1, 4, 2, 40, 48, 16, 16), dtype, **facts)
    operands, grad = case.operands(), cuda(case.arrays[3], dtype)
    forward, out = kernels(lambda: attention(*operands, **case.facts))
    backward, _ = kernels(lambda: out.backward(grad))
    assert forward == 1
    assert backward == 2


def test_the_tape_holds_operands_result_and_two_numbers_a_row() -> None:
    case = Case((2, 4, 4, 70, 90, 16, 32), ss.bfloat16)
    operands = case.operands()
    text = ss.explain(lambda: attention(*operands, is_causal=True))
    (call,) = [inner for inner in text.calls[0].inner if inner.op == "attention"]
    assert call.plan is not None
    assert "tiled by hand" in call.plan.kernel
    held = 2 * sum(math.prod(each.shape) for each in (*operands, text.result))
    held += 2 * 4 * 2 * 4 * 70
    assert sum(node["saved_bytes"] for node in call.tape) == held
    assert sum(each["nbytes"] for each in call.allocations) < 2 * held


@pytest.mark.parametrize("dtype", HALVES, ids=lambda each: each.name)
def test_no_scores_in_memory(dtype: Any) -> None:
    length = 1100
    case = Case((1, 1, 1, length, length, 16, 16), dtype, is_causal=True)
    operands, grad = case.operands(), cuda(case.arrays[3], dtype)
    ss.cuda.synchronize()
    ss.cuda.reset_peak_memory_stats()
    before = ss.cuda.memory_allocated()
    out = attention(*operands, is_causal=True)
    out.backward(grad)
    ss.cuda.synchronize()
    # The scores would be 1.2 million elements.
    assert ss.cuda.max_memory_allocated() - before < length * length // 2
    wanted = reference(*case.arrays, np.tril(np.ones((length, length), bool)))
    for found, each in zip((out, *[x.grad for x in operands]), wanted, strict=True):
        assert_near(found, each, dtype)


def test_the_same_bits_every_time() -> None:
    results = []
    for _ in range(2):
        case = Case((1, 4, 2, 50, 60, 32, 32), ss.bfloat16)
        operands = case.operands()
        out = attention(*operands, enable_gqa=True)
        out.backward(cuda(case.arrays[3], ss.bfloat16))
        results.append([host(x).view(np.uint16)
                        for x in (out.detach(), *[each.grad for each in operands])])
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(first, second)


def sources(dtype: Any, width: int, facts: dict[str, Any], mask: Any) -> list[Any]:
    """The code of the three kernels of a call."""
    for op in (ops.attention, ops.attention_slopes):
        drop_plans(op)
    Case((1, 2, 2, 64, 64, width, width), dtype, **facts).check(mask)
    (forward,), (backward,) = [list(op.plans.values()) for op in (ops.attention,
                                                                  ops.attention_slopes)]
    launches = forward.binding, *(stage.launch for stage in backward.binding.stages)
    return [launch.code for launch in launches]


def spilled_at_most(code: Any) -> int:
    """Bytes: four words of what does not change, where two blocks share the registers; and what
    NVRTC 13.0, unlike 13.5, has to lay aside of masks.
    """
    if "#define RESIDENT 2" in code.source and code.name == "slip_attention":
        return 16
    masked = "#define MASK 1" in code.source and "#define WIDTH 128" in code.source
    return 52 if masked and code.name == "slip_attention_keys" else 0


@pytest.mark.parametrize("facts", [{"is_causal": True}, {}], ids=["causal", "masked"])
@pytest.mark.parametrize("width", [64, 128, 256])
@pytest.mark.parametrize("dtype", [ss.bfloat16, ss.float32], ids=lambda each: each.name)
def test_nothing_is_spilled(dtype: Any, width: int, facts: dict[str, Any]) -> None:
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc")
    common = [b"--fmad=false", b"--std=c++17",
              b"--device-as-default-execution-space", b"--ptxas-options=-v", *uncached(nvrtc)]
    for code in sources(dtype, width, facts, None if facts else mask_of("bool", 64, 64)):
        options = [*(each.encode() for each in code.options or ("--gpu-architecture=sm_90",)),
                   *common]
        _, program = nvrtc.nvrtcCreateProgram((PRELUDE + code.source).encode(), b"kernel.cu", 0,
                                              [], [])
        done, = nvrtc.nvrtcCompileProgram(program, len(options), options)
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = bytes(size)
        nvrtc.nvrtcGetProgramLog(program, log)
        nvrtc.nvrtcDestroyProgram(program)
        assert done == nvrtc.nvrtcResult.NVRTC_SUCCESS, log.decode()
        (stored,) = re.findall(rb"(\d+) bytes spill stores", log)
        assert int(stored) <= spilled_at_most(code), log.decode()


# -- what is refused ------------------------------------------------------------------------------
def test_errors_name_the_operands() -> None:
    q, k = [ss.ones(1, 2, 5, 8, device="cuda") for _ in range(2)]
    with pytest.raises(RuntimeError, match="same dtype"):
        attention(q, k.half(), k)
    with pytest.raises(RuntimeError, match="attn_mask dtype"):
        attention(q, k, k, ss.ones(5, 5, device="cuda", dtype=ss.int32))
    with pytest.raises(RuntimeError):
        attention(q, k[..., :4], k)
    with pytest.raises(RuntimeError):
        attention(q, k, k, ss.ones(3, 5, device="cuda", dtype=ss.bool))
    with pytest.raises(ValueError, match="dropout probability"):
        attention(q, k, k, dropout_p=1.5)
    with pytest.raises(RuntimeError, match="is_causal"):
        attention(q, k, k, ss.ones(5, 5, device="cuda", dtype=ss.bool), is_causal=True)


def test_the_least_finite_number_of_a_mask_is_no_missing_key() -> None:
    ss.manual_seed(0)
    q, k, v = (ss.randn(1, 1, 4, 8) for _ in range(3))
    mask = ss.zeros(4, 4)
    mask[3] = ss.finfo(ss.float32).min
    attend = ss.nn.functional.scaled_dot_product_attention
    wanted = attend(q, k, v, mask)
    found = attend(q.cuda(), k.cuda(), v.cuda(), mask.cuda()).cpu()
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-6)
