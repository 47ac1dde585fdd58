"""The host's memory: aligned, writable, private to a process, given back."""

from __future__ import annotations

import ctypes
import os
import sys

import numpy as np
import pytest

from slipstream.core.memory.blocks import Allocator
from slipstream.core.native.host import HUGE, WINDOW, HostMemory

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="windows of addresses are Linux's")


def view(address, nbytes):
    """The bytes at an address, as an array."""
    return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), np.uint8)


@pytest.mark.parametrize("nbytes", [1, 64, 4096, 100_000, HUGE - 1, HUGE, HUGE + 1, 40_000_000])
def test_pieces_are_aligned_and_writable(nbytes):
    memory = HostMemory()
    pieces = [memory.reserve(nbytes) for _ in range(3)]
    for i, address in enumerate(pieces):
        assert address % (HUGE if nbytes >= HUGE else 4096) == 0
        view(address, nbytes)[:] = i + 1
    assert [int(view(a, nbytes)[-1]) for a in pieces] == [1, 2, 3]
    for address in pieces:
        memory.release(address)
    assert not memory.pieces


@pytest.mark.parametrize("nbytes", [0, -5, 1 << 60, (1 << 63) - 1])
def test_what_cannot_be_had_is_address_zero(nbytes):
    memory = HostMemory()
    assert memory.reserve(nbytes) == 0
    assert memory.reserve_growing(nbytes) == 0
    assert not memory.pieces


def test_releasing_what_is_not_ours():
    memory = HostMemory()
    address = memory.reserve(10)
    memory.release(address)
    with pytest.raises(ValueError, match="no piece of host memory"):
        memory.release(address)


@LINUX
def test_a_growing_piece():
    memory = HostMemory()
    address = memory.reserve_growing(HUGE)
    assert address % HUGE == 0
    assert memory.extend(address, 4 * HUGE)
    everything = view(address, 5 * HUGE)
    everything[:] = 7
    memory.shrink(address, HUGE + 100)
    assert (everything[: HUGE + 100] == 7).all()
    assert memory.extend(address, 3 * HUGE)
    # Pages that were given back come again as zeros.
    assert not everything[2 * HUGE : 4 * HUGE].any()
    assert not memory.extend(address, WINDOW)
    memory.release(address)
    assert not memory.pieces
    assert not memory.windows


@LINUX
def test_a_child_does_not_write_into_our_memory():
    memory = HostMemory()
    pieces = [memory.reserve(5000), memory.reserve(HUGE), memory.reserve_growing(HUGE)]
    for address in pieces:
        view(address, 5000)[:] = 1
    child = os.fork()
    if child == 0:
        for address in pieces:
            view(address, 5000)[:] = 2
        os._exit(0)
    os.waitpid(child, 0)
    assert all((view(address, 5000) == 1).all() for address in pieces)
    for address in pieces:
        memory.release(address)


def test_the_allocator_hands_out_real_memory():
    allocator = Allocator(HostMemory())
    sizes = [1, 100, 5000, 300_000, 1 << 20, 3 << 20, 20 << 20]
    blocks = [(allocator.allocate(n), n) for n in sizes * 2]
    for i, (address, nbytes) in enumerate(blocks):
        view(address, nbytes)[:] = i
    assert all((view(*block) == i).all() for i, block in enumerate(blocks))
    for block in blocks:
        allocator.free(*block)
    allocator.empty_cache()
    assert not allocator.pieces.provider.pieces
