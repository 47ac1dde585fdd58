import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from slipstream.core.kernels.cpu import gathering_arrays
from slipstream.core.kernels.cpu.gathering import (
    GatherBinding,
    IndexOperand,
    MaskBinding,
    gathering,
)
from slipstream.core.vocab import dtypes

FUZZ = settings(
    max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


def named(dtype):
    return dtype.name


def steps(array):
    """Strides in elements."""
    return tuple(stride // array.itemsize for stride in array.strides)


def address(array):
    return array.__array_interface__["data"][0]


def at_dim(array, dim, stride=0):
    """Strides with another one in place of a dim's."""
    return (*steps(array)[:dim], stride, *steps(array)[dim + 1 :])


def operand(index, target, dim, wraps=False):
    step, size = steps(target)[dim], target.shape[dim]
    return IndexOperand(steps(index), step, size, index.itemsize, wraps, dim)


def run(binding, target, source, *indices):
    places = tuple(address(index) for index in indices)
    return gathering.run(binding, address(target), address(source), places)


def numbers(shape, dtype, seed=0):
    generator = np.random.default_rng(seed)
    values = np.asarray(generator.integers(0, 100, shape))
    if dtype.is_complex:
        values = values + 1j * generator.integers(0, 100, shape)
    return np.asarray(values, dtype.numpy)


def gather(source, dim, index):
    out = np.zeros(index.shape, source.dtype)
    dtype = dtypes.BY_NUMPY[source.dtype]
    binding = GatherBinding(
        dtype, index.shape, steps(out), at_dim(source, dim), (operand(index, source, dim),)
    )
    return run(binding, out, source, index), out, binding


def scatter(kind, target, dim, index, source):
    dtype = dtypes.BY_NUMPY[target.dtype]
    binding = GatherBinding(
        dtype, index.shape, at_dim(target, dim), steps(source), (operand(index, target, dim),), kind
    )
    return run(binding, target, source, index)


@pytest.mark.parametrize("width", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=named)
def test_gather(dtype, width):
    source = numbers((4, 5, 6), dtype)
    index = np.random.default_rng(1).integers(0, 5, (4, 3, 6)).astype(width)
    code, out, _ = gather(source, 1, index)
    assert code == -1
    assert np.array_equal(out, np.take_along_axis(source, index.astype(np.int64), 1))


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=named)
def test_gather_from_any_strides(dtype):
    source = numbers((12, 9), dtype)[::-2, ::3].T
    index = np.random.default_rng(1).integers(0, 3, (5, 12))[:, ::-2]
    code, out, _ = gather(source, 0, index)
    assert code == -1
    assert np.array_equal(out, np.take_along_axis(source, index, 0))


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=named)
def test_scatter_keeps_the_last_duplicate(dtype):
    target, source = numbers((7, 4), dtype), numbers((9, 4), dtype, 5)
    index = np.random.default_rng(2).integers(0, 7, (9, 4))
    expected = target.copy()
    for place in np.ndindex(index.shape):
        expected[index[place], place[1]] = source[place]
    assert scatter("write", target, 0, index, source) == -1
    assert np.array_equal(target, expected)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=named)
def test_scatter_add_adds_in_order(dtype):
    target, source = numbers((7, 4), dtype), numbers((30, 4), dtype, 5)
    if dtype.kind in ("float", "complex"):
        source = (source / dtype.numpy.type(7)).astype(dtype.numpy)
    index = np.random.default_rng(2).integers(0, 7, (30, 4))
    expected = target.copy()
    with np.errstate(over="ignore"):
        for place in np.ndindex(index.shape):
            where = (index[place], place[1])
            expected[where] = expected[where] + source[place]
    assert scatter("add", target, 0, index, source) == -1
    assert target.tobytes() == expected.tobytes()


