"""Sample operands of entries, as NumPy arrays: () -> list of (args, kwargs)."""

from __future__ import annotations

from typing import Any

import numpy as np

Sample = tuple[tuple[Any, ...], dict[str, Any]]


def random_array(seed: int, *shape: int) -> np.ndarray:
    """Numbers uniform in [-2, 2), the same at every call."""
    return np.random.RandomState(seed).uniform(-2.0, 2.0, shape)


def unary() -> list[Sample]:
    """One operand of several ranks."""
    return [((random_array(1, *shape),), {}) for shape in ((), (5,), (3, 4), (2, 0, 3), (2, 3, 4))]


def binary() -> list[Sample]:
    """Two operands that broadcast, and a number."""
    shapes = (((), ()), ((5,), (5,)), ((3, 4), (4,)), ((3, 1), (1, 4)), ((2, 3, 4), (3, 1)),
              ((0, 3), (1, 3)))
    found: list[Sample] = [((random_array(2, *a), random_array(3, *b) + 3.0), {})
                           for a, b in shapes]
    found.append(((random_array(4, 3, 4), 2.5), {}))
    return found


comparisons = binary


def positive() -> list[Sample]:
    """One positive operand of several ranks."""
    return [((np.abs(args[0]) + 0.1,), {}) for args, _ in unary()]


def tensor_pairs() -> list[Sample]:
    """Two tensors that broadcast."""
    return binary()[:-1]


def scaled() -> list[Sample]:
    """Two operands and how many times the second counts."""
    return [*binary(), ((random_array(92, 3, 4), random_array(93, 4)), {"alpha": 3})]


def bits() -> list[Sample]:
    """Two operands of bitwise ops: tensors, and a tensor and an integer."""
    return [*tensor_pairs(), ((random_array(4, 3, 4), 3), {})]


def exponents() -> list[Sample]:
    """Positive bases with tensor and number exponents."""
    base = np.abs(random_array(5, 3, 4)) + 0.5
    return [((base, random_array(6, 4)), {}), ((base, 2.0), {}), ((base, 0.5), {}), ((base, 3), {}),
            ((base, 0), {})]


def masks() -> list[Sample]:
    """A condition and two operands."""
    return [((random_array(7, *c) > 0, random_array(8, *a), random_array(9, *b)), {})
            for c, a, b in (((4,), (4,), (4,)), ((3, 1), (4,), (3, 4)), ((), (2, 2), ()))]


def reductions() -> list[Sample]:
    """One operand with dims and keepdim."""
    x = random_array(10, 2, 3, 4)
    return [((x,), {}), ((x, 1), {}), ((x, -1), {"keepdim": True}), ((x, (0, 2)), {}),
            ((random_array(11),), {}), ((random_array(12, 5), 0), {})]


def rows() -> list[Sample]:
    """One operand and a dim."""
    x = random_array(13, 2, 3, 4)
    return [((x, 1), {}), ((x, -1), {}), ((random_array(14, 5), 0), {})]


# -- indexing ------------------------------------------------------------------------------------
def indices_of(pattern: tuple[Any, ...], starts: tuple[int, ...]) -> tuple[Any, ...]:
    """NumPy's index of a basic index's pattern and starts."""
    found: list[Any] = []
    places = iter(starts)
    for item in pattern:
        if item is None:
            found.append(None)
        elif item == -1:
            found.append(next(places))
        else:
            first = next(places)
            length, step = item
            stop = first + length * step
            found.append(slice(first, None if stop < 0 else stop, step))
    return (*found, Ellipsis)


def select_samples() -> list[Sample]:
    """An operand, a pattern and starts."""
    x = random_array(15, 3, 4, 5)
    return [((x, pattern, starts), {}) for pattern, starts in (
        ((-1,), (1,)), (((2, 1),), (1,)), ((None, (3, 1), -1), (0, 2)),
        (((3, 1), (2, -2), -1), (0, 3, 4)), ((), ()))]


def index_samples() -> list[Sample]:
    """An operand, index tensors, and their layout."""
    x = random_array(16, 3, 4, 5)
    i, j = np.array([[0, 2], [-1, 1]]), np.array([3, 0])
    return [((x, [i], ((0,), 0, ())), {}), ((x, [i, j], ((0, 1), 0, ())), {}),
            ((x, [i, j, j], ((0, 1, 2), 0, ())), {})]


def masked() -> list[Sample]:
    """An operand and a mask that broadcasts with it."""
    return [((np.asarray(random_array(17, *a)), np.asarray(random_array(18, *b) > 0)), {})
            for a, b in (((3, 4), (3, 4)), ((3, 4), (4,)), ((4,), (2, 4)), ((), ()), ((0,), (0,)))]


def along() -> list[Sample]:
    """An operand, a dim, and indices of the operand's rank."""
    x = random_array(19, 3, 4)
    return [((x, 0, np.array([[0, 2, 1, 0]])), {}), ((x, 1, np.array([[3], [0], [1]])), {}),
            ((x, -1, np.array([[3, 3, 0], [0, 1, 2]])), {})]


