"""Exact float32 products of small nets, of which a warp fetches its share all at once."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from catalogue import host

import slipstream as ss
from gpu.families.sides import check, numbers, shifted, tensor
from slipstream.core.kernels.cuda import small_tiles, tiles

ULPS = 64.0
# Rows, steps, columns: every tile, ends of tiles and of shares, and several fetches of a block.
SIZES = ((1, 17, 1), (64, 64, 40), (33, 100, 20), (5, 96, 17), (40, 500, 7), (17, 65, 33),
         (64, 256, 256), (68, 512, 60), (200, 40, 144), (150, 72, 150), (129, 132, 152),
         (250, 64, 300), (190, 200, 331), (520, 33, 77), (420, 64, 396), (40, 400, 20))


def laid(array: np.ndarray, manner: str) -> Any:
    """A matrix on the device: as it is, turned, at an odd address, or with gaps."""
    if manner == "turned":
        return tensor(np.ascontiguousarray(array.T), "cuda").t()
    if manner == "shifted":
        return shifted(array, "cuda")
    if manner == "turned and shifted":
        return shifted(np.ascontiguousarray(array.T), "cuda").t()
    if manner == "stepped":
        # What lies between would make every sum that meets it a nan.
        wide = np.full((array.shape[0] * 2, array.shape[1] * 3), np.nan, array.dtype)
        wide[::2, ::3] = array
        return tensor(wide, "cuda")[::2, ::3]
    if manner == "framed":
        wide = np.full((array.shape[0] + 8, array.shape[1] + 8), np.nan, array.dtype)
        wide[4:-4, 4:-4] = array
        return tensor(wide, "cuda")[4:-4, 4:-4]
    return tensor(array, "cuda")


MANNERS = ("plain", "turned", "shifted", "turned and shifted", "stepped", "framed")


def kernel_of(call: Any) -> str:
    """The source of the call's last kernel."""
    (kernel,) = ss.explain(call).calls[-1].plan.launches
    return str(kernel.source)


def is_ours(call: Any) -> bool:
    """Whether a call's last kernel is one of these."""
    return "slip_share" in kernel_of(call)


@pytest.mark.parametrize("size", SIZES)
def test_sums_do_not_depend_on_how_operands_lie(size: tuple[int, int, int]) -> None:
    m, k, n = size
    a, b = numbers(1, (m, k)), numbers(2, (k, n))
    plain = check(lambda device: tensor(a, device) @ tensor(b, device), ULPS)
    wanted = host(plain).tobytes()
    for left, right in product(MANNERS, MANNERS):
        found = laid(a, left) @ laid(b, right)
        assert host(found).tobytes() == wanted, (left, right)
    assert is_ours(lambda: tensor(a, "cuda") @ tensor(b, "cuda"))
    assert is_ours(lambda: laid(a, "stepped") @ laid(b, "turned and shifted"))


@pytest.mark.parametrize("size", [(64, 256, 64), (33, 65, 21), (200, 40, 144), (420, 64, 396)])
def test_what_is_added(size: tuple[int, int, int]) -> None:
    m, k, n = size
    a, w, c, d = (numbers(seed, shape) for seed, shape in
                  ((3, (m, k)), (4, (n, k)), (5, n), (6, (m, n))))

    def call(device: str) -> Any:
        x, weight, bias, whole = (tensor(each, device) for each in (a, w, c, d))
        return (ss.nn.functional.linear(x, weight, bias),
                ss.addmm(bias, x, weight.t(), beta=2, alpha=0.5),
                ss.addmm(whole.t().contiguous().t(), x, weight.t()),
                ss.addmm_activation(bias, x, weight.t(), use_gelu=True),
                ss.addmm(bias * float("nan"), x, weight.t(), beta=0))

    check(call, ULPS)
    x, weight, bias = (tensor(each, "cuda") for each in (a, w, c))
    assert is_ours(lambda: ss.nn.functional.linear(x, weight, bias))
    assert is_ours(lambda: ss.addmm(bias, x, weight.t(), beta=2, alpha=0.5))


def test_gradients_of_a_layer() -> None:
    def call(device: str) -> Any:
        operands = [tensor(numbers(seed, shape), device).requires_grad_() for seed, shape in (
            (7, (64, 72)), (8, (40, 72)), (9, 40))]
        out = ss.relu(ss.nn.functional.linear(*operands))
        (out * out).sum().backward()
        return [each.grad for each in operands]

    check(call, ULPS)


@pytest.mark.parametrize("wanted", [(0, 1), (0, 2), (1, 2), (0,), (1,), (2,)])
def test_a_layer_of_which_something_is_frozen(wanted: tuple[int, ...]) -> None:
    shapes = ((40, 24), (16, 24), (16,))

    def call(device: str) -> Any:
        operands = [tensor(numbers(24 + place, shape), device).requires_grad_(place in wanted)
                    for place, shape in enumerate(shapes)]
        out = ss.nn.functional.linear(*operands)
        return ss.autograd.grad(out, [operands[each] for each in wanted], out.detach())

    check(call, ULPS)


# Rows, columns of the gradient and of the input: every tile, ends of tiles and of shares.
@pytest.mark.parametrize("size", [(64, 256, 256), (17, 10, 64), (100, 7, 33), (512, 48, 16),
                                  (65, 130, 250), (300, 1, 5), (40, 331, 300), (400, 100, 20)])