def test_float16_adds_round_special_numbers_like_numpy():
    values = np.array([6e-8, 1e-7, 65504, 16, 32, np.inf, -np.inf, np.nan, -0.0, 2e-5], np.float16)
    left, right = (half.reshape(-1) for half in np.meshgrid(values, values))
    for dtype in (dtypes.float16, dtypes.bfloat16):
        target, source = left.astype(dtype.numpy), right.astype(dtype.numpy)
        with np.errstate(over="ignore", invalid="ignore"):
            expected = (target.astype(np.float32) + source.astype(np.float32)).astype(dtype.numpy)
        run(GatherBinding(dtype, (100,), (1,), (1,), (), "add"), target, source)
        np.testing.assert_array_equal(target.astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_index_select_and_index_add(dim):
    source = numbers((4, 5, 6), dtypes.float32)
    index = np.array([3, 0, 0, 2, 1])
    shape = (*source.shape[:dim], 5, *source.shape[dim + 1 :])
    spread = np.broadcast_to(index.reshape((5,) + (1,) * (2 - dim)), shape)
    code, out, _ = gather(source, dim, spread)
    assert code == -1
    assert np.array_equal(out, source.take(index, dim))
    expected = source.copy()
    np.add.at(np.moveaxis(expected, dim, 0), index, np.moveaxis(out, dim, 0))
    assert scatter("add", source, dim, spread, out) == -1
    assert np.array_equal(source, expected)


def test_long_rows_cross_the_buffer():
    source = numbers((3, 1000), dtypes.int32)
    index = np.random.default_rng(0).integers(0, 1000, (3, 5000))
    code, out, _ = gather(source, 1, index)
    assert code == -1
    assert np.array_equal(out, np.take_along_axis(source, index, 1))
    index[1, 700] = 1000
    code, out, _ = gather(source, 1, index)
    assert code == 5700
    assert np.array_equal(out[0], source[0, index[0]])
    assert np.array_equal(out[1, :700], source[1, index[1, :700]])
    assert not out[1, 700:].any()


def advanced(source, rows, columns):
    """The binding of ``source[rows, :, columns]`` and the shape of its result."""
    shape = np.broadcast_shapes(rows.shape, columns.shape)
    rows = np.broadcast_to(rows, shape)[..., None]
    columns = np.broadcast_to(columns, shape)[..., None]
    full = (*shape, source.shape[1])
    rows, columns = np.broadcast_to(rows, full), np.broadcast_to(columns, full)
    source_strides = (0,) * len(shape) + (steps(source)[1],)
    operands = (operand(rows, source, 0, True), operand(columns, source, 2, True))
    return full, source_strides, operands, (rows, columns)


def test_advanced_indexing_wraps_negative_indices():
    source = numbers((4, 5, 6), dtypes.float64)
    rows, columns = np.array([[0], [-4], [3]]), np.array([-1, 5, 0, -6], np.int32)
    full, strides, operands, indices = advanced(source, rows, columns)
    out = np.zeros(full)
    binding = GatherBinding(dtypes.float64, full, steps(out), strides, operands)
    assert run(binding, out, source, *indices) == -1
    assert np.array_equal(out, source[rows, :, columns])


def test_index_put_with_two_indices():
    target = numbers((4, 5, 6), dtypes.int16)
    rows, columns = np.array([[0], [-4], [3]]), np.array([-1, 5, 0, -6])
    full, strides, operands, indices = advanced(target, rows, columns)
    values = numbers(full, dtypes.int16, 3)
    expected = target.copy()
    for place in np.ndindex(full[:2]):
        expected[rows[place[0], 0], :, columns[place[1]]] = values[place]
    binding = GatherBinding(dtypes.int16, full, strides, steps(values), operands, "write")
    assert run(binding, target, values, *indices) == -1
    assert np.array_equal(target, expected)
    np.add.at(expected, (rows, slice(None), columns), values)
    binding = GatherBinding(dtypes.int16, full, strides, steps(values), operands, "add")
    assert run(binding, target, values, *indices) == -1
    assert np.array_equal(target, expected)


@pytest.mark.parametrize(
    ("wraps", "bad"), [(False, 3), (False, -1), (True, 3), (True, -4), (True, 2**62), (False, 5)]
)
def test_bad_indices_are_explained(wraps, bad):
    source, out = np.arange(3.0), np.zeros(4)
    index = np.array([2, bad, 0, bad + 1])
    operands = (IndexOperand((1,), 1, 3, 8, wraps, 0),)
    binding = GatherBinding(dtypes.float64, (4,), (1,), (0,), operands)
    code = run(binding, out, source, index)
    assert code == 1
    error = gathering.failure(binding, code, (address(index),))
    assert isinstance(error, IndexError)
    assert str(error) == f"index {bad} is out of bounds for dimension 0 with size 3"
    assert out.tolist() == [2, 0, 0, 0]


def test_the_bad_index_of_several_is_named():
    source = numbers((4, 5, 6), dtypes.float32)
    rows, columns = np.array([0, 1, 2]), np.array([0, -7, 9], np.int32)
    full, strides, operands, indices = advanced(source, rows, columns)
    out = np.zeros(full, np.float32)
    binding = GatherBinding(dtypes.float32, full, steps(out), strides, operands)
    code = run(binding, out, source, *indices)
    assert divmod(code, 2) == (5, 1)
    error = gathering.failure(binding, code, tuple(address(index) for index in indices))
    assert str(error) == "index -7 is out of bounds for dimension 2 with size 6"
    assert np.array_equal(out[0], source[0, :, 0])
    assert not out[1:].any()


def test_nothing_happens_without_elements():
    source, index = np.zeros((0, 3)), np.zeros((0, 3), np.int64)
    code, out, _ = gather(source, 0, index)
    assert code == -1
    assert out.size == 0


def test_scalars():
    source, out, index = np.array([1.0, 2.0]), np.zeros(()), np.array(1)
    binding = GatherBinding(dtypes.float64, (), (), (), (IndexOperand((), 1, 2),))
    assert run(binding, out, source, index) == -1
    assert out == 2


def test_bindings_refuse_what_they_cannot_hold():
    with pytest.raises(ValueError, match="kind 'sum'"):
        GatherBinding(dtypes.float32, (1,), (1,), (1,), (), "sum")
    with pytest.raises(ValueError, match="more than 64 dims"):
        GatherBinding(dtypes.float32, (1,) * 65, (1,) * 65, (1,) * 65)
    with pytest.raises(ValueError, match="1 addresses for 0 index tensors"):
        gathering.run(GatherBinding(dtypes.float32, (1,), (1,), (1,)), 0, 0, (0,))
    many = (2,) * 20 + (1,) * 44
    source = np.arange(2**20, dtype=np.int32)
    out = np.zeros(2**20, np.int32)
    ascending = tuple(2**dim for dim in range(20)) + (0,) * 44
    descending = tuple(2 ** (19 - dim) for dim in range(20)) + (0,) * 44
    assert run(GatherBinding(dtypes.int32, many, descending, ascending), out, source) == -1
    assert np.array_equal(out, source.reshape((2,) * 20).T.reshape(-1))


@pytest.mark.parametrize("axes", [(1, 0, 2), (2, 1, 0), (0, 2, 1), (1, 2, 0), (2, 0, 1)])
@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.float16, dtypes.complex128], ids=named)
def test_permuted_copies(dtype, axes):
    source = numbers((35, 70, 40), dtype).transpose(axes)
    out = np.zeros(source.shape, dtype.numpy)
    assert run(GatherBinding(dtype, source.shape, steps(out), steps(source)), out, source) == -1
    assert np.array_equal(out, source)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_cat(dim):
    pieces = [numbers((4, 5, 6), dtypes.float32, n) for n in range(3)]
    pieces[1] = pieces[1][::-1, :, ::-1]
    out = np.zeros(np.concatenate(pieces, dim).shape, np.float32)
    for n, piece in enumerate(pieces):
        binding = GatherBinding(dtypes.float32, piece.shape, steps(out), steps(piece))
        start = n * piece.shape[dim] * out.strides[dim]
        assert gathering.run(binding, address(out) + start, address(piece), ()) == -1
    assert np.array_equal(out, np.concatenate(pieces, dim))


