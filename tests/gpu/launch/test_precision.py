"""TF32 by scope: what was planned under the other setting is not used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import slipstream as ss
from slipstream.core.catalog.table import ops
from slipstream.core.kernels.cuda import library
from slipstream.core.native.cublaslt import COMPUTE, COMPUTE_TF32


@pytest.fixture(autouse=True)
def _exact() -> Iterator[None]:
    yield
    ss.backends.cuda.matmul.allow_tf32 = False


def product(dtype: str) -> Any:
    return library.product_of((4, 8, 8, 1), (8, 16, 16, 1), False, dtype)


def test_only_float32_products_follow_the_flag() -> None:
    for dtype in ("float32", "float16", "bfloat16", "float64"):
        assert product(dtype).compute == COMPUTE[dtype]
    ss.backends.cuda.matmul.allow_tf32 = True
    assert product("float32").compute == COMPUTE_TF32
    for dtype in ("float16", "bfloat16", "float64"):
        assert product(dtype).compute == COMPUTE[dtype]


def test_plans_of_the_other_setting_are_dropped(restart: Any) -> None:
    restart()
    a, b = ss.rand(8, 16, device="cuda"), ss.rand(16, 4, device="cuda")
    weight = ss.rand(4, 16, device="cuda")

    def plans() -> int:
        return len(ops.matmul.plans) + len(ops.linear.plans)

    def work() -> Any:
        return (a @ b), ss.nn.functional.linear(a, weight)

    first = [each.tolist() for each in work()]
    made = plans()
    assert made >= 2
    work()
    assert plans() == made
    ss.backends.cuda.matmul.allow_tf32 = True
    assert plans() == 0
    work()
    assert plans() == made
    # The same value again changes nothing.
    ss.set_float32_matmul_precision("high")
    assert plans() == made
    ss.set_float32_matmul_precision("highest")
    assert plans() == 0
    assert [each.tolist() for each in work()] == first
