"""`ss.profiler`: PyTorch's shape, on the CPU."""

from __future__ import annotations

import gc
import gzip
import json
import threading
from collections import Counter

import pytest

import slipstream as ss
from slipstream.core.vocab.modes import modes
from slipstream.profiler import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    record_function,
    schedule,
    tensorboard_trace_handler,
)
from slipstream.utils.data import DataLoader

NONE, WARMUP, RECORD, SAVE = ProfilerAction


def work(count: int = 3):
    x = ss.ones(4, 5)
    for _ in range(count):
        x = x * 2.0
    return x.sum()


def test_events_have_names_lines_and_parents():
    with profile() as seen, record_function("outer"):
        work()
    events = seen.events()
    names = [event.name for event in events]
    assert names.count("mul") == 3
    outer = next(event for event in events if event.name == "outer")
    muls = [event for event in events if event.name == "mul"]
    assert all(event.cpu_parent is outer for event in muls)
    assert muls[0].event.file == __file__
    assert muls[0].event.line == work.__code__.co_firstlineno + 3
    assert muls[0].input_shapes == [[4, 5]]
    assert muls[0].self_cpu_memory_usage == 80
    inside = sum(child.cpu_time_total for child in outer.cpu_children)
    assert outer.self_cpu_time_total == pytest.approx(outer.cpu_time_total - inside)
    assert outer.cpu_memory_usage >= 240


def test_key_averages_group_by_name_shapes_and_stack():
    with profile(with_stack=True, record_shapes=True) as seen:
        work(2)
        ss.ones(7) * 2.0
    averages = {each.key: each for each in seen.key_averages()}
    assert averages["mul"].count == 3
    assert averages["mul"].cpu_time == pytest.approx(averages["mul"].cpu_time_total / 3)
    by_shape = [each for each in seen.key_averages(group_by_input_shape=True)
                if each.key == "mul"]
    assert sorted((each.input_shapes, each.count) for each in by_shape) == [
        ([[4, 5]], 2), ([[7]], 1)]
    by_stack = [each for each in seen.key_averages(group_by_stack_n=1) if each.key == "mul"]
    assert len(by_stack) == 2
    assert any("work" in each.stack[0] for each in by_stack)
    assert seen.events().total_average().count == len(seen.events())


def walked_back(loss: ss.Tensor) -> None:
    ss.autograd.backward([loss])


def test_backward_is_told_at_its_own_line():
    w = ss.ones(4, requires_grad=True)
    begin = test_backward_is_told_at_its_own_line.__code__.co_firstlineno
    with profile() as seen:
        loss = (w * 2.0).sum()
        assert loss.requires_grad
        loss.backward()
        walked_back((w * 3.0).sum())
        ss.autograd.grad((w * 4.0).sum(), [w])
        w.detach() * 2.0
    spans = [event for event in seen.recorded().of("span") if event.name == "backward"]
    assert [event.line for event in spans] == [
        begin + 6, walked_back.__code__.co_firstlineno + 1, begin + 8]
    inside = [event for event in seen.recorded().of("op") if event.start >= spans[0].start
              and event.end <= spans[0].end]
    assert [event.name for event in inside][-1] == "mul_backward"
    assert {event.line for event in inside} == {begin + 6}
    assert seen.recorded().layers["tape"] > 0


def test_table_sorts_and_limits():
    with profile(profile_memory=True) as seen:
        work(5)
    table = seen.key_averages().table(sort_by="count", row_limit=1, header="the top")
    lines = table.splitlines()
    assert lines[0] == "the top"
    assert lines[4].startswith("mul")
    assert "Self CPU time total" in table
    assert "CPU Mem" in table
    assert "Self CUDA %" not in table
    assert len(lines) == 7
    with pytest.raises(AttributeError, match="no column 'speed'"):
        seen.key_averages().table(sort_by="speed")


def test_schedule_cycles():
    plan = schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2)
    cycle = [NONE, WARMUP, RECORD, SAVE]
    assert [plan(step) for step in range(11)] == [NONE, *cycle, *cycle, NONE, NONE]
    forever = schedule(wait=0, warmup=0, active=1)
    assert {forever(step) for step in range(20)} == {SAVE}
    with pytest.raises(ValueError, match="active must be at least 1"):
        schedule(wait=0, warmup=0, active=0)


