"""Weights that autocast casts together, and their gradients, which are cast together."""

from __future__ import annotations

import gc
import threading
from collections import Counter
from typing import Any

import pytest

import slipstream as ss
from slipstream import nn
from slipstream.core.dispatch.autocasting import PATIENCE
from slipstream.core.dispatch.modes import listening
from slipstream.core.engine import backward
from slipstream.core.engine.views import operations
from slipstream.core.vocab.modes import modes
from slipstream.nn import functional as F

LIST = "cuda list of tensors"
CASTS = ("cuda copy_bf16_f32", "cuda copy_f32_bf16")
WIDTH = 4


def launched(call: Any) -> Counter[str]:
    """How often kernels were launched: lists, single casts, and the rest."""
    found: Counter[str] = Counter()

    def note(event: Any) -> None:
        if event.kind == "launch":
            name = event.name
            kind = "list" if name.startswith(LIST) else "cast" if name in CASTS else "other"
            found[kind] += 1

    with listening(note):
        call()
    return found


def layers(count: int = 3) -> Any:
    ss.manual_seed(1)
    return nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(count)]).to("cuda")


def rows() -> Any:
    return ss.linspace(-1, 1, 2 * WIDTH, device="cuda").reshape(2, WIDTH).bfloat16()


def through(net: Any, x: Any, **options: Any) -> Any:
    """The net's result in a scope of its own."""
    with ss.autocast("cuda", dtype=ss.bfloat16, **options):
        for layer in net:
            x = layer(x)
        return x.float().sum()


def gradients(net: Any, **options: Any) -> list[Any]:
    net.zero_grad()
    through(net, rows(), **options).backward()
    return [each.grad.clone() for each in net.parameters()]


def members() -> Any:
    return modes.current().autocast.members


def test_from_the_second_scope_on_it_is_one_launch_each_way() -> None:
    net, x = layers(), rows()
    assert launched(lambda: through(net, x))["cast"] == 2 * 3 + 1
    losses: list[Any] = []
    for _ in range(3):
        net.zero_grad()
        found = launched(lambda: losses.append(through(net, x)))
        # What is left is float() of the result.
        assert (found["list"], found["cast"]) == (1, 1)
        found = launched(losses.pop().backward)
        assert (found["list"], found["cast"]) == (1, 1)
        assert all(each.grad.dtype is ss.float32 for each in net.parameters())


def test_the_numbers_are_those_of_single_casts() -> None:
    net = layers()
    first = gradients(net)
    for options in ({}, {}, {"cache_enabled": False}):
        for mine, wanted in zip(gradients(net, **options), first, strict=True):
            assert ss.equal(mine, wanted)
    # Added to what is there.
    for _ in range(2):
        through(net, rows()).backward()
    for each, wanted in zip(net.parameters(), first, strict=True):
        assert ss.equal(each.grad, wanted + wanted + wanted)


def test_a_weight_that_is_written_or_replaced_is_cast_alone() -> None:
    net, x = layers(2), rows()
    through(net, x)
    with ss.autocast("cuda", dtype=ss.bfloat16):
        net[0](x)
        with ss.no_grad():
            net[1].weight.fill_(2.0)
        assert launched(lambda: net[1](x)) == {"cast": 1, "other": 1}
        assert ss.equal(net[1](x), F.linear(x, net[1].weight.detach().bfloat16(),
                                            net[1].bias.detach().bfloat16()))
    # In the next scope it is one of the others again.
    assert launched(lambda: through(net, x))["list"] == 1


def test_without_gradients_and_with_them_in_one_scope() -> None:
    net, x = layers(2), rows()
    wanted = gradients(net)
    net.zero_grad()
    with ss.autocast("cuda", dtype=ss.bfloat16):
        with ss.no_grad():
            for layer in net:
                layer(x)
        found = launched(lambda: net[0](x))
        assert (found["list"], found["cast"]) == (1, 0)
        net[1](net[0](x)).float().sum().backward()
    for each, grad in zip(net.parameters(), wanted, strict=True):
        assert ss.equal(each.grad, grad)


