"""Profiles of programs on a card: what they are bound by, and whose each kernel is.

On the simulated driver all times are virtual, so that counts and times are the same on any machine.
"""

from __future__ import annotations

import inspect
import json

import pytest

import slipstream as ss
from gpu.conftest import REAL
from gpu.launch import loops, planted
from slipstream import profiler
from slipstream.cli import main
from slipstream.core.api.profiling import Session
from slipstream.core.launch.cuda import timing
from slipstream.core.launch.cuda.staging import PIECE
from slipstream.core.native.simulated import clock
from slipstream.core.vocab.modes import modes
from slipstream.core.vocab.records import Plan
from slipstream.core.vocab.ring import LAYERS, exports
from slipstream.profiler import html
from slipstream.profiler.diagnosis import why_alone

STEPS = 6
# Which bound a verdict names follows from times.
MEASURED = "a card's times are measured: make gpu ARGS=profiles"


@pytest.fixture(autouse=True)
def fresh(request):
    """Each program meets a driver of its own: virtual times do not depend on earlier tests."""
    if not REAL:
        request.getfixturevalue("restart")(race=False)


def profiled(step, steps=STEPS, warm=3, **options):
    for _ in range(warm):
        step()
    with profiler.profile(**options) as seen:
        for _ in range(steps):
            step()
            seen.step()
    return seen


def plans_of(ring):
    """The plans that a ring knows."""
    return [name for name in ring.names if isinstance(name, Plan)]


def line_of(function, text):
    """The line of a function's source that holds a text."""
    lines, first = inspect.getsourcelines(function)
    return first + next(place for place, line in enumerate(lines) if text in line)


@pytest.mark.skipif(REAL, reason=MEASURED)
@pytest.mark.parametrize(("make", "bound"), planted.PLANTED,
                         ids=[make.__name__ for make, _ in planted.PLANTED])
def test_planted_programs_are_named(make, bound):
    seen = profiled(make())
    facts = profiler.summary(seen.recorded())
    assert facts["bound"] == bound, facts
    assert facts["verdict"].startswith(f"{bound}-bound: ")
    assert seen.report().splitlines()[0] == facts["verdict"]
    # The verdict is no near thing.
    others = [spent for part, spent in facts["parts"].items() if part != bound]
    assert facts["parts"][bound] > 1.3 * max(others), facts


@pytest.mark.skipif(REAL, reason=MEASURED)
@pytest.mark.parametrize(("make", "bound"), planted.PLANTED,
                         ids=[make.__name__ for make, _ in planted.PLANTED])
def test_planted_programs_are_named_by_events_too(make, bound):
    step = make()
    for _ in range(3):
        step()
    session = Session(by_events=True)
    session.start()
    for _ in range(STEPS):
        step()
    facts = profiler.summary(session.stop())
    assert facts["bound"] == bound, facts


def test_the_line_that_hands_memory_out_is_named():
    # What other tests handed out lay at addresses that are given out again.
    exports.clear()
    seen = profiled(planted.launch_of_exported_memory())
    recording = seen.recorded()
    facts = profiler.summary(recording)
    assert facts["launches"] == 120
    assert facts["alone"] == {"exported storage": 120}
    line = line_of(planted.launch_of_exported_memory, "data_ptr")
    why = why_alone(recording, "exported storage")
    assert f"at planted.py:{line}" in why
    assert "`mask`" in why
    # On a card which bound is the larger one depends on who else uses it.
    if not REAL:
        assert why in seen.verdict()
        assert "120 launches" in seen.verdict()
        assert "120 are not replayed" in seen.verdict()


@pytest.mark.skipif(REAL, reason=MEASURED)
@pytest.mark.parametrize(("make", "text"), [
    (planted.wait_for_item, "sum().item()"), (planted.wait_for_if, "if (y"),
    (planted.copy_to_the_card, ".to("), (planted.copy_to_the_host, ".cpu()"),
    (planted.data_of_a_loader, "next(batches)"), (planted.gpu_of_a_chain, "y.exp()")])
