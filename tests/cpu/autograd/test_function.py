"""Steps of the tape that users define."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

import slipstream as ss
from slipstream.autograd import Function, gradcheck, gradgradcheck
from slipstream.autograd.function import once_differentiable


class Square(Function):
    """x * x, saving its input."""

    @staticmethod
    def forward(ctx: Any, x: ss.Tensor) -> ss.Tensor:
        """Save x."""
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: ss.Tensor) -> ss.Tensor:
        """2 x g."""
        (x,) = ctx.saved_tensors
        return g * 2 * x


class Exp(Function):
    """exp, saving its output, in the style with setup_context."""

    @staticmethod
    def forward(x: ss.Tensor) -> ss.Tensor:
        """No context here."""
        return x.exp()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: ss.Tensor) -> None:
        """Save the output."""
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, g: ss.Tensor) -> ss.Tensor:
        """g exp(x)."""
        (y,) = ctx.saved_tensors
        return g * y


class Double(Function):
    """Doubles its input in place."""

    @staticmethod
    def forward(ctx: Any, x: ss.Tensor) -> ss.Tensor:
        """Write to x."""
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, g: ss.Tensor) -> ss.Tensor:
        """2 g."""
        return g * 2


def operand(*shape: int) -> ss.Tensor:
    """A float64 leaf."""
    ss.manual_seed(0)
    return ss.randn(*shape, dtype=ss.float64, requires_grad=True)


@pytest.mark.parametrize("step", [Square, Exp])
def test_first_and_second_gradients(step: type[Function]) -> None:
    assert gradcheck(step.apply, (operand(2, 3),))
    assert gradgradcheck(step.apply, (operand(2, 3),))


def test_in_place_steps_on_views() -> None:
    def function(x: ss.Tensor) -> ss.Tensor:
        y = x * 1
        Double.apply(y[0])
        return y * y

    assert gradcheck(function, (operand(2, 3),))
    with pytest.raises(RuntimeError, match="leaf Variable"):
        Double.apply(operand(2))


def test_names_contexts_and_what_is_needed() -> None:
    x = operand(2)
    y = Square.apply(x)
    assert y.grad_fn.name() == "SquareBackward"
    assert y.requires_grad
    seen = []

    class Two(Function):
        """Two inputs, a number among them."""

        @staticmethod
        def forward(ctx: Any, a: ss.Tensor, k: int, b: ss.Tensor) -> tuple[Any, ...]:
            """Two outputs, of which one has no gradient."""
            seen.append(ctx.needs_input_grad)
            first, second = a * k, b + 1
            ctx.mark_non_differentiable(second)
            return first, second

        @staticmethod
        def backward(ctx: Any, g: ss.Tensor, h: ss.Tensor) -> tuple[Any, ...]:
            """Missing gradients are zeros."""
            seen.append(h.tolist())
            return g * 3, None, None

    first, second = Two.apply(x, 3, ss.ones(2))
    assert seen == [(True, False, False)]
    assert not second.requires_grad
    first.sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    assert seen[1] == [0.0, 0.0]


def test_gradients_that_are_not_materialized() -> None:
    class Both(Function):
        """Two outputs."""

        @staticmethod
        def forward(ctx: Any, x: ss.Tensor) -> tuple[Any, ...]:
            """Ask for None."""
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            """One is missing."""
            assert h is None
            return g * 2

    x = operand(2)
    Both.apply(x)[0].sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_inputs_returned_as_they_are() -> None:
    class Same(Function):
        """The identity."""

        @staticmethod
        def forward(ctx: Any, x: ss.Tensor) -> ss.Tensor:
            """The input itself."""
            return x

        @staticmethod
        def backward(ctx: Any, g: ss.Tensor) -> ss.Tensor:
            """Ten times too much."""
            return g * 10

    x = operand(2)
    y = Same.apply(x)
    assert y is not x
    assert x.is_leaf
    y.sum().backward()
    assert x.grad.tolist() == [10.0, 10.0]


def test_saved_tensors_are_checked_and_freed() -> None:
    x = operand(2)
    middle = x * 1
    y = Square.apply(middle)
    middle.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        y.sum().backward()
    y = Square.apply(x)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()


def test_no_cycle_keeps_a_step_alive() -> None:
    gc.disable()
    try:
        y = Exp.apply(operand(2))
        gone = weakref.ref(y.storage)
        del y
        assert gone() is None
    finally:
        gc.enable()


def test_steps_that_cannot_be_differentiated_twice() -> None:
    class Once(Square):
        """Square, once."""

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, g: ss.Tensor) -> ss.Tensor:
            """2 x g."""
            (x,) = ctx.saved_tensors
            return g * 2 * x

    x = operand(2)
    start = ss.ones(2, dtype=ss.float64, requires_grad=True)
    (g,) = ss.autograd.grad(Once.apply(x), x, start, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        g.sum().backward()


def test_wrong_backwards() -> None:
    class Wrong(Square):
        """Returns what ``wrong`` says."""

        wrong: Any = None

        @classmethod
        def backward(cls, ctx: Any, g: ss.Tensor) -> Any:
            """The wrong result."""
            return cls.wrong

    x = operand(2)
    for wrong, kind, text in (((None, ss.ones(2)), RuntimeError, "incorrect number"),
                              (3, TypeError, "expected Variable or None"),
                              (ss.ones(3), RuntimeError, "invalid gradient at index 0")):
        Wrong.wrong = wrong
        with pytest.raises(kind, match=text):
            Wrong.apply(x).sum().backward()
    with pytest.raises(TypeError, match="save_for_backward can only save"):
        type("Bad", (Square,), {"forward": staticmethod(
            lambda ctx, x: ctx.save_for_backward(3))}).apply(x)


class Negative(Function):
    """The identity, whose gradient is negated."""

    @staticmethod
    def forward(ctx: Any, x: ss.Tensor, view: bool) -> ss.Tensor:
        """The input itself or a view of it."""
        return x.view_as(x) if view else x

    @staticmethod
    def backward(ctx: Any, g: ss.Tensor) -> tuple[ss.Tensor, None]:
        """Negated."""
        return -g, None


@pytest.mark.parametrize("view", [False, True])
def test_writes_past_the_history_of_a_step_are_refused(view: bool) -> None:
    leaf = operand(3)
    with pytest.raises(RuntimeError, match="a view of a leaf"):
        Negative.apply(leaf, view).mul_(5)
    middle = leaf * 1
    with pytest.raises(RuntimeError, match="NegativeBackward is a view and is being modified"):
        Negative.apply(middle, view).mul_(5)
    out = Negative.apply(middle, view)
    middle.mul_(3)
    with pytest.raises(RuntimeError, match="NegativeBackward is a view and its base or another"):
        out.sum().backward()
    out = Negative.apply(middle, view)
    with ss.no_grad():
        middle.mul_(2)
    out.sum().backward()
    assert leaf.grad.tolist() == [-3.0] * 3


def test_an_input_that_is_saved_and_returned_is_an_input() -> None:
    class Own(Function):
        """The identity, whose gradient is multiplied by the input."""

        @staticmethod
        def forward(ctx: Any, x: ss.Tensor) -> ss.Tensor:
            """Save and return it."""
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx: Any, g: ss.Tensor) -> ss.Tensor:
            """g x."""
            return g * ctx.saved_tensors[0]

    x = ss.tensor(3.0, requires_grad=True)
    (g,) = ss.autograd.grad(Own.apply(x), x, create_graph=True)
    assert g.item() == 3.0
    assert ss.autograd.grad(g, x)[0].item() == 1.0


def test_a_step_that_writes_to_a_view_has_one_result() -> None:
    class Two(Function):
        """Writes to its input; returns another tensor too."""

        @staticmethod
        def forward(ctx: Any, x: ss.Tensor) -> tuple[ss.Tensor, ss.Tensor]:
            """Doubled in place, and a copy."""
            x.mul_(2)
            ctx.mark_dirty(x)
            return x, x.clone()

        @staticmethod
        def backward(ctx: Any, *grads: ss.Tensor) -> ss.Tensor:
            """Of both."""
            return (grads[0] + grads[1]) * 2

    x = operand(2, 3)
    with pytest.raises(RuntimeError, match="must return a single Variable"):
        Two.apply((x * 1)[0])
    first, second = Two.apply(x * 1)
    (first + second).sum().backward()
    assert x.grad.tolist() == [[4.0] * 3] * 2


class Several(Function):
    """Returns more than tensors."""

    materializes = True

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        """2 x and 3 x among others."""
        ctx.set_materialize_grads(Several.materializes)
        return "first", x * 2, None, x * 3

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """A gradient for each of four, None where there was no tensor."""
        first, twice, nothing, thrice = grads
        assert first is nothing is None
        return twice * 2 if thrice is None else twice * 2 + thrice * 3


@pytest.mark.parametrize("materializes", [False, True])
def test_what_is_no_tensor_has_a_place_among_the_gradients(materializes: bool,
                                                           monkeypatch: Any) -> None:
    monkeypatch.setattr(Several, "materializes", materializes)
    x = ss.ones(2, requires_grad=True)
    first, twice, nothing, thrice = Several.apply(x)
    assert (first, nothing) == ("first", None)
    twice.sum().backward(retain_graph=True)
    assert x.grad.tolist() == [2, 2]
    (twice + thrice).sum().backward()
    assert x.grad.tolist() == [7, 7]


@pytest.mark.parametrize("form", [lambda y, x: ("tag", y), lambda y, x: (y, "tag"),
                                  lambda y, x: ("tag", x * 3, None, y), lambda y, x: y])
def test_a_result_behind_what_is_no_tensor_is_saved_as_itself(form: Any) -> None:
    class Exponential(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x.exp()
            ctx.save_for_backward(y)
            return form(y, x)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            (y,) = ctx.saved_tensors
            return grads[-1 if len(grads) != 2 or grads[0] is None else 0] * y

    x = ss.zeros(2, requires_grad=True)
    made = Exponential.apply(x)
    y = next(each for each in (made if isinstance(made, tuple) else (made,))
             if isinstance(each, ss.Tensor) and each.sum() == 2)
    (first,) = ss.autograd.grad(y.sum(), x, create_graph=True)
    first.sum().backward()
    assert (first.tolist(), x.grad.tolist()) == ([1, 1], [1, 1])
