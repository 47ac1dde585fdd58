"""Graphs that a user captures: replays, random numbers, memory, other streams, what is refused."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slipstream as ss
from slipstream.core.native.simulated.graphs import Executable, Graph


def captured(work: Any, **more: Any) -> tuple[ss.cuda.CUDAGraph, Any]:
    """A graph of some work, and what the work returned."""
    graph = ss.cuda.CUDAGraph()
    with ss.cuda.graph(graph, **more):
        result = work()
    return graph, result


# -- replays --------------------------------------------------------------------------------------
def test_a_replay_runs_on_the_same_memory() -> None:
    x = ss.arange(6.0, device="cuda")
    graph, (y, total) = captured(lambda: ((x * 2 + 1), (x * x).sum()))
    for step in range(3):
        graph.replay()
        expected = np.arange(6.0) + step
        assert y.tolist() == (2 * expected + 1).tolist()
        assert total.item() == (expected ** 2).sum()
        x.add_(1)


def test_nothing_runs_while_it_is_captured() -> None:
    x = ss.zeros(4, device="cuda")
    before = ss.cuda.launch_stats()["launches"]
    graph, _ = captured(lambda: x.add_(1))
    assert ss.cuda.launch_stats()["launches"] == before
    assert x.tolist() == [0.0] * 4
    graph.replay()
    graph.replay()
    assert x.tolist() == [2.0] * 4


def test_a_replay_is_one_launch_of_the_driver(restart: Any) -> None:
    driver = restart(zero_cost=True)
    x = ss.ones(64, device="cuda")
    graph, _ = captured(lambda: [x * number for number in range(20)])
    ss.cuda.synchronize()
    before, stats = driver.statistics(), ss.cuda.launch_stats()
    graph.replay()
    after, now = driver.statistics(), ss.cuda.launch_stats()
    assert after["graph_launches"] - before["graph_launches"] == 1
    assert after["graph_kernel_nodes"] - before["graph_kernel_nodes"] == 20
    assert after["kernel_launches"] == before["kernel_launches"]
    assert now["replayed"] - stats["replayed"] == now["launches"] - stats["launches"] == 20


def test_replays_on_several_streams_come_one_after_the_other(restart: Any) -> None:
    for seed in range(5):
        restart(seed=seed)
        x = ss.zeros(1000, device="cuda")
        graph, _ = captured(lambda x=x: x.add_(1))
        side = ss.cuda.Stream()
        side.wait_stream(ss.cuda.current_stream())
        graph.replay()
        with ss.cuda.stream(side):
            graph.replay()
        ss.cuda.current_stream().wait_stream(side)
        assert x.sum().item() == 2000


def test_a_whole_training_step() -> None:
    ss.manual_seed(3)
    model = ss.nn.Sequential(ss.nn.Linear(8, 16), ss.nn.ReLU(), ss.nn.Linear(16, 1)).to("cuda")
    optimizer = ss.optim.SGD(model.parameters(), lr=0.05)
    x = ss.randn(32, 8).to("cuda")
    y = x.sum(1, keepdim=True)

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    step()
    weights = [each.detach().clone() for each in model.parameters()]
    expected = [step().item() for _ in range(5)]
    with ss.no_grad():
        for each, before in zip(model.parameters(), weights, strict=True):
            each.copy_(before)
    graph, loss = captured(step)
    losses = []
    for _ in range(5):
        graph.replay()
        losses.append(loss.item())
    assert losses == expected


@pytest.mark.parametrize("name", ["Adam", "AdamW", "NAdam", "Adagrad", "Adafactor"])
def test_a_step_whose_number_counts_is_not_captured(name: str) -> None:
    weight = ss.ones(4, 4, device="cuda", requires_grad=True)
    weight.grad = ss.ones(4, 4, device="cuda")
    optimizer = getattr(ss.optim, name)([weight])
    with pytest.raises(RuntimeError, match=rf"{name}.step.*\n  mend: "):
        captured(optimizer.step)
    assert weight.tolist() == [[1.0] * 4] * 4
    optimizer.step()
    assert weight[0, 0].item() < 1


# -- random numbers -------------------------------------------------------------------------------
def test_each_replay_draws_new_numbers_as_eager_code_does() -> None:
    ss.cuda.manual_seed(11)
    graph, (first, second) = captured(
        lambda: (ss.rand(10, device="cuda"), ss.randn(7, device="cuda")))
    ss.cuda.manual_seed(5)
    found = []
    for _ in range(3):
        graph.replay()
        found.append((first.tolist(), second.tolist()))
    ss.cuda.manual_seed(5)
    eager = [(ss.rand(10, device="cuda").tolist(), ss.randn(7, device="cuda").tolist())
             for _ in range(3)]
    assert found == eager
    assert found[0] != found[1]


def test_a_capture_draws_nothing_from_the_generator() -> None:
    ss.cuda.manual_seed(8)
    state = ss.cuda.get_rng_state().tolist()
    graph, _ = captured(lambda: ss.rand(100, device="cuda"))
    assert ss.cuda.get_rng_state().tolist() == state
    graph.replay()
    assert ss.cuda.get_rng_state().tolist() != state


def test_dropout_of_a_replay_is_that_of_its_backward() -> None:
    x = ss.ones(400, device="cuda", requires_grad=True)

    def step() -> Any:
        out = ss.nn.functional.dropout(x, 0.5)
        return out, ss.autograd.grad(out.sum(), x)[0]

    graph, (out, gradient) = captured(step)
    seen = set()
    for _ in range(4):
        graph.replay()
        assert out.tolist() == gradient.tolist()
        seen.add(tuple(out.tolist()))
    assert len(seen) == 4


def test_a_generator_has_to_be_registered() -> None:
    own = ss.Generator("cuda").manual_seed(4)
    with pytest.raises(RuntimeError, match="register_generator_state"):
        captured(lambda: ss.rand(4, device="cuda", generator=own))
    own.manual_seed(4)
    graph = ss.cuda.CUDAGraph()
    graph.register_generator_state(own)
    with ss.cuda.graph(graph):
        drawn = ss.rand(4, device="cuda", generator=own)
    graph.replay()
    graph.replay()
    again = ss.Generator("cuda").manual_seed(4)
    eager = [ss.rand(4, device="cuda", generator=again).tolist() for _ in range(2)]
    assert drawn.tolist() == eager[1]


# -- memory ---------------------------------------------------------------------------------------
def test_what_captured_work_uses_lives_as_long_as_the_graph() -> None:
    x = ss.arange(100.0, device="cuda")
    graph, total = captured(lambda x=x: (x * x).sum())
    del x
    gc.collect()
    others = [ss.full((100,), 7.0, device="cuda") for _ in range(8)]
    graph.replay()
    assert total.item() == (np.arange(100.0) ** 2).sum()
    assert all(each.sum().item() == 700 for each in others)


def test_eager_code_gets_no_memory_of_a_graph(restart: Any) -> None:
    driver = restart()
    x = ss.ones(2000, device="cuda")
    graph, result = captured(lambda: ((x + 1) * (x + 2) - (x + 3)).exp())
    kept = [ss.full((2000,), float(number), device="cuda") for number in range(12)]
    ss.cuda.empty_cache()
    for _ in range(3):
        graph.replay()
    ss.cuda.synchronize()
    assert result.tolist() == pytest.approx([np.exp(2.0)] * 2000, rel=1e-6)
    assert [each.sum().item() for each in kept] == [2000.0 * number for number in range(12)]
    assert driver.name == "simulated"


def test_a_graph_that_is_gone_gives_its_memory_back(restart: Any) -> None:
    restart(memory=64 << 20)
    for number in range(8):
        graph, result = captured(lambda: ss.ones(6 << 20, device="cuda") * 2)
        graph.replay()
        assert result[number].item() == 2
        del graph, result
    reserved = ss.cuda.memory_reserved()
    ss.cuda.empty_cache()
    assert ss.cuda.memory_reserved() <= min(reserved, 32 << 20)


def test_memory_of_a_graph_that_is_gone_is_not_given_out_too_early(restart: Any) -> None:
    for seed in range(6):
        restart(seed=seed)
        # In a segment, so that the next request of this size finds the same block.
        x = ss.ones(1 << 19, device="cuda")
        total = ss.zeros(1, device="cuda")
        graph, _ = captured(lambda x=x, total=total: total.add_(x.sum()))
        address = x.storage.address
        side = ss.cuda.Stream()
        side.wait_stream(ss.cuda.current_stream())
        with ss.cuda.stream(side):
            graph.replay()
        del graph, x
        # The block is clean for nobody: its next user waits for the replay on the device.
        later = ss.full((1 << 19,), 7.0, device="cuda")
        assert later.storage.address == address
        ss.cuda.current_stream().wait_stream(side)
        assert total.item() == 1 << 19


def test_memory_lent_out_and_back_is_not_given_out_too_early(restart: Any) -> None:
    for seed in range(6):
        restart(seed=seed)
        x = ss.ones(1 << 19, device="cuda")
        total = ss.zeros(1, device="cuda")
        again = ss.from_dlpack(x)
        graph, _ = captured(lambda again=again, total=total: total.add_(again.sum()))
        address = x.storage.address
        side = ss.cuda.Stream()
        side.wait_stream(ss.cuda.current_stream())
        with ss.cuda.stream(side):
            graph.replay()
        del graph, again, x
        later = ss.full((1 << 19,), 7.0, device="cuda")
        assert later.storage.address == address
        ss.cuda.current_stream().wait_stream(side)
        assert total.item() == 1 << 19


def test_a_graph_counts_on_words_of_its_own(restart: Any) -> None:
    restart()
    x = ss.ones(1 << 19, device="cuda")
    side = ss.cuda.Stream()
    graph, total = captured(lambda: x.sum(), stream=side)
    # The stream's own were not wanted: its other work may run beside a replay.
    assert not side.backend.counters.addresses
    graph.replay()
    with ss.cuda.stream(side):
        other = (x * 2.0).sum()
    assert list(side.backend.counters.addresses) == [side.queue.number]
    ss.cuda.synchronize()
    assert (total.item(), other.item()) == (1 << 19, 1 << 20)


def test_graphs_of_a_pool_leave_each_others_tables_alone() -> None:
    pool = ss.cuda.graph_pool_handle()
    rows = [[ss.ones(16, device="cuda") for _ in range(3)] for _ in range(20)]
    first, _ = captured(lambda: ss._foreach_add_(rows[0], 1.0), pool=pool)
    for each in rows[1:]:
        # The list forgets the table of the first tensors.
        ss._foreach_add_(each, 1.0)
    second, _ = captured(lambda: [ss.full((size,), 5.0, device="cuda")
                                  for size in (4, 8, 16, 32, 64, 128) for _ in range(4)],
                         pool=pool)
    for _ in range(2):
        second.replay()
        first.replay()
    assert [row.tolist() for row in rows[0]] == [[3.0] * 16] * 3


def test_a_graph_holds_the_tensors_of_a_list() -> None:
    rows = [ss.ones(1000, device="cuda") for _ in range(3)]
    graph, _ = captured(lambda: ss._foreach_add_(rows, 1.0))
    del rows[:]
    gc.collect()
    # Whatever is free is clean for every stream.
    ss.cuda.synchronize()
    others = [ss.zeros(1000, device="cuda") for _ in range(16)]
    graph.replay()
    assert all(other.sum().item() == 0 for other in others)


def test_graphs_share_a_pool() -> None:
    x = ss.arange(5000.0, device="cuda")
    pool = ss.cuda.graph_pool_handle()
    first, y = captured(lambda: x + 1, pool=pool)
    second, z = captured(lambda: y * 2, pool=first.pool())
    assert second.pool() == pool
    first.replay()
    second.replay()
    assert z.tolist() == (2 * (np.arange(5000.0) + 1)).tolist()
    own = ss.cuda.MemPool()
    third, w = captured(lambda: x + 2, pool=own.id)
    third.replay()
    assert w[1].item() == 3
    for wrong in ((0, 123456), "pool", 3):
        with pytest.raises(ValueError, match="names no pool"):
            captured(lambda: x + 1, pool=wrong)


def test_a_pinned_copy_is_captured() -> None:
    host = ss.arange(100.0).pin_memory()
    back = ss.zeros(100).pin_memory()
    device = ss.zeros(100, device="cuda")

    def work() -> None:
        there = host.to("cuda", non_blocking=True)
        device.copy_(there * 3)
        back.copy_(device, non_blocking=True)

    graph, _ = captured(work)
    for step in range(3):
        graph.replay()
        # Writing waits for the replay that reads, reading for the one that fills.
        host.add_(1)
        assert back.tolist() == (3 * (np.arange(100.0) + step)).tolist()


# -- other streams --------------------------------------------------------------------------------
def forked(x: Any, side: Any) -> Any:
    """Work on two streams that meet again."""
    side.wait_stream(ss.cuda.current_stream())
    with ss.cuda.stream(side):
        left = (x * 2).exp()
    right = (x + 1).sin()
    ss.cuda.current_stream().wait_stream(side)
    return left + right


def test_streams_that_join_are_captured(restart: Any) -> None:
    expected = np.exp(2 * np.linspace(0, 1, 3000)) + np.sin(np.linspace(0, 1, 3000) + 1)
    for seed in range(6):
        restart(seed=seed)
        x = ss.linspace(0, 1, 3000, device="cuda")
        side = ss.cuda.Stream()
        graph, result = captured(lambda x=x, side=side: forked(x, side))
        for _ in range(2):
            graph.replay()
        np.testing.assert_allclose(result.cpu().numpy(), expected, rtol=1e-5)
        # Afterwards the side stream runs its work again.
        with ss.cuda.stream(side):
            assert (x + 1)[0].item() == 1


def test_a_stream_that_is_not_joined_again_is_refused() -> None:
    x = ss.ones(10, device="cuda")
    side = ss.cuda.Stream()

    def work() -> None:
        side.wait_stream(ss.cuda.current_stream())
        with ss.cuda.stream(side):
            x.add_(1)

    with pytest.raises(RuntimeError, match="not waited for"):
        captured(work)
    assert not ss.cuda.is_current_stream_capturing()
    assert (x + 0).tolist() == [1.0] * 10


def test_waiting_for_work_outside_is_refused() -> None:
    event = ss.cuda.Event()
    event.record()
    with pytest.raises(RuntimeError, match="outside of it"):
        captured(event.wait)
    inside = ss.cuda.Event()
    with pytest.warns(UserWarning, match="The CUDA Graph is empty"):
        captured(inside.record)
    for use in (inside.synchronize, inside.query, inside.wait):
        with pytest.raises(RuntimeError, match=r"has ended.*\n  mend: record an event after"):
            use()


def test_an_event_of_a_capture_that_goes_on_is_not_asked_for() -> None:
    x = ss.ones(4, device="cuda")
    inside = ss.cuda.Event()

    def work() -> None:
        x.add_(1)
        inside.record()
        for use in (inside.synchronize, inside.query):
            with pytest.raises(RuntimeError, match="the stream captures a graph"):
                use()

    captured(work)[0].replay()
    assert x.tolist() == [2.0] * 4


# -- what is refused ------------------------------------------------------------------------------
@pytest.mark.parametrize("wait", [
    lambda x: x.sum().item(), lambda x: x.tolist(), lambda x: x.cpu(),
    lambda x: ss.cuda.synchronize(), lambda x: ss.cuda.current_stream().synchronize(),
    lambda x: ss.cuda.current_stream().query(), lambda x: x.nonzero(),
    lambda x: ss.tensor([1.0, 2.0], device="cuda"), lambda x: bool(x[0] > 0)])
def test_waits_raise_at_the_users_line(wait: Any) -> None:
    x = ss.ones(4, device="cuda")
    with pytest.raises(RuntimeError, match=r"cuda graph: .*\n(  in .*\n)?  mend: ") as failure:
        captured(lambda: wait(x))
    assert any(entry.name == "<lambda>" and str(entry.path) == __file__
               for entry in failure.traceback)
    assert not ss.cuda.is_current_stream_capturing()
    assert (x * 3).tolist() == [3.0] * 4


@pytest.mark.parametrize(("wait", "call"), [
    (lambda x: x.sum().item(), "item(self: float32[]@cuda:0)"),
    (lambda x: bool(x[0] > 0), "bool(self: bool[]@cuda:0)"),
    (repr, "print(self: float32[4]@cuda:0)"),
    (lambda x: x.cpu(), "cpu(self: float32[4]@cuda:0)")])
def test_a_refusal_names_the_users_call(wait: Any, call: str) -> None:
    x = ss.ones(4, device="cuda")
    with pytest.raises(RuntimeError, match="elements are read") as failure:
        captured(lambda: wait(x))
    assert str(failure.value).split("\n")[1] == f"  in {call}"


def test_a_capture_inside_a_capture_is_refused() -> None:
    x = ss.ones(3, device="cuda")

    def twice() -> None:
        with ss.cuda.graph(ss.cuda.CUDAGraph()):
            x.add_(1)

    with pytest.raises(RuntimeError, match="current stream captures a graph already"):
        captured(twice)
    assert (x * 3).tolist() == [3.0] * 3


def test_the_object_says_what_it_holds() -> None:
    graph = ss.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="nothing was captured"):
        graph.replay()
    with pytest.raises(RuntimeError, match="without capture_begin"):
        graph.capture_end()
    with pytest.raises(RuntimeError, match="once its capture has begun"):
        graph.pool()
    x = ss.ones(3, device="cuda")
    with ss.cuda.graph(graph):
        assert ss.cuda.is_current_stream_capturing()
        x.add_(1)
    with pytest.raises(RuntimeError, match="holds a capture already"), ss.cuda.graph(graph):
        pass
    graph.reset()
    with ss.cuda.graph(graph):
        x.mul_(3)
    graph.replay()
    assert x.tolist() == [3.0] * 3
    with pytest.raises(RuntimeError, match="Unknown capture error mode"):
        ss.cuda.CUDAGraph().capture_begin(capture_error_mode="lenient")


def test_keep_graph_and_dump(tmp_path: Path) -> None:
    x = ss.ones(3, device="cuda")
    graph = ss.cuda.CUDAGraph(keep_graph=True)
    with ss.cuda.graph(graph):
        y = (x + 1) * 2
    with pytest.raises(RuntimeError, match="instantiate"):
        graph.raw_cuda_graph_exec()
    graph.instantiate()
    assert graph.raw_cuda_graph()
    assert graph.raw_cuda_graph_exec()
    graph.replay()
    assert y.tolist() == [4.0] * 3
    graph.debug_dump(str(tmp_path / "graph.dot"))
    text = (tmp_path / "graph.dot").read_text()
    assert text.startswith("digraph")
    assert text.count("label=") == 2
    assert text.count("->") == 1


def test_begin_and_end_on_a_stream_of_ones_own() -> None:
    x = ss.arange(4.0, device="cuda")
    ss.cuda.synchronize()
    side = ss.cuda.Stream()
    graph = ss.cuda.CUDAGraph()
    with ss.cuda.stream(side):
        graph.capture_begin()
        y = x * 10
        graph.capture_end()
    graph.replay()
    assert y.tolist() == [0.0, 10.0, 20.0, 30.0]


def test_a_bad_index_in_a_replay_names_the_captured_line() -> None:
    table = ss.arange(5.0, device="cuda")
    index = ss.tensor([0, 1], device="cuda")
    graph, _ = captured(lambda: table[index])
    index.fill_(9)

    def noticed() -> None:
        # A card may be quick enough for the replay to notice.
        graph.replay()
        ss.cuda.synchronize()

    with pytest.raises(IndexError, match=r"index 9 .*size 5.*\n.*test_graphs\.py"):
        noticed()


def test_an_interrupted_capture_leaves_nothing_behind() -> None:
    x = ss.ones(4, device="cuda")
    ss.cuda.manual_seed(2)
    state = ss.cuda.get_rng_state().tolist()

    def work() -> None:
        ss.rand(4, device="cuda")
        x.add_(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        captured(work)
    assert not ss.cuda.is_current_stream_capturing()
    assert ss.cuda.get_rng_state().tolist() == state
    assert (x + 1).tolist() == [2.0] * 4


def graphs_of(driver: Any) -> int:
    """How many graphs the driver holds, executable or not."""
    return sum(isinstance(each, (Graph, Executable)) for each in driver.objects.values())


@pytest.mark.parametrize("call", ["create_graph", "add_kernel_node", "instantiate", "launch_graph",
                                  "set_kernel_node"])
def test_a_driver_call_that_fails_leaves_nothing_behind(restart: Any, call: str) -> None:
    driver = restart()
    x = ss.ones(1 << 19, device="cuda")
    ss.cuda.synchronize()
    before = ss.cuda.memory_allocated(), graphs_of(driver)

    def work() -> Any:
        return (x * 2 + 1).exp(), ss.rand(100, device="cuda")

    def once() -> list[float]:
        graph, result = captured(work)
        graph.replay()
        return result[0][:3].tolist()

    driver.fail_next(call)
    with pytest.raises(RuntimeError, match=call):
        once()
    assert not ss.cuda.is_current_stream_capturing()
    assert (x + 1).sum().item() == 2 << 19
    assert once() == pytest.approx([np.exp(3.0)] * 3, rel=1e-6)
    gc.collect()
    ss.cuda.synchronize()
    assert (ss.cuda.memory_allocated(), graphs_of(driver)) == before


@pytest.mark.parametrize("call", ["create_physical", "map", "reserve"])
def test_memory_that_fails_once_is_found_again(restart: Any, call: str) -> None:
    driver = restart()
    x = ss.ones(1 << 19, device="cuda")
    driver.fail_next(call)
    graph, y = captured(lambda: x * 2)
    graph.replay()
    assert y.sum().item() == 1 << 20


def test_a_pool_that_finds_no_memory_takes_what_the_device_has_cached(restart: Any) -> None:
    restart(memory=64 << 20)
    x = ss.ones(1 << 20, device="cuda")
    large = ss.zeros(12 << 20, device="cuda")
    del large
    graph, y = captured(lambda: ss.ones(4 << 20, device="cuda") + x[0])
    graph.replay()
    assert y.sum().item() == 2 << 22
    with pytest.raises(ss.cuda.OutOfMemoryError):
        captured(lambda: ss.ones(16 << 20, device="cuda"))
    graph.replay()
    assert y[-1].item() == 2


def test_a_launch_that_failed_is_not_left_out(restart: Any) -> None:
    driver = restart()
    x = ss.ones(10, device="cuda")
    x + 1
    graph = ss.cuda.CUDAGraph()

    def work() -> None:
        driver.fail_next("add_kernel_node")
        with pytest.raises(RuntimeError, match="add_kernel_node"):
            x.add_(1)
        x.add_(1)

    with pytest.raises(RuntimeError, match="could not be captured"), ss.cuda.graph(graph):
        work()
    with pytest.raises(RuntimeError, match="nothing was captured"):
        graph.replay()
    assert x.tolist() == [1.0] * 10
