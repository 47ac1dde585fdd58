"""Waits: which calls make the host wait, how they are refused, told of and reported."""

from __future__ import annotations

import inspect
import io
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from catalogue import NAMES, case_of, main_dtype

import slipstream as ss
from slipstream.core.catalog.table import table

cuda = pytest.importorskip("slipstream.cuda")
CARD = "cuda:0"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    ss.sync_report(reset=True)
    yield
    cuda.set_sync_debug_mode(0)
    ss.sync_report(reset=True)


def vector() -> Any:
    return ss.tensor([3.0, 0.0, 1.0], device="cuda")


def one() -> Any:
    return ss.tensor([2.0], device="cuda")


def count() -> Any:
    return ss.tensor([2], device="cuda")


def branch(flag: Any) -> int:
    return 1 if flag else 2


def repeats(x: Any) -> Any:
    return ss.full(x.shape, 2, dtype=ss.int64, device="cuda")


def grown_beside(x: Any) -> Any:
    """A tensor that grows on another stream than its own."""
    stream = cuda.Stream()
    stream.wait_stream(cuda.current_stream())
    with cuda.stream(stream):
        x.resize_(3000)
    cuda.current_stream().wait_stream(stream)
    return x


def recorded() -> Any:
    event = cuda.Event()
    event.record()
    return event


# The usual table: a call, its name in the error, and what it is called on.
WAITING: dict[str, tuple[Callable[..., Any], Callable[[], Any]]] = {
    "item": (lambda x: x.item(), one),
    "float": (float, one),
    "int": (int, one),
    "complex": (complex, one),
    "bool": (bool, one),
    "if": (branch, one),
    "__index__": (lambda x: [0] * x.__index__(), count),
    "print": (lambda x: print(x, file=io.StringIO()), vector),
    "cpu": (lambda x: x.cpu(), vector),
    "to": (lambda x: x.to("cpu"), vector),
    "numpy": (lambda x: x.numpy(force=True), vector),
    "tolist": (lambda x: x.tolist(), vector),
    "copy_": (lambda x: ss.empty(3).copy_(x), vector),
    "nonzero": (lambda x: x.nonzero(), vector),
    "unique": (lambda x: x.unique(), vector),
    "masked_select": (lambda x: x.masked_select(x > 0), vector),
    "x[mask]": (lambda x: x[x > 0], vector),
    "repeat_interleave": (lambda x: x.repeat_interleave(repeats(x)), vector),
    "save": (lambda x: ss.save({"x": x}, io.BytesIO()), vector),
    "synchronize": (lambda x: cuda.synchronize(), vector),
    "Stream.synchronize": (lambda x: cuda.current_stream().synchronize(), vector),
    "Event.synchronize": (lambda x: recorded().synchronize(), vector),
    "empty_cache": (lambda x: cuda.empty_cache(), vector),
}
SHOWN = {"if": "bool", "x[mask]": "masked_select"}
NOT_WAITING: dict[str, Callable[[Any], Any]] = {
    "shape": lambda x: (x.shape, x.size(), x.numel(), x.stride(), x.dtype, x.device, len(x)),
    "allocation": lambda x: (ss.empty(100, device="cuda"), ss.zeros_like(x), x.new_ones(3)),
    "arithmetic": lambda x: ((x + 1) * x).sum() / x.max(),
    "matmul": lambda x: x @ x,
    "views": lambda x: (x[1:], x.view(3, 1), x[0]),
    "to the device": lambda x: (ss.ones(3).cuda(), ss.tensor([1.0], device="cuda")),
    "mask assignment": lambda x: x.__setitem__(x > 0, 1.0),
    "masked by a tensor": lambda x: x.__setitem__(x > 0, ss.tensor(2.0, device="cuda")),
    "where": lambda x: ss.where(x > 0, x, 0),
    "nonzero(size=)": lambda x: x.nonzero(size=2),
    "nonzero_static": lambda x: ss.nonzero_static(x, size=2),
    "masked_select(size=)": lambda x: x.masked_select(x > 0, size=2),
    "tril_indices": lambda x: ss.tril_indices(3, 3, device="cuda"),
    "non-blocking copy": lambda x: x.to("cpu", non_blocking=True),
    "clipping": lambda x: ss.nn.utils.clip_grad_norm_([ss.nn.Parameter(x)], 1.0),
    "growing": lambda x: ss.ones(3, device="cuda").resize_(100),
    "growing beside a stream": lambda x: grown_beside(x),
    "index_put_ under a mask": lambda x: x.index_put_((x > 0,), ss.tensor(2.0, device="cuda")),
    "index_put under a mask": lambda x: x.index_put((x > 0,), ss.ones(1, device="cuda")),
    "repeats of known sum": lambda x: x.repeat_interleave(repeats(x), output_size=6),
    "places of known sum": lambda x: ss.repeat_interleave(repeats(x), output_size=6),
    "one repeat of known sum": lambda x: x.repeat_interleave(repeats(x)[:1], output_size=6),
    "one_hot of known classes": lambda x: ss.nn.functional.one_hot((x > 0).long(), 2),
    "events": lambda x: recorded().query(),
    "list index": lambda x: x[[0, 1]],
}


