"""gradcheck and gradgradcheck find wrong gradients."""

from __future__ import annotations

from typing import Any

import pytest

import slipstream as ss
from slipstream.autograd import Function, GradcheckError, gradcheck, gradgradcheck


class Scaled(Function):
    """exp with a wrong gradient, or a wrong second one."""

    @staticmethod
    def forward(ctx: Any, x: ss.Tensor, first: float, second: float) -> ss.Tensor:
        """exp(x)."""
        ctx.save_for_backward(x)
        ctx.factors = first, second
        return x.exp()

    @staticmethod
    def backward(ctx: Any, g: ss.Tensor) -> tuple[Any, ...]:
        """Factors away from right."""
        (x,) = ctx.saved_tensors
        first, second = ctx.factors
        value = x.exp() * first
        return g * (value * second + value.detach() * (1 - second)), None, None


def operand() -> ss.Tensor:
    """A float64 leaf."""
    return ss.tensor([0.5, -0.25], dtype=ss.float64, requires_grad=True)


def test_right_gradients_pass() -> None:
    x = operand()
    assert gradcheck(lambda x: (x * x).exp(), x)
    assert gradgradcheck(lambda x: (x * x).exp(), x)
    z = ss.tensor([1 + 2j, -0.5j], dtype=ss.complex128, requires_grad=True)
    assert gradcheck(lambda z: z * z * z, (z,))
    assert gradgradcheck(lambda z: z * z * z, (z,))


def test_wrong_gradients_fail() -> None:
    x = operand()
    with pytest.raises(GradcheckError, match="Jacobian mismatch for output 0 with respect to "
                                             "input 0"):
        gradcheck(lambda x: Scaled.apply(x, 1.1, 1.0), x)
    assert not gradcheck(lambda x: Scaled.apply(x, 1.1, 1.0), x, raise_exception=False)
    assert gradcheck(lambda x: Scaled.apply(x, 1.0, 0.5), x)
    with pytest.raises(GradcheckError, match="Jacobian mismatch"):
        gradgradcheck(lambda x: Scaled.apply(x, 1.0, 0.5), x)


def test_inputs_that_cannot_be_checked() -> None:
    with pytest.raises(ValueError, match="at least one input"):
        gradcheck(lambda x: x, ss.ones(2, dtype=ss.float64))
    with pytest.warns(UserWarning, match="double precision"):
        gradcheck(lambda x: x * 1, ss.ones(2, requires_grad=True), eps=1e-2, atol=1e-1)
    with pytest.raises(RuntimeError, match="stride 0"):
        gradcheck(lambda x: x * 1, operand()[:1].detach().expand(3).requires_grad_())
    with pytest.raises(TypeError, match="unexpected keyword"):
        gradcheck(lambda x: x, operand(), wrong=True)


def test_users_random_numbers_are_left_alone() -> None:
    ss.manual_seed(1)
    before = ss.get_rng_state().tolist()
    gradgradcheck(lambda x: x * x, operand())
    assert ss.get_rng_state().tolist() == before
