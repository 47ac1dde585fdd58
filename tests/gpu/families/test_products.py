"""Matrix products by our own kernels: tiles, parts, strides, batches, dtypes, scaled sums."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from catalogue import host

import slipstream as ss
from gpu.families.sides import COMPLEX, FLOATS, INTEGERS, check, numbers, shifted, tensor
from slipstream.core.catalog.table import table
from slipstream.core.kernels.cuda import few_rows, half_products, tiles

ULPS = 64.0
# Rows, steps, columns: every tile, edges of tiles and slabs, and sums that are cut in parts.
SIZES = ((1, 1, 1), (16, 16, 16), (17, 33, 19), (3, 40, 70), (70, 40, 3), (65, 17, 66),
         (64, 64, 64), (130, 5, 129), (5, 1100, 6), (1, 3000, 1), (30, 700, 40), (2, 600, 100))


@pytest.mark.parametrize("size", SIZES)
def test_sizes(size: tuple[int, int, int]) -> None:
    m, k, n = size
    a, b = numbers(1, (m, k)), numbers(2, (k, n))
    check(lambda device: tensor(a, device) @ tensor(b, device), ULPS)


@pytest.mark.parametrize("size", [(20, 24, 28), (9, 1030, 7)])
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, *COMPLEX])
def test_dtypes(dtype: Any, size: tuple[int, int, int]) -> None:
    m, k, n = size
    a, b = numbers(3, (m, k), dtype), numbers(4, (k, n), dtype)
    check(lambda device: tensor(a, device) @ tensor(b, device), ULPS)


# Rows, steps, columns: of each count of rows that is kept, whole turns and ends of them, one time
# round and several, four, eight and sixteen warps, one and two tiles.
FEW = ((1, 8, 8), (1, 96, 33), (1, 768, 40), (1, 3072, 9), (2, 1600, 17), (4, 5120, 8),
       (3, 72, 2117), (7, 264, 70), (8, 1024, 24), (8, 40, 2121), (9, 4096, 40), (12, 1104, 11),
       (16, 32, 4228))


@pytest.mark.parametrize("size", FEW)
@pytest.mark.parametrize("dtype", [ss.float16, ss.bfloat16])
def test_few_rows_of_narrow_floats(dtype: Any, size: tuple[int, int, int]) -> None:
    m, k, n = size
    a, b, c = numbers(21, (m, k), dtype), numbers(22, (n, k), dtype), numbers(23, n, dtype)

    def call(device: str) -> Any:
        x, w, bias = tensor(a, device), tensor(b, device), tensor(c, device)
        moved = shifted(b, device)
        return (x @ w.t(), ss.nn.functional.linear(x, w, bias), x @ moved.t(),
                ss.addmm(bias, x, w.t(), beta=2, alpha=0.5),
                ss.addmm_activation(bias, x, w.t(), use_gelu=True), x[0] @ w.t())

    check(call, ULPS)
    plain, _, moved, *_ = call("cuda")
    # The order of a sum does not depend on where an operand begins.
    assert bytes(host(plain).tobytes()) == bytes(host(moved).tobytes())
    seen = ss.explain(lambda: tensor(a, "cuda") @ tensor(b, "cuda").t())
    (kernel,) = seen.calls[-1].plan.launches
    assert "slip_steps" in kernel.source


def test_the_manner_of_few_rows() -> None:
    # Rows that are kept, parts, tiles, warps, turns: as they were fastest on a card.
    fastest = {(768, 2304): (1, 2, 2, 4, 3), (768, 768): (1, 2, 1, 4, 3),
               (3072, 768): (1, 2, 1, 16, 3), (768, 50304): (1, 2, 2, 4, 3)}
    for (depth, columns), manner in fastest.items():
        assert few_rows.manner_of(tiles.Sizes(1, columns, depth)) == (*manner, True)
    # However long the sums and many the columns are, there are few texts.
    found = {few_rows.manner_of(tiles.Sizes(rows, columns, depth))
             for rows in range(1, 17) for columns in range(8, 5000, 56)
             for depth in range(8, 9000, 8)}
    assert len(found) < 140
    for each in found:
        assert each.tiles * each.turns * (3 if each.rows >= 8 else 2) <= 24
        shared = 4 * each.warps * each.parts * each.rows * each.columns
        assert shared <= 48 << 10


# Rows, steps, columns: every tile, and ends of tiles and slabs.
HALVES = ((24, 8, 16), (17, 72, 40), (40, 200, 96), (40, 1096, 72), (700, 64, 264),
          (1600, 24, 520))


def by_matrix_instructions(call: Callable[[], Any]) -> bool:
    """Whether the call's last kernel is a tiled product of 16-bit floats."""
    (kernel,) = ss.explain(call).calls[-1].plan.launches
    return "slip_slab" in kernel.source


