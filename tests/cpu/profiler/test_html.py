"""The page of a profile: its size, what it holds, and that its script runs."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import slipstream as ss
from slipstream import profiler
from slipstream.core.api.recording import Event, LineTotals, PlanFacts, Recording
from slipstream.profiler import html
from slipstream.profiler.limits import limits_of

HERE = Path(__file__).parent
FILES = [f"/home/someone/project/part{number}.py" for number in range(40)]


def event(kind: str, place: int, start: int, length: int, **more: object) -> Event:
    name = more.pop("name", f"{kind}{place % 60}")
    return Event(kind, str(name), FILES[place % 40], place % 500, "work", start, start + length, 1,
                 **more)  # type: ignore[arg-type]


def synthetic(count: int) -> Recording:
    """A run with steps, ops, sends and kernels, ``count`` events in all."""
    draw = random.Random(3)
    events: list[Event] = []
    now = 1_000_000
    for place in range(count // 2):
        length = draw.randrange(500, 9000)
        events.append(event("op", place, now, length))
        events.append(event("kernel", place, now + length, draw.randrange(900, 30_000), device=0,
                            op=f"op{place % 60}", replayed=place % 3 > 0, plan=1 + place % 60))
        now += length + 300
    for number in range(10):
        width = (now - 1_000_000) // 10
        events[number] = event("step", number, 1_000_000 + number * width,
                               width + (number == 4) * 1000, name=f"ProfilerStep#{number}")
    events.sort(key=lambda each: (each.start, -each.end))
    lines = [LineTotals(FILES[0], 3, "work", {"op": (count, 10**7, 0)})]
    plans = {number: PlanFacts(f"op{number - 1}", ((64, 64),), 1000 * number, 4096, "cuda:0", 1,
                               77_777 * number % 40_000, "float32") for number in range(1, 61)}
    return Recording(events, lines, {"Python": now}, plans, 1_000_000, now, count, count, 0, 0,
                     False)


def data_of(page: str) -> dict:
    (text,) = re.findall(r'id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


@pytest.fixture(scope="module")
def large():
    return synthetic(100_000)


@pytest.fixture(scope="module")
def large_page(large):
    return html.render(large)


def test_a_hundred_thousand_events_fit_in_three_megabytes(large_page):
    assert len(large_page.encode()) <= 3_000_000


def test_nothing_comes_from_the_network(large_page):
    shell = re.sub(r'id="data">.*?</script>', "", large_page, flags=re.DOTALL)
    assert not re.search(r"https?:|//[a-z]+\.|\bsrc=|<link|@import|url\(|fetch\(|XMLHttp|import\(",
                         shell)
    assert "default-src 'none'" in shell


def test_every_event_is_shown_or_counted(large, large_page):
    data = data_of(large_page)
    shown = 0
    joined = 0
    for lane in data["lanes"]:
        assert len(lane["e"]) % 5 == 0
        for place in range(0, len(lane["e"]), 5):
            start, length, name, line, extra = lane["e"][place:place + 5]
            assert start >= 0 or place == 0
            assert length >= 0
            assert 0 <= name < len(data["names"])
            assert 0 <= line < len(data["lines"])
            assert -1 <= extra < len(data["extras"])
            text = data["extras"][extra] if extra >= 0 else ""
            many = re.match(r"(\d+) events, most of them", text)
            if many:
                joined += int(many[1])
            else:
                shown += 1
    assert shown + joined == len(large.events)
    binned = sum(lane["binned"] for lane in data["lanes"])
    assert f"{binned:,} of {len(large.events):,} events" in data["left"]
    assert shown <= html.MOST_EVENTS + html.BINS * len(data["lanes"])


def test_the_longest_events_stand_alone(large, large_page):
    data = data_of(large_page)
    longest = max(large.of("kernel"), key=lambda each: each.end - each.start)
    lane = data["lanes"][-1]
    assert lane["title"] == "cuda:0, stream 0"
    assert max(lane["e"][1::5]) >= (longest.end - longest.start) // html.UNIT


def test_it_opens_on_the_slowest_step(large_page):
    data = data_of(large_page)
    assert data["open"] == data["steps"][4][:2]


def test_small_runs_are_whole():
    with profiler.profile(with_stack=True, profile_memory=True) as seen:
        x = ss.ones(4)
        with profiler.record_function("outer"):
            for _ in range(5):
                x = x * 2.0
            seen.step()
    data = html.contents(seen.recorded())
    assert data["left"] == ""
    (ops,) = [lane for lane in data["lanes"] if lane["title"] == "host: ops"]
    assert [data["names"][name] for name in ops["e"][2::5]].count("mul") == 5
    assert f"{__file__}:" in data["lines"][ops["e"][-2]]
    assert data["verdict"] == seen.verdict()
    assert data["text"] == seen.report()
    names = set()
    nodes = [data["flame"]]
    while nodes:
        name, host, card, children = nodes.pop()
        names.add(name)
        assert sum(child[1] for child in children) <= host
        assert sum(child[2] for child in children) <= card
        nodes += children
    assert "mul" in names
    assert any(name.startswith("test_small_runs_are_whole test_html.py:") for name in names)


def test_names_cannot_end_the_script():
    recording = synthetic(40)
    recording.events[-1].name = "</script><script>alert(1)</script><!--"
    page = html.render(recording)
    assert page.count("</script>") == html.TEMPLATE.read_text().count("</script>")
    assert "</script><script>alert(1)</script><!--" in data_of(page)["names"]


def test_names_that_are_no_text_are_escaped(tmp_path):
    # As os.fsdecode makes them of bytes that are no UTF-8.
    recording = synthetic(40)
    recording.events[-1].name = "caf\udce9"
    html.write(recording, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "caf\udce9" in data_of(page)["names"]


def test_the_roofline_places_kernels_by_their_counts():
    recording = synthetic(2000)
    data = html.contents(recording)
    points = {point[0]: point for point in data["roofline"]["points"]}
    kernels = [each for each in recording.of("kernel") if each.op == "op7"]
    op, line, nbytes, operations, spent, calls, dtype = points["op7"]
    facts = recording.plans[8]
    assert (op, calls, dtype) == ("op7", len(kernels), "float32")
    assert (nbytes, operations) == (calls * facts.nbytes, calls * facts.operations)
    assert spent == sum(each.end - each.start for each in kernels) // html.UNIT
    assert line == "part7.py:7"
    # One kernel's operations are a multiple of 40,000 here, and so unknown.
    known = sum(facts.operations > 0 for facts in recording.plans.values())
    assert (len(points), data["roofline"]["hidden"]) == (known, 60 - known)


def test_the_budget_begins_with_what_was_measured():
    recording = synthetic(2000)
    recording.layers = {"Python": 3_000_000, "dispatch": 1_000_000, "waits": 9_000_000}
    data = html.contents(recording)["budget"]
    kernels = sum(each.end - each.start for each in recording.of("kernel"))
    assert data["ops"] == 200  # 2000 calls in ten steps
    assert data["host"] == 2.0
    assert data["device"] == pytest.approx(kernels / 2000 / 1000, abs=0.01)
    assert data["measured"]


@pytest.mark.parametrize(("nbytes", "operations", "dtype", "share"), [
    (3350, 10, "float32", 1.0), (1675, 10, "float32", 0.5), (10, 67_000, "float32", 1.0),
    (10, 98_900, "bfloat16", 0.1), (3350, 1 << 40, "int64", 1.0)])
def test_a_kernels_share_is_that_of_the_nearer_limit(nbytes, operations, dtype, share):
    limits = limits_of("NVIDIA H100 80GB HBM3")
    assert limits.share(nbytes, operations, dtype, 1) == pytest.approx(share)
    assert limits_of("a card of tomorrow") is None


@pytest.mark.parametrize(("call", "operations"), [
    (lambda x, w: x @ w, 2 * 8 * 16 * 4), (lambda x, w: ss.addmm(ss.ones(4), x, w), 2 * 8 * 16 * 4),
    (lambda x, w: ss.nn.functional.linear(x, w.mT), 2 * 8 * 16 * 4),
    (lambda x, w: ss.bmm(ss.ones(3, 8, 16), ss.ones(3, 16, 4)), 3 * 2 * 8 * 16 * 4),
    (lambda x, w: x + x, 8 * 16), (lambda x, w: x.sum(), 8 * 16),
    (lambda x, w: ss.nn.functional.conv2d(ss.ones(2, 3, 8, 8), ss.ones(5, 3, 3, 3)),
     2 * (2 * 5 * 6 * 6) * (3 * 3 * 3)),
    (lambda x, w: x.sort(), 0)])
def test_operations_are_counted(call, operations):
    x, w = ss.ones(8, 16), ss.ones(16, 4)
    with profiler.profile() as seen:
        call(x, w)
    recording = seen.recorded()
    (last,) = [event for event in recording.of("op") if event.name not in ("ones", "full_memory")]
    assert recording.plans[last.plan].operations == operations


def test_an_empty_profile_has_a_page(tmp_path):
    with profiler.profile() as seen:
        pass
    path = tmp_path / "page.html"
    seen.export_html(path)
    data = data_of(path.read_text())
    assert data["verdict"] == "no op was called"
    assert data["lanes"] == []


def test_the_page_works_with_keys_in_the_dark_and_narrow():
    page = html.TEMPLATE.read_text()
    for text in ('name="viewport"', "prefers-color-scheme: dark", "max-width: 700px",
                 'tabindex="0"', "aria-live", "ArrowLeft", 'key === "/"', ":focus-visible",
                 "overflow-x: auto"):
        assert text in page
    assert set(re.findall(r'\$\("([a-z]+)"\)', page)) <= set(re.findall(r'id="([a-z]+)"', page))


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node.js")
@pytest.mark.parametrize("which", ["large", "small", "empty"])
def test_the_script_runs(which, large_page, tmp_path):
    page = {"large": lambda: large_page, "small": lambda: html.render(synthetic(60)),
            "empty": lambda: html.render(synthetic(22))}[which]()
    path = tmp_path / "page.html"
    path.write_text(page)
    seen = subprocess.run(["node", str(HERE / "run_page.js"), str(path), "kernel7"],
                          capture_output=True, text=True, timeout=120)
    assert seen.returncode == 0, seen.stderr
    shown = json.loads(seen.stdout)
    data = data_of(page)
    assert shown["verdict"] == data["verdict"]
    assert shown["kernels"] == max(len(data["kernels"]), 1)
    assert shown["heads"] == 8
    assert shown["rects"] > 0
    assert shown["left"] == data["left"]
    if which != "empty":
        assert not shown["found"].startswith("0 found")
        assert "kernel7" in shown["picked"]
