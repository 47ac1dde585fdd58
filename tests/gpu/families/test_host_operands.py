"""Operands that may lie on the CPU while the others lie on a card, and classes that nobody reads.
"""

from __future__ import annotations

from typing import Any

import pytest

import slipstream as ss
from slipstream.nn import functional as F

CLASSES = [[1, 2, 3], [2, 2, 1]]


def likelihood(targets: Any, lengths: Any, wanted: Any) -> ss.Tensor:
    """The loss of two sequences of six steps, computed on a card."""
    scores = ss.linspace(-1, 1, 60, device="cuda").view(6, 2, 5).log_softmax(2)
    return F.ctc_loss(scores, targets, lengths, wanted)


def test_targets_and_lengths_of_ctc_may_lie_on_the_cpu() -> None:
    scores = ss.linspace(-1, 1, 60).view(6, 2, 5).log_softmax(2)
    host = ss.tensor(CLASSES), ss.tensor([6, 5]), ss.tensor([3, 2])
    expected = F.ctc_loss(scores, *host)
    lengths = [host[1:], tuple(each.cuda() for each in host[1:]), ((6, 5), (3, 2))]
    for targets in (host[0].cuda(), host[0], ss.tensor([1, 2, 3, 2, 2], dtype=ss.int32)):
        for each in lengths:
            found = likelihood(targets, *each)
            assert found.device.type == "cuda"
            assert found.cpu().allclose(expected)


@pytest.mark.parametrize("accumulate", [False, True])
def test_one_number_of_the_cpu_is_put_on_a_card(accumulate: bool) -> None:
    x, places = ss.ones(4, device="cuda"), (ss.tensor([0, 2], device="cuda"),)
    number = ss.tensor(3.0, requires_grad=True)
    found = x.index_put(places, number, accumulate=accumulate)
    value = 4.0 if accumulate else 3.0
    assert found.tolist() == [value, 1.0, value, 1.0]
    found.sum().backward()
    assert number.grad is not None
    assert number.grad.item() == 2
    x.index_put_(places, number.detach(), accumulate=accumulate)
    assert x.tolist() == [value, 1.0, value, 1.0]
    with pytest.raises(RuntimeError, match="same device"):
        x.index_put_(places, ss.ones(2))


def test_one_hot_of_known_classes_can_be_captured() -> None:
    classes = ss.tensor([0, 2, 1], device="cuda")
    graph = ss.cuda.CUDAGraph()
    F.one_hot(classes, 3)
    with ss.cuda.graph(graph):
        found = F.one_hot(classes, 3)
    classes.copy_(ss.tensor([2, 2, 0]))
    graph.replay()
    assert found.tolist() == [[0, 0, 1], [0, 0, 1], [1, 0, 0]]


@pytest.mark.parametrize("wrong", [-1, 3])
def test_a_class_out_of_range_is_told_with_its_line(wrong: int) -> None:
    F.one_hot(ss.tensor([0, wrong], device="cuda"), 3)
    with pytest.raises(IndexError, match=rf"index {wrong} is out of bounds(.|\n)*test_host_oper"):
        ss.cuda.synchronize()


@pytest.mark.parametrize(("call", "mend"), [
    (lambda x: F.one_hot(x), "num_classes="), (lambda x: x.repeat_interleave(x), "output_size=")])
def test_what_waits_for_a_size_names_the_argument_that_gives_it(call: Any, mend: str) -> None:
    x = ss.tensor([0, 2, 1], device="cuda")
    with ss.no_sync(), pytest.raises(ss.SyncError, match=f"mend: pass {mend}"):
        call(x)


def test_one_hot_wants_a_positive_number_of_classes() -> None:
    with pytest.raises(RuntimeError, match="num_classes should be positive"):
        F.one_hot(ss.tensor([0], device="cuda"), 0)


def test_lengths_on_a_card_are_not_waited_for() -> None:
    scores = ss.randn(12, 2, 5, device="cuda").log_softmax(-1)
    targets = ss.randint(1, 5, (2, 4), device="cuda")
    lengths, wanted = ss.tensor([12, 10], device="cuda"), ss.tensor([4, 3], device="cuda")
    expected = F.ctc_loss(scores.cpu(), targets.cpu(), lengths.cpu(), wanted.cpu())
    F.ctc_loss(scores, targets, lengths, wanted)
    with ss.no_sync():
        found = F.ctc_loss(scores, targets, lengths, wanted)
    assert ss.allclose(found.cpu(), expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", [ss.float16, ss.bfloat16])
def test_comparisons_find_what_was_stored(dtype: Any) -> None:
    x = ss.tensor([0.1, 0.3, 257.0, -1 / 3, 0.0], dtype=dtype)
    there = x.cuda()
    for number in (0.1, 0.3, 257, -1 / 3, 0):
        for name in ("eq", "ne", "lt", "le", "gt", "ge"):
            for other in (number, ss.tensor(number), ss.tensor(float(number), device="cuda")):
                wanted = getattr(x, name)(number).tolist()
                assert getattr(there, name)(other).tolist() == wanted, (name, other)
    assert (there == 0.1).tolist() == [True, False, False, False, False]