def test_large_walks_let_go_of_the_lock():
    source = np.arange(50_000, dtype=np.float32)
    code, out, _ = gather(source, 0, np.arange(50_000)[::-1])
    assert code == -1
    assert np.array_equal(out, source[::-1])


def test_misaligned_operands():
    memory = np.zeros(8 * 20 + 1, np.uint8)
    source = memory[1:].view(np.float64)
    source[:] = np.arange(20)
    code, out, _ = gather(source, 0, np.array([19, 0, 7]))
    assert code == -1
    assert out.tolist() == [19, 0, 7]


# Any shape and strides, against a loop over positions.


@some.composite
def strided(draw, shape, dtype):
    """An array of a shape, with gaps, reversed or permuted dims."""
    gaps = [draw(some.sampled_from([1, 1, 2, 3])) for _ in shape]
    order = draw(some.permutations(range(len(shape))))
    sizes = [shape[dim] * gaps[dim] for dim in order]
    base = numbers(sizes, dtype, draw(some.integers(0, 9)))
    array = base.transpose(np.argsort(order)) if shape else base
    slices = tuple(slice(None, None, gap) for gap in gaps)
    flips = tuple(slice(None, None, draw(some.sampled_from([1, -1]))) for _ in shape)
    return array[slices][flips] if shape else array


