"""Copies between pinned memory and the card: the host goes on, and waits where it must."""

from __future__ import annotations

import pytest

import slipstream as ss


def test_a_pinned_tensor_says_so() -> None:
    pinned = ss.arange(10.0).pin_memory()
    assert pinned.is_pinned()
    assert pinned.pin_memory() is pinned
    assert not ss.arange(10.0).is_pinned()
    with pytest.raises(RuntimeError, match="only dense CPU tensors"):
        ss.arange(3, device="cuda").pin_memory()


def test_writing_waits_for_the_copy_that_reads() -> None:
    pinned = ss.arange(1000.0).pin_memory()
    copy = pinned.to("cuda", non_blocking=True)
    pinned.add_(1)
    assert copy.tolist() == list(range(1000))
    assert pinned[0] == 1


def test_reading_waits_for_the_copy_that_fills() -> None:
    source = ss.arange(1000.0).cuda()
    for read in (lambda t: t.tolist(), lambda t: t.numpy().tolist(), lambda t: (t + 0).tolist()):
        target = ss.zeros(1000).pin_memory()
        target.copy_(source * 3, non_blocking=True)
        assert read(target) == [3.0 * i for i in range(1000)]


def test_a_block_is_not_given_out_while_a_copy_reads_it() -> None:
    first = ss.full((1000,), 1.0).pin_memory()
    copy = first.to("cuda", non_blocking=True)
    address = first.storage.address
    del first
    second = ss.full((1000,), 2.0).pin_memory()
    assert second.storage.address != address or copy.sum() == 1000
    assert copy.sum() == 1000
