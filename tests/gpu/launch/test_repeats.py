"""A fill of memory that the target shows several times."""

from __future__ import annotations

import pytest

import slipstream as ss


@pytest.mark.parametrize(("shape", "wider"), [((3, 1), (3, 4)), ((1, 3), (4, 3)),
                                              ((3, 1), (3, 400)), ((1,), (7,)),
                                              ((2, 1, 3), (2, 5, 3))])
def test_every_place_is_filled(shape: tuple[int, ...], wider: tuple[int, ...]) -> None:
    base = ss.zeros(shape, device="cuda")
    base.expand(wider).fill_(2)
    assert base.eq(2).all().item()
    base.expand(wider).zero_()
    assert base.eq(0).all().item()


def test_windows_that_overlap_are_filled() -> None:
    base = ss.zeros(6, device="cuda")
    base.as_strided((3, 3), (1, 1)).fill_(3)
    assert base.tolist() == [3, 3, 3, 3, 3, 0]
