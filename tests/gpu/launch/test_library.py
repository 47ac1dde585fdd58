"""Products by a library: asked little, captured once, launched like kernels of ours.

The library is simulated: one plain kernel computes what cuBLASLt would.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slipstream as ss
from gpu.launch.loops import LOOPS
from gpu.launch.test_replay import steady
from slipstream.core.catalog.table import table
from slipstream.core.kernels.cuda import library, tiles
from slipstream.core.kernels.cuda.library import libraries
from slipstream.core.kernels.cuda.programs import ProgramKernel
from slipstream.core.launch.cuda.memo import VARIANTS
from slipstream.core.launch.cuda.modules import modules
from slipstream.core.native.driver import DriverError
from slipstream.core.vocab.settings import settings
from slipstream.cuda import tunable

TOLERANCES = {"float32": 1e-5, "bfloat16": 1e-2, "float16": 2e-3}


@pytest.fixture
def start(restart: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Start anew with a library beside the driver, which takes small products too."""
    monkeypatch.setattr(tiles, "SMALL_PRODUCTS", 0)
    monkeypatch.setattr(library, "MOST", 0)
    return lambda **options: restart(library=True, **options)


def operands(dtype: str, *shapes: tuple[int, ...]) -> list[Any]:
    """Random tensors on the card."""
    draw = np.random.default_rng(5)
    return [ss.tensor(draw.standard_normal(shape)).to(getattr(ss, dtype)).to("cuda")
            for shape in shapes]


def wide(x: Any) -> Any:
    """Its numbers in NumPy's float64."""
    return x.detach().cpu().to(ss.float64).numpy()


def launched() -> Counter[str]:
    """How often each kernel was launched, by itself or replayed."""
    ss.cuda.synchronize()
    single: Counter[str] = Counter()
    for names in ss.cuda.launch_stats()["single"].values():
        single.update(names)
    return single


CASES: dict[str, Callable[..., Any]] = {
    "matmul": lambda b, x, w: x @ w,
    "transposed": lambda b, x, w: (w.t() @ x.t()).t(),
    "batched rows": lambda b, x, w: x.view(2, -1, x.shape[1]) @ w,
    "linear": lambda b, x, w: ss.nn.functional.linear(x, w.t(), b),
    "linear without bias": lambda b, x, w: ss.nn.functional.linear(x, w.t().contiguous()),
    "addmm": lambda b, x, w: ss.addmm(b, x, w),
}


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("sizes", [(6, 8, 16), (34, 24, 40), (2, 3, 5)])
def test_a_product_is_one_launch(start: Any, name: str, dtype: str,
                                 sizes: tuple[int, int, int]) -> None:
    rows, depth, columns = sizes
    start()
    b, x, w = operands(dtype, (columns,), (rows, depth), (depth, columns))
    found = wide(CASES[name](b, x, w))
    bias = "bias" not in name and name in ("linear", "addmm")
    wanted = wide(x) @ wide(w) + (wide(b) if bias else 0)
    tolerance = TOLERANCES[dtype]
    np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=tolerance,
                               atol=8 * tolerance)
    kernels = launched()
    assert kernels["cublasLt kernel"] == 1
    assert kernels["slip_product"] == 0


def test_what_does_not_fit_goes_to_our_kernel_and_is_made_then(start: Any) -> None:
    start()
    b, x, w = operands("float32", (16,), (6, 8), (8, 16))
    np.testing.assert_allclose(wide(x @ w), wide(x) @ wide(w), rtol=1e-5, atol=1e-5)
    assert not [key for key in modules.functions if key[2][0] == "slip_product"]
    np.testing.assert_allclose(wide(x @ w), wide(x) @ wide(w), rtol=1e-5, atol=1e-5)
    found = ss.addmm(b, x, w, beta=0.5, alpha=2)
    np.testing.assert_allclose(wide(found), 0.5 * wide(b) + 2 * wide(x) @ wide(w), rtol=1e-5,
                               atol=1e-5)
    assert launched() == {**launched(), "slip_product": 1, "cublasLt kernel": 2}


