"""Functions and modules that run as graphs, forward and backward."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import slipstream as ss


def model(seed: int = 1) -> Any:
    ss.manual_seed(seed)
    made = ss.nn.Sequential(ss.nn.Linear(6, 12), ss.nn.Tanh(), ss.nn.Linear(12, 3))
    return made.to("cuda")


def gradients(module: Any) -> list[Any]:
    return [each.grad.tolist() for each in module.parameters()]


def test_a_module_trains_as_it_does_eagerly() -> None:
    losses = []
    for graphed in (False, True):
        net = model()
        optimizer = ss.optim.Adam(net.parameters(), lr=0.01)
        sample = ss.zeros(16, 6, device="cuda")
        step = ss.cuda.make_graphed_callables(net, (sample,)) if graphed else net
        assert step is net
        generator = ss.Generator().manual_seed(5)
        run = []
        for _ in range(6):
            x = ss.randn(16, 6, generator=generator).to("cuda")
            optimizer.zero_grad(set_to_none=True)
            loss = (step(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            run.append(loss.item())
        losses.append(run)
    assert losses[0] == losses[1]


def test_both_directions_are_one_graph_launch_each(restart: Any) -> None:
    driver = restart(zero_cost=True)
    net = ss.cuda.make_graphed_callables(model(), (ss.zeros(4, 6, device="cuda"),))
    x = ss.ones(4, 6, device="cuda")
    with ss.cuda.immediate():
        # No windows become graphs: what is launched as one is captured.
        net(x).backward(ss.ones(4, 3, device="cuda"))
        before = driver.statistics()
        net(x).backward(ss.ones(4, 3, device="cuda"))
        ss.cuda.synchronize()
        after = driver.statistics()
    assert after["graph_launches"] - before["graph_launches"] == 2
    assert after["graph_kernel_nodes"] - before["graph_kernel_nodes"] >= 8


def test_results_and_gradients_are_never_overwritten() -> None:
    def work(x: Any, w: Any) -> Any:
        return x * w, {"sum": (x + w).sum()}

    x = ss.arange(4.0, device="cuda", requires_grad=True)
    w = ss.full((4,), 2.0, device="cuda", requires_grad=True)
    graphed = ss.cuda.make_graphed_callables(work, (x, w))
    kept = []
    for step in range(4):
        a = (x.detach() + step).requires_grad_()
        b = (w.detach() * step).requires_grad_()
        out, more = graphed(a, b)
        found = ss.autograd.grad((out.sum() + more["sum"]) * 2, (a, b))
        kept.append((out, more["sum"], *found))
    for step, (out, total, first, second) in enumerate(kept):
        a, b = np.arange(4.0) + step, np.full(4, 2.0 * step)
        assert out.tolist() == (a * b).tolist()
        assert total.item() == (a + b).sum()
        assert first.tolist() == (2 * (b + 1)).tolist()
        assert second.tolist() == (2 * (a + 1)).tolist()


def test_the_inputs_are_the_graphs_own() -> None:
    sample = ss.ones(3, device="cuda")
    graphed = ss.cuda.make_graphed_callables(lambda x: x * 2, (sample,))
    sample.fill_(100)
    given = ss.arange(3.0, device="cuda")
    out = graphed(given)
    assert out.tolist() == [0.0, 2.0, 4.0]
    assert given.tolist() == [0.0, 1.0, 2.0]
    assert sample.tolist() == [100.0] * 3


def test_a_tuple_of_callables_in_any_order() -> None:
    first, second = model(1), model(2)
    head = lambda a, b: (a * b).sum()  # noqa: E731
    x = ss.randn(5, 6, device="cuda")
    y = ss.randn(5, 3, device="cuda", requires_grad=True)
    expected = head(first(x), second(x))
    expected.backward()
    eager = [gradients(first), gradients(second)]
    for module in (first, second):
        module.zero_grad(set_to_none=True)
    graphed = ss.cuda.make_graphed_callables((first, second, head), ((x,), (x,), (y, y)))
    assert isinstance(graphed, tuple)
    one, two, three = graphed
    # The second before the first, as it was not captured.
    b = two(x)
    a = one(x)
    total = three(a, b)
    total.backward()
    assert total.item() == expected.item()
    assert [gradients(first), gradients(second)] == eager


def test_another_mode_of_the_module_runs_eagerly() -> None:
    net = ss.nn.Sequential(ss.nn.Linear(4, 4), ss.nn.Dropout(0.5)).to("cuda")
    x = ss.ones(8, 4, device="cuda")
    net = ss.cuda.make_graphed_callables(net, (x,))
    drawn = {tuple(net(x).flatten().tolist()) for _ in range(3)}
    assert len(drawn) == 3
    net.eval()
    assert net(x).tolist() == net[0](x).tolist()
    assert net(x[:2]).shape == (2, 4)


def test_what_does_not_fit_is_refused() -> None:
    x = ss.ones(3, device="cuda", requires_grad=True)
    graphed = ss.cuda.make_graphed_callables(lambda t: t * t, (x,))
    with pytest.raises(RuntimeError, match=r"argument 0 is .*float32\[4\].*captured as .*\[3\]"):
        graphed(ss.ones(4, device="cuda"))
    with pytest.raises(RuntimeError, match="nested in another way"):
        graphed((x,))
    early = graphed(x)
    graphed(x)
    with pytest.raises(RuntimeError, match="a later call"):
        early.sum().backward()
    net = model()
    net.register_forward_hook(lambda *_: None)
    with pytest.raises(RuntimeError, match="must not have hooks"):
        ss.cuda.make_graphed_callables(net, (ss.ones(2, 6, device="cuda"),))
    with pytest.raises(TypeError, match="tensors in tuples"):
        ss.cuda.make_graphed_callables(lambda t: t.shape[0], (x,))


def test_an_unused_input() -> None:
    x = ss.ones(3, device="cuda", requires_grad=True)
    y = ss.ones(3, device="cuda", requires_grad=True)
    graphed = ss.cuda.make_graphed_callables(lambda a, b: a * 3, (x, y), allow_unused_input=True)
    graphed(x, y).sum().backward()
    assert x.grad.tolist() == [3.0] * 3
    assert y.grad is None or y.grad.tolist() == [0.0] * 3
    with pytest.raises(RuntimeError):
        ss.cuda.make_graphed_callables(lambda a, b: a * 3, (x, y))


def test_results_without_gradient() -> None:
    x = ss.tensor([3.0, 1.0, 2.0], device="cuda", requires_grad=True)
    graphed = ss.cuda.make_graphed_callables(lambda t: (t * 2, t.argmax()), (x,))
    double, place = graphed(x)
    assert place.item() == 0
    assert not place.requires_grad
    double.sum().backward()
    assert x.grad.tolist() == [2.0] * 3


# -- other cards ----------------------------------------------------------------------------------
def test_the_capture_is_on_the_card_of_the_sample(restart: Any) -> None:
    restart(devices=2)
    net = model().to("cuda:1")
    x = ss.randn(5, 6, device="cuda:1")
    expected = [net(x * step) for step in (1, 2)]
    eager = []
    for each in expected:
        net.zero_grad(set_to_none=True)
        each.sum().backward()
        eager.append(gradients(net))
    net.zero_grad(set_to_none=True)
    with warnings.catch_warnings():
        # An empty graph warns.
        warnings.simplefilter("error")
        net = ss.cuda.make_graphed_callables(net, (ss.zeros(5, 6, device="cuda:1"),))
    assert ss.cuda.current_device() == 0
    for step in (1, 2):
        net.zero_grad(set_to_none=True)
        out = net(x * step)
        out.sum().backward()
        assert out.tolist() == expected[step - 1].tolist()
        assert gradients(net) == eager[step - 1]


def test_without_arguments_the_capture_is_on_the_modules_card(restart: Any) -> None:
    class Scaled(ss.nn.Module):
        """A module of no argument."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = ss.nn.Parameter(ss.ones(3, device="cuda:1"))

        def forward(self) -> Any:
            return self.weight * 3

    restart(devices=2)
    net = Scaled()
    graphed = ss.cuda.make_graphed_callables(net, ())
    with ss.no_grad():
        net.weight.add_(1)
    out = graphed()
    out.sum().backward()
    assert out.tolist() == [6.0] * 3
    assert net.weight.grad.tolist() == [3.0] * 3


def test_callables_of_two_cards(restart: Any) -> None:
    restart(devices=2)
    samples = [ss.zeros(3, device=f"cuda:{index}") for index in (0, 1)]
    both = ss.cuda.make_graphed_callables((lambda t: t * 2, lambda t: t * 3),
                                          tuple((each,) for each in samples))
    for factor, graphed, sample in zip((2.0, 3.0), both, samples, strict=True):
        assert graphed(sample + 1).tolist() == [factor] * 3
    with pytest.raises(RuntimeError, match=r"are on cuda:0 and cuda:1; .* one device\n  mend: "):
        ss.cuda.make_graphed_callables(lambda a, b: (a, b), tuple(samples))
