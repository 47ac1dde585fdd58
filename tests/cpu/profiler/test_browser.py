"""The page of a profile in a headless Chromium: what a reader does with it, and no error."""

from __future__ import annotations

import pytest

from cpu.profiler import chromium
from cpu.profiler.test_html import synthetic
from slipstream.profiler import html

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None,
                                reason="no Chromium is installed: apt-get install chromium")
PAINT = """new Promise(done => new PerformanceObserver(list => {
    for (const entry of list.getEntries())
        if (entry.name === "first-contentful-paint") done(entry.startTime); }
    ).observe({type: "paint", buffered: true}))"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page of 100,000 events, and its browser."""
    folder = tmp_path_factory.mktemp("chromium")
    path = folder / "page.html"
    html.write(synthetic(100_000), path)
    with chromium.browser(folder / "profile") as browser:
        browser.path = path
        browser.size(1280, 900)
        browser.scheme("light")
        browser.open(path)
        browser.painted()
        yield browser


@pytest.fixture(autouse=True)
def no_complaint(page):
    yield
    assert page.complaints == []


def view(page):
    return page.value("view.slice()")


def drawn(page, canvas="time"):
    """How many different colours a canvas shows."""
    return page.value(f"""(() => {{
        const at = document.getElementById("{canvas}");
        const data = at.getContext("2d").getImageData(0, 0, at.width, at.height).data;
        return new Set(new Uint32Array(data.buffer)).size; }})()""")


def middle(page, element):
    return page.value(f"""(() => {{ const node = document.getElementById("{element}");
        node.scrollIntoView({{block: "center"}}); const box = node.getBoundingClientRect();
        return [box.left + box.width / 2, box.top + box.height / 2]; }})()""")


def text(page, element):
    return page.value(f"document.getElementById('{element}').textContent")


def test_it_opens_and_paints(page):
    assert page.path.stat().st_size <= 3_000_000
    paint = page.value(PAINT)
    print(f"first paint after {paint:.0f} ms, {page.path.stat().st_size / 1e6:.2f} MB of 100,000 "
          "events")
    assert paint > 0
    assert text(page, "verdict")
    assert text(page, "budgetfrom").startswith("Begins with what was measured.")
    for canvas in ("time", "flame", "roof"):
        assert drawn(page, canvas) > 3, canvas
    step = page.value("D.open")
    assert view(page) == step


def test_wheel_keys_and_buttons_zoom_and_move(page):
    page.value("look(...whole)")
    x, y = middle(page, "time")
    page.wheel(x, y, -120)
    page.painted()
    low, high = view(page)
    whole = page.value("whole")
    assert high - low == pytest.approx(0.8 * (whole[1] - whole[0]))
    page.value("$('time').focus()")
    page.key("+", "+")
    assert view(page)[1] - view(page)[0] == pytest.approx(0.7 * (high - low))
    before = view(page)[0]
    page.key("ArrowRight")
    assert view(page)[0] > before
    page.key("n", "n")
    assert view(page) in page.value("D.steps.map(step => step.slice(0, 2))")
    page.key("0", "0")
    assert view(page) == whole
    x, y = middle(page, "in")
    page.click(x, y)
    assert view(page)[1] - view(page)[0] == pytest.approx(0.6 * (whole[1] - whole[0]))


def test_search_finds_and_goes_to_events(page):
    page.value("document.activeElement.blur()")
    page.key("/", "/")
    assert page.value("document.activeElement.id") == "search"
    page.ask("Input.insertText", text="kernel7")
    page.painted()
    count = page.value("hits.length")
    assert count > 0
    assert text(page, "hits").startswith(f"{count} found")
    page.key("Enter")
    assert text(page, "details").startswith("kernel7")
    low, high = view(page)
    assert low <= page.value("hits[0][0].start[hits[0][1]]") <= high
    page.key("Escape")
    assert page.value("document.activeElement.id") == "time"
    assert text(page, "hits") == ""


def test_a_click_tells_of_an_event(page):
    page.value("look(...D.open)")
    page.painted()
    x, y = page.value("""(() => { $("time").scrollIntoView();
        const box = $("time").getBoundingClientRect(), lane = lanes[0];
        const at = lane.start.indexOf(view[0]), scale = box.width / (view[1] - view[0]);
        const from = Math.max(lane.start[at], view[0]), to = Math.min(lane.end[at], view[1]);
        return [box.left + ((from + to) / 2 - view[0]) * scale, box.top + AXIS + 14 + 5]; })()""")
    page.click(x, y)
    assert "host: scopes and steps" in text(page, "details")


def test_sliders_reckon_the_budget(page):
    page.value("resetBudget()")
    facts = page.value("B")
    assert text(page, "opsout") == str(facts["ops"])
    page.value("$('device').value = Math.log10(B.host) - 1; drawBudget()")
    assert text(page, "budgetverdict").startswith("CPU-bound by 10.0 times")
    assert "idle 90 %" in text(page, "budgetverdict")
    page.value("$('device').focus()")
    before = text(page, "deviceout"), text(page, "outcome")
    for _ in range(100):
        page.key("ArrowRight")
    after = text(page, "deviceout"), text(page, "outcome")
    assert before[0] != after[0]
    assert before[1] != after[1]
    assert text(page, "budgetverdict").startswith("even")
    x, y = middle(page, "measured")
    page.click(x, y)
    assert page.value("Number($('device').value)") == pytest.approx(
        page.value("Math.log10(B.measured ? B.device : 4)"), abs=0.01)