@some.composite
def walks(draw):
    shape = tuple(draw(some.lists(some.integers(0, 4), max_size=4)))
    kind = draw(some.sampled_from(["read", "write", "add"]))
    dtype = draw(some.sampled_from(dtypes.ALL))
    sizes = draw(some.lists(some.integers(1, 4), max_size=3))
    # The indexed side: some dims of the walk are kept, the index dims follow.
    kept = [draw(some.booleans()) for _ in shape]
    inner = tuple(size for size, keep in zip(shape, kept, strict=True) if keep)
    indexed = draw(strided((*inner, *sizes), dtype))
    plain = draw(strided(shape, dtype))
    strides, remaining = [], list(steps(indexed))
    for keep in kept:
        strides.append(remaining.pop(0) if keep else 0)
    indices, operands = [], []
    slack = draw(some.sampled_from([0, 0, 1]))
    for size, step in zip(sizes, remaining, strict=True):
        wraps = draw(some.booleans())
        low = -size if wraps else 0
        width = draw(some.sampled_from([np.int32, np.int64]))
        seed = draw(some.integers(0, 99))
        partial = tuple(draw(some.sampled_from([n, 1])) if n else 0 for n in shape)
        values = np.random.default_rng(seed).integers(low - slack, size + slack, partial)
        index = np.broadcast_to(values.astype(width)[()], shape)
        indices.append(index)
        operands.append(IndexOperand(steps(index), step, size, index.itemsize, wraps, len(indices)))
    return shape, kind, dtype, indexed, plain, tuple(strides), indices, tuple(operands), kept


def expected_of(case, indexed, plain):
    """Run a walk position by position; return its code."""
    shape, kind, _, _, _, _, indices, operands, kept = case
    for position, place in enumerate(np.ndindex(*shape)):
        where = [n for n, keep in zip(place, kept, strict=True) if keep]
        for number, (index, each) in enumerate(zip(indices, operands, strict=True)):
            value = int(index[place])
            value += each.size if value < 0 and each.wraps else 0
            if not 0 <= value < each.size:
                return position * len(indices) + number
            where.append(value)
        if kind == "read":
            plain[place] = indexed[tuple(where)]
        elif kind == "write":
            indexed[tuple(where)] = plain[place]
        else:
            indexed[tuple(where)] = indexed[tuple(where)] + plain[place]
    return -1


@FUZZ
@given(walks())
@pytest.mark.filterwarnings("ignore:overflow")
def test_any_walk(case):
    shape, kind, dtype, indexed, plain, strides, indices, operands, _ = case
    before = indexed.copy(), plain.copy()
    expected = indexed.copy(), plain.copy()
    code = expected_of(case, *expected)
    read = kind == "read"
    strides = (steps(plain), strides) if read else (strides, steps(plain))
    binding = GatherBinding(dtype, shape, *strides, operands, kind)
    target, source = (plain, indexed) if read else (indexed, plain)
    places = tuple(address(index) for index in indices)
    for core in (gathering, gathering_arrays):
        indexed[...], plain[...] = before
        assert core.run(binding, address(target), address(source), places) == code
        assert indexed.tobytes() == expected[0].tobytes()
        assert plain.tobytes() == expected[1].tobytes()


@some.composite
def masks(draw):
    shape = tuple(draw(some.lists(some.integers(0, 12), max_size=3)))
    dtype = draw(some.sampled_from(dtypes.ALL))
    data = draw(strided(shape, dtype))
    mask = draw(strided(shape, dtypes.uint8)) % draw(some.sampled_from([1, 2, 3, 50]))
    mask = draw(some.sampled_from([mask, mask[::-1] if shape else mask, mask.T.copy().T]))
    return dtype, data, mask == 0


@FUZZ
@given(masks())
def test_any_mask(case):
    dtype, data, mask = case
    binding = MaskBinding(dtype, data.shape, steps(data), steps(mask))
    count = int(mask.sum())
    assert gathering.count(binding, address(mask)) == count
    out = np.zeros(count + 1, dtype.numpy)
    assert gathering.select(binding, address(out), address(data), address(mask)) == count
    assert np.array_equal(out[:count], data[mask])
    assert out[count] == 0
    values = numbers(count + 1, dtype, 4)
    expected = data.copy()
    expected[mask] = values[:count]
    assert gathering.spread(binding, address(data), address(values), address(mask)) == count
    assert np.array_equal(data, expected)
    for order in ("C", "F"):
        found = np.full((count, mask.ndim), -1, np.int64, order=order)
        assert gathering.nonzero(binding, address(found), address(mask), steps(found)) == count
        assert np.array_equal(found, np.argwhere(mask))


@pytest.mark.parametrize("density", [0.0, 0.01, 0.5, 1.0])
def test_large_masks(density):
    mask = np.random.default_rng(3).random((100, 777)) < density
    data = numbers(mask.shape, dtypes.float32)
    binding = MaskBinding(dtypes.float32, mask.shape, steps(data), steps(mask))
    count = gathering.count(binding, address(mask))
    assert count == mask.sum()
    out, found = np.zeros(count, np.float32), np.zeros((2, count), np.int64)
    assert gathering.select(binding, address(out), address(data), address(mask)) == count
    assert np.array_equal(out, data[mask])
    gathering.nonzero(binding, address(found), address(mask), (1, count))
    assert np.array_equal(found, np.stack(np.nonzero(mask)))
