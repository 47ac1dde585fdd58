"""What a card can do at most: bytes and operations a second, as its maker publishes them."""

from __future__ import annotations

from typing import NamedTuple


class Limits(NamedTuple):
    """``bandwidth``: bytes a nanosecond; ``peaks``: operations a nanosecond of a dtype, dense."""

    bandwidth: float
    peaks: dict[str, float]

    def share(self, nbytes: float, operations: float, dtype: str, nanoseconds: float) -> float:
        """The share of the nearer limit that a kernel reaches."""
        spent = max(nanoseconds, 1)
        least = nbytes / self.bandwidth
        if dtype in self.peaks:
            least = max(least, operations / self.peaks[dtype])
        return least / spent


def card(gigabytes: float, single: float, double: float, half: float, bfloat: float = 0
         ) -> Limits:
    """Limits from GB/s and TFLOP/s of float32, float64, float16 and bfloat16."""
    peaks = {"float32": single, "float64": double, "float16": half, "bfloat16": bfloat or half}
    return Limits(float(gigabytes), {name: 1000.0 * rate for name, rate in peaks.items() if rate})


# By a part of the card's name: the first that is found.
CARDS = (
    ("H200", card(4800, 67, 67, 989)), ("H100 NVL", card(3938, 60, 60, 835)),
    ("H100 PCIe", card(2039, 51, 51, 756)), ("H100", card(3350, 67, 67, 989)),
    ("B200", card(8000, 80, 40, 2250)), ("A100-SXM4-40GB", card(1555, 19.5, 19.5, 312)),
    ("A100-PCIE-40GB", card(1555, 19.5, 19.5, 312)), ("A100-PCIE", card(1935, 19.5, 19.5, 312)),
    ("A100", card(2039, 19.5, 19.5, 312)), ("V100", card(900, 15.7, 7.8, 125, 15.7)),
    ("L40", card(864, 90.5, 1.4, 181)), ("L4", card(300, 30.3, 0.5, 121)),
    ("A10", card(600, 31.2, 0.5, 125)), ("T4", card(320, 8.1, 0.25, 65, 8.1)),
    ("4090", card(1008, 82.6, 1.3, 165)),
)


def limits_of(name: str) -> Limits | None:
    """The limits of a card; None where they are not known."""
    return next((limits for part, limits in CARDS if part in name), None)
