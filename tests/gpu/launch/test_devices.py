"""What belongs on a card stays on it: gradients, pickles; and cards that are not there."""

from __future__ import annotations

import copy
import gc
import pickle
from typing import Any

import pytest

import slipstream as ss
from slipstream.core.launch.cuda.streams import STREAMS
from slipstream.core.vocab.settings import settings

cuda = ss.cuda
pytestmark = pytest.mark.skipif(not cuda.is_available(), reason="no CUDA driver")


class Doubled(ss.autograd.Function):
    """Hands back its gradient through ``way``."""

    way: Any = staticmethod(lambda g: g)

    @staticmethod
    def forward(ctx: Any, x: ss.Tensor) -> ss.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: ss.Tensor) -> ss.Tensor:
        return Doubled.way(g * 2)


def test_a_gradient_of_another_device_is_refused() -> None:
    x = ss.ones(2, device="cuda", requires_grad=True)
    with pytest.raises(RuntimeError, match="expected device cuda:0 but got cpu"):
        (x * 2).backward(ss.ones(2))
    with pytest.raises(RuntimeError, match="expected device cuda:0 but got cpu"):
        ss.autograd.grad(x * 2, x, ss.ones(2))
    assert x.grad is None
    y = ss.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="expected device cpu but got cuda:0"):
        (y * 2).backward(ss.ones(2, device="cuda"))
    (x * 2).sum().backward(ss.tensor(3.0))
    assert x.grad is not None
    assert x.grad.device == x.device
    assert x.grad.tolist() == [6.0, 6.0]


def test_a_backward_of_ones_own_gives_gradients_on_the_inputs_device(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Doubled, "way", staticmethod(lambda g: g.cpu()))
    x = ss.ones(2, device="cuda", requires_grad=True)
    with pytest.raises(RuntimeError, match="DoubledBackward returned an invalid gradient at index "
                                           "0 - expected device cuda:0 but got cpu"):
        Doubled.apply(x).sum().backward()
    assert x.grad is None
    # A number is moved, as in PyTorch.
    number = ss.tensor(1.0, device="cuda", requires_grad=True)
    Doubled.apply(number).backward()
    assert number.grad is not None
    assert (number.grad.device, number.grad.item()) == (number.device, 2.0)


@pytest.mark.parametrize("index", range(min(2, cuda.device_count())))
def test_pickles_keep_the_device(index: int) -> None:
    x = ss.arange(6.0, device=f"cuda:{index}").reshape(2, 3).t()
    found = pickle.loads(pickle.dumps(x))
    assert found.device == x.device
    assert found.tolist() == x.tolist()
    parameter = ss.nn.Parameter(x)
    again = pickle.loads(pickle.dumps(parameter))
    assert isinstance(again, ss.nn.Parameter)
    assert again.requires_grad
    assert again.device == x.device
    model = ss.nn.Linear(2, 2).to(x.device)
    assert {each.device for each in pickle.loads(pickle.dumps(model)).parameters()} == {x.device}
    assert copy.deepcopy(x).device == x.device


def test_cards_that_are_not_there() -> None:
    count = cuda.device_count()
    for ask in (cuda.memory_allocated, cuda.memory_stats, cuda.memory_summary,
                cuda.reset_peak_memory_stats, cuda.get_rng_state,
                lambda index: cuda.can_device_access_peer(0, index)):
        with pytest.raises(RuntimeError, match=f"invalid device cuda:{count}: there are {count}"):
            ask(count)
    with pytest.raises(RuntimeError, match="must not be negative"):
        ss.device("cuda", -5)


def test_default_generators() -> None:
    found = cuda.default_generators
    assert [each.device for each in found] == [
        ss.device("cuda", index) for index in range(cuda.device_count())]
    state = found[0].get_state()
    first = ss.rand(5, device="cuda").tolist()
    found[0].set_state(state)
    assert ss.rand(5, device="cuda").tolist() == first