def test_steps_follow_the_schedule():
    ready = []
    with profile(schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
                 on_trace_ready=lambda p: ready.append(p.events())) as seen:
        for _ in range(9):
            work(1)
            seen.step()
        assert modes.ring is None
    assert len(ready) == 2
    for events in ready:
        assert [event.name for event in events].count("mul") == 2
        steps = [event for event in events if event.key == "ProfilerStep*"]
        assert len(steps) == 2
        assert all(event.cpu_children for event in steps)
    assert [event.name for event in ready[1] if event.key == "ProfilerStep*"] == [
        "ProfilerStep#6", "ProfilerStep#7"]


def test_only_one_profile_and_none_without_recording():
    seen = profile(schedule=schedule(wait=5, warmup=0, active=1))
    with seen:
        work()
    with pytest.raises(RuntimeError, match="nothing was recorded"):
        seen.events()
    with profile(), pytest.raises(RuntimeError, match="already on"), profile():
        pass
    assert modes.ring is None
    with pytest.raises(ValueError, match="activities"):
        profile(activities=[])
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        work()
    assert seen.events()


def test_an_error_ends_the_profile():
    seen = profile()
    with pytest.raises(RuntimeError, match="must match"), seen:
        work() + ss.ones(2) + ss.ones(3)
    assert modes.ring is None
    assert [event.name for event in seen.events()].count("mul") == 3


def test_record_function_is_a_decorator_and_nothing_without_a_profile():
    @record_function("named")
    def called(x):
        return x + 1

    assert called(1) == 2
    with profile() as seen:
        assert called(2) == 3
        with record_function("again"):
            called(3)
    events = [event for event in seen.events() if event.name in ("named", "again")]
    assert sorted(event.name for event in events) == ["again", "named", "named"]


def test_chrome_trace(tmp_path):
    with profile() as seen, record_function("outer"):
        work()
    seen.add_metadata("who", "me")
    seen.add_metadata_json("what", "[1, 2]")
    path = tmp_path / "trace.json"
    seen.export_chrome_trace(path)
    trace = json.loads(path.read_text())
    rows = [row for row in trace["traceEvents"] if row["ph"] == "X"]
    assert [row["name"] for row in rows].count("mul") == 3
    assert all(row["dur"] >= 0 and row["ts"] >= 0 for row in rows)
    assert trace["leftOut"] == {"shortEvents": 0, "shortEventsNs": 0, "overwritten": 0,
                                "untimed": 0, "averaged": 0}
    assert (trace["who"], trace["what"]) == ("me", [1, 2])
    packed = tmp_path / "trace.json.gz"
    seen.export_chrome_trace(packed)
    assert json.loads(gzip.decompress(packed.read_bytes()))["traceEvents"] == trace["traceEvents"]


def test_a_bounded_trace_says_what_it_leaves_out(tmp_path):
    # First calls make plans, which are records and no rows of a trace.
    work(40)
    with profile(records=16) as seen:
        work(40)
    path = tmp_path / "trace.json"
    seen.export_chrome_trace(path, most=5)
    trace = json.loads(path.read_text())
    rows = [row for row in trace["traceEvents"] if row["ph"] == "X"]
    recording = seen.recorded()
    assert len(rows) == 5
    assert trace["leftOut"]["shortEvents"] == 11
    assert trace["leftOut"]["overwritten"] == recording.dropped == recording.written - 16
    kept = sum(row["dur"] for row in rows) * 1000
    whole = sum(event.end - event.start for event in recording.events)
    assert kept + trace["leftOut"]["shortEventsNs"] == pytest.approx(whole)
    assert any("left out" in row["name"] for row in trace["traceEvents"])
    assert f"dropped the oldest {recording.dropped}" in seen.report()
    # Totals by line hold what was dropped.
    (line,) = [line for line in recording.lines if line.line == work.__code__.co_firstlineno + 3]
    assert line.of("op")[0] == 40


def test_stacks(tmp_path):
    def inner():
        for _ in range(200):
            work(3)

    with profile(with_stack=True) as seen:
        inner()
    path = tmp_path / "stacks.txt"
    seen.export_stacks(path, "self_cpu_time_total")
    lines = path.read_text().splitlines()
    assert lines
    for line in lines:
        stack, _, time = line.rpartition(" ")
        assert int(time) > 0
        assert " " not in stack
    deepest = [line.rpartition(" ")[0].split(";") for line in lines]
    assert any("inner" in frames[-2] and "work" in frames[-1] for frames in deepest)
    with pytest.raises(ValueError, match="metric should be one of"):
        seen.export_stacks(path, "speed")