@pytest.mark.parametrize("name", WAITING)
def test_what_waits_is_refused_with_name_operand_line_and_mend(name: str) -> None:
    call, make = WAITING[name]
    operand = make()
    with ss.no_sync(), pytest.raises(ss.SyncError) as caught:
        call(operand)
    text = str(caught.value)
    rule, where, mend = text.split("\n")
    line = inspect.getsourcelines(call)[1] if name not in ("float", "int", "complex", "bool") else 0
    assert f"would wait for {CARD}" in rule
    assert __file__ in rule
    assert not line or line <= int(rule.partition(__file__ + ":")[2].split(" ")[0].rstrip(","))
    assert where.startswith(f"  in {SHOWN.get(name, name)}(")
    if "synchronize" not in name and name not in ("empty_cache", "copy_"):
        assert "self: " + repr(operand.spec) in where
    assert mend.startswith("  mend: ")
    # Nothing happened: the same call works outside of the scope.
    call(operand)


@pytest.mark.parametrize("name", NOT_WAITING)
def test_what_does_not_wait_is_not_refused(name: str) -> None:
    operand = vector()
    before = ss.sync_report().count
    with ss.no_sync():
        NOT_WAITING[name](operand)
    assert ss.sync_report().count == before


def is_public(op: Any) -> bool:
    """Whether users find an op under a name of their own."""
    entry = op.entry
    return bool(entry.samples) and (entry.path != "" or entry.method)


def refused(op: Any, sample: Any) -> bool:
    """Whether a sample of an op raises under `no_sync`."""
    case = case_of(op, sample, main_dtype(op), device="cuda")
    with ss.no_sync():
        try:
            op.call(case.args, case.kwargs)
        except ss.SyncError:
            return True
    return False


def test_the_ops_that_raise_are_those_whose_entries_say_so() -> None:
    public = [name for name in NAMES if is_public(table[name])]
    found = {name: [refused(table[name], sample) for sample in table[name].entry.samples()]
             for name in public}
    raising = {name for name, outcomes in found.items() if any(outcomes)}
    declared = {name for name in public if table[name].entry.waits != "never"}
    assert raising == declared
    assert len(declared) > 10
    always = {name for name in public if table[name].entry.waits == "always"}
    sometimes = {name: outcomes for name, outcomes in found.items()
                 if name in always and not all(outcomes)}
    assert not sometimes


