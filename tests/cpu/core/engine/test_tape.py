"""What the tape holds, and for how long."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable

import pytest

import slipstream as ss
from slipstream.core.launch.door import backend_of
from slipstream.core.vocab.devices import CPU
from slipstream.core.vocab.records import Node


def held_bytes(tensor: ss.Tensor) -> int:
    """Bytes of the distinct storages that the tape behind a tensor saved."""
    storages = {}
    seen = set()
    stack = [tensor.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if node.name() != "AccumulateGrad":
            for each in [*(node.saved or ()), node.extra]:
                if each is not None and hasattr(each, "tensor"):
                    storages[id(each.tensor.storage)] = each.tensor.storage.nbytes
        stack.extend(edge for edge in node.edges if edge is not None)
    return sum(storages.values())


def test_the_tape_holds_what_formulas_name() -> None:
    w = ss.ones(4, requires_grad=True)
    x = ss.ones(4)
    for _ in range(8):
        x = (x * w).exp() + 1.0
    # Each layer: mul names its two inputs, exp its output, add nothing; w and the input are shared.
    inputs, outputs = 8 * 16, 8 * 16
    assert held_bytes(x) == 16 + inputs + outputs


def test_an_input_of_add_is_freed_before_backward() -> None:
    x = ss.ones(3, requires_grad=True)
    middle = x * 2
    gone = weakref.ref(middle.storage)
    y = middle + 1
    del middle
    assert gone() is None
    y.sum().backward()
    assert x.grad.tolist() == [2.0] * 3


def test_an_output_that_its_node_saves_makes_no_cycle() -> None:
    gc.disable()
    try:
        x = ss.ones(3, requires_grad=True)
        y = x.exp()
        gone = weakref.ref(y.storage)
        del y
        assert gone() is None
    finally:
        gc.enable()


def test_a_training_loop_without_collector_leaks_nothing() -> None:
    gc.collect()
    gc.disable()
    try:
        w = ss.randn(4, 4, requires_grad=True)
        counts = []
        for _ in range(6):
            y = ((w @ w).exp() * w)
            y[0].mul_(2.0)
            y.sum().backward()
            with ss.no_grad():
                w -= 0.01 * w.grad
            w.grad = None
            del y
            counts.append(sum(isinstance(each, (Node, ss.Tensor)) for each in gc.get_objects()))
        assert counts[-1] <= counts[2]
    finally:
        gc.enable()


def test_training_without_collector_takes_no_more_bytes() -> None:
    memory = backend_of(CPU).memory
    model = ss.nn.Sequential(ss.nn.Linear(8, 16), ss.nn.GELU(), ss.nn.LayerNorm(16),
                             ss.nn.Linear(16, 4))
    optimizer = ss.optim.AdamW(model.parameters(), lr=0.01)
    gc.collect()
    gc.disable()
    try:
        live = []
        for _ in range(12):
            optimizer.zero_grad()
            loss = ss.nn.functional.cross_entropy(model(ss.randn(32, 8)), ss.arange(32) % 4)
            loss.backward()
            optimizer.step()
            del loss
            memory.settle_now()
            live.append(memory.live_bytes)
        assert set(live[2:]) == {live[2]}
    finally:
        gc.enable()


def test_a_changed_saved_tensor_names_both_lines() -> None:
    a = ss.tensor([1.0, 2.0], requires_grad=True)
    b = a * 1
    c = b * b
    b.add_(1)
    with pytest.raises(RuntimeError) as caught:
        c.sum().backward()
    text = str(caught.value)
    assert "MulBackward0 saved at" in text
    assert "last written in place at" in text
    assert text.count("test_tape.py:") == 2
    assert "version 1; expected version 0" in text


def test_writes_through_detached_aliases_are_counted() -> None:
    a = ss.tensor([0.5, -1.0], requires_grad=True)
    out = a.exp()
    out.detach().fill_(7.0)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        out.sum().backward()
    assert not out.detach().requires_grad
    assert out.detach().grad_fn is None


# Calls of C nested this deep overflow the stack below.
LONG = 5000


def in_a_small_stack(work: Callable[[], None]) -> None:
    """Run in a thread whose stack holds a thousand calls of C or two."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as failure:
            failures.append(failure)

    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    if failures:
        raise failures[0]


