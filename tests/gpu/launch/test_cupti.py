"""Device times by CUPTI's records: whose each is, and what happens where they cannot be believed.

The library is a small one of C that plays the records of the simulated driver's work.
"""

from __future__ import annotations

import shutil
import struct
import subprocess

import pytest

import slipstream as ss
from gpu.conftest import REAL
from gpu.launch import fakecupti, loops
from slipstream.cli import main
from slipstream.core.api.profiling import Session
from slipstream.core.launch.cuda.activities import Activities, Matcher, Noted, grouped
from slipstream.core.native import cupti
from slipstream.core.native.collector import Collector
from slipstream.core.native.cupti import Activity, CuptiError
from slipstream.core.native.drivers import drivers
from slipstream.core.vocab.settings import settings
from slipstream.profiler import chrome, html
from slipstream.profiler.averages import function_events
from slipstream.profiler.page import page, summary

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
pytestmark = pytest.mark.skipif(
    REAL or COMPILER is None or not Collector().callbacks,
    reason="it plays the simulated driver's work to the compiled core")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cupti")
    source = folder / "fake.c"
    source.write_text(fakecupti.SOURCE)
    path = folder / "libcupti.so.13"
    subprocess.run([COMPILER, "-O1", "-shared", "-fPIC", "-o", path, source], check=True)
    return path


@pytest.fixture
def fake(built, monkeypatch, restart):
    restart(race=False)
    monkeypatch.setattr(settings, "cupti", str(built))
    monkeypatch.setattr(cupti.opened, "known", None)
    found = fakecupti.FakeCupti(built)
    for which, value in ((fakecupti.VERSION, 130001), (fakecupti.SUBSCRIBE, 0),
                         (fakecupti.ENABLE, 0), (fakecupti.SHIFT, 0), (fakecupti.DROPPED, 0)):
        found.set(which, value)
    found.watch(monkeypatch)
    yield found
    drivers.current().desk.listener = None


def profiled(step, first=8, last=20, every_kernel=False):
    for number in range(first):
        step(number)
    ss.cuda.synchronize()
    session = Session(every_kernel=every_kernel)
    session.start()
    for number in range(first, last):
        step(number)
    return session.stop()


@pytest.mark.parametrize("name", ["mlp", "digits"])
def test_every_kernel_has_the_time_that_the_card_tells(fake, name):
    before = ss.cuda.launch_stats()
    step = getattr(loops, name)()
    for number in range(8):
        step(number)
    ss.cuda.synchronize()
    fake.told.clear()
    before = ss.cuda.launch_stats()
    recording = profiled(lambda number: step(number), 0, 12, every_kernel=True)
    after = ss.cuda.launch_stats()
    kernels = recording.of("kernel")
    assert recording.timed_by == "CUPTI 13.0"
    assert recording.untold == ""
    assert recording.foreign == ()
    assert len(kernels) == after["launches"] - before["launches"] > 100
    assert sum(event.replayed for event in kernels) == after["replayed"] - before["replayed"] > 0
    assert not any(event.estimated for event in kernels)
    assert sorted((event.name, event.start, event.end) for event in kernels) == sorted(fake.told)
    assert all(event.file == loops.__file__ and event.op for event in kernels)
    # What is counted by line is the same.
    assert recording.totals("kernel")[1] == sum(end - start for _, start, end in fake.told)
    assert "by CUPTI 13.0" in page(recording)
    assert recording.averaged == 0
    assert "take the mean" not in page(recording)


