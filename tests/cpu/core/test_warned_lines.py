"""Warnings name the user's line, compiled and not, through modules and functions of ours."""

from __future__ import annotations

import warnings

import pytest

import slipstream as ss
from slipstream import nn

CALLS = {
    "resized out": lambda: ss.add(ss.ones(3), 1, out=ss.empty(2)),
    "loss function": lambda: nn.functional.mse_loss(ss.ones(3, 1), ss.ones(3)),
    "loss module": lambda: nn.MSELoss()(ss.ones(3, 1), ss.ones(3)),
    "other loss": lambda: nn.SmoothL1Loss()(ss.ones(3, 1), ss.ones(3)),
    "divergence": lambda: nn.functional.kl_div(ss.zeros(2, 2), ss.ones(2, 2) / 2),
    "divergence module": lambda: nn.KLDivLoss()(ss.zeros(2, 2), ss.ones(2, 2) / 2),
    "recurrent module": lambda: nn.LSTM(2, 2, 1, dropout=0.5),
    "grad of no leaf": lambda: (ss.ones(3, requires_grad=True) * 2).grad,
}


@pytest.mark.parametrize("name", CALLS)
def test_a_warning_names_the_users_line(name: str) -> None:
    call = CALLS[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert [(each.filename, each.lineno) for each in caught] == [
        (__file__, call.__code__.co_firstlineno)]


def test_filters_apply() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="was resized"):
            CALLS["resized out"]()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            CALLS["resized out"]()
    assert len(caught) == 1