def test_what_is_no_longer_used_leaves() -> None:
    net, x = layers(3), rows()
    through(net, x)
    keys = [each.record for each in net.parameters()]
    groups = [members()[key].group for key in keys]
    assert all(group is groups[0] for group in groups)
    assert len(groups[0]) == 6
    through(net[:2], x)
    assert [members()[key].group is None for key in keys] == [False] * 4 + [True] * 2
    assert len(groups[0]) == 4


def test_who_was_cast_for_nothing_often_goes_by_itself() -> None:
    often, *others = [nn.Parameter(ss.rand(WIDTH, WIDTH, device="cuda"))
                      for _ in range(PATIENCE + 2)]
    x = rows()

    def scope(*weights: Any) -> Counter[str]:
        def call() -> None:
            with ss.autocast("cuda", dtype=ss.bfloat16):
                for weight in weights:
                    F.linear(x, weight)

        return launched(call)

    for other in others[:PATIENCE]:
        scope(often, other)
        assert scope(other)["list"] == 1
    for _ in range(3):
        assert scope(often, others[-1]) == {"cast": 2, "other": 2}


def test_what_a_failure_left_out_stays() -> None:
    net, x = layers(2), rows()
    through(net, x)

    def fails() -> None:
        with ss.autocast("cuda", dtype=ss.bfloat16):
            net[0](x)
            net[1](x[:, :2])

    for _ in range(PATIENCE + 1):
        with pytest.raises(RuntimeError):
            fails()
        with ss.autocast("cuda", dtype=ss.bfloat16):
            net[0](x)
            ss.clear_autocast_cache()
            net[1](net[0](x))
    found = launched(lambda: through(net, x))
    assert (found["list"], found["cast"]) == (1, 1)


def test_two_nets_in_turn_keep_their_lists() -> None:
    nets, x = [layers(2), layers(2)], rows()
    for net in nets:
        through(net, x)
    for net in nets * 2:
        assert launched(lambda net=net: through(net, x))["list"] == 1


def test_weights_are_not_held() -> None:
    net = layers(2)
    through(net, rows())
    keys = [each.record for each in net.parameters()]
    assert all(key in members() for key in keys)
    assert modes.current().autocast.casts == {}
    del net
    gc.collect()
    assert not any(key in members() for key in keys)


def test_modes_see_every_cast() -> None:
    net, x = layers(2), rows()
    through(net, x)
    with ss.RecordMode() as record:
        loss = through(net, x)
        loss.backward()
    # Four weights, forward and backward.
    assert sum(name == "to_dtype" for name, _, _ in record.calls) == 2 * 4


def test_a_captured_graph_casts_one_by_one() -> None:
    net, x = layers(2), rows()
    through(net, x)
    graph = ss.cuda.CUDAGraph()
    with ss.no_grad(), ss.cuda.graph(graph):
        out = through(net, x)
    with ss.no_grad():
        for each in net.parameters():
            each.fill_(0.5)
        wanted = through(net, x)
    graph.replay()
    assert ss.equal(out, wanted)


# -- who may look at a gradient ------------------------------------------------------------------
def test_hooks_see_the_gradients_that_came_before_them() -> None:
    net = layers(3)
    wanted = gradients(net)
    net.zero_grad()
    seen: dict[str, Any] = {}
    net[1].weight.register_hook(lambda grad: seen.update(hook=grad.clone()))
    net[1].bias.register_post_accumulate_grad_hook(
        lambda each: seen.update(after=each.grad.clone(), last=net[2].weight.grad))
    with ss.autocast("cuda", dtype=ss.bfloat16):
        middle = net[0](rows())
        middle.register_hook(lambda grad: seen.update(
            inside=[each.grad is not None for each in net.parameters()]))
        net[2](net[1](middle)).float().sum().backward()
    assert ss.equal(seen["hook"], wanted[2])
    assert ss.equal(seen["after"], wanted[3])
    assert ss.equal(seen["last"], wanted[4])
    assert seen["inside"] == [False] * 2 + [True] * 4


