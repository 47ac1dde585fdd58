"""Every op of the catalogue on the device, forward and backward, against the CPU's results."""

from __future__ import annotations

from typing import Any

import pytest
from catalogue import NAMES, SAMPLED, layouts_of, main_dtype

import slipstream as ss
from gpu.launch.everyop import backward, forward, gradients, other_dtypes, outputs
from slipstream.core.catalog.table import table
from slipstream.core.dispatch.entry import VIEW
from slipstream.core.dispatch.registry import candidates_of

# Ops with no kernel on the device yet, and what they wait for.
SCAN, SORT = "a parallel scan", "a parallel sort"
WITHOUT_KERNEL = {
    "cummax_places": SCAN, "cummin_places": SCAN, "cumprod": SCAN, "cumsum": SCAN,
    "linear_recurrence": SCAN, "logcumsumexp": SCAN, "kth_place": SORT, "places_in": SORT,
    "sort_places": SORT, "sorted_values": SORT, "topk_places": SORT,
}
# Ops that call one of those, and which.
CALLING = {
    "argsort": "sort_places", "bucketize": "places_in", "cummax": "cummax_places",
    "cummin": "cummin_places", "kthvalue": "kth_place", "median": "kth_place",
    "msort": "sort_places", "searchsorted": "places_in", "sort": "sort_places",
    "topk": "topk_places", "unique": "sort_places",
}
# Gradients that call one of them.
GRADIENTS_CALLING = {"prod": "cumprod"}
REFUSING = [name for name in SAMPLED if name in WITHOUT_KERNEL or name in CALLING]
WORKING = [name for name in SAMPLED if name not in REFUSING]
DIFFERENTIABLE = [name for name in WORKING if name not in GRADIENTS_CALLING
                  and "float" in table[name].entry.dtypes]


def test_every_op_has_a_road_but_those_listed() -> None:
    without = [name for name in NAMES if not table[name].compound
               and table[name].entry.formula is None and table[name].entry.kind != VIEW
               and not candidates_of(table[name], "cuda")]
    assert sorted(WITHOUT_KERNEL) == without


@pytest.mark.parametrize("name", REFUSING)
def test_an_op_without_kernel_says_so(name: str) -> None:
    op = table[name]
    missing = CALLING.get(name, name)
    with pytest.raises(NotImplementedError) as caught:  # noqa: PT012
        for sample in op.entry.samples():
            outputs(op, sample, main_dtype(op), "contiguous", "cuda")
    assert missing in str(caught.value) or missing in ("sort_places", "sorted_values")
    assert "no kernel of" in str(caught.value)
    assert "on cuda:0" in str(caught.value)


@pytest.mark.parametrize("name", sorted(GRADIENTS_CALLING))
def test_a_gradient_without_kernel_says_so(name: str) -> None:
    with pytest.raises(NotImplementedError, match=GRADIENTS_CALLING[name]):  # noqa: PT012
        for sample in table[name].entry.samples():
            gradients(table[name], sample, "contiguous", "cuda")


@pytest.mark.parametrize("name", WORKING)
def test_forward(name: str) -> None:
    op = table[name]
    for sample in op.entry.samples():
        for layout in layouts_of(op):
            forward(op, sample, main_dtype(op), layout)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_backward(name: str) -> None:
    op = table[name]
    for sample in op.entry.samples():
        for layout in ("contiguous", "offset", "stepped"):
            if layout in layouts_of(op):
                backward(op, sample, layout)


@pytest.mark.parametrize("name", WORKING)
def test_dtypes(name: str) -> None:
    op = table[name]
    for sample in op.entry.samples():
        for dtype in other_dtypes(op, sample):
            forward(op, sample, dtype, "contiguous")


def test_a_result_is_written_over_a_view_with_an_offset() -> None:
    results: dict[str, Any] = {}
    for device in ("cpu", "cuda"):
        memory = ss.zeros(17, device=device)
        ss.exp(ss.arange(16, device=device) / 16.0, out=memory[1:])
        memory[1:].mul_(3.0)
        memory[::2].add_(1.0)
        results[device] = memory.cpu().tolist()
    assert results["cuda"] == pytest.approx(results["cpu"], rel=1e-6)