def test_ops_without_samples_that_wait() -> None:
    x = vector()
    calls = {"equal": lambda: ss.equal(x, x), "allclose": lambda: ss.allclose(x, x),
             "normal_of": lambda: ss.normal(0.0, x), "masked_scatter_": lambda:
             x.masked_scatter_(x > 0, x), "index": lambda: x[x > 0],
             "index_put_": lambda: x.index_put_((x > 0,), ss.ones(2, device="cuda"))}
    for name, call in calls.items():
        assert table[name].entry.waits != "never"
        with ss.no_sync(), pytest.raises(ss.SyncError):
            call()


def test_scopes_nest_and_belong_to_a_thread() -> None:
    x = one()
    others = []
    with ss.no_sync():
        with ss.no_sync(False):
            assert x.item() == 2.0
        with pytest.raises(ss.SyncError):
            x.item()
        thread = threading.Thread(target=lambda: others.append(x.item()))
        thread.start()
        thread.join()
    assert others == [2.0]
    assert x.item() == 2.0


def test_decorators() -> None:
    x = one()

    @ss.no_sync()
    def step() -> float:
        return x.item()

    @ss.no_sync
    def bare() -> float:
        return float(x)

    for function in (step, bare):
        with pytest.raises(ss.SyncError):
            function()
    with pytest.raises(TypeError, match="must be bool"):
        ss.no_sync(1)


