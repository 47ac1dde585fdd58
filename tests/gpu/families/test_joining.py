"""cat and stack: many pieces, several dtypes, any strides."""

from __future__ import annotations

from typing import Any

import pytest

import slipstream as ss
from gpu.families.sides import DTYPES, check, numbers, shifted, tensor


@pytest.mark.parametrize("count", [1, 2, 16, 17, 40])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_many_pieces(count: int, dim: int) -> None:
    def call(device: str) -> Any:
        pieces = []
        for place in range(count):
            shape = [2, 3, 4]
            shape[dim] = place % 4
            pieces.append(tensor(numbers(place, shape), device))
        alike = [tensor(numbers(place, (2, 3)), device) for place in range(count)]
        return ss.cat(pieces, dim), ss.stack(alike, dim)

    check(call)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_that_differ(dtype: Any) -> None:
    def call(device: str) -> Any:
        own = tensor(numbers(1, (2, 3), dtype), device)
        others = [tensor(numbers(2, (2, 3), other), device)
                  for other in (ss.bool, ss.int16, ss.float32, ss.complex128)]
        return [ss.cat([own, other]) for other in others] + [ss.stack([other, own], 1)
                                                             for other in others]

    check(call)


def test_strides_offsets_and_what_is_empty() -> None:
    def call(device: str) -> Any:
        a, b = shifted(numbers(3, (4, 3)), device), shifted(numbers(4, (3, 4)), device)
        none = ss.zeros(0, device=device)
        out = ss.zeros(3, 8, device=device).t()
        ss.cat([a, b.t()], out=out)
        images = tensor(numbers(5, (2, 3, 4, 4)), device).contiguous(
            memory_format=ss.channels_last)
        return (ss.cat([a, none, b.t(), a.flip(0)]), ss.cat([none, none]), out,
                ss.cat([images, images], 1), ss.stack([a, b.t()[:, ::1]], 2))

    check(call)


def test_gradients() -> None:
    def call(device: str) -> Any:
        leaves = [tensor(numbers(place, (2, 3)), device).requires_grad_(True)
                  for place in range(3)]
        out = ss.cat([*leaves, leaves[0]], 1)
        out.backward(tensor(numbers(9, out.shape), device))
        return out, *[leaf.grad for leaf in leaves]

    check(call)