@pytest.mark.parametrize("name", ["mlp", "digits"])
def test_most_launches_take_the_mean_of_those_that_are_timed(fake, name, monkeypatch):
    # Kernels of one kind take as long each time.
    monkeypatch.setattr(drivers.current().schedule.times, "uniform", lambda low, high: 1.0)
    step = getattr(loops, name)()
    for number in range(12):
        step(number)
    ss.cuda.synchronize()
    fake.told.clear()
    fake.alone.clear()
    before = ss.cuda.launch_stats()
    recording = profiled(step, 0, 40)
    after = ss.cuda.launch_stats()
    kernels = recording.of("kernel")
    averaged = [event for event in kernels if event.averaged]
    assert recording.untold == ""
    assert len(kernels) == len(fake.told) == after["launches"] - before["launches"]
    assert recording.averaged == len(averaged) == len(fake.told) - len(fake.alone)
    assert len(kernels) // 3 < len(averaged) < len(kernels)
    assert any(event.replayed for event in averaged)
    # What was timed has its own time.
    assert sorted((event.name, event.start, event.end) for event in kernels
                  if not event.averaged) == sorted(fake.alone)
    assert not any(event.estimated for event in kernels)
    assert all(event.file == loops.__file__ and event.op for event in kernels)
    whole = sum(end - start for _, start, end in fake.told)
    assert recording.totals("kernel")[1] == pytest.approx(whole, rel=0.02)
    for names in {event.name for event in kernels}:
        mine = sum(event.end - event.start for event in kernels if event.name == names)
        true = sum(end - start for other, start, end in fake.told if other == names)
        assert mine == pytest.approx(true, rel=0.05)
    said = f"{len(averaged):,} of {len(kernels):,} kernels take the mean of their times"
    assert said in page(recording)
    assert said in html.render(recording)
    found = chrome.trace(recording)
    assert found["leftOut"]["averaged"] == len(averaged)
    assert sum(row["args"].get("averaged", False) for row in found["traceEvents"]
               if row["ph"] == "X") == len(averaged)
    assert said in function_events(recording).table()
    assert summary(recording)["averaged"] == len(averaged)


SCRIPT = """
import slipstream as ss

x = ss.ones(64, device="cuda")
for _ in range(2000):
    x.add_(1.0)
    x.mul_(0.5)
ss.cuda.synchronize()
"""


def test_the_command_times_every_kernel_where_it_is_asked_to(fake, tmp_path, capsys):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    assert main(["profile", str(path)]) == 0
    text = capsys.readouterr().out
    assert "take the mean of their times where they were measured one by one" in text
    assert "by CUPTI 13.0" in text
    fake.told.clear()
    fake.alone.clear()
    assert main(["profile", "--every-kernel", str(path)]) == 0
    assert "take the mean" not in capsys.readouterr().out
    assert len(fake.told) == len(fake.alone) > 4000


def test_a_cupti_that_cannot_turn_kernels_off_times_every_one(fake, monkeypatch):
    monkeypatch.setattr(cupti.Cupti, "time_kernels", lambda library, wanted: False)
    step = loops.mlp()
    recording = profiled(step, 0, 30)
    assert recording.averaged == 0
    assert recording.untold == ""
    assert not any(event.estimated for event in recording.of("kernel"))


def test_where_no_time_of_its_kind_is_told_a_launch_keeps_that_of_events(fake):
    x = ss.ones(1 << 12, device="cuda")
    fake.play = lambda record: [record[:16] + bytes(16) + record[32:]]

    def step(number):
        x.add_(1.0)
        ss.cuda.synchronize()

    recording = profiled(step, 8, 40)
    assert recording.averaged == 0
    assert recording.untold == "32 of 32 launches are by events"


def test_copies_are_told_of_from_the_first_one_on(fake):
    # Until then their records would make each launch of a graph dearer for nothing.
    x = ss.ones(64, device="cuda")
    host = ss.ones(64)
    told = []

    def step(number):
        x.add_(1)
        told.append(fake.library.fake_enabled(cupti.MEMCPY))
        if number > 10:
            x.copy_(host)

    recording = profiled(step)
    assert told[8:] == [0] * 4 + [1] * 8
    copies = recording.of("copy")
    assert [event.value for event in copies] == [256] * 9
    assert not any(event.estimated for event in copies)
    assert recording.untold == ""
    assert not fake.library.fake_enabled(cupti.MEMCPY)
    # A second profile begins as the first one did.
    told.clear()
    profiled(step, last=11)
    assert told[8:] == [0] * 3


def test_kernels_of_a_captured_graph_and_copies_are_told_too(fake):
    x = ss.ones(1 << 12, device="cuda")
    graph = ss.cuda.CUDAGraph()
    with ss.cuda.graph(graph):
        y = x * 2.0
        y.add_(1.0)
        y.add_(2.0)
    host = ss.ones(64)

    def step(number):
        graph.replay()
        host.to("cuda")

    step(0)
    ss.cuda.synchronize()
    fake.told.clear()
    recording = profiled(step, 0, 3)
    kernels = recording.of("kernel")
    assert sorted((event.start, event.end) for event in kernels) == sorted(
        (start, end) for _, start, end in fake.told)
    first = min(event.line for event in kernels)
    assert [event.line for event in kernels] == [first, first + 1, first + 2] * 3
    copies = recording.of("copy")
    assert [event.value for event in copies] == [256] * 3
    assert not any(event.estimated for event in copies)
    assert recording.untold == ""