class Look(ss.autograd.Function):
    """The same tensor; its backward looks at a parameter's gradient."""

    seen: list[Any] = []

    @staticmethod
    def forward(ctx: Any, x: Any, layer: Any) -> Any:
        ctx.layer = layer
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        Look.seen.append(ctx.layer.weight.grad)
        return grad, None


def test_a_users_step_and_unpacked_tensors_see_them_too() -> None:
    net = layers(2)
    wanted = gradients(net)
    net.zero_grad()
    Look.seen.clear()
    unpacked = []

    def unpack(value: Any) -> Any:
        unpacked.append(net[1].weight.grad)
        return value

    with ss.autocast("cuda", dtype=ss.bfloat16):
        with ss.autograd.graph.saved_tensors_hooks(lambda value: value, unpack):
            x = net[0](rows())
        net[1](Look.apply(x, net[1])).float().sum().backward()
    assert ss.equal(Look.seen[0], wanted[2])
    assert unpacked
    assert all(ss.equal(each, wanted[2]) for each in unpacked)


def test_other_ways_through_the_graph() -> None:
    net = layers(2)
    wanted = gradients(net)
    net.zero_grad()
    loss = through(net, rows())
    for mine, grad in zip(ss.autograd.grad(loss, list(net.parameters()), retain_graph=True),
                          wanted, strict=True):
        assert ss.equal(mine, grad)
    assert all(each.grad is None for each in net.parameters())
    loss.backward(retain_graph=True, inputs=[net[0].weight])
    assert [each.grad is None for each in net.parameters()] == [False, True, True, True]
    net.zero_grad()
    loss.backward(create_graph=True)
    for each, grad in zip(net.parameters(), wanted, strict=True):
        assert ss.equal(each.grad, grad)


def test_a_failure_leaves_what_came_before_it() -> None:
    net = layers(2)
    wanted = gradients(net)
    net.zero_grad()

    def fail(grad: Any) -> None:
        raise ZeroDivisionError

    with ss.autocast("cuda", dtype=ss.bfloat16):
        middle = net[0](rows())
        middle.register_hook(fail)
        loss = net[1](middle).float().sum()
    with pytest.raises(ZeroDivisionError):
        loss.backward()
    assert [each.grad is None for each in net.parameters()] == [True, True, False, False]
    assert ss.equal(net[1].weight.grad, wanted[2])


def test_one_weight_used_both_ways() -> None:
    weight = nn.Parameter(ss.rand(WIDTH, WIDTH, device="cuda"))
    x = rows()
    found = []
    for _ in range(3):
        weight.grad = None
        with ss.autocast("cuda", dtype=ss.bfloat16):
            loss = F.linear(x, weight).float().sum() + (weight * weight).sum()
        loss.backward()
        found.append(weight.grad)
    assert ss.equal(found[0], found[1])
    assert ss.equal(found[0], found[2])


def test_not_more_than_so_many_bytes_wait(monkeypatch: Any) -> None:
    net = layers(3)
    wanted = gradients(net)
    monkeypatch.setattr(backward.checks, "held_bytes", WIDTH * WIDTH * 2)
    losses = []
    net.zero_grad()
    losses.append(through(net, rows()))
    assert launched(losses[0].backward)["list"] > 1
    for each, grad in zip(net.parameters(), wanted, strict=True):
        assert ss.equal(each.grad, grad)