def shifted(x: Any, by: int = 1) -> Any:
    """The same elements and strides, some elements behind an aligned address."""
    made = ss.zeros(x.numel() + by, dtype=x.dtype, device="cuda")[by:].as_strided(
        x.shape, x.stride())
    return made.copy_(x)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", CASES)
def test_misaligned_operands_take_the_same_kernel(start: Any, name: str, dtype: str) -> None:
    start()
    # What is replayed is not told by name.
    ss.cuda.default_stream().backend.set_memo(False)
    b, x, w = operands(dtype, (24,), (34, 40), (40, 24))
    wanted = CASES[name](b, x, w)
    for case in ((shifted(b), x, w), (b, shifted(x), w), (b, x, shifted(w, 3)),
                 (shifted(b, 5), shifted(x, 2), shifted(w))):
        before = launched()
        found = CASES[name](*case)
        new = launched() - before
        assert new["cublasLt kernel"] == 1
        assert new["slip_product"] == 0
        assert wide(found).tobytes() == wide(wanted).tobytes()


def test_a_misaligned_target_is_written_where_it_lies(start: Any) -> None:
    start()
    x, w = operands("float32", (6, 8), (8, 16))
    memory = ss.full((98,), 7.0, device="cuda")
    before = launched()
    ss.matmul(x, w, out=memory[1:97].view(6, 16))
    assert (launched() - before)["cublasLt kernel"] == 1
    assert wide(memory[1:97].view(6, 16)).tobytes() == wide(x @ w).tobytes()
    assert memory[::97].tolist() == [7.0, 7.0]


def test_a_misaligned_product_in_a_graph_and_beside_other_streams(start: Any) -> None:
    start()
    x, w = operands("float32", (6, 8), (8, 16))
    view = shifted(x)
    graph = ss.cuda.CUDAGraph()
    with ss.cuda.graph(graph):
        out = view @ w
    for number in (1.0, 2.0):
        view.copy_(x * number)
        graph.replay()
        assert wide(out).tobytes() == wide((x * number) @ w).tobytes()
    side = ss.cuda.Stream()
    side.wait_stream(ss.cuda.current_stream())
    with ss.cuda.stream(side):
        found = shifted(x) @ w
    others = [ss.zeros(48, device="cuda") for _ in range(4)]
    ss.cuda.current_stream().wait_stream(side)
    assert wide(found).tobytes() == wide(x @ w).tobytes()
    assert len(others) == 4


def test_cards_choose_differently(start: Any) -> None:
    kernels, verdicts = {}, {}
    for model in ("T4", "H100"):
        start(model=model)
        x, w = operands("bfloat16", (6, 8), (8, 16))
        seen = ss.explain(lambda: x @ w)  # noqa: B023
        plan = seen.calls[0].plan
        (architecture,) = ss.cuda.get_arch_list()
        kernels[architecture] = plan.kernel
        verdicts[architecture] = dict(plan.considered)["cuda library.matmul"]
        np.testing.assert_allclose(wide(seen.result), wide(x) @ wide(w), rtol=1e-2, atol=0.05)
    assert kernels == {"sm_75": "cuda product", "sm_90": "cuBLASLt"}
    assert verdicts == {"sm_75": "cards of capability 7.5 multiply no bfloat16",
                        "sm_90": "chosen"}


def test_memo_and_schedule_change_no_bit(start: Any) -> None:
    results = []
    for memo, seed in ((True, 0), (True, 3), (False, 0)):
        start(memo=memo, seed=seed)
        ss.manual_seed(7)
        step = LOOPS["lengths"]()
        results.append([step(number).item() for number in range(10)])
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("name", ["mlp", "lengths"])
def test_the_steady_state_is_replayed(start: Any, name: str) -> None:
    start(zero_cost=True, race=False, poison=False)
    found = steady(LOOPS[name]())
    assert found["replayed"] >= 0.99 * found["launches"]
    assert found["captured"] == found["driver captures"] == 0
    assert found["driver library_questions"] == 0


# -- lengths that were never seen --