def test_tensorboard_handler_writes_each_recording(tmp_path):
    with profile(schedule=schedule(wait=0, warmup=0, active=1, repeat=2),
                 on_trace_ready=tensorboard_trace_handler(str(tmp_path / "runs"))) as seen:
        for _ in range(3):
            work()
            seen.step()
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_a_profile_that_nobody_holds_is_off():
    for options in ({}, {"profile_memory": True, "with_stack": True}):
        seen = profile(**options)
        seen.start()
        assert modes.ring is not None
        del seen
        gc.collect()
        assert modes.ring is None


def test_a_second_start_loses_nothing():
    seen, other = profile(), profile()
    seen.start()
    work(2)
    with pytest.raises(RuntimeError, match="this profile is already on"):
        seen.start()
    with pytest.raises(RuntimeError, match="a profile is already on"):
        other.start()
    other.stop()
    work(3)
    seen.stop()
    assert [event.name for event in seen.events()].count("mul") == 5
    with pytest.raises(RuntimeError, match="nothing was recorded"):
        other.recorded()


@pytest.mark.parametrize("records", [0, -1, (1 << 26) + 1, 1 << 80])
def test_a_ring_of_no_possible_size_is_refused(records):
    with pytest.raises(ValueError, match="records must be from 1 to 67,108,864"):
        profile(records=records).start()
    assert modes.ring is None


def test_the_ops_of_every_thread_are_seen():
    def views():
        ss.ones(6).reshape(2, 3)
        work(40)

    with profile() as seen:
        worker = threading.Thread(target=views, name="worker")
        worker.start()
        worker.join()
        work(2)
    recording = seen.recorded()
    muls = [event for event in recording.of("op") if event.name == "mul"]
    assert sorted(Counter(event.thread for event in muls).values()) == [2, 40]
    assert len(recording.of("view")) == 1
    # The thread that called most is the one whose layers are told.
    names = [name for name, _, _ in recording.threads]
    assert names == ["worker", threading.current_thread().name]
    assert recording.layers == recording.threads[0][2]
    assert recording.layers["dispatch"] > 0
    assert sum(calls for _, calls, _ in recording.threads) == recording.calls
    main = recording.threads[1][2]
    assert sum(main.values()) == pytest.approx(recording.end - recording.start, rel=0.01)
    assert "of thread worker" in seen.report()


def test_the_loaders_time_is_datas():
    # Of the host alone: with a simulated card time would be virtual, and a loader takes none.
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        for batch in DataLoader(list(range(6)), batch_size=2):
            batch + 1
    loads = seen.recorded().of("data")
    assert len(loads) == 4  # three batches, and the end
    assert all(event.file == __file__ for event in loads)
    assert seen.recorded().layers["data"] > 0


def test_the_page_of_a_program_on_the_cpu():
    with profile() as seen:
        work(50)
    report = seen.report()
    assert seen.verdict().startswith("host-bound: ")
    assert report.startswith(seen.verdict())
    assert f"test_profile.py:{work.__code__.co_firstlineno + 3}" in report
    assert f"{seen.recorded().calls:,} calls of ops" in report
    assert sum(seen.recorded().layers.values()) > 0


def test_the_older_names():
    with ss.autograd.profiler.profile(profile_memory=True) as seen, \
            ss.autograd.profiler.record_function("old"):
        work()
    names = [event.name for event in seen.function_events]
    assert (names.count("mul"), names.count("old")) == (3, 1)
    assert seen.self_cpu_time_total > 0
    assert seen.total_average().count == len(names)
    assert "mul" in seen.table(sort_by="self_cpu_time_total", row_limit=50)
    with ss.autograd.profiler.profile(enabled=False) as seen:
        work()
        assert modes.ring is None
    with pytest.raises(RuntimeError, match="nothing was recorded"):
        seen.table()


def test_the_page_of_nothing():
    with profile() as seen:
        pass
    assert seen.verdict() == "no op was called"
    assert "0 records" in seen.report()
    assert len(seen.events()) == 0
    assert seen.key_averages().table()