def test_modes_of_the_process() -> None:
    x = one()
    assert cuda.get_sync_debug_mode() == 0
    cuda.set_sync_debug_mode("warn")
    assert cuda.get_sync_debug_mode() == 1
    with pytest.warns(UserWarning, match="the host waits for cuda:0") as caught:
        x.item()
    assert caught[0].filename == __file__
    cuda.set_sync_debug_mode("error")
    with pytest.raises(ss.SyncError):
        x.item()
    with ss.no_sync(False):
        x.item()
    cuda.set_sync_debug_mode(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x.item()


def test_a_line_is_warned_of_once() -> None:
    x = one()
    cuda.set_sync_debug_mode(1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(5):
            float(x)
    assert len(caught) == 1
    assert "float(self: float32[1]@cuda:0)" in str(caught[0].message)


def line() -> int:
    """The caller's line."""
    frame: Any = inspect.currentframe()
    return int(frame.f_back.f_lineno)


def test_the_report_names_lines_counts_and_cost() -> None:
    x = vector()
    total = 0.0
    for _ in range(12):
        total += x.sum().item()
        here = line() - 1
    x.cpu()
    report = ss.sync_report()
    rows = {(row.kind, row.file): row for row in report.waits}
    row = rows["item", __file__]
    assert (row.line, row.count, row.device, row.nbytes) == (here, 12, CARD, 48)
    assert row.microseconds > 0
    assert row.text.startswith("total += x.sum().item()")
    assert rows["cpu", __file__].count == 1
    assert report.count == sum(each.count for each in report.waits)
    told = [text for text in report.advice if f":{here}:" in text]
    assert len(told) == 1
    assert "item made the host wait 12 times" in told[0]
    assert f"{here}" in str(report)
    assert report.to_dict()["waits"][0]["kind"] in ("item", "cpu")


def test_the_report_can_begin_anew() -> None:
    one().item()
    assert ss.sync_report(reset=True).count
    assert ss.sync_report().count == 0
    assert str(ss.sync_report()) == "the host waited for no device"


def test_tiny_copies_and_float64_are_reported_once() -> None:
    for _ in range(15):
        ss.tensor([1.0, 2.0], device="cuda")
        tiny = line() - 1
    for _ in range(3):
        wide = ss.tensor(np.ones(4), device="cuda")
        copied = line() - 1
    for _ in range(3):
        wide * vector()[:1]
        mixed = line() - 1
    advice = ss.sync_report().advice
    for number, words in ((tiny, "15 tiny copies"), (copied, "float64 went to cuda:0, 3 times"),
                          (mixed, "makes the result float64")):
        found = [text for text in advice if f"{__file__}:{number}:" in text]
        assert len(found) == 1, advice
        assert words in found[0]


def test_waits_on_pinned_copies_are_waits() -> None:
    there = vector().to("cpu", non_blocking=True)
    with ss.no_sync(), pytest.raises(ss.SyncError, match="pinned copy"):
        there.sum()
    assert there.sum().item() == 4.0


def test_masks_are_written_without_a_count() -> None:
    x = ss.arange(12, dtype=ss.float32, device="cuda").view(4, 3)
    expected = np.arange(12, dtype=np.float32).reshape(4, 3)
    mask = ss.tensor([True, False, True, False], device="cuda")
    rows = ss.tensor([7.0, 8.0, 9.0], device="cuda")
    with ss.no_sync():
        x[mask] = rows
        x[mask[:, None] & (x > 7)] = -1.0
    expected[[True, False, True, False]] = [7, 8, 9]
    expected[np.array([True, False, True, False])[:, None] & (expected > 7)] = -1
    np.testing.assert_array_equal(x.cpu().numpy(), expected)
    with pytest.raises((RuntimeError, IndexError)):
        x[mask] = ss.ones(2, device="cuda")


def test_growing_keeps_the_elements() -> None:
    x = ss.arange(5, device="cuda")
    x.resize_(3000)
    assert x[:5].tolist() == [0, 1, 2, 3, 4]
    # What takes the old block next, on its own stream, comes after the copy on the other one.
    x = ss.arange(5, device="cuda")
    grown_beside(x)
    other = ss.full((5,), 7, dtype=ss.int64, device="cuda")
    assert x[:5].tolist() == [0, 1, 2, 3, 4]
    assert other.tolist() == [7] * 5


def test_index_put_under_a_mask() -> None:
    x, mask = vector(), ss.tensor([True, False, True], device="cuda")
    assert x.index_put((mask,), ss.tensor(5, device="cuda")).tolist() == [5, 0, 5]
    assert x.index_put_((mask,), ss.ones(1, device="cuda")).tolist() == [1, 0, 1]
    assert x.index_put_((mask,), ss.tensor([8.0, 9.0], device="cuda")).tolist() == [8, 0, 9]
    with pytest.raises((RuntimeError, IndexError)):
        x.index_put_((mask,), ss.ones(3, device="cuda"))


def test_repeats_of_a_known_sum() -> None:
    x, counts = vector(), ss.tensor([2, 0, 1], device="cuda")
    assert x.repeat_interleave(counts, output_size=3).tolist() == [3, 3, 1]
    assert ss.repeat_interleave(counts, output_size=3).tolist() == [0, 0, 2]
    one = ss.tensor([2], device="cuda")
    assert x.repeat_interleave(one, output_size=6).tolist() == [3, 3, 0, 0, 1, 1]
    assert x.view(1, 3).repeat_interleave(one, 0, output_size=2).tolist() == [[3, 0, 1]] * 2
    for wrong, size in ((counts, 2), (counts, 5), (ss.tensor([2, -1, 2], device="cuda"), 3)):
        for call in (x.repeat_interleave, ss.repeat_interleave):
            with pytest.raises(IndexError):
                call(wrong, output_size=size).tolist()


def test_what_does_not_wait_costs_nothing() -> None:
    x = vector()
    for _ in range(3):
        y = (x + x).mul_(0.5)
    seen: list[str] = []

    def watch(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.endswith(("waiting.py", "advice.py")):
            seen.append(frame.f_code.co_name)

    sys.setprofile(watch)
    try:
        for _ in range(20):
            y = (x + x).mul_(0.5)
        quiet = list(seen)
        y.sum().item()
    finally:
        sys.setprofile(None)
    assert quiet == []
    assert "host_waits" in seen


def test_the_report_prints(capsys: pytest.CaptureFixture[str]) -> None:
    ss.sync_report(reset=True).print()
    assert "the host waited for no device" in capsys.readouterr().out
    for _ in range(11):
        vector().sum().item()
    ss.sync_report().print()
    out = capsys.readouterr().out
    assert "the host waited 11 times" in out
    assert "item" in out
    assert "11 times" in out