# One or two of each class of lengths, and of each kind of row that a mean is taken of.
FIRST = (1, 2, 3, 7, 14, 16, 30, 40, 89, 133, 200, 256)


def network() -> Callable[[int], None]:
    """A step at a length, as benchmarks/gpu has it: five products."""
    model = ss.nn.Sequential(ss.nn.Linear(64, 64), ss.nn.ReLU(), ss.nn.Linear(64, 8)).to("cuda")

    def step(length: int) -> None:
        model.zero_grad()
        model(ss.zeros(length, 64, device="cuda")).square().mean().backward()

    return step


def test_one_product_asks_once_a_class(start: Any) -> None:
    driver = start(zero_cost=True, race=False, poison=False)
    (weight,) = operands("float32", (64, 48))
    order = list(range(1, 257))
    random.Random(1).shuffle(order)
    for times in range(3):
        for length in order:
            ss.zeros(length, 64, device="cuda") @ weight
        ss.cuda.synchronize()
        # Lengths 1 to 256 are nine classes.
        assert driver.statistics()["library_questions"] == 9
        # A length is captured where it comes a second time.  One capture more tells where the
        # kernel's operands are.
        assert driver.statistics()["captures"] == (256 + 1 if times else 0)


def test_a_product_has_the_same_bits_called_and_captured(start: Any) -> None:
    for memo in (True, False):
        start(memo=memo)
        b, x, w = operands("float32", (24,), (34, 40), (40, 24))
        found = [wide(ss.addmm(b, x, w)).tobytes() for _ in range(3)]
        assert found[0] == found[1] == found[2]
        reasons = ss.cuda.launch_stats()["single"]
        assert reasons["first sight"]["cublasLt kernel"] >= 1


def test_what_cannot_be_patched_is_called_each_time(start: Any) -> None:
    driver = start()
    x, w = operands("float32", (6, 8), (8, 16))
    (library,) = [libraries.of(ss.cuda.default_stream().backend)]
    library.launches = lambda call: None
    for _ in range(4):
        np.testing.assert_allclose(wide(x @ w), wide(x) @ wide(w), rtol=1e-5, atol=1e-5)
    single = ss.cuda.launch_stats()["single"]
    assert single["first sight"]["cublasLt kernel"] == 1
    assert single["not capturable"]["cublasLt kernel"] == 3
    assert driver.statistics()["captures"] == 0