@pytest.mark.parametrize("size", HALVES)
@pytest.mark.parametrize("dtype", [ss.float16, ss.bfloat16])
def test_narrow_floats_however_they_lie(dtype: Any, size: tuple[int, int, int]) -> None:
    m, k, n = size
    a, b, c = numbers(24, (m, k), dtype), numbers(25, (k, n), dtype), numbers(26, n, dtype)
    at, bt = np.ascontiguousarray(a.T), np.ascontiguousarray(b.T)

    def call(device: str) -> Any:
        x, w, bias = tensor(a, device), tensor(b, device), tensor(c, device)
        xt, wt = tensor(at, device).t(), tensor(bt, device).t()
        return (x @ w, x @ wt, xt @ w, xt @ wt, shifted(a, device) @ w,
                ss.nn.functional.linear(x, wt.t(), bias), ss.addmm(bias, x, w, beta=2, alpha=0.5),
                ss.addmm_activation(bias, xt, w, use_gelu=True))

    check(call, ULPS)
    assert by_matrix_instructions(lambda: tensor(a, "cuda") @ tensor(b, "cuda"))
    assert by_matrix_instructions(lambda: tensor(a, "cuda") @ tensor(bt, "cuda").t())
    turned = tensor(at, "cuda").t()
    assert by_matrix_instructions(lambda: turned @ tensor(b, "cuda")) == (m % 8 == 0)