def along_with_source() -> list[Sample]:
    """An operand, a dim, indices and a source of their shape."""
    return [((*args, random_array(20, *args[2].shape)), {}) for args, _ in along()]


def pieces() -> list[Sample]:
    """Tensors that can be joined along a dim."""
    return [(([random_array(21, 2, 3), random_array(22, 4, 3)],), {}),
            (([random_array(23, 2, 3), random_array(24, 2, 1)], 1), {}),
            (([random_array(25, 2, 0), random_array(26, 2, 2)], -1), {}),
            (([random_array(27, 5)],), {})]


def equal_pieces() -> list[Sample]:
    """Tensors of one shape."""
    return [(([random_array(28, 2, 3), random_array(29, 2, 3)], dim), {}) for dim in (0, 1, -1)]


def splits() -> list[Sample]:
    """An operand, a length or lengths, and a dim."""
    x = random_array(30, 5, 3)
    return [((x, 2), {}), ((x, [1, 4]), {}), ((x, 1, 1), {}), ((x, [0, 2, 1], -1), {})]


def one_dims() -> list[Sample]:
    """An operand and a dim."""
    return [((random_array(31, 2, 3), dim), {}) for dim in (0, 1, -1)]


def repeats() -> list[Sample]:
    """An operand and numbers of copies."""
    return [((random_array(32, *shape), times), {}) for shape, times in (
        ((3,), (2,)), ((2, 3), (2, 1)), ((3,), (2, 1, 2)), ((), (3,)), ((2, 3), (0, 2)))]


def flips() -> list[Sample]:
    """An operand and dims to reverse."""
    return [((random_array(33, 2, 3, 4), dims), {}) for dims in ((0,), (1, 2), (-1,))]


def rolls() -> list[Sample]:
    """An operand, shifts and dims."""
    return [((random_array(34, 3, 4), 2, 1), {}), ((random_array(34, 3, 4), (1, -1), (0, 1)), {}),
            ((random_array(35, 5), -2, 0), {})]


def vectors() -> list[Sample]:
    """An operand, a dim, and a vector of indices."""
    x = random_array(36, 3, 4)
    return [((x, 0, np.array([2, 0, 2, 1])), {}), ((x, -1, np.array([3])), {}),
            ((x, 1, np.array([], dtype=np.int64)), {})]


def tables() -> list[Sample]:
    """A matrix and indices of its rows."""
    x = random_array(37, 5, 3)
    return [((x, np.array([1, 4, 1])), {}), ((x, np.array([[0, 2], [3, 3]])), {}),
            ((x, np.array(2)), {})]


# -- views, copies, new tensors ------------------------------------------------------------------
def with_arguments(*rows: tuple[tuple[int, ...], tuple[Any, ...]]) -> Any:
    """Samples of one operand of each shape, followed by the row's arguments."""

    def make() -> list[Sample]:
        return [((random_array(40 + place, *shape), *arguments), {})
                for place, (shape, arguments) in enumerate(rows)]

    return make


def plain_arguments(*rows: tuple[Any, ...]) -> Any:
    """Samples of the arguments alone."""
    return lambda: [(row, {}) for row in rows]


def alike(*rows: tuple[tuple[int, ...], ...]) -> Any:
    """Samples of two operands of the row's shapes."""

    def make() -> list[Sample]:
        return [((random_array(60, *first), random_array(61, *second)), {})
                for first, second in rows]

    return make


def bounded() -> list[Sample]:
    """An operand and one or two bounds, numbers and tensors."""
    x, low, high = random_array(30, 3, 4), random_array(31, 4), random_array(32, 3, 1)
    return [((x, -1, 1), {}), ((x,), {"min": 0}), ((x,), {"max": 0}), ((x, low, high), {}),
            ((x, low), {}), ((random_array(33), -0.5, 0.5), {})]


def filled() -> list[Sample]:
    """An operand, a mask and a value."""
    return [((random_array(34, *shape), random_array(35, *mask) > 0, 2), {})
            for shape, mask in (((3, 4), (3, 4)), ((3, 4), (4,)), ((), ()), ((2, 0), (2, 0)))]


def fused() -> list[Sample]:
    """Three operands of a multiplication and an addition."""
    return [((random_array(36, 3, 4), random_array(37, 4), random_array(38, 3, 1)), {}),
            ((random_array(39, 5), 2.0, 0.5), {})]


def products(*rows: tuple[Any, ...]) -> Any:
    """Samples of tensors of the row's shapes; a dict at a row's end gives the keywords."""

    def make() -> list[Sample]:
        found: list[Sample] = []
        for row in rows:
            shapes, keywords = (row[:-1], row[-1]) if isinstance(row[-1], dict) else (row, {})
            found.append((tuple(random_array(70 + i, *shape) for i, shape in enumerate(shapes)),
                          keywords))
        return found

    return make
