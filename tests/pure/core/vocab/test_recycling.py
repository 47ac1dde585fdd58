"""Memory of released records serves the next of their class; nothing else of them lives on."""

from __future__ import annotations

import gc
import sys
import weakref

import pytest

import slipstream as ss
from slipstream.core.vocab import recycling
from slipstream.core.vocab.devices import CPU
from slipstream.core.vocab.records import (
    GradRecord,
    Memory,
    Node,
    Storage,
    TensorBase,
    owners,
)
from slipstream.core.vocab.recycling import MOST, kept, recycle

COMPILED = not recycling.__file__.endswith(".py")
ONLY_COMPILED = pytest.mark.skipif(not COMPILED, reason="uncompiled, Python allocates")


class Counted(Memory):
    """An allocator that counts what comes back."""

    def __init__(self):
        self.freed = []

    def free(self, address, nbytes):
        """Note the block."""
        self.freed.append(address)


@pytest.fixture
def counted():
    """An allocator and its number."""
    memory = Counted()
    owners.append(memory)
    yield memory, len(owners) - 1
    assert owners.pop() is memory


@ONLY_COMPILED
def test_a_released_record_serves_the_next_one_of_its_class():
    for cls in (Node, GradRecord, TensorBase, Storage, ss.Tensor):
        assert kept(cls) >= 0, cls
    first = GradRecord()
    before = kept(GradRecord)
    place = id(first)
    del first
    assert kept(GradRecord) == before + 1
    again = GradRecord()
    assert id(again) == place
    assert kept(GradRecord) == before


@ONLY_COMPILED
def test_what_is_kept_is_bounded():
    many = [GradRecord() for _ in range(MOST + 500)]
    many.clear()
    assert kept(GradRecord) == MOST


@ONLY_COMPILED
def test_records_that_come_again_are_not_counted_by_the_collector():
    def fill():
        return [GradRecord() for _ in range(600)]

    fill()
    gc.collect()
    before = gc.get_count()[0]
    held = fill()
    assert gc.get_count()[0] - before < 100
    del held


@ONLY_COMPILED
def test_a_training_step_is_not_counted_by_the_collector():
    layers = [layer for _ in range(60) for layer in (ss.nn.Linear(4, 4), ss.nn.ReLU())]
    model, x = ss.nn.Sequential(*layers), ss.ones(2, 4)

    def step():
        loss = model(x).sum()
        counts.append(gc.get_count()[0])
        model.zero_grad()
        loss.backward()

    counts = []
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(3):
            step()
        before = gc.get_count()[0]
        step()
        # 120 nodes, and as many tensors, storages and records, were alive at that moment.
        assert counts[-1] - before < 100
    finally:
        if was_enabled:
            gc.enable()


def test_a_new_record_knows_nothing_of_the_one_before():
    class Thing:
        pass

    thing = Thing()
    alive = weakref.ref(thing)
    record = GradRecord()
    record.rule = record.grad = record.hooks = record.extra = thing
    record.requires_grad, record.output, record.generation, record.sequence = True, 3, 4, 5
    noted = weakref.ref(record)
    references = sys.getrefcount(thing)
    del record
    assert noted() is None
    # Not even memory that is kept holds what the record held.
    assert sys.getrefcount(thing) == references - 4
    again = GradRecord()
    assert noted() is None
    assert weakref.getweakrefs(again) == []
    assert (again.rule, again.grad, again.hooks, again.extra) == (None, None, None, None)
    assert (again.requires_grad, again.output, again.generation, again.sequence) == (
        False, 0, 0, 0)
    del thing
    assert alive() is None


def test_every_storage_gives_its_block_back(counted):
    memory, number = counted
    for address in (64, 128, 192, 256):
        storage = Storage(CPU, address, 64, number)
        del storage
    assert memory.freed == [64, 128, 192, 256]


def test_storages_that_the_collector_frees_give_their_blocks_back_once(counted):
    memory, number = counted
    for address in (64, 128):
        storage = Storage(CPU, address, 64, number)
        storage.keep = [storage]
        del storage
        gc.collect()
    storage = Storage(CPU, 192, 64, number)
    del storage
    assert memory.freed == [64, 128, 192]


def test_cycles_of_records_are_found_without_a_call_of_the_collector():
    assert gc.isenabled()
    alive = []
    for _ in range(4 * MOST):
        leaf = ss.Tensor.__new__(ss.Tensor, 1)
        leaf.record = GradRecord()
        node = Node(None, (leaf.record,))
        held = GradRecord()
        held.node = node
        gradient = ss.Tensor.__new__(ss.Tensor, 1)
        gradient.record = held
        # As backward with create_graph leaves it: the gradient's history leads to its leaf.
        leaf.record.grad = gradient
        alive.append(weakref.ref(node))
        del leaf, node, held, gradient
    assert sum(each() is not None for each in alive) < 2 * MOST


def test_a_gradient_with_history_of_its_own_leaf_is_collected():
    x = ss.ones(3, requires_grad=True)
    (x * x).sum().backward(create_graph=True)
    assert x.grad.requires_grad
    node = weakref.ref(x.grad.grad_fn)
    del x
    gc.collect()
    assert node() is None


def test_a_users_subclass_is_not_kept():
    class Named(ss.Tensor):
        pass

    tensor = ss.ones(2).as_subclass(Named)
    tensor.name_of_it = "a"
    noted = weakref.ref(tensor)
    before = kept(ss.Tensor)
    del tensor
    assert noted() is None
    assert kept(ss.Tensor) == before
    again = ss.ones(2).as_subclass(Named)
    assert not hasattr(again, "name_of_it")
    assert not recycle(Named)
    assert kept(Named) == -1