def test_the_roofline_tells_of_a_kernel(page):
    page.value("$('roof').focus()")
    page.key("ArrowRight")
    first = text(page, "rooftext")
    assert "operations a byte" in first
    page.key("ArrowRight")
    assert text(page, "rooftext") != first
    x, y = middle(page, "roof")
    page.click(x, y)
    assert "FLOP/s" in text(page, "rooftext")


def test_the_roofline_has_the_cards_limits(page, tmp_path):
    """A kernel's share is that of the nearer limit."""
    page.value("R.bandwidth = 2000; R.peaks = {float32: 60000, bfloat16: 900000}; drawRoof()")
    assert drawn(page, "roof") > 3
    for point in (0, page.value("points.length - 1")):
        page.value(f"tellRoof({point})")
        wide, rate = page.value(f"[points[{point}].wide, points[{point}].rate]")
        share = 100 * rate / min(2000 * wide, 60000)
        assert f"; {share:.0f} % of what its bytes allow" in text(page, "rooftext")
    page.value("points.push({name: 'product', line: 'a.py:1', wide: 4000, rate: 45000, time: 900, "
               "calls: 1, type: 'float32'}); tellRoof(points.length - 1)")
    assert "45.0 TFLOP/s" in text(page, "rooftext")
    assert "75 % of the float32 peak" in text(page, "rooftext")
    page.value("$('roof').scrollIntoView()")
    page.shot(tmp_path / "roof.png")
    page.value("points.pop(); R.bandwidth = null; R.peaks = {}; drawRoof()")


@pytest.mark.parametrize("width", [1280, 420])
def test_labels_of_the_roofline_neither_overlap_nor_are_cut(page, width):
    page.value("R.bandwidth = 3350; R.peaks = {float32: 67000, float64: 67000, float16: 989000, "
               "bfloat16: 989000}")
    page.size(width, 900)
    page.painted()
    labels = page.value("(drawRoof(), roofLabels)")
    wide = page.value("$('roof').clientWidth")
    texts = [label[0] for label in labels]
    assert "float32, float64 67.0 TFLOP/s" in texts
    assert "float16, bfloat16 989 TFLOP/s" in texts
    assert "operations a byte" in texts
    # Ticks of both axes.
    assert sum(text.isdigit() or text.startswith("1/") for text in texts) >= 3
    assert sum(text.endswith("FLOP/s") and "float" not in text for text in texts) >= 3
    for place, (text, left, top, right, bottom) in enumerate(labels):
        assert 0 <= left < right <= wide, text
        assert 0 <= top < bottom <= 300, text
        for other in labels[:place]:
            apart = right <= other[1] or other[3] <= left or bottom <= other[2] or other[4] <= top
            assert apart, (text, other[0])
    page.size(1280, 900)
    page.value("R.bandwidth = null; R.peaks = {}; drawRoof()")


def test_the_flame_graph_zooms(page):
    page.value("root = D.flame; drawFlame(); $('flame').focus()")
    whole = page.value("boxes.length")
    page.key("ArrowRight")
    page.key("ArrowRight")
    page.key("Enter")
    assert page.value("root !== D.flame")
    zoomed = page.value("boxes.length")
    assert zoomed < whole
    page.key("Escape")
    assert page.value("root === D.flame")
    assert page.value("boxes.length") > zoomed


def test_tables_sort(page):
    page.value("[...document.querySelectorAll('#kernels th button')][3].click()")
    calls = page.value("[...document.querySelectorAll('#kernels tbody tr')].map(row => "
                       "Number(row.children[3].textContent.replaceAll(',', '')))")
    assert calls == sorted(calls, reverse=True)
    assert len(calls) > 10


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_narrow_windows_and_both_schemes(page, tmp_path, scheme, width):
    page.size(width, 900)
    page.scheme(scheme)
    page.value("dispatchEvent(new Event('resize'))")
    page.painted()
    assert page.value("document.documentElement.scrollWidth") <= width
    back = page.value("getComputedStyle(document.body).backgroundColor")
    bright = sum(int(part) for part in back[back.index("(") + 1:-1].split(",")[:3])
    assert (bright > 600) == (scheme == "light")
    page.shot(tmp_path / f"{scheme}-{width}.png")
    assert (tmp_path / f"{scheme}-{width}.png").stat().st_size > 20_000
    before = page.value("getComputedStyle(document.body).color")
    page.value("document.activeElement.blur()")
    page.key("t", "t")
    assert page.value("getComputedStyle(document.body).color") != before
    page.key("t", "t")
    assert page.value("getComputedStyle(document.body).color") == before
    page.value("delete document.documentElement.dataset.theme")


def test_it_draws_again_within_a_frame_or_so(page):
    """100,000 events stay smooth: what is drawn is bounded by the pixels, not by the events."""
    page.size(1280, 900)
    drawn_boxes = page.value("""(() => { look(...whole); let count = 0;
        const was = CanvasRenderingContext2D.prototype.fillRect;
        CanvasRenderingContext2D.prototype.fillRect = function (...box) {
            count++; return was.apply(this, box); };
        const begun = performance.now();
        drawTime();
        const spent = performance.now() - begun;
        CanvasRenderingContext2D.prototype.fillRect = was;
        return [count, spent]; })()""")
    print(f"{drawn_boxes[0]} boxes in {drawn_boxes[1]:.1f} ms")
    rows = page.value("lanes.reduce((sum, lane) => sum + lane.rows, 0)")
    assert 0 < drawn_boxes[0] <= 1300 * rows
