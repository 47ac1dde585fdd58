"""`explain` tells of every kernel which kind of fusion made it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import slipstream as ss
from slipstream import optim
from slipstream.core.kernels.cuda import tiles
from slipstream.core.native.drivers import drivers
from slipstream.nn import functional

CHAIN, ROWS, EPILOGUE, TILED, LISTED, HAND, LIBRARY = (
    "chain of pointwise ops", "row kernel", "epilogue of a product", "tiled by hand",
    "list of tensors", "one op, by hand", "product of the library")


def x(*shape: int) -> Any:
    """Ones on the device."""
    return ss.ones(shape or (16, 16), device="cuda")


def fusions(function: Callable[[], Any]) -> list[str]:
    """The kinds of the kernels of a function's calls, those inside other calls too."""

    def walk(calls: list[Any]) -> None:
        for call in calls:
            found.extend(each.fusion for each in (call.plan.launches if call.plan else ()))
            walk(call.inner)

    found: list[str] = []
    walk(ss.explain(function).calls)
    return found


@pytest.mark.parametrize(("call", "wanted"), [
    (lambda a: a + 1, [CHAIN]),
    (lambda a: functional.gelu(a), [CHAIN]),
    (lambda a: a.t() + a, [CHAIN]),
    (lambda a: a.softmax(-1), [ROWS]),
    (lambda a: a.sum(0), [ROWS]),
    (lambda a: a.reshape(1, -1).expand(1, 256).argmax(), [ROWS]),
    (lambda a: a[None] @ a[None], [TILED]),
    (lambda a: functional.linear(a, a, a[0]), [EPILOGUE]),
    (lambda a: ss.addmm(a, a, a), [EPILOGUE]),
    (lambda a: ss._foreach_add([a, a.clone()], 1), [CHAIN, LISTED]),
    (lambda a: a.sort(), [HAND]),
    (lambda a: a.view(-1), []),
])
def test_kinds(call: Callable[[Any], Any], wanted: list[str]) -> None:
    a = x()
    assert fusions(lambda: call(a)) == wanted


def test_a_product_is_the_library_s_where_there_is_one(monkeypatch: Any) -> None:
    monkeypatch.setattr(tiles, "SMALL_PRODUCTS", 0)
    monkeypatch.setattr(tiles, "SMALL_ELEMENTS", 0)
    a = x(40, 72)
    wanted = LIBRARY if drivers.current().has_library else TILED
    assert fusions(lambda: a @ a.t()) == [wanted]


def test_a_small_product_is_made_by_a_kernel_of_ours() -> None:
    a = x(24, 40)
    assert fusions(lambda: a @ a.t()) == [TILED]


def test_the_stages_of_a_row_that_is_split() -> None:
    a = x(1, 100000)
    # The sums of exponentials go with the maxima, the quotients after them.
    assert fusions(lambda: a.softmax(-1)) == [ROWS] * 2


def test_optimizers_keep_their_road() -> None:
    parameters = [x().requires_grad_() for _ in range(3)]
    for each in parameters:
        each.grad = x()
    optimizer = optim.AdamW(parameters)
    optimizer.step()
    assert fusions(optimizer.step) == [LISTED]


def test_sources_and_text() -> None:
    seen = ss.explain(lambda a: a.softmax(-1), x())
    (kernel,) = seen.calls[0].plan.launches
    assert kernel.name == "amax_sub_exp_sum_div_f32"
    assert "__global__" in kernel.source
    assert "launch    amax_sub_exp_sum_div_f32: row kernel" in str(seen)
    found = json.loads(json.dumps(seen.to_dict()))
    assert found["calls"][0]["plan"]["launches"][0]["fusion"] == ROWS


def test_a_products_epilogue_in_the_library(restart: Any) -> None:
    restart(library=True)
    a = x()
    assert fusions(lambda: functional.linear(a, a, a[0])) == [EPILOGUE]
    large = ss.ones(520, 520, device="cuda")
    assert fusions(lambda: functional.linear(large, large, large[0])) == [EPILOGUE]
    assert fusions(lambda: large @ large) == ["product of the library"]


def test_graph_replay(restart: Any) -> None:
    restart()
    a = x()

    def loop() -> float:
        for _ in range(60):
            (a + 1) * 2
        return a.sum().item()

    loop()
    loop()
    seen = ss.explain(loop)
    ((device, (sent, replayed)),) = seen.replays.items()
    assert device == "cuda:0"
    assert sent >= 121
    assert 60 <= replayed <= sent
    assert f"graph replay: {replayed} of {sent} launches that left cuda:0 meanwhile" in str(seen)
    with ss.cuda.immediate():
        assert "graph replay: 0 of " in str(ss.explain(loop))


def test_nothing_of_this_on_the_cpu() -> None:
    seen = ss.explain(lambda: ss.ones(3) + 1)
    assert seen.calls[-1].plan.launches == []
    assert "graph replay" not in str(seen)