@pytest.mark.parametrize("size", [(72, 552, 136), (70, 1096, 136)])
def test_groups_of_warps_share_long_sums(size: tuple[int, int, int],
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    m, k, n = size
    a, b = numbers(34, (m, k), ss.bfloat16), numbers(35, (n, k), ss.bfloat16)
    # So few blocks are enough for the second smallest tile to be taken.
    monkeypatch.setattr(half_products, "ENOUGH", 7)
    tile = half_products.tile_of(tiles.Sizes(m, n, k), 227 << 10)
    assert (tile.rows, tile.columns, tile.groups) == (32, 64, 4)
    assert half_products.tile_of(tiles.Sizes(m, n, k), 99 << 10).groups == 1
    assert half_products.tile_of(tiles.Sizes(m, n, 256), 227 << 10).groups == 1
    check(lambda device: tensor(a, device) @ tensor(b, device).t(), ULPS)
    check(lambda device: tensor(a, device)[:, :-8] @ tensor(b, device).t()[:-8], ULPS)


@pytest.mark.parametrize("tile", [
    half_products.HalfTile(128, 64, down=4), half_products.HalfTile(64, 64, down=1, across=4),
    half_products.HalfTile(32, 64, groups=4, down=1),
    half_products.HalfTile(32, 32, groups=4, across=1),
    half_products.HalfTile(32, 32, depth=32, stages=4, groups=2)])
def test_warps_share_tiles_in_any_manner(tile: half_products.HalfTile,
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    # Edges in both directions, columns that are no multiple of four, three of the four layouts.
    monkeypatch.setattr(half_products, "tile_of", lambda sizes, room: tile)
    a, b = numbers(36, (136, 200), ss.bfloat16), numbers(37, (70, 200), ss.bfloat16)
    c, turned = numbers(38, (70,), ss.bfloat16), numbers(39, (200, 136), ss.bfloat16)
    right = numbers(40, (200, 72), ss.bfloat16)

    def call(device: str) -> Any:
        x, w, bias = tensor(a, device), tensor(b, device), tensor(c, device)
        return (x @ w.t(), ss.nn.functional.linear(x, w, bias),
                tensor(turned, device).t() @ tensor(right, device), x @ tensor(right, device))

    check(call, ULPS)


@pytest.mark.parametrize("tile", [*half_products.TILES, *half_products.SHARED.values()])
@pytest.mark.parametrize("size", [(8, 200, 120), (136, 64, 88), (70, 72, 40)])
def test_what_an_activation_is_taken_of_is_stored_once(
        tile: half_products.HalfTile, size: tuple[int, int, int],
        monkeypatch: pytest.MonkeyPatch) -> None:
    # Where a tile reaches beyond the edges, elements are made more than once.
    monkeypatch.setattr(half_products, "tile_of", lambda sizes, room: tile)
    m, k, n = size
    a, b, c = (np.random.RandomState(seed).randint(-2, 3, shape).astype(np.float16)
               for seed, shape in ((41, (m, k)), (42, (k, n)), (43, n)))
    given = [tensor(each, "cuda") for each in (c, a, b)]

    def call() -> Any:
        return table["addmm_activated"].call((*given, True, True), None)

    taken_of, _ = call()
    np.testing.assert_array_equal(host(taken_of), a @ b + c)
    (kernel,) = ss.explain(call).calls[-1].plan.launches
    # What fills the text's words must not fill parts of others.
    for line in kernel.source.splitlines():
        assert not line.startswith("#ifdef") or re.fullmatch(r"#ifdef \w+", line), line


def test_batches_of_narrow_floats() -> None:
    a, b = numbers(27, (2, 3, 40, 24), ss.bfloat16), numbers(28, (3, 24, 48), ss.bfloat16)
    check(lambda device: tensor(a, device) @ tensor(b, device), ULPS)
    assert by_matrix_instructions(lambda: tensor(a, "cuda") @ tensor(b, "cuda"))


def test_transposed_and_stepped_operands_without_copies() -> None:
    a, b = numbers(5, (40, 30)), numbers(6, (30, 50))

    def call(device: str) -> Any:
        x, y = tensor(a, device), tensor(b, device)
        turned = tensor(np.ascontiguousarray(a.T), device).t()
        out = ss.zeros(50, 40, device=device).t()
        ss.matmul(turned, y, out=out)
        return (x @ y, turned @ tensor(np.ascontiguousarray(b.T), device).t(), out,
                x[::2, ::3] @ y[::3, 1::2], x.flip(0)[:, :7] @ y[-7:], shifted(a, device) @ y)

    check(call, ULPS)


BATCHES = (((3,), (3,)), ((3,), ()), ((), (3,)), ((2, 1), (1, 4)), ((2, 3), (3,)), ((0,), (0,)))


@pytest.mark.parametrize("batches", BATCHES)
def test_batches(batches: Any) -> None:
    a, b = numbers(7, (*batches[0], 5, 6)), numbers(8, (*batches[1], 6, 7))

    def call(device: str) -> Any:
        x, y = tensor(a, device), tensor(b, device)
        turned = x.transpose(0, -1).contiguous().transpose(0, -1)
        return x @ y, turned @ y

    check(call, ULPS)


def test_vectors() -> None:
    a, b, m = numbers(9, 33), numbers(10, 33), numbers(11, (2, 33, 20))

    def call(device: str) -> Any:
        x, y, z = tensor(a, device), tensor(b, device), tensor(m, device)
        return x @ y, x @ z[0], z[0].t() @ y, x @ z, z.transpose(1, 2) @ y

    check(call, ULPS)


@pytest.mark.parametrize("dtype", [ss.int32, ss.float16, ss.float32, ss.float64, ss.complex64])
@pytest.mark.parametrize("depth", [8, 1100])
def test_scaled_sums(dtype: Any, depth: int) -> None:
    a, b = numbers(12, (6, depth), dtype), numbers(13, (depth, 5), dtype)
    c = numbers(14, 5, dtype)
    pairs: list[Any] = [(1, 1), (0, 1), (2, 3), (-1, 0)]
    if dtype is not ss.int32:
        pairs += [(0.5, 1.5), (True, 2.0)]
    if dtype is ss.complex64:
        pairs += [(1j, 0.5 - 2j)]

    def call(device: str) -> Any:
        x, y, z = tensor(a, device), tensor(b, device), tensor(c, device)
        return [ss.addmm(z, x, y, beta=beta, alpha=alpha) for beta, alpha in pairs]

    check(call, 2 * ULPS)


def test_what_is_added_is_not_read_where_beta_is_zero() -> None:
    nans = ss.full((3, 2), float("nan"), device="cuda")
    ones = ss.ones(3, 4, device="cuda")
    found = ss.addmm(nans, ones, ss.ones(4, 2, device="cuda"), beta=0)
    np.testing.assert_array_equal(host(found), np.full((3, 2), 4.0))


@pytest.mark.parametrize("lead", [(), (7,), (2, 3)])
@pytest.mark.parametrize("depth", [12, 1200])
def test_linear_and_its_gradients(lead: tuple[int, ...], depth: int) -> None:
    x, w, b = numbers(15, (*lead, depth)), numbers(16, (5, depth)), numbers(17, 5)
    g = numbers(18, (*lead, 5))

    def call(device: str) -> Any:
        leaves = [tensor(each, device).requires_grad_(True) for each in (x, w, b)]
        out = ss.nn.functional.linear(*leaves)
        out.backward(tensor(g, device))
        return out, *[leaf.grad for leaf in leaves], ss.nn.functional.linear(*leaves[:2])

    check(call, ULPS)


# Rows as they lead, steps and features: one tile and several, ends of tiles and slabs.
LAYERS = (((100,), 72, 136), ((2, 40), 16, 24), ((3, 5, 7), 8, 8), ((520,), 40, 72))


@pytest.mark.parametrize(("lead", "depth", "features"), LAYERS)
@pytest.mark.parametrize("dtype", [ss.float16, ss.bfloat16])
def test_a_bias_is_summed_by_the_product_of_the_weights_gradient(
        dtype: Any, lead: tuple[int, ...], depth: int, features: int) -> None:
    x, w, b = (numbers(30 + at, shape, dtype) for at, shape in enumerate(
        ((*lead, depth), (features, depth), (features,))))
    g = numbers(33, (*lead, features), dtype)

    def call(device: str) -> Any:
        leaves = [tensor(each, device).requires_grad_(True) for each in (x, w, b)]
        ss.nn.functional.linear(*leaves).backward(tensor(g, device))
        return tuple([leaf.grad for leaf in leaves])

    check(call, ULPS)
    leaves = [tensor(each, "cuda").requires_grad_(True) for each in (x, w, b)]
    out, upstream = ss.nn.functional.linear(*leaves), tensor(g, "cuda")
    ss.cuda.synchronize()
    before = ss.cuda.launch_stats()["launches"]
    ss.autograd.grad(out, leaves, upstream, retain_graph=True)
    assert ss.cuda.launch_stats()["launches"] - before == 2
    # A bias that is not one number a feature is summed as it broadcast.
    wide = tensor(g, "cuda").requires_grad_(True) if len(lead) == 1 else None
    if wide is not None:
        out = ss.nn.functional.linear(*leaves[:2], wide)
        assert ss.autograd.grad(out, [leaves[1], wide], upstream)[1].shape == wide.shape


@pytest.mark.parametrize("size", [(0, 64, 64), (0, 8, 4), (64, 64, 0), (8, 0, 16), (1, 0, 8),
                                  (0, 512, 8)])
def test_narrow_products_of_nothing(size: tuple[int, int, int]) -> None:
    m, k, n = size
    x, w, b = numbers(36, (m, k)), numbers(37, (n, k)), numbers(38, n)

    def call(device: str) -> Any:
        leaves = [tensor(each, device).to(ss.bfloat16).requires_grad_(True) for each in (x, w, b)]
        out = ss.nn.functional.linear(*leaves)
        out.backward(ss.ones_like(out))
        a, other, bias = [each.detach() for each in leaves]
        return (out, *[leaf.grad for leaf in leaves], a @ other.t(), ss.addmm(bias, a, other.t()),
                a.unsqueeze(0) @ other.t().unsqueeze(0), ss.mv(a, ss.zeros_like(other[:1].sum(0))))

    check(call, ULPS)


@pytest.mark.parametrize("dtype", [ss.float32, ss.bfloat16, ss.int32, ss.complex64])
@pytest.mark.parametrize("size", [(0, 520, 40), (5, 520, 0), (0, 5000, 3)])
def test_long_sums_of_which_there_are_none(size: tuple[int, int, int], dtype: Any) -> None:
    m, k, n = size

    def call(device: str) -> Any:
        x, w = (tensor(numbers(place, shape), device).to(dtype)
                for place, shape in enumerate(((m, k), (n, k)), 39))
        return (ss.nn.functional.linear(x, w), x @ w.t(),
                ss.addmm(w.sum(1).to(dtype), x, w.t()),
                x.unsqueeze(0) @ w.t().unsqueeze(0))

    check(call, ULPS)


def test_baddbmm() -> None:
    a, b, c = numbers(19, (3, 4, 5)), numbers(20, (3, 5, 6)), numbers(21, (3, 1, 6))
    check(lambda device: ss.baddbmm(tensor(c, device), tensor(a, device), tensor(b, device),
                                    beta=0.5, alpha=2), ULPS)


def test_sums_do_not_depend_on_where_operands_lie() -> None:
    a, b = numbers(22, (20, 900)), numbers(23, (900, 20))
    plain = tensor(a, "cuda") @ tensor(b, "cuda")
    moved = shifted(a, "cuda") @ shifted(b, "cuda")
    np.testing.assert_array_equal(host(plain), host(moved))