def test_threads() -> None:
    net, x = layers(2), rows()
    wanted = gradients(net)
    found: list[list[Any]] = []
    # Made here: all threads seed and draw from one generator.
    nets = [layers(2), layers(2)]

    def work(mine: Any) -> None:
        for _ in range(3):
            last = gradients(mine)
        found.append(last)

    workers = [threading.Thread(target=work, args=(each,)) for each in nets]
    for each in workers:
        each.start()
    through(net, x)
    for each in workers:
        each.join()
    assert len(found) == 2
    for one in found:
        assert all(ss.equal(mine, grad) for mine, grad in zip(one, wanted, strict=True))


# -- gradients in 16 bits ------------------------------------------------------------------------
@pytest.mark.parametrize("kind", [nn.LayerNorm, nn.RMSNorm])
def test_a_norm_takes_a_gradient_before_it_is_cast(kind: Any) -> None:
    ss.manual_seed(0)
    norm, layer = kind(8).to("cuda"), nn.Linear(8, 8).to("cuda")
    x = ss.rand(6, 8, device="cuda", requires_grad=True)

    def step(watched: bool) -> tuple[list[Any], Counter[str]]:
        x.grad = None
        norm.zero_grad()
        layer.zero_grad()
        with ss.autocast("cuda", dtype=ss.bfloat16):
            out = norm(x)
            if watched:
                # A hook wants the gradient in the result's dtype.
                out.register_hook(lambda grad: seen.append(grad.dtype))
            loss = layer(out).float().sum()
        found = launched(loss.backward)
        return [x.grad, *[each.grad for each in norm.parameters()]], found

    seen: list[Any] = []
    step(False)
    mine, few = step(False)
    wanted, more = step(True)
    assert seen == [ss.float32]
    assert sum(few.values()) == sum(more.values()) - 1
    assert all(ss.equal(one, other) for one, other in zip(mine, wanted, strict=True))


@pytest.mark.parametrize("scopes", [1, 3])
@pytest.mark.parametrize("use", ["penalty", "element", "root"])
def test_a_gradient_that_came_to_the_weight_before_its_casts_is_kept(use: str,
                                                                     scopes: int) -> None:
    found = {}
    for device in ("cpu", "cuda"):
        net = layers(2).to(device)
        for _ in range(scopes):
            net.zero_grad()
            with ss.autocast(device, dtype=ss.bfloat16):
                loss = net[1](net[0](rows().to(device))).float().sum()
                # Recorded later than the casts, it is walked earlier.
                if use == "penalty":
                    loss = loss + sum(each.pow(2).sum() for each in net.parameters())
                elif use == "element":
                    loss = loss + 3.0 * net[0].weight[1, 2] + 2.0 * net[1].bias[0]
            if use == "root":
                weight = net[1].weight
                ss.autograd.backward([loss, weight], [None, ss.ones_like(weight)])
            else:
                loss.backward()
        found[device] = [each.grad.cpu() for each in net.parameters()]
    for mine, other in zip(found["cuda"], found["cpu"], strict=True):
        ss.testing.assert_close(mine, other, rtol=2e-2, atol=2e-2)


def test_no_memory_for_the_casts_of_a_failed_backward_leaves_the_modes(monkeypatch: Any) -> None:
    def no_memory(*arguments: Any) -> Any:
        raise ss.cuda.OutOfMemoryError("none left")

    net, x = layers(), rows().requires_grad_()
    with ss.autocast("cuda", dtype=ss.bfloat16):
        h = x.exp()
        loss = through(net, h * 1.0)
        with ss.no_grad():
            h.add_(1)
        with monkeypatch.context() as patch:
            patch.setattr(operations, "cast_list", no_memory)
            with pytest.raises(ss.cuda.OutOfMemoryError) as met:
                loss.backward()
        # The failure that came first is told too.
        assert "in place" in str(met.value.__context__)
        assert ss.is_grad_enabled()
        assert ss.is_autocast_enabled("cuda")
        assert (x @ x.t()).dtype is ss.bfloat16
        assert net[0](x.float()).dtype is ss.bfloat16
    found = gradients(net)
    assert all(each.isfinite().all() for each in found)