def test_lengths_never_seen(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = start(zero_cost=True, race=False, poison=False)
    step = network()
    for length in FIRST:
        step(length)
    ss.cuda.synchronize()
    # No formula is traced and no kernel of one is made for a new length.
    monkeypatch.setattr(ProgramKernel, "__init__", None)
    before, compiled = driver.statistics(), len(modules.functions)
    rest = [length for length in range(1, 257) if length not in FIRST]
    random.Random(2).shuffle(rest)
    for length in rest:
        step(length)
    ss.cuda.synchronize()
    after = driver.statistics()
    found = {name: count - before.get(name, 0) for name, count in after.items()}
    assert len(modules.functions) == compiled
    assert found["compilations"] == found.get("load_module", 0) == 0
    assert found["library_questions"] == 0
    # The library computes its five products itself.
    assert found["captures"] == found.get("destroy_graph", 0) == 0
    alone = ss.cuda.launch_stats()["single"]["first sight"]["cublasLt kernel"]
    assert alone == 5 * (len(rest) + len(FIRST))
    # The second time they are captured, and the kernels are those of other lengths: patched.
    for length in rest:
        step(length)
    ss.cuda.synchronize()
    again = driver.statistics()
    launches = ss.cuda.launch_stats()
    assert again["captures"] - after["captures"] <= 5 * len(rest) + 5
    for length in rest:
        step(length)
    ss.cuda.synchronize()
    assert driver.statistics()["captures"] == again["captures"]
    now = ss.cuda.launch_stats()
    assert now["replayed"] - launches["replayed"] > 0.9 * (now["launches"] - launches["launches"])
    # A step is one sequence, several steps between two waits are another: what comes again with its
    # arguments gets a graph of its own, so many a sequence at most, and then no more.
    for _ in range(2):
        now = ss.cuda.launch_stats()
        assert now["captured"] <= 2 * VARIANTS
        for length in rest:
            step(length)
        ss.cuda.synchronize()
    assert ss.cuda.launch_stats()["captured"] == now["captured"]


def test_small_products_of_new_lengths_ask_the_library_nothing(restart: Any) -> None:
    driver = restart(library=True, zero_cost=True, race=False, poison=False)
    step = network()
    for length in FIRST:
        step(length)
    ss.cuda.synchronize()
    before, compiled = driver.statistics(), len(modules.functions)
    for length in range(1, 257):
        step(length)
    ss.cuda.synchronize()
    after = driver.statistics()
    assert len(modules.functions) == compiled
    assert after["library_questions"] == before["library_questions"] == 0
    # What is captured are windows, a few of each sequence of kernels.
    assert after["captures"] - before["captures"] == 0


@pytest.mark.parametrize(("sizes", "ours"), [
    ((64, 256, 256), "float32 bfloat16"), ((1, 512, 64), "float32 bfloat16"),
    ((256, 64, 1024), "float32 bfloat16"), ((64, 513, 16), ""), ((1, 512, 4096), "bfloat16"),
    ((512, 256, 256), "bfloat16"), ((4096, 512, 512), "")])
def test_which_products_are_ours(restart: Any, sizes: tuple[int, int, int], ours: str) -> None:
    restart(library=True, zero_cost=True)
    rows, depth, columns = sizes
    for dtype in ("float32", "bfloat16"):
        x = ss.zeros(rows, depth, dtype=getattr(ss, dtype), device="cuda")
        w = x.new_zeros(depth, columns)
        before = launched()
        x @ w
        found = launched() - before
        assert found["slip_product"] == (dtype in ours.split())
        assert found["cublasLt kernel"] == (dtype not in ours.split())


def test_an_algorithm_that_cannot_run_is_asked_for_once(start: Any) -> None:
    driver = start(zero_cost=True)
    (weight,) = operands("float32", (64, 48))
    ss.zeros(65, 64, device="cuda") @ weight
    (found,) = libraries.found.values()
    found.lt.library.refused.add(0)
    for length in (66, 67, 68):
        ss.zeros(length, 64, device="cuda") @ weight
    assert driver.statistics()["library_questions"] == 2
    found.lt.library.refused.clear()
    found.lt.library.refused.add(1)
    ss.zeros(69, 64, device="cuda") @ weight
    assert driver.statistics()["library_questions"] == 2


def test_what_the_library_lacks_is_asked_for_once_a_class(start: Any) -> None:
    driver = start()
    weight = operands("float32", (16, 8))[0].to(ss.float64)
    for length in range(17, 33):
        x = ss.ones(length, 16, dtype=ss.float64, device="cuda")
        np.testing.assert_allclose(wide(x @ weight), wide(x) @ wide(weight))
    assert driver.statistics()["library_questions"] == 1


def test_windows_are_cut_alike_whichever_size_comes_first(start: Any) -> None:
    marks = []
    for length in (5, 200):
        start()
        (weight,) = operands("float32", (64, 48))
        for _ in range(2):
            ss.zeros(length, 64, device="cuda") @ weight
        marks.append([list(each.marks.values()) for each in libraries.found.values()])
    assert marks[0] == marks[1]


def test_captures_leave_nothing(start: Any) -> None:
    driver = start()
    (weight,) = operands("float32", (64, 48))
    for length in (*range(1, 20), *range(1, 20)):
        ss.zeros(length, 64, device="cuda") @ weight
    ss.cuda.synchronize()
    assert driver.statistics()["captures"] == 19 + 1
    graphs = ss.cuda.launch_stats()["graphs"]
    assert Counter(type(each).__name__ for each in driver.objects.values())["Graph"] == graphs


@pytest.mark.parametrize("call", ["begin_capture", "end_capture", "create_stream", "launch"])
def test_a_failing_call_is_an_error_and_the_next_product_works(start: Any, call: str) -> None:
    restarted = start(fail={call: 2 if call == "create_stream" else 1})
    x, w = (ss.ones(4, 8).to("cuda"), ss.ones(8, 4).to("cuda"))
    if "capture" in call:
        # The library itself computes what comes for the first time.
        assert (x @ w).tolist() == [[8.0] * 4] * 4
    with pytest.raises(DriverError, match=call):
        x @ w
    assert (x @ w).tolist() == [[8.0] * 4] * 4
    assert restarted.calls["end_capture"] >= restarted.calls["begin_capture"] - 1


# -- epilogues --

@pytest.mark.parametrize("use_gelu", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_an_activated_sum_is_one_launch(start: Any, dtype: str, use_gelu: bool) -> None:
    start()
    b, x, w = operands(dtype, (24,), (33, 40), (40, 24))
    before = launched()
    out = ss.addmm_activation(b, x, w, use_gelu=use_gelu)
    assert launched() - before == {"cublasLt kernel": 1}
    found = wide(out)
    total = wide(b) + wide(x) @ wide(w)
    wanted = gelu(total) if use_gelu else np.maximum(total, 0)
    tolerance = TOLERANCES[dtype]
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def gelu(x: Any) -> Any:
    """x Phi(x), Phi by a tanh."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))


def slope(x: Any) -> Any:
    """The slope of gelu."""
    step = 1e-6
    return (gelu(x + step) - gelu(x - step)) / (2 * step)


# What the epilogue computes, and what goes to our own kernel: an auxiliary row of 7 elements does.
@pytest.mark.parametrize(("columns", "kernel"), [(24, "cublasLt kernel"), (7, "slip_product")])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_gelu_keeps_what_backward_needs(start: Any, dtype: str, columns: int,
                                        kernel: str) -> None:
    start()
    leaves = [each.requires_grad_() for each in operands(dtype, (columns,), (33, 40),
                                                         (40, columns))]
    before = launched()
    out = ss.addmm_activation(*leaves, use_gelu=True)
    assert launched() - before == {kernel: 1}
    b, x, w = map(wide, leaves)
    total = b + x @ w
    tolerance = 4 * TOLERANCES[dtype]
    np.testing.assert_allclose(wide(out), gelu(total), rtol=tolerance, atol=tolerance)
    out.sum().backward()
    g = slope(total)
    for leaf, wanted in zip(leaves, (g.sum(0), g @ w.T, x.T @ g), strict=True):
        np.testing.assert_allclose(wide(leaf.grad), wanted, rtol=tolerance, atol=40 * tolerance)


def growth(make: Callable[[], Any]) -> tuple[int, int]:
    """Bytes that a call takes at most, and while its result lives."""
    ss.cuda.reset_peak_memory_stats()
    before = ss.cuda.memory_allocated()
    held = make()
    grown = ss.cuda.memory_allocated() - before
    del held
    return ss.cuda.max_memory_allocated() - before, grown


def test_without_gradients_nothing_is_kept(start: Any) -> None:
    start()
    b, x, w = [each.requires_grad_() for each in operands("bfloat16", (8,), (4, 8), (8, 8))]
    one, _ = growth(lambda: ss.empty(4, 8, dtype=ss.bfloat16, device="cuda"))
    # The workspace of the stream is made at the first call.
    ss.addmm_activation(b, x, w, use_gelu=True)
    assert growth(lambda: ss.addmm_activation(b, x, w, use_gelu=True)) == (2 * one, 2 * one)
    with ss.no_grad():
        assert growth(lambda: ss.addmm_activation(b, x, w, use_gelu=True)) == (one, one)


def test_float32_takes_relu_by_the_epilogue_and_gelu_exactly(start: Any) -> None:
    start()
    b, x, w = operands("float32", (24,), (33, 40), (40, 24))
    before = launched()
    relu = ss.addmm_activation(b, x, w)
    assert launched() - before == {"cublasLt kernel": 1}
    assert wide(relu).tobytes() == wide((ss.addmm(b, x, w)).relu()).tobytes()
    exact = ss.nn.functional.gelu(ss.addmm(b, x, w), approximate="tanh")
    before = launched()
    found = ss.addmm_activation(b, x, w, use_gelu=True)
    # The epilogue's tanh is not known to be exact in float32.
    assert (launched() - before).total() == 2
    assert wide(found).tobytes() == wide(exact).tobytes()


def doubles() -> list[Any]:
    """A row, and two matrices that can be multiplied, in float64."""
    return [each.to(ss.float64).requires_grad_()
            for each in operands("float32", (3,), (4, 5), (5, 3))]


def test_gradients_of_gradients(start: Any) -> None:
    start()
    both = table["addmm_activated"]
    for call in (lambda *each: ss.addmm_activation(*each, use_gelu=True), ss.addmm_activation,
                 # What is kept may be used too, alone or beside the result.
                 lambda *each: ss.add(*both.call((*each, True, True), None)),
                 lambda *each: both.call((*each, True, True), None)[0],
                 lambda *each: both.call((*each, True, True), None)[1]):
        assert ss.autograd.gradcheck(call, tuple(doubles()))
        assert ss.autograd.gradgradcheck(call, tuple(doubles()))


# -- algorithms chosen by measuring --

@pytest.fixture
def tuned(start: Any, tmp_path: Path, monkeypatch: Any) -> Any:
    """Start with tuning on and a cache folder of its own; off again at the end."""
    monkeypatch.setattr(settings, "cache", str(tmp_path))

    def begin() -> Any:
        driver = start(race=False)
        tunable.enable()
        return driver

    yield begin
    tunable.enable(False)


def test_the_fastest_of_eight_is_taken(tuned: Any) -> None:
    driver = tuned()
    x, w = operands("float32", (40, 16), (16, 24))
    np.testing.assert_allclose(wide(x @ w), wide(x) @ wide(w), rtol=1e-5, atol=1e-5)
    ((text, times),) = tunable.get_results()
    assert text == "40 x 24 x 16 float32"
    assert len(times) == 8
    (library,) = libraries.found.values()
    ((key, known),) = library.lt.classes.items()
    assert known.algorithms[0][0] == times.index(min(times))
    assert key[1]
    before = driver.statistics()["library_questions"]
    ss.zeros(50, 16, device="cuda") @ w
    assert driver.statistics()["library_questions"] == before == 1


def kept(folder: str) -> list[Path]:
    """The files of choices: they are shorter than any kernel."""
    return [each for each in Path(folder).glob("??/*") if each.stat().st_size < 200]


def test_choices_are_kept_on_disk(tuned: Any) -> None:
    tuned()
    x, w = operands("float32", (40, 16), (16, 24))
    x @ w
    times = tunable.get_results()[0][1]
    assert len(kept(settings.cache)) == 1
    driver = tuned()
    x, w = operands("float32", (33, 16), (16, 24))
    x @ w
    assert driver.statistics()["library_questions"] == 0
    assert not tunable.get_results()
    (library,) = libraries.found.values()
    assert next(iter(library.lt.classes.values())).algorithms[0][0] == times.index(min(times))


def test_a_damaged_choice_is_measured_again(tuned: Any) -> None:
    tuned()
    x, w = operands("float32", (40, 16), (16, 24))
    x @ w
    (path,) = kept(settings.cache)
    content = bytearray(path.read_bytes())
    content[0] ^= 3
    path.write_bytes(bytes(content))
    driver = tuned()
    x, w = operands("float32", (40, 16), (16, 24))
    np.testing.assert_allclose(wide(x @ w), wide(x) @ wide(w), rtol=1e-5, atol=1e-5)
    assert driver.statistics()["library_questions"] == 1


def test_tuning_reaches_products_that_were_planned_before(start: Any, tuned: Any) -> None:
    tuned()
    tunable.enable(False)
    x, w = operands("float32", (40, 16), (16, 24))
    x @ w
    assert not tunable.get_results()
    tunable.enable()
    assert tunable.is_enabled()
    x @ w
    assert len(tunable.get_results()) == 1
