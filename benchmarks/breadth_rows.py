"""What is timed of the breadth of ops: statements over a million to ten million elements.

A worker as `core_ops` is: the same requests, other rows.  The words before a comma name the op.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from core_ops import Row, Space, main


def lines(module: ModuleType) -> Space:
    """Return vectors and a matrix, with indices into them."""
    module.manual_seed(0)
    return {
        "m": module,
        "million": module.randn(1_000_000),
        "ten": module.randn(10_000_000),
        "rows": module.randn(1000, 1000),
        "zeros": module.zeros(1000, 1000),
        "places": module.randint(0, 1000, (1000, 1000)),
    }


def images(module: ModuleType) -> Space:
    """Return images and rows of two million elements, weights, and statistics."""
    module.manual_seed(0)
    return {
        "F": module.nn.functional,
        "images": module.randn(32, 16, 64, 64),
        "signals": module.randn(32, 64, 1024),
        "weight": module.randn(64, 64, 3),
        "bias": module.randn(64),
        "one": module.ones(16),
        "zero": module.zeros(16),
    }


def products(module: ModuleType) -> Space:
    """Return matrices of a batch, a million elements each."""
    module.manual_seed(0)
    return {"m": module, "a": module.randn(8, 512, 256), "b": module.randn(8, 256, 512)}


def training(module: ModuleType) -> Space:
    """Return forward and backward steps of a convolution and a normalisation."""
    space = images(module)
    functional = module.nn.functional
    signals, weight, pictures = [space[name].requires_grad_()
                                 for name in ("signals", "weight", "images")]

    def convolve() -> None:
        functional.conv1d(signals, weight, padding=1).sum().backward()

    def normalize() -> None:
        functional.batch_norm(pictures, space["zero"], space["one"], training=True).sum().backward()

    return {"convolve": convolve, "normalize": normalize}


Maker = Callable[[ModuleType], Space]
STATEMENTS: dict[str, tuple[str, Maker]] = {
    "sort, 1e6": ("million.sort()", lines),
    "sort, 1000 x 1000": ("rows.sort(1)", lines),
    "topk, 10 of 1e7": ("ten.topk(10)", lines),
    "topk, 10 of each of 1000 x 1000": ("rows.topk(10)", lines),
    "gather, 1000 x 1000": ("rows.gather(1, places)", lines),
    "scatter_add, 1000 x 1000": ("zeros.scatter_add(1, places, rows)", lines),
    "cumsum, 1e7": ("ten.cumsum(0)", lines),
    "cumsum, 1000 x 1000, rows": ("rows.cumsum(1)", lines),
    "cumsum, 1000 x 1000, columns": ("rows.cumsum(0)", lines),
    "einsum, bij,bjk->bik, 8 x 512 x 256 x 512": ("m.einsum('bij,bjk->bik', a, b)", products),
    "conv1d, 32 x 64 x 1024, 64 x 64 x 3": (
        "F.conv1d(signals, weight, bias, padding=1)", images),
    "conv1d, the same with backward": ("convolve()", training),
    "max_pool2d, 32 x 16 x 64 x 64, 2 x 2": ("F.max_pool2d(images, 2)", images),
    "batch_norm, 32 x 16 x 64 x 64, training": (
        "F.batch_norm(images, zero, one, one, zero, True)", images),
    "batch_norm, the same with backward": ("normalize()", training),
}
BACKWARD = ("convolve()", "normalize()")
ROWS = {name: Row(text, space, no_grad=text not in BACKWARD)
        for name, (text, space) in STATEMENTS.items()}

if __name__ == "__main__":
    main(ROWS)