@pytest.mark.parametrize("step", [
    lambda y: y + 1.0, lambda y: y * 1.0, lambda y: y.view(1), lambda y: y.add_(1.0),
    lambda y: y[:1].mul_(1.0)], ids=["add", "mul", "view", "in place", "in place on a view"])
def test_a_long_chain_needs_no_recursion(step: Callable[[ss.Tensor], ss.Tensor]) -> None:
    def work() -> None:
        x = ss.ones(1, requires_grad=True)
        y = x * 1
        for _ in range(LONG):
            y = step(y)
        y.sum().backward()
        assert x.grad.tolist() == [1.0]
        y = x * 1
        for _ in range(LONG):
            y = step(y)
        del y

    in_a_small_stack(work)


def test_nodes_can_be_walked() -> None:
    x = ss.ones(2, requires_grad=True)
    y = (x * 2 + 1).exp()
    names = []
    node = y.grad_fn
    while node is not None:
        names.append(node.name())
        node = node.next_functions[0][0] if node.next_functions else None
    assert names == ["ExpBackward0", "AddBackward0", "MulBackward0", "AccumulateGrad"]


def test_threads_record_and_walk_by_themselves() -> None:
    results = [0.0] * 4

    def work(i: int) -> None:
        with ss.no_grad() if i == 0 else ss.enable_grad():
            x = ss.full((2,), float(i), requires_grad=True)
            y = (x * x).sum()
            if i:
                y.backward()
                results[i] = x.grad.tolist()[0]
            else:
                results[i] = -1.0 if y.requires_grad else 0.0

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert results == [0.0, 2.0, 4.0, 6.0]


@pytest.mark.parametrize("reduce", [
    lambda x, d: x.sum(d), lambda x, d: x.mean(d), lambda x, d: x.amax(d), lambda x, d: x.var(d),
    lambda x, d: x.logsumexp(d), lambda x, d: x.norm(2, d), lambda x, d: x.nansum(d)])
def test_a_list_of_dims_may_be_changed_after_the_call(
        reduce: Callable[[ss.Tensor, list[int]], ss.Tensor]) -> None:
    found = []
    for change in (False, True):
        x = ss.tensor([[1.0, 2.5], [3.0, 4.0]], requires_grad=True)
        dims = [0]
        y = reduce(x, dims)
        if change:
            dims[0] = 1
        y.backward(ss.tensor([1.0, 2.0]))
        found.append(x.grad.tolist())
    assert found[0] == found[1]


def test_memory_that_another_tensor_takes_over_is_not_found_changed() -> None:
    a, source = ss.ones(2, requires_grad=True), ss.tensor([2.0, 3.0])
    y = (a * source).sum()
    other = ss.zeros(2)
    other.set_(source)
    y.backward()
    assert a.grad.tolist() == [2.0, 3.0]


def test_a_tensor_detached_in_place_keeps_its_gradient_and_the_count_of_its_histories() -> None:
    a = ss.zeros(3)
    before, after = (ss.tensor(2.0, requires_grad=True) for _ in range(2))
    view = a[:2]
    a.add_(before)
    assert view.requires_grad
    a.detach_()
    assert not a.requires_grad
    assert a.is_leaf
    a.add_(after)
    view.sum().backward()
    assert before.grad is None
    assert after.grad.item() == 2.0
    leaf = ss.ones(2, requires_grad=True)
    (leaf * 3).sum().backward()
    late = (leaf * 5).sum()
    leaf.detach_()
    late.backward()
    assert not leaf.requires_grad
    assert leaf.grad.tolist() == [3.0, 3.0]