def test_a_layers_gradients_are_summed_beside_their_product(size: tuple[int, int, int]) -> None:
    rows, out, columns = size
    values = [numbers(17, (rows, columns)), numbers(18, (out, columns)), numbers(19, out)]
    upstream = numbers(20, (rows, out))

    def call(device: str, shape: tuple[int, ...] = (rows,)) -> Any:
        x, *leaves = (tensor(each, device) for each in values)
        made = ss.nn.functional.linear(x.reshape(*shape, columns),
                                       *(each.requires_grad_() for each in leaves))
        g = tensor(upstream, device).reshape(*shape, out)
        ss.cuda.synchronize()
        before = ss.cuda.launch_stats()["launches"]
        found = ss.autograd.grad(made, leaves, g)
        if device == "cuda":
            ss.cuda.synchronize()
            assert ss.cuda.launch_stats()["launches"] == before + 1
        return found

    plain = check(call, ULPS)
    if rows % 5 == 0:
        folded = call("cuda", (5, rows // 5))
        assert [host(each).tobytes() for each in folded] == [host(each).tobytes() for each in plain]


def test_rows_that_are_not_summed_beside_their_product() -> None:
    # Too few steps for these tiles; more than they take; a bias of one.
    for rows, out, columns, one in ((12, 40, 24, False), (600, 40, 24, False), (64, 40, 24, True)):
        values = [numbers(21, (rows, columns)), numbers(22, (out, columns)),
                  numbers(23, 1 if one else out)]

        def call(device: str, values: Any = values) -> Any:
            operands = [tensor(each, device).requires_grad_() for each in values]
            (ss.nn.functional.linear(*operands) ** 2).sum().backward()
            return [each.grad for each in operands]

        check(call, ULPS)


def test_a_broadcast_side_is_read_where_it_lies() -> None:
    a, b = numbers(10, (1, 96)), numbers(11, (96, 24))
    check(lambda device: tensor(a, device).expand(48, 96) @ tensor(b, device), ULPS)
    assert is_ours(lambda: tensor(a, "cuda").expand(48, 96) @ tensor(b, "cuda"))


def test_what_other_kernels_take() -> None:
    a, b = numbers(12, (3, 32, 40)), numbers(13, (3, 40, 24))
    assert not is_ours(lambda: tensor(a, "cuda") @ tensor(b, "cuda"))
    wide = tensor(a[0], "cuda").double() @ tensor(b[0], "cuda").double()
    assert not is_ours(lambda: wide @ wide.t())
    # Few steps: a tile of the plain kernel has them at once.
    assert not is_ours(lambda: tensor(a[0, :, :16], "cuda") @ tensor(b[0, :16], "cuda"))
    assert ss.zeros(0, 40, device="cuda").mm(tensor(b[0], "cuda")).shape == (0, 24)
    sizes = tiles.Sizes(64, 256, 256)
    assert small_tiles.suits(ss.float32, sizes, [256, 1, 1, 256])
    assert not small_tiles.suits(ss.float32, sizes, [1 << 24, 1, 1, 256])
    assert not small_tiles.suits(ss.float32, sizes, [256, 1, -(1 << 23), 256])
    assert not small_tiles.suits(ss.float32, tiles.Sizes(64, 256, 256, 2), [256, 1, 1, 256])
    assert not small_tiles.suits(ss.float64, sizes, [256, 1, 1, 256])


def test_the_tiles() -> None:
    # As they were fastest on a card: a net's layers, and the gradients of its weights.
    fastest = {(64, 256, 256): (16, 8), (64, 10, 256): (16, 8), (128, 256, 256): (16, 16),
               (256, 256, 64): (16, 32), (64, 256, 64): (16, 16)}
    for (rows, columns, depth), tile in fastest.items():
        assert small_tiles.tile_of(tiles.Sizes(rows, columns, depth))[:2] == tile
    found = {small_tiles.tile_of(tiles.Sizes(rows, columns, depth))
             for rows in range(1, 700, 9) for columns in range(1, 700, 9)
             for depth in range(17, 513, 33)}
    # A length never seen asks for no kernel mostly.
    assert 4 < len(found) < 10
    for each in found:
        lanes = each.rows * each.columns // (each.own_rows * each.own_columns)
        warps, groups = each.threads // 32, 32 // lanes
        assert lanes * groups == 32
        # Four steps at least for each group.
        assert each.depth % (4 * warps * groups) == 0
        # Both sides and what keeps lanes from a bank that another one is at; a group's sums.
        steps = each.depth // warps
        most = max((steps + 8) * (each.rows + each.columns),
                   steps * (each.rows + each.columns + 8),
                   groups * (each.rows * each.columns + 32))
        assert 4 * warps * most <= 48 << 10


def test_the_memo_changes_no_bit(restart: Any) -> None:
    a, w, c = numbers(14, (64, 256)), numbers(15, (256, 256)), numbers(16, 256)

    def steps(memo: bool) -> list[bytes]:
        restart()
        ss.cuda.default_stream().backend.set_memo(memo)
        weight, bias, x = tensor(w / 16, "cuda"), tensor(c, "cuda"), tensor(a, "cuda")
        found = []
        for _ in range(5):
            x = ss.tanh(ss.nn.functional.linear(x, weight, bias)) @ weight
            weight = weight - 1e-3 * (x.t() @ x)
            found.append(host(weight).tobytes())
        return found

    assert steps(True) == steps(False)
