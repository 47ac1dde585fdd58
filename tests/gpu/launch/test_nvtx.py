"""Ranges by PyTorch's names for NVTX: they stand in a profile like any named scope."""

from __future__ import annotations

import threading

import slipstream as ss
from slipstream import profiler
from slipstream.cuda import nvtx


def test_ranges_stand_in_a_profile_with_what_ran_in_them() -> None:
    x = ss.ones(10, device="cuda")
    with profiler.profile() as seen:
        assert nvtx.range_push("outer") == 0
        assert nvtx.range_push("inner") == 1
        x.exp()
        assert nvtx.range_pop() == 1
        assert nvtx.range_pop() == 0
        number = nvtx.range_start("apart")
        with nvtx.range("step {} of {most}", 3, most=9):
            x.sin()
        nvtx.range_end(number)
        nvtx.mark("here")
        ss.cuda.synchronize()
    spans = {event.name: event for event in seen.recorded().of("span")}
    assert set(spans) >= {"outer", "inner", "apart", "step 3 of 9", "here"}
    assert spans["outer"].start <= spans["inner"].start <= spans["inner"].end <= spans["outer"].end
    assert spans["apart"].start <= spans["step 3 of 9"].start
    assert all(event.file == __file__ for name, event in spans.items() if name != "step 3 of 9")


def test_a_pop_without_a_push_and_an_unknown_number_do_nothing() -> None:
    assert nvtx.range_pop() == -1
    nvtx.range_end(10 ** 9)
    depths: list[int] = []
    nvtx.range_push("mine")
    other = threading.Thread(target=lambda: depths.append(nvtx.range_push("theirs")))
    other.start()
    other.join()
    assert depths == [0]
    assert nvtx.range_pop() == 0


def test_a_range_ends_where_its_scope_raises() -> None:
    @nvtx.range("failing")
    def failing() -> None:
        raise KeyError("no")

    for _ in range(2):
        try:
            failing()
        except KeyError:
            assert nvtx.range_push("next") == 0
            nvtx.range_pop()