def test_the_line_to_mend_is_named(make, text):
    assert f"planted.py:{line_of(make, text)}" in profiled(make()).verdict()


@pytest.mark.parametrize("name", ["mlp", "digits"])
@pytest.mark.parametrize("by_events", [False, True])
def test_every_kernel_belongs_to_a_line_and_an_op(name, by_events):
    step = getattr(loops, name)()
    for number in range(8):
        step(number)
    before = ss.cuda.launch_stats()
    session = Session(by_events=by_events)
    session.start()
    for number in range(8, 20):
        step(number)
    recording = session.stop()
    after = ss.cuda.launch_stats()
    kernels = recording.of("kernel")
    assert len(kernels) == after["launches"] - before["launches"] > 100
    assert [event for event in kernels if event.file != loops.__file__] == []
    assert [event.name for event in kernels if not event.op] == []
    replayed = after["replayed"] - before["replayed"]
    assert sum(event.replayed for event in kernels) == replayed > 0
    assert sum(event.value for event in recording.of("send")) == len(kernels)
    assert recording.untimed == 0
    assert all(event.end > event.start for event in kernels)


@pytest.mark.skipif(REAL, reason="the simulated driver tells the true times")
def test_times_by_events_are_the_drivers():
    totals = []
    for by_events in (False, True):
        step = planted.gpu_of_a_chain()
        for _ in range(4):
            step()
        session = Session(by_events=by_events)
        session.start()
        for _ in range(8):
            step()
        kernels = session.stop().of("kernel")
        totals.append(sum(event.end - event.start for event in kernels))
        assert any(event.estimated for event in kernels) == by_events
    told, measured = totals
    # Seeded times differ from run to run by up to 2; gaps inside a window are in it.
    assert 0.5 * told < measured < 2.0 * told


def test_a_product_takes_its_share_of_a_graphs_time():
    """By bytes alone a large product would count no more than a sum of the same size."""
    x = ss.randn(1 << 8, 1 << 8, device="cuda")
    session = Session()
    session.start()
    y = x @ x
    y + x
    recording = session.stop()
    costs = {plan.op.name: timing.cost_of(plan) for plan in plans_of(session.ring)}
    facts = {event.name: recording.plans[event.plan] for event in recording.of("op")}
    assert facts["matmul"].operations == 2 * (1 << 24)
    assert facts["add"].operations == 1 << 16
    assert costs["matmul"] == timing.KERNEL_NS + facts["matmul"].operations / 52_000
    assert costs["add"] == timing.KERNEL_NS + facts["add"].nbytes / 8000


def test_kernels_of_a_captured_graph_belong_to_the_lines_that_recorded_them():
    x = ss.ones(64, device="cuda")
    graph = ss.cuda.CUDAGraph()
    with ss.cuda.graph(graph):
        y = x * 2.0
        y.add_(1.0)
    with profiler.profile() as seen:
        for _ in range(5):
            graph.replay()
    kernels = seen.recorded().of("kernel")
    assert len(kernels) == 10
    first = line_of(test_kernels_of_a_captured_graph_belong_to_the_lines_that_recorded_them,
                    "y = x * 2.0")
    assert sorted(event.line for event in kernels) == [first] * 5 + [first + 1] * 5
    assert all(event.file == __file__ and event.replayed for event in kernels)
    assert {(event.line - first, event.op) for event in kernels} == {(0, "mul"), (1, "add")}


def test_device_time_reaches_ops_and_the_scopes_around_them():
    x = ss.ones(1 << 12, device="cuda")
    with profiler.profile() as seen:
        for _ in range(3):
            with profiler.record_function("mine"):
                (x * 2.0).exp()
    rows = {each.key: each for each in seen.key_averages()}
    kernels = [each for each in seen.events() if each.event.kind == "kernel"]
    whole = sum(each.self_device_time_total for each in kernels)
    assert rows["mine"].device_time_total == pytest.approx(whole)
    assert rows["mul"].count == rows["exp"].count == 3
    assert rows["mul"].cuda_time_total + rows["exp"].cuda_time_total == pytest.approx(whole)
    table = seen.key_averages().table(sort_by="cuda_time_total")
    assert "Self CUDA %" in table
    assert table.index("mine") < table.index("mul")