def test_kernels_of_others_are_not_ours(fake):
    x = ss.ones(64, device="cuda")
    name = fake.address("somebody_elses")

    def step(number):
        x.add_(1.0)
        ss.cuda.synchronize()
        fake.feed(fakecupti.kernel(name, fakecupti.AHEAD + 10, fakecupti.AHEAD + 60,
                                   next(fake.numbers)))
        # Kinds that nobody knows are skipped.
        fake.feed(struct.pack("<I100x", 99))

    recording = profiled(step, every_kernel=True)
    assert recording.foreign == (("somebody_elses", 12, 600),)
    assert len(recording.of("kernel")) == 12
    assert recording.timed_by == "CUPTI 13.0"
    text = page(recording)
    assert "not ours" in text
    assert "12 × somebody_elses" in text


def test_a_record_too_few_leaves_those_launches_to_events(fake):
    step = loops.mlp()
    state = {"left": 1}

    def lose(record):
        if struct.unpack_from("<I", record)[0] == cupti.KERNEL and state["left"]:
            state["left"] = 0
            return []
        return [record]

    for number in range(8):
        step(number)
    ss.cuda.synchronize()
    fake.play = lose
    fake.set(fakecupti.DROPPED, 1)
    recording = profiled(step, 0, 12)
    kernels = recording.of("kernel")
    assert 0 < sum(event.estimated for event in kernels) < len(kernels)
    assert "CUPTI told of" in recording.untold
    assert "it dropped 1 records" in recording.untold
    assert recording.untimed == 0
    assert "times of the card are not all by CUPTI" in page(recording)


def test_a_record_without_times_keeps_the_one_by_events(fake):
    x = ss.ones(1 << 16, device="cuda")

    def blank(record):
        return [record[:16] + bytes(16) + record[32:]]

    fake.play = blank
    recording = profiled(lambda number: x.add_(1.0))
    assert recording.timed_by == "events"
    assert all(event.end > event.start >= recording.start for event in recording.of("kernel"))
    assert recording.untold == "12 of 12 launches are by events"


@pytest.mark.parametrize(("which", "value", "text"), [
    (fakecupti.VERSION, 140000, "the records of CUPTI 14.0 are not known here"),
    (fakecupti.SUBSCRIBE, 39, "another profiler uses CUPTI in this process"),
    (fakecupti.ENABLE, 35, "cuptiActivityEnable failed with CUPTI_ERROR_OTHER"),
    (fakecupti.ENABLE, 77, "cuptiActivityEnable failed with status 77"),
    (fakecupti.SHIFT, -256, "a record lies outside of its buffer"),
    (fakecupti.SHIFT, 4, "where 12 were made")])
def test_what_cannot_be_read_is_said_and_events_take_its_place(fake, which, value, text):
    fake.set(which, value)
    x = ss.ones(1 << 16, device="cuda")
    recording = profiled(lambda number: x.mul_(2.0).add_(1.0))
    assert recording.timed_by == "events"
    assert text in recording.untold
    assert len(recording.of("kernel")) == 24
    assert all(event.end > event.start for event in recording.of("kernel"))
    assert f"times of the card are not by CUPTI: {recording.untold}" in page(recording)
    # The next profile finds everything as it should be.
    fake.set(which, {fakecupti.VERSION: 130001}.get(which, 0))
    cupti.opened.known = None
    assert profiled(lambda number: x.mul_(2.0).add_(1.0)).timed_by == "CUPTI 13.0"


