"""In-place writes through views, and what views and bases know of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import slipstream as ss
from slipstream.autograd import gradcheck, gradgradcheck

Function = Callable[[ss.Tensor, ss.Tensor], ss.Tensor]


def rows(x: ss.Tensor, w: ss.Tensor) -> ss.Tensor:
    """A row multiplied by another input."""
    y = x * 1
    y[0].mul_(w)
    return y * y


def views_of_views(x: ss.Tensor, w: ss.Tensor) -> ss.Tensor:
    """A part of a turned, flattened copy."""
    y = x * 1
    y.t()[1:].view(-1)[:2].copy_(w[:2])
    return y * y


def base_then_view(x: ss.Tensor, w: ss.Tensor) -> ss.Tensor:
    """A view made before its base changes twice."""
    y = x * 1
    view = y[1]
    y.mul_(3.0)
    y[0].add_(w)
    y.mul_(x)
    return view * w


def saved_output(x: ss.Tensor, w: ss.Tensor) -> ss.Tensor:
    """An op that saves its result, in place on a view."""
    y = x * w
    y[1].exp_()
    return y * 2


def overwritten(x: ss.Tensor, w: ss.Tensor) -> ss.Tensor:
    """Zeros and fills."""
    y = x * w
    y[0].zero_()
    y[1, :1].fill_(2.0)
    return y * y


def plain_base(x: ss.Tensor, w: ss.Tensor) -> ss.Tensor:
    """A base that had no history."""
    y = ss.zeros(2, 3, dtype=x.dtype)
    y[0].add_(w)
    y[:, 1:].copy_(x[:, 1:])
    return y * y


@pytest.mark.parametrize("function", [rows, views_of_views, base_then_view, saved_output,
                                      overwritten, plain_base])
def test_first_and_second_gradients(function: Function) -> None:
    ss.manual_seed(0)
    x = ss.randn(2, 3, dtype=ss.float64, requires_grad=True)
    w = ss.randn(3, dtype=ss.float64, requires_grad=True)
    if function is views_of_views:
        # A turned tensor's part is no view when flattened: take two rows of one column.
        def turned(x: ss.Tensor, w: ss.Tensor) -> ss.Tensor:
            y = x * 1
            y.t()[1:].t()[1].view(2, 1)[:, 0].copy_(w[:2])
            return y * y

        function = turned
    assert gradcheck(function, (x, w))
    assert gradgradcheck(function, (x, w))


def test_an_in_place_op_keeps_the_value_that_its_gradient_names() -> None:
    x = ss.tensor([1.0, 2.0], requires_grad=True)
    w = ss.tensor([3.0, 4.0], requires_grad=True)
    y = x * 1
    y.mul_(w)
    y.sum().backward()
    assert w.grad.tolist() == [1.0, 2.0]
    y = x * 1
    y.mul_(y)
    x.grad = None
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_leaves_and_their_views_are_refused() -> None:
    leaf = ss.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        leaf.add_(1)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable"):
        leaf[0].zero_()
    base = ss.zeros(2)
    view = base[:1]
    view.requires_grad_()
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        view.add_(1)
    with ss.no_grad():
        leaf.add_(1)
        leaf[0].zero_()
    assert leaf.tolist() == [0.0, 2.0, 2.0]


def test_views_without_gradients_stay_so_and_refuse_writes() -> None:
    x = ss.ones(4, requires_grad=True)
    y = x * 2
    y.mul_(3)
    with ss.no_grad():
        view = y[:2]
    assert not view.requires_grad
    with pytest.raises(RuntimeError, match="created in no_grad mode"):
        view.mul_(2)
    y.mul_(2)
    assert view.requires_grad


def test_one_of_several_views_is_refused() -> None:
    x = ss.ones(2, 2, requires_grad=True)
    part = (x * 1).unbind()[0]
    with pytest.raises(RuntimeError, match="multiple views"):
        part.mul_(2)


def test_every_write_to_a_base_is_seen_by_its_views() -> None:
    x = ss.ones(2, requires_grad=True)
    y = x * 1
    view = y.view(2, 1)
    for _ in range(3):
        y.mul_(2)
        assert view.requires_grad
    (view * 1).sum().backward()
    assert x.grad.tolist() == [8.0, 8.0]


def test_an_integer_target_takes_no_history() -> None:
    source = ss.ones(2, requires_grad=True)
    target = ss.zeros(2, dtype=ss.int64)
    target.copy_(source)
    assert not target.requires_grad


@pytest.mark.parametrize("write", ["exp_", "tanh_", "sigmoid_", "sqrt_"])
def test_double_backward_of_an_output_saved_under_a_view(write: str) -> None:
    def gradients(inplace: bool) -> list[list[float]]:
        leaf = ss.tensor([0.5, 0.25, 2.0], dtype=ss.float64, requires_grad=True)
        x = leaf * 1
        if inplace:
            getattr(x[:2], write)()
        else:
            x = ss.cat([getattr(x[:2], write[:-1])(), x[2:]])
        first, = ss.autograd.grad((x * x * x).sum(), leaf, create_graph=True)
        second, = ss.autograd.grad((first * first).sum(), leaf)
        return [first.tolist(), second.tolist()]

    for found, wanted in zip(gradients(True), gradients(False), strict=True):
        assert found == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("view", [
    lambda x: x[:1].expand(3, 3), lambda x: x.diagonal().unsqueeze(0).expand(2, 3),
    lambda x: x.unfold(1, 2, 1), lambda x: x.t()[1:2].expand(4, 3)])
@pytest.mark.parametrize("order", ["plain", "transposed"])
def test_a_repeating_view_of_a_base_written_in_place(view, order: str) -> None:
    def gradients(later: bool) -> list[list[float]]:
        leaf = ss.arange(9, dtype=ss.float64).view(3, 3).requires_grad_()
        x = (leaf.t() if order == "transposed" else leaf) * 1
        part = view(x)
        x.mul_(leaf + 2)
        part = part if later else view(x)
        weight = ss.arange(part.numel(), dtype=ss.float64).view(part.shape)
        first, = ss.autograd.grad((part * part * weight).sum(), leaf, create_graph=True)
        second, = ss.autograd.grad((first * first).sum(), leaf)
        return [first.tolist(), second.tolist()]

    assert gradients(True) == gradients(False)
