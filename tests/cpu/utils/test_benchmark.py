"""The Timer times what it is given."""

from __future__ import annotations

import pytest

from slipstream.utils.benchmark import Measurement, TaskSpec, Timer, select_unit


def test_timeit_and_ranges():
    timer = Timer("x + 1", setup="x = y", globals={"y": 2}, label="add", sub_label="small")
    once = timer.timeit(100)
    assert once.number_per_run == 100
    assert once.median > 0
    blocks = []
    result = timer.blocked_autorange(callback=lambda n, t: blocks.append(t), min_run_time=0.01)
    assert sum(result.raw_times) >= 0.01
    assert blocks == result.raw_times
    assert len(timer.adaptive_autorange(max_run_time=0.05).raw_times) >= 1
    assert "add: small" in repr(result)
    assert "setup: x = y" in repr(result)
    assert result.num_threads == 1


def test_statistics_and_merging():
    task = TaskSpec("x", "pass")
    first, second = Measurement(10, [1.0, 2.0], task), Measurement(1, [0.3], task)
    merged, = Measurement.merge([first, second])
    assert merged.times == [0.1, 0.2, 0.3]
    assert merged.median == 0.2
    assert merged.mean == pytest.approx(0.2)
    assert merged.iqr == pytest.approx(0.1)
    assert "WARNING" in repr(merged)
    assert select_unit(3e-5)[0] == "us"


def test_bad_arguments():
    with pytest.raises(ValueError, match="stmt"):
        Timer(print)
    with pytest.raises(ValueError, match="language"):
        Timer(language="c++")