def test_waits_and_copies_have_their_lines_and_bytes():
    x = ss.ones(1 << 10, device="cuda")
    pinned = ss.empty(1 << 10).pin_memory()
    with profiler.profile() as seen:
        x.cpu()
        ss.cuda.synchronize()
        ss.cuda.current_stream().synchronize()
        pinned.to("cuda", non_blocking=True)
        event = ss.cuda.Event()
        event.record()
        event.synchronize()
    recording = seen.recorded()
    names = [wait.name for wait in recording.of("wait")]
    assert names == ["cpu", "synchronize", "Stream.synchronize", "Event.synchronize"]
    first = line_of(test_waits_and_copies_have_their_lines_and_bytes, "x.cpu()")
    assert [wait.line for wait in recording.of("wait")] == [
        first, first + 1, first + 2, first + 6]
    copies = recording.of("copy")
    assert [(copy.name, copy.value) for copy in copies] == [
        ("copy to host", 4096), ("copy to device", 4096)]
    assert [copy.line for copy in copies] == [first, first + 3]
    assert recording.layers["waits"] > 0


def test_the_layers_are_all_of_the_hosts_time():
    seen = profiled(planted.launch_of_many_small())
    recording = seen.recorded()
    assert set(recording.layers) == set(LAYERS)
    assert sum(recording.layers.values()) == pytest.approx(recording.end - recording.start,
                                                           rel=0.01)
    assert recording.calls == STEPS * 48
    if not REAL:
        # What the simulated host's clock says of a call: 2 µs of Python, 1 µs of dispatch.
        assert recording.layers["Python"] == STEPS * 48 * 2000
        assert recording.layers["dispatch"] == STEPS * 48 * 1000


def test_what_the_profile_does_at_its_end_is_no_time_of_the_programs(monkeypatch):
    step = planted.launch_of_many_small()
    step()
    session = Session(by_events=True)
    stop = session.ring.timer.stop

    def slowly():
        planted.host_works(5e-3)
        stop()

    monkeypatch.setattr(session.ring.timer, "stop", slowly)
    session.start()
    step()
    recording = session.stop()
    assert sum(recording.layers.values()) == recording.end - recording.start