@pytest.mark.parametrize("count", [1, cuda.device_count()])
def test_seed_all_seeds_every_card_alike(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.core.api.cuda.random.device_count", lambda: count)
    cuda.manual_seed_all(3)
    cuda.seed_all()
    seeds = {each.initial_seed() for each in cuda.default_generators}
    assert len(seeds) == 1
    assert 3 not in seeds


def test_properties_have_pytorchs_names() -> None:
    found = cuda.get_device_properties(0)
    assert found.regs_per_multiprocessor >= 65536
    assert found.shared_memory_per_multiprocessor >= found.shared_memory_per_block_optin
    assert found.is_integrated in (0, 1)
    assert found.is_multi_gpu_board in (0, 1)


def test_an_event_that_was_not_made_goes_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", told.append)
    with pytest.raises(TypeError):
        cuda.Event(timing=True)  # type: ignore[call-arg]
    gc.collect()
    assert told == []


def test_streams_by_their_handles() -> None:
    side = cuda.Stream()
    with cuda.stream(cuda.get_stream_from_external(side.cuda_stream, 0)):
        assert cuda.current_stream().cuda_stream == side.cuda_stream
        x = ss.ones(3, device="cuda") * 3
    side.synchronize()
    assert x.tolist() == [3.0] * 3


def test_pinned_counts_as_a_tree() -> None:
    held = ss.ones(1000).pin_memory()
    flat, tree = cuda.host_memory_stats(), cuda.host_memory_stats_as_nested_dict()
    assert tree["allocated_bytes"]["all"]["current"] == flat["allocated_bytes.all.current"] > 0
    assert held.is_pinned()


def test_a_generator_of_another_device_and_deviations_below_zero() -> None:
    with pytest.raises(RuntimeError, match=r"generator but found 'cpu'\n  mend: .*'cuda:0'"):
        ss.randn(3, device="cuda", generator=ss.Generator())
    with pytest.raises(RuntimeError, match=r"std >= 0.0: float32\[2\]@cuda:0 .*\n  mend"):
        ss.normal(0.0, -ss.ones(2, device="cuda"))


def test_memory_of_other_libraries_without_dlpack() -> None:
    class Other:
        __cuda_array_interface__ = ss.ones(3, device="cuda").__cuda_array_interface__

    for take in (ss.tensor, ss.as_tensor):
        with pytest.raises(TypeError, match=r"Other is another library's memory.*\n.*from_dlpack"):
            take(Other())


def test_what_is_no_stream_and_no_pool() -> None:
    with pytest.raises(TypeError, match=r"expected a cuda\.Stream, not str"), cuda.stream("side"):
        pass
    with pytest.raises(TypeError, match=r"expected a cuda\.Stream, not int"):
        cuda.set_stream(3)
    with pytest.raises(TypeError, match=r"expected a cuda\.MemPool, not int"), cuda.use_mem_pool(3):
        pass


def test_cuda_takes_cards_only() -> None:
    x = ss.ones(3)
    for place in (None, 0, "cuda", "cuda:0", ss.device("cuda")):
        assert x.cuda(place).device == ss.device("cuda:0")
    for moved in (x, ss.nn.Linear(2, 2)):
        with pytest.raises(RuntimeError, match=r"must be cuda device: cpu\n  mend: x.to"):
            moved.cuda("cpu")


def test_a_time_that_is_asked_for_too_early() -> None:
    # On a card enough work that none of it is over between two questions.
    x = ss.ones(1 << (27 if settings.driver == "real" else 22), device="cuda")
    start, end = [cuda.Event(enable_timing=True) for _ in range(2)]
    cuda.synchronize()
    start.record()
    for _ in range(200):
        x = x * 1.5
    end.record()
    done = end.query()
    assert settings.driver == "real" or not done
    if not done:
        with pytest.raises(RuntimeError, match=r"must be completed.*\n  mend: end_event.synchro"):
            start.elapsed_time(end)
    end.synchronize()
    assert start.elapsed_time(end) >= 0


def test_an_index_of_another_device() -> None:
    host, card = ss.arange(6.0), ss.arange(6.0, device="cuda")
    for index in (ss.tensor([1, 2]), host > 3):
        assert card[index].tolist() == host[index].tolist()
        with pytest.raises(RuntimeError, match=r"indices should be either on cpu or on the same "
                           r"device as the indexed tensor \(cpu\)\n  in index\(.*\n  mend: move"):
            host[index.cuda()]
        with pytest.raises(RuntimeError, match="indices should be either on cpu"):
            host[index.cuda()] = 0.0
        for x, values in ((host, ss.zeros(2, device="cuda")), (card, ss.zeros(2))):
            with pytest.raises(RuntimeError, match="to be on the same device"):
                x[index] = values
            x[index] = values.sum()
            x[index] = ss.tensor([1.0, 2.0], device=x.device)
    assert host.tolist() == card.tolist() == [0.0, 1.0, 2.0, 3.0, 1.0, 2.0]


def test_a_scope_that_copies_between_devices_tells_of_it() -> None:
    host, card = ss.arange(3.0), ss.arange(3.0, device="cuda")
    with cuda.allow_mixed_devices() as scope:
        assert (host + card).tolist() == [0.0, 2.0, 4.0]
        assert host[ss.tensor([2], device="cuda")].tolist() == [2.0]
        card[ss.tensor([1, 2])] = ss.tensor([7.0, 8.0])
    assert card.tolist() == [0.0, 7.0, 8.0]
    assert sorted(scope.copies.values()) == [[1, 8], [1, 8], [1, 12]]
    assert str(scope).count(": 1 copy between devices, ") == 3
    with pytest.raises(RuntimeError, match="to be on the same device"):
        host + card


def test_a_scope_that_copies_works_under_autocast() -> None:
    layer = ss.nn.Linear(4, 3).cuda()
    x = ss.randn(2, 4)
    with cuda.allow_mixed_devices() as scope, ss.autocast("cuda", ss.float16):
        found = [layer(x), ss.matmul(x, layer.weight.t()), ss.einsum("ij,kj->ik", x, layer.weight),
                 ss.nn.functional.mse_loss(layer(x), ss.zeros(2, 3)), ss.cat([layer(x), x], 1)]
        # Where nothing is on the card autocast for the card casts nothing.
        assert (x @ x.t()).dtype is ss.float32
    assert [each.dtype for each in found[:3]] == [ss.float16] * 3
    assert {each.device.type for each in found} == {"cuda"}
    assert ss.allclose(found[0].float().cpu(), layer(x.cuda()).cpu(), rtol=1e-2, atol=1e-2)
    assert sum(count for count, _ in scope.copies.values()) == 7


def test_a_recurrent_layer_names_the_state_that_lies_elsewhere() -> None:
    layer, x = ss.nn.LSTM(2, 3).cuda(), ss.ones(4, 1, 2, device="cuda")
    host = ss.zeros(1, 1, 3)
    for state, name in (((host, host), r"hx\[0\]"), ((host.cuda(), host), r"hx\[1\]")):
        with pytest.raises(RuntimeError, match=f"at cuda:0 and {name} at cpu\n  mend: move hx"):
            layer(x, state)
        with cuda.allow_mixed_devices():
            found, _ = layer(x, state)
        assert ss.equal(found, layer(x)[0])


@pytest.mark.parametrize("value", [2.5, -3, True, 1.5 + 2j])
def test_a_scalar_of_the_cpu_is_a_number(value: Any) -> None:
    scalar, x = ss.tensor(value), ss.arange(3.0)
    there, graph = x.cuda(), cuda.CUDAGraph()
    cuda.synchronize()
    before = cuda.driver_stats()["copies"]
    eager = there * scalar
    assert cuda.driver_stats()["copies"] == before
    with cuda.graph(graph):
        captured = there * scalar
    there += 1
    # As in PyTorch the capture holds the value of now.
    scalar.zero_()
    graph.replay()
    assert (eager.dtype, eager.tolist()) == ((x * value).dtype, (x * value).tolist())
    assert captured.tolist() == ((x + 1) * value).tolist()


def test_a_trained_scalar_of_the_cpu_gets_its_gradient() -> None:
    weight = ss.tensor(2.0, requires_grad=True)
    (ss.arange(3.0, device="cuda") * weight).sum().backward()
    assert weight.grad is not None
    assert (weight.grad.device.type, weight.grad.item()) == ("cpu", 3.0)
    x, graph = ss.arange(3.0, device="cuda"), cuda.CUDAGraph()
    with ss.no_grad(), cuda.graph(graph):
        y = x * weight
    graph.replay()
    assert y.tolist() == [0.0, 2.0, 4.0]


def test_dropped_streams_are_taken_again(restart: Any) -> None:
    restart(devices=1)
    kept = [cuda.Stream() for _ in range(3)]
    given = cuda.Stream()
    handle, number = given.cuda_stream, given.stream_id
    del given
    x, numbers = ss.zeros(8, device="cuda"), []
    for _ in range(100):
        side = cuda.Stream()
        numbers.append(side.stream_id)
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            x += 1
        cuda.current_stream().wait_stream(side)
        del side
    assert x.tolist() == [100.0] * 8
    assert len(set(numbers)) == STREAMS - len([*kept, handle])
    assert not set(numbers) & {number, *[each.stream_id for each in kept]}
    assert cuda.Stream().cuda_stream != handle
    assert copy.copy(kept[0]) is copy.deepcopy(kept[0]) is kept[0]
    with pytest.raises(TypeError, match="cannot be pickled: a stream belongs to its process"):
        pickle.dumps(kept)
    many = [cuda.Stream() for _ in range(2 * STREAMS)]
    assert len({each.stream_id for each in many}) == len(many)
    assert cuda.Stream(priority=-1).stream_id not in numbers

def test_a_streams_handle_is_one_queue() -> None:
    side = cuda.Stream()
    handle = side.cuda_stream
    wrapped = [cuda.ExternalStream(handle) for _ in range(3)]
    assert {each.stream_id for each in wrapped} == {side.stream_id}
    assert wrapped[0] == side


@pytest.mark.parametrize("seed", range(4))
def test_a_block_that_a_copy_to_the_host_reads_is_not_handed_out(seed: int, restart: Any) -> None:
    restart(seed=seed, devices=1)
    size = 1 << 16
    x, host = ss.ones(size, device="cuda"), ss.empty(size).pin_memory()
    side = cuda.Stream()
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        for _ in range(8):
            busy = ss.rand(64, 64, device="cuda") @ ss.rand(64, 64, device="cuda")
        host.copy_(x, non_blocking=True)
    del x
    y = ss.full((size,), 7.0, device="cuda")
    side.synchronize()
    assert host.min() == host.max() == 1.0
    assert y.min().item() == 7.0
    assert busy.shape == (64, 64)


@pytest.mark.parametrize("seed", range(4))
def test_an_event_of_another_card_says_nothing_of_this_ones_streams(seed: int,
                                                                    restart: Any) -> None:
    restart(seed=seed, devices=2)
    size = 1 << 14
    for _ in range(50):
        there = ss.ones(4, device="cuda:0") + 1
    cuda.synchronize("cuda:0")
    with cuda.device(1):
        x, other = ss.ones(size, device="cuda"), ss.zeros(size, device="cuda")
        cuda.synchronize()
        side = cuda.Stream()
        for _ in range(8):
            busy = ss.rand(64, 64, device="cuda") @ ss.rand(64, 64, device="cuda")
        other.copy_(x)
        del x
        side.wait_stream(cuda.default_stream("cuda:0"))
        with cuda.stream(side):
            y = ss.full((size,), 7.0, device="cuda")
        cuda.synchronize()
        assert (other.min().item(), other.max().item(), y.min().item()) == (1.0, 1.0, 7.0)
    assert (there.tolist(), busy.shape) == ([2.0] * 4, (64, 64))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("way", ["to", "copy_"])
def test_a_copy_to_another_card_comes_after_its_stream(way: str, seed: int, restart: Any) -> None:
    restart(seed=seed, devices=2)
    side, x = cuda.Stream(device=1), ss.zeros(8, device="cuda:1")
    cuda.synchronize(1)
    with cuda.stream(side):
        for _ in range(5):
            x.add_(1)
        event = side.record_event()
    cuda.current_stream(0).wait_event(event)
    there = x.to("cuda:0") if way == "to" else ss.zeros(8, device="cuda:0").copy_(x)
    assert there.tolist() == [5.0] * 8


def test_memory_that_a_capture_refuses_leaves_the_tensor_as_it_was() -> None:
    x, graph = ss.arange(4.0, device="cuda"), cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="more memory"), cuda.graph(graph):
        x.resize_(4000)
    assert x[:4].tolist() == [0.0, 1.0, 2.0, 3.0]


def test_negative_numbers_of_cards() -> None:
    """For scopes and streams they mean the current card; elsewhere there is none such."""
    for make in (lambda: ss.device("cuda:-1"), lambda: ss.device("cuda", -1),
                 lambda: ss.zeros(2, device=-1), lambda: ss.zeros(2).to("cuda:-1"),
                 lambda: cuda.memory_allocated(-1), lambda: cuda.mem_get_info(-1),
                 lambda: cuda.get_rng_state(-1)):
        with pytest.raises(RuntimeError):
            make()
    for ask in (lambda: cuda.get_device_name(-1), lambda: cuda.get_device_properties(-1),
                lambda: cuda.can_device_access_peer(0, -1)):
        with pytest.raises(AssertionError, match="device id -1"):
            ask()
    before = cuda.current_device()
    with cuda.device(-1):
        assert cuda.current_device() == before
    cuda.set_device(-1)
    cuda.synchronize(-1)
    assert cuda.current_device() == before
