"""Ops on lists give what the op gives for each tensor, whatever the list holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slipstream as ss
from cpu.optim.listed import bits
from slipstream.core.catalog.foreach import OTHERS, UNARY
from slipstream.core.launch.door import door

SHAPES = ((3,), (2, 4), (0,), (257,), (33, 5))
DEVICES = ("cpu",)


def tensors(seed: int, device: str, dtypes: Any = (None,)) -> list[Any]:
    """Positive values below 1."""
    rng = np.random.default_rng(seed)
    return [ss.from_numpy(np.asarray(rng.uniform(0.1, 0.9, shape), np.float32)).to(
        dtypes[place % len(dtypes)] or ss.float32).to(device)
        for place, shape in enumerate(SHAPES)]


def same(mine: Any, other: Any) -> None:
    """Two lists are alike to the bit."""
    assert [each.dtype for each in mine] == [each.dtype for each in other]
    assert [tuple(each.shape) for each in mine] == [tuple(each.shape) for each in other]
    assert [bits(each) for each in mine] == [bits(each) for each in other]


def check(name: str, arguments: tuple[Any, ...], device: str, dtypes: Any = (None,)) -> None:
    """The function and its in-place form against the op of each tensor."""
    op = getattr(ss, OTHERS[name][0] if name in OTHERS else name)
    names = OTHERS[name][2] if name in OTHERS else ()
    first = tensors(1, device, dtypes)
    wanted = []
    for place, tensor in enumerate(first):
        mine = [value[place] if isinstance(value, list) else value for value in arguments]
        wanted.append(op(tensor, **dict(zip(names, mine, strict=False))))
    for _ in range(2):
        same(getattr(ss, f"_foreach_{name}")(first, *arguments), wanted)
    assert getattr(ss, f"_foreach_{name}_")(first, *arguments) is None
    same(first, [each.to(tensor.dtype) for each, tensor in zip(wanted, first, strict=True)])


def arguments_of(name: str, device: str) -> list[tuple[Any, ...]]:
    """Lists, numbers, lists of numbers and tensors of one number, as the function takes them."""
    second, third = tensors(2, device), tensors(3, device)
    numbers = [0.5, 2.0, 1.0, 3.0, 0.25]
    if name == "lerp":
        return [(second, 0.25), (second, third)]
    if name in ("addcmul", "addcdiv"):
        return [(second, third), (second, third, 0.5), (second, third, numbers)]
    scalar = ss.full((), 0.5, device=device)
    return [(second,), (2,), (0.5,), (numbers,), *([(scalar,)] if name in ("mul", "add") else [])]


@pytest.mark.parametrize("name", [*UNARY, *OTHERS])
def test_every_function(name: str) -> None:
    for arguments in arguments_of(name, "cpu") if name in OTHERS else [()]:
        check(name, arguments, "cpu")


def test_dtypes_are_mixed() -> None:
    dtypes = (None, ss.float64, ss.bfloat16)
    check("mul", (2.0,), "cpu", dtypes)
    check("add", (tensors(2, "cpu", dtypes),), "cpu", dtypes)


def test_integers_are_promoted_as_by_the_op() -> None:
    ints = [ss.arange(4), ss.arange(6)]
    same(ss._foreach_mul(ints, 0.5), [each * 0.5 for each in ints])
    same(ss._foreach_div(ints, 2), [each / 2 for each in ints])
    same(ss._foreach_add(ints, 2), [each + 2 for each in ints])
    with pytest.raises(RuntimeError, match="can't be cast"):
        ss._foreach_mul_(ints, 0.5)


def test_the_default_dtype_counts() -> None:
    ints = [ss.arange(4), ss.arange(6)]
    ss._foreach_mul(ints, 0.5)
    ss.set_default_dtype(ss.float64)
    try:
        assert ss._foreach_mul(ints, 0.5)[0].dtype == ss.float64
    finally:
        ss.set_default_dtype(ss.float32)


def test_shapes_that_broadcast_go_one_by_one() -> None:
    mine = [ss.ones(3), ss.ones(2, 2)]
    other = [ss.ones(2, 3), ss.ones(2, 2)]
    same(ss._foreach_add(mine, other), [ss.ones(2, 3) * 2, ss.ones(2, 2) * 2])


def test_gradients_flow() -> None:
    mine = [ss.ones(3, requires_grad=True), ss.ones(2, requires_grad=True)]
    total = sum(each.sum() for each in ss._foreach_mul(mine, 3.0))
    total.backward()
    assert mine[0].grad.tolist() == [3.0] * 3
    with pytest.raises(RuntimeError, match="leaf"):
        ss._foreach_mul_(mine, 2.0)


def test_overlapping_targets_are_written_one_after_the_other() -> None:
    room = ss.ones(6)
    with ss.no_grad():
        ss._foreach_mul_([room[:4], room[2:]], 2.0)
    assert room.tolist() == [2.0, 2.0, 4.0, 4.0, 2.0, 2.0]
    same_one = ss.ones(3)
    ss._foreach_add_([same_one, same_one], 1.0)
    assert same_one.tolist() == [3.0] * 3


def test_lists_that_do_not_fit_say_so() -> None:
    with pytest.raises(RuntimeError, match="must have at least one tensor"):
        ss._foreach_add([], 1)
    with pytest.raises(RuntimeError, match="same number of tensors, got 2 and 1"):
        ss._foreach_add([ss.ones(1), ss.ones(1)], [ss.ones(1)])
    with pytest.raises((TypeError, AttributeError)):
        ss._foreach_add([ss.ones(1), 3], 1)


def test_it_is_one_call_of_the_door() -> None:
    mine = [ss.ones(size) for size in range(1, 40)]
    ss._foreach_mul_(mine, 2.0)
    before = door.launches
    ss._foreach_mul_(mine, 3.0)
    assert door.launches - before == 1
    assert mine[-1].tolist() == [6.0] * 39


def test_copy_and_zero() -> None:
    mine, other = tensors(1, "cpu"), tensors(2, "cpu")
    ss._foreach_copy_(mine, other)
    same(mine, other)
    elsewhere = [each.to("delay").double() for each in tensors(3, "cpu")]
    ss._foreach_copy_(mine, elsewhere)
    same(mine, [each.cpu().float() for each in elsewhere])
    ss._foreach_zero_(mine)
    same(mine, [ss.zeros_like(each) for each in mine])


def test_norms() -> None:
    mine = tensors(1, "cpu")
    found = ss._foreach_norm(mine)
    wanted = [np.linalg.norm(each.numpy().ravel().astype(np.float64)) for each in mine]
    np.testing.assert_allclose([each.item() for each in found], wanted, rtol=1e-6)


def test_what_an_op_refuses_its_list_refuses_in_the_same_words() -> None:
    # Formulas of these have no complex form.
    x = ss.ones(2, dtype=ss.complex64)
    for name in ("acos", "asin", "atan", "erf"):
        with pytest.raises(NotImplementedError, match=f"{name} is not supported for complex"):
            getattr(ss, f"_foreach_{name}")([x, x])