def test_events_where_they_are_asked_for_and_where_it_is_turned_off(fake, monkeypatch):
    x = ss.ones(64, device="cuda")
    x.add_(1.0)
    session = Session(by_events=True)
    session.start()
    x.add_(1.0)
    recording = session.stop()
    assert (recording.timed_by, recording.untold) == ("events", "")
    monkeypatch.setattr(settings, "cupti", "off")
    recording = profiled(lambda number: x.add_(1.0))
    assert recording.untold == "SLIPSTREAM_CUPTI turns CUPTI off"
    monkeypatch.setattr(settings, "cupti", "/nowhere/libcupti.so")
    recording = profiled(lambda number: x.add_(1.0))
    assert recording.untold.startswith("CUPTI is not found at /nowhere/libcupti.so")
    assert "pip install nvidia-cuda-cupti" in recording.untold


def test_launches_beyond_the_bound_are_timed_by_events(fake, monkeypatch):
    x = ss.ones(1 << 12, device="cuda")
    begin = Activities.__init__

    def few(self, *arguments):
        begin(self, *arguments)
        self.left = 6

    monkeypatch.setattr(Activities, "__init__", few)

    def step(number):
        x.add_(1.0)
        ss.cuda.synchronize()

    recording = profiled(step, every_kernel=True)
    kernels = recording.of("kernel")
    assert len(kernels) == 12
    assert recording.timed_by == "CUPTI 13.0"
    assert recording.untold.startswith("6 of 12 launches are by events; CUPTI's records are kept")


# -- the matching by itself -----------------------------------------------------------------------
def kernel_of(name, correlation, start, length=10):
    return Activity(cupti.KERNEL, start, start + length, 0, 7, correlation, name, 0, 0)


def test_the_same_kernels_in_another_order_of_records_find_their_launches():
    graph = Noted([()] * 3, ("a", "b", "a"), True, -1)
    alone = Noted([()] * 2, ("a", "b"), False, -1)
    records = [kernel_of("b", 3, 200), kernel_of("a", 2, 100), kernel_of("a", 1, 60, 1),
               kernel_of("a", 1, 10), kernel_of("b", 1, 30, 5)]
    matcher = Matcher([graph, alone], grouped(records))
    matcher.match()
    assert graph.times == [(10, 20), (30, 35), (60, 61)]
    assert alone.times == [(100, 110), (200, 210)]
    assert matcher.wrong == matcher.left == []


def test_library_calls_take_what_lies_between_their_neighbours():
    first, last = Noted([()], ("a",), False, -1), Noted([()], ("a",), False, -1)
    calls = [Noted([()], (), False, -1) for _ in range(2)]
    records = [kernel_of("a", 1, 0), kernel_of("gemm", 2, 20), kernel_of("reduce", 3, 40, 5),
               kernel_of("gemm", 4, 60), kernel_of("reduce", 5, 80, 5), kernel_of("a", 6, 100),
               kernel_of("other", 7, 120)]
    matcher = Matcher([first, *calls, last], grouped(records))
    matcher.match()
    # Two kernels each; the gap between them is no work.
    assert [call.times for call in calls] == [[(20, 35)], [(60, 75)]]
    assert matcher.foreign() == (("other", 1, 10),)
    lacking = Matcher([first, *calls, last], grouped(records[:2] + records[5:]))
    lacking.match()
    assert lacking.wrong == [(("library call",), 1, 2)]


def test_the_clocks_are_read_together_at_both_ends():
    class Library:
        def now(self):
            return 5_000_000 + 2 * ticks[0]

    ticks = [1000]
    clock = cupti.Clock(Library(), lambda: ticks[0])
    ticks[0] = 2000
    clock.stop()
    # A rate that no clock has is not believed: then the end's difference holds.
    assert clock.of(5_004_000) == 2000
    assert clock.of(5_003_000) == 1000


def test_a_record_that_ends_behind_its_buffer_is_none():
    with pytest.raises(CuptiError, match="ends behind its buffer"):
        cupti.parsed(cupti.KERNEL, memoryview(bytes(80)), {})


@pytest.mark.parametrize(("start", "end", "device"), [(9, 8, 0), (0, 8, 0), (8, 9, 1 << 20)])
def test_numbers_that_make_no_sense_are_another_layout(start, end, device):
    record = bytearray(fakecupti.kernel(0, start, end, 1))
    struct.pack_into("<I", record, 40, device)
    with pytest.raises(CuptiError, match="not laid out as this version's"):
        cupti.parsed(cupti.KERNEL, memoryview(bytes(record)), {})