@pytest.mark.parametrize("nbytes", [1 << 10, 9 << 20])
def test_moving_pageable_bytes_is_copying(nbytes):
    host = ss.ones(nbytes // 4)
    # The card's first use is no copy.
    ss.ones(8, device="cuda").cpu()
    with profiler.profile() as seen:
        card = host.to("cuda")
        card.cpu()
    recording = seen.recorded()
    moved = recording.of("host copy")
    first = line_of(test_moving_pageable_bytes_is_copying, "host.to(")
    # Both ways, in pieces; each by its line.
    for line in (first, first + 1):
        mine = [event for event in moved if event.line == line]
        assert len(mine) == -(-nbytes // PIECE)
        assert sum(event.value for event in mine) == nbytes
    assert len(moved) == len(recording.of("copy"))
    spent = sum(event.end - event.start for event in moved)
    assert recording.layers["copies"] > 0
    if not REAL:
        # Both ways; a submitted copy costs the virtual host a microsecond or two.
        assert 0 <= spent - 2000 * nbytes / clock.MOVED < 5_000 * len(moved)
        assert 0 <= recording.layers["copies"] - spent < 5_000 * len(moved)
    facts = profiler.summary(recording)
    assert facts["bound"] == "copy" or nbytes < PIECE
    # Which of the two takes longest a real clock decides.
    longest = "copy-bound" if REAL else "the host moves pageable bytes"
    assert longest in seen.verdict() or nbytes < PIECE


def test_the_host_alone_where_no_card_is_asked_for():
    seen = profiled(planted.launch_of_many_small(), activities=[profiler.ProfilerActivity.CPU])
    recording = seen.recorded()
    assert recording.of("kernel") == []
    assert not recording.virtual
    assert recording.calls == STEPS * 48
    assert sum(event.value for event in recording.of("send")) == STEPS * 48
    assert seen.verdict().startswith("host-bound: ")


def test_replayed_and_lone_launches_are_told_apart():
    facts = profiler.summary(profiled(planted.launch_of_many_small(), steps=12).recorded())
    assert facts["launches"] == 12 * 48
    assert facts["replayed"] > facts["launches"] / 2
    assert facts["replayed"] + sum(facts["alone"].values()) == facts["launches"]


def test_a_profile_changes_no_result_and_leaves_nothing_behind():
    def run():
        ss.manual_seed(5)
        ss.cuda.manual_seed(5)
        step = loops.mlp()
        return [float(step(number)) for number in range(3)]

    plain = run()
    with profiler.profile():
        seen = run()
    assert seen == plain
    assert modes.ring is None
    assert run() == plain


def test_a_last_wait_that_raises_leaves_the_recording(restart):
    restart(race=False)
    x, index = ss.arange(5.0, device="cuda"), ss.tensor([1, 9]).to("cuda")
    seen = profiler.profile()
    seen.start()
    x[index]
    with pytest.raises(IndexError, match="index 9 is out of bounds"):
        seen.stop()
    assert modes.ring is None
    assert [event.name for event in seen.recorded().of("op")] == ["index_read"]
    assert "µs of host time each" in seen.report()
    seen = profiler.profile()

    def failing():
        with seen:
            x[index]
            raise KeyError

    # What the block itself raised is the first error that there was.
    with pytest.raises(KeyError):
        failing()
    assert seen.recorded().calls == 1


def test_the_page_of_a_script_whose_last_kernel_fails(restart, tmp_path, capfd):
    restart(race=False)
    path = tmp_path / "script.py"
    path.write_text("import slipstream as ss\n"
                    "x = ss.arange(5.0, device='cuda')\n"
                    "y = x[ss.tensor([1, 9]).to('cuda')]\n")
    assert main(["profile", str(path)]) == 1
    output, error = capfd.readouterr()
    assert f"{path} failed at line 3: IndexError: index 9 is out of bounds" in output
    assert "script.py:3" in output
    assert "host time" in output
    assert "IndexError" in error
    assert "script.py:3" in error


WAITING = """import slipstream as ss
x = ss.ones(512, device="cuda")
for step in range(60):
    for _ in range(20):
        x = x * 0.5 + 1
    x.sum().item()
"""
ENDS = {
    "raise ValueError('of mine')": "failed at line 7: ValueError: of mine",
    "x + ss.ones(7, device='cuda')": "failed at line 7: RuntimeError: The size of tensor a (512)",
    "raise KeyboardInterrupt": "was interrupted at line 7",
    "raise SystemExit(4)": "ended at line 7 with exit status 4",
}


@pytest.mark.skipif(REAL, reason=MEASURED)
@pytest.mark.parametrize("last", ENDS)
def test_a_mend_follows_from_a_run_that_no_error_ended(last, tmp_path, capfd):
    path = tmp_path / "script.py"
    path.write_text(f"{WAITING}{last}\n")
    assert main(["profile", str(path)]) != 0
    first, second, verdict, *rest = capfd.readouterr().out.strip().splitlines()
    assert first.startswith(f"{path} {ENDS[last]}")
    assert second == "The figures cover only what ran until then."
    broken = "failed" in first
    assert verdict.startswith("until then in " if broken else "wait-bound: ")
    assert ("keep the value on the card" in verdict) != broken
    assert ("after waits" in verdict) == broken
    assert any(line.startswith("budget") for line in rest) != broken


def test_memory_is_sampled_and_the_trace_has_streams(tmp_path):
    seen = profiled(planted.gpu_in_place(), profile_memory=True)
    samples = seen.recorded().of("memory")
    assert len(samples) >= STEPS + 2
    assert all(sample.value >= 4 * planted.LARGE for sample in samples)
    path = tmp_path / "trace.json"
    seen.export_chrome_trace(path)
    rows = json.loads(path.read_text())["traceEvents"]
    assert {row["ph"] for row in rows} == {"X", "M", "C"}
    assert "cuda:0" in [row["args"]["name"] for row in rows if row["ph"] == "M"]
    assert all(row["args"]["line"] for row in rows if row.get("cat") == "kernel")


def test_the_page_tells_of_kernels_and_their_limit():
    report = profiled(planted.gpu_in_place()).report()
    for text in ("host time", "card        busy", "launches,", "kernels", "of the limit",
                 "planted.py:", "replayed in graphs"):
        assert text in report
    assert ("virtual time" in report) != REAL


@pytest.mark.skipif(REAL, reason="of the simulated driver")
def test_the_page_says_what_virtual_time_leaves_out():
    step = planted.gpu_in_place()

    def slow():
        sum(range(200_000))
        return step()

    seen, quick = profiled(slow), profiled(planted.gpu_in_place())
    text = " ".join(seen.report().split())
    called = clock.PYTHON_TIME + clock.DISPATCH_TIME
    assert f"a call of an op takes the host {called:g} µs of it" in text
    assert "between calls, as Python, NumPy, loading data or sleeping, takes none" in text
    # As it says: the same calls take the same time, whatever is done between them.
    layers = [dict(each.recorded().layers) for each in (seen, quick)]
    assert layers[0]["Python"] == layers[1]["Python"]


@pytest.mark.skipif(REAL, reason=MEASURED)
def test_every_line_that_waits_as_often_is_named():
    x = ss.ones(64, device="cuda")

    def step():
        y = x * 2 + 1
        y.sum().item()
        if y[0] > 0:
            return

    verdict = profiled(step, steps=20).verdict()
    lines, first = inspect.getsourcelines(step)
    place = {text.strip(): first + number for number, text in enumerate(lines)}
    both = [f"{place['y.sum().item()']}", f"{place['if y[0] > 0:']}"]
    assert verdict.startswith("wait-bound: ")
    assert all(f"test_profile.py:{line}" in verdict for line in both)
    assert "and as often at test_profile.py:" in verdict


@pytest.mark.skipif(REAL, reason="of the simulated driver")
def test_no_verdict_on_the_cpus_work_comes_from_virtual_time():
    x = ss.ones(64, 64)
    seen = profiled(lambda: x @ x)
    assert seen.verdict() == ("no card worked, and virtual time does not hold the CPU's work: "
                              "profile this without SLIPSTREAM_DRIVER=sim")


def test_the_ops_behind_each_replayed_graph_are_in_the_page(tmp_path):
    seen = profiled(planted.launch_of_many_small(), steps=12)
    data = html.contents(seen.recorded())
    (lane,) = [lane for lane in data["lanes"] if lane["title"] == "host: launches"]
    texts = [data["extras"][extra] for extra in lane["e"][4::5] if extra >= 0]
    names = [data["names"][name] for name in lane["e"][2::5]]
    assert len(texts) == len(names)
    replayed = [text for text, name in zip(texts, names, strict=True)
                if name.endswith(": replayed")]
    assert replayed
    first = line_of(planted.launch_of_many_small, "x.add_")
    for text in replayed:
        count, _, rest = text.partition(" launches: ")
        parts = [part.split(" × ") for part in rest.split(", ")]
        assert sum(int(number) for number, _ in parts) == int(count)
        assert {what for _, what in parts} == {
            f"{op} at planted.py:{first + step}" for step, op in enumerate(("add", "mul", "sub"))}
    stream = data["lanes"][-1]
    assert stream["title"] == "cuda:0, stream 0"
    assert len(stream["e"]) == 5 * 12 * 48
    path = tmp_path / "page.html"
    seen.export_html(path)
    assert path.stat().st_size < 300_000
