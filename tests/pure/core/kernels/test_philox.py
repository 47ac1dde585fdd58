import math

import numpy as np
import pytest
from scipy import special

from slipstream.core.kernels.cpu import philox_arrays
from slipstream.core.kernels.cpu.philox import philox
from slipstream.core.vocab import dtypes

FLOATS = [dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64]
REALS = dtypes.ALL[:10]
STREAMS = [(0, 0), (2**64 - 1, 2**64 - 3), (12345, 2**33)]
COUNTS = [1, 2, 7, 1023, 1024, 2500]
KNOWN = [
    (0, 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (2**128 - 1, 2**64 - 1, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        0x0370734413198A2E85A308D3243F6A88,
        0x299F31D0A4093822,
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def named(dtype):
    return dtype.name


def filled(method, dtype, count, stream, *numbers):
    # A frame of sentinels shows a write outside the range.
    memory = np.full((count + 2) * dtype.itemsize, 0xA5, np.uint8)
    inner = memory[dtype.itemsize : -dtype.itemsize]
    getattr(philox, method)(inner.ctypes.data, dtype, count, stream, *numbers)
    assert np.all(memory[: dtype.itemsize] == 0xA5)
    assert np.all(memory[-dtype.itemsize :] == 0xA5)
    return inner.view(dtype.numpy)


def words(count, stream):
    out = np.zeros(count, np.uint32)
    philox.fill_bits(out.ctypes.data, count, stream)
    return out


def distance(values, cumulative):
    """Kolmogorov's distance between a sample and a distribution, times sqrt(n)."""
    ordered = cumulative(np.sort(values.astype(np.float64)))
    steps = np.arange(len(values) + 1) / len(values)
    gap = max(np.max(ordered - steps[:-1]), np.max(steps[1:] - ordered))
    return gap * math.sqrt(len(values))


@pytest.mark.parametrize(("counter", "seed", "expected"), KNOWN)
def test_known_answers(counter, seed, expected):
    assert philox.block(counter, seed) == expected


def test_known_answer_of_the_fill():
    assert tuple(words(4, (0, 0))) == KNOWN[0][2]


@pytest.mark.parametrize("stream", STREAMS)
def test_words_are_the_blocks_in_order(stream):
    seed, base = stream
    blocks = [philox.block((base + n) % 2**64, seed) for n in range(20)]
    assert words(79, stream).tolist() == np.array(blocks).reshape(-1)[:79].tolist()


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("count", COUNTS)
def test_words_agree_with_numpy(count, stream):
    assert np.array_equal(words(count, stream), philox_arrays.words(count, stream))


@pytest.mark.parametrize("limits", [(0, 1), (-3.3, 7.7), (1, 1), (0.1, 0.1002), (-1, 0)])
@pytest.mark.parametrize("dtype", FLOATS, ids=named)
def test_uniform_is_bit_equal_to_numpy(dtype, limits):
    for count in COUNTS:
        for stream in STREAMS:
            ours = filled("fill_uniform", dtype, count, stream, *limits)
            expected = philox_arrays.uniform(count, dtype.numpy, stream, *limits)
            assert ours.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", FLOATS, ids=named)
def test_normal_and_exponential_are_bit_equal_to_numpy(dtype):
    # The law asks for two units in the last place; elementary operations give the same bits.
    for count in COUNTS:
        ours = filled("fill_normal", dtype, count, STREAMS[2], 3.0, 0.5)
        expected = philox_arrays.normal(count, dtype.numpy, STREAMS[2], 3.0, 0.5)
        assert ours.tobytes() == expected.tobytes()
        ours = filled("fill_exponential", dtype, count, STREAMS[2], 2.5)
        expected = philox_arrays.exponential(count, dtype.numpy, STREAMS[2], 2.5)
        assert ours.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "limits", [(0, 2), (-7, 100), (-(2**63), 2**63), (0, 2**63), (5, 2**40), (3, 4)]
)
@pytest.mark.parametrize("dtype", REALS, ids=named)
def test_integers_are_bit_equal_to_numpy(dtype, limits):
    for count in COUNTS:
        ours = filled("fill_integers", dtype, count, STREAMS[1], *limits)
        expected = philox_arrays.integers(count, dtype.numpy, STREAMS[1], *limits)
        assert ours.tobytes() == expected.tobytes()


@pytest.mark.parametrize("p", [0.0, 1.0, 0.3, 1e-9, 0.5])
@pytest.mark.parametrize("dtype", REALS, ids=named)
def test_bernoulli_is_bit_equal_to_numpy(dtype, p):
    for count in COUNTS:
        ours = filled("fill_bernoulli", dtype, count, STREAMS[1], p)
        expected = philox_arrays.bernoulli(count, dtype.numpy, STREAMS[1], p)
        assert ours.tobytes() == expected.tobytes()


@pytest.mark.parametrize("limits", [(0, 7), (-(2**62), 2**63 - 1), (-(2**63), 2**63)])
def test_integers_follow_their_formula(limits):
    low, high = limits
    w = [int(word) for word in words(200, (3, 4))]
    keys = [a << 32 | b for a, b in zip(w[::2], w[1::2], strict=True)]
    expected = [low + (key * (high - low) >> 64) for key in keys]
    assert filled("fill_integers", dtypes.int64, 100, (3, 4), low, high).tolist() == expected


def test_uniform_follows_its_formula():
    w = [int(word) for word in words(200, (3, 4))]
    singles = filled("fill_uniform", dtypes.float32, 200, (3, 4))
    assert singles.tolist() == [(word >> 8) / 2**24 for word in w]
    doubles = filled("fill_uniform", dtypes.float64, 100, (3, 4))
    pairs = zip(w[::2], w[1::2], strict=True)
    assert doubles.tolist() == [((a >> 5) * 2**26 + (b >> 6)) / 2**53 for a, b in pairs]


def test_normal_follows_its_formula():
    w = words(4000, (3, 4)).astype(np.float64)
    radius = np.sqrt(-2 * np.log((np.floor(w[::2] / 2) + 0.5) / 2**31))
    angle = w[1::2] * 2 * np.pi / 2**32
    ours = filled("fill_normal", dtypes.float32, 4000, (3, 4))
    np.testing.assert_allclose(ours[::2], radius * np.cos(angle), rtol=1e-6, atol=2e-6)
    np.testing.assert_allclose(ours[1::2], radius * np.sin(angle), rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logarithm_sine_and_cosine_are_accurate(dtype):
    unit = np.finfo(dtype).eps
    u = np.exp(-np.linspace(1e-9, 21, 20001)).astype(dtype)
    exact = np.log(u.astype(np.longdouble))
    assert np.max(np.abs(philox_arrays.log(u) - exact) / np.maximum(-exact, unit)) < 3 * unit
    x = np.linspace(-np.pi / 4, np.pi / 4, 20001).astype(dtype)
    for quadrant in range(4):
        turned = x.astype(np.longdouble) + quadrant * np.longdouble("1.57079632679489661923")
        sine, cosine = philox_arrays.sine_and_cosine(np.full(len(x), quadrant, np.int32), x)
        assert np.max(np.abs(sine - np.sin(turned))) < unit
        assert np.max(np.abs(cosine - np.cos(turned))) < unit


METHODS = [
    ("fill_uniform", FLOATS, (-1.0, 2.0)),
    ("fill_normal", FLOATS, (1.0, 2.0)),
    ("fill_exponential", FLOATS, (2.0,)),
    ("fill_integers", REALS, (0, 100)),
    ("fill_bernoulli", REALS, (0.4,)),
]
CASES = [(method, dtype, numbers) for method, kinds, numbers in METHODS for dtype in kinds]
CASES += [("fill_uniform", dtypes.complex64, ()), ("fill_normal", dtypes.complex128, ())]


@pytest.mark.parametrize(("method", "dtype", "numbers"), CASES)
def test_a_fill_in_parts_is_the_fill_at_once(method, dtype, numbers):
    kind = method.removeprefix("fill_")
    whole = filled(method, dtype, 1500, (9, 100), *numbers)
    for cut in (4, 8, 500, 1024, 1496):
        head = filled(method, dtype, cut, (9, 100), *numbers)
        base = 100 + philox.draws(cut, dtype, kind)
        tail = filled(method, dtype, 1500 - cut, (9, base), *numbers)
        assert np.concatenate([head, tail]).tobytes() == whole.tobytes()


@pytest.mark.parametrize(("method", "dtype", "numbers"), CASES)
def test_streams_are_deterministic_and_distinct(method, dtype, numbers):
    first = filled(method, dtype, 600, (9, 100), *numbers)
    assert first.tobytes() == filled(method, dtype, 600, (9, 100), *numbers).tobytes()
    assert first.tobytes() != filled(method, dtype, 600, (8, 100), *numbers).tobytes()
    assert first.tobytes() != filled(method, dtype, 600, (9, 101), *numbers).tobytes()


@pytest.mark.parametrize(
    ("count", "dtype", "kind", "expected"),
    [
        (0, dtypes.float32, "uniform", 0),
        (1, dtypes.float32, "normal", 1),
        (5, dtypes.bfloat16, "uniform", 2),
        (8, dtypes.float64, "normal", 4),
        (8, dtypes.complex64, "normal", 4),
        (3, dtypes.complex128, "uniform", 3),
        (8, dtypes.int8, "integers", 4),
        (8, dtypes.float64, "bernoulli", 2),
        (9, dtypes.int64, "permutation", 5),
        (9, dtypes.int32, "bits", 3),
    ],
)
def test_draws(count, dtype, kind, expected):
    assert philox.draws(count, dtype, kind) == expected


@pytest.mark.parametrize("dtype", FLOATS, ids=named)
def test_uniform_never_reaches_the_upper_end(dtype):
    for low, high in [(0.0, 1.0), (-1.0, 0.0), (1.0, 1.0 + 4 * float(dtype.numpy.type(0.01)))]:
        values = filled("fill_uniform", dtype, 200_000, (1, 2), low, high).astype(np.float64)
        assert values.min() >= float(dtype.numpy.type(low))
        assert values.max() < float(dtype.numpy.type(high))


def test_narrow_uniform_is_as_fine_as_the_dtype_near_zero():
    values = filled("fill_uniform", dtypes.bfloat16, 200_000, (1, 2)).astype(np.float64)
    assert np.min(values[values > 0]) < 2.0**-14
    assert values.max() == 1 - 2.0**-8


def test_integers_take_every_value_and_no_other():
    values = filled("fill_integers", dtypes.int8, 5000, (5, 0), -3, 4)
    counts = np.bincount(values.astype(np.int64) + 3, minlength=7)
    assert len(counts) == 7
    assert np.all(np.abs(counts - 5000 / 7) < 5 * math.sqrt(5000 / 7))


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=named)
def test_distributions(dtype):
    count = 100_000
    uniform = filled("fill_uniform", dtype, count, (1, 0), 2.0, 6.0)
    assert distance(uniform, lambda x: (x - 2) / 4) < 1.6
    normal = filled("fill_normal", dtype, count, (2, 0), -1.0, 3.0)
    assert distance(normal, lambda x: special.ndtr((x + 1) / 3)) < 1.6
    exponential = filled("fill_exponential", dtype, count, (3, 0), 4.0)
    assert distance(exponential, lambda x: -np.expm1(-4 * x)) < 1.6
    assert exponential.min() > 0


@pytest.mark.parametrize("dtype", FLOATS, ids=named)
def test_moments_of_normal(dtype):
    values = filled("fill_normal", dtype, 200_000, (11, 0)).astype(np.float64)
    assert abs(values.mean()) < 0.01
    assert abs(values.std() - 1) < 0.01
    assert abs((values**3).mean()) < 0.05
    assert abs((values**4).mean() - 3) < 0.1
    assert np.all(np.isfinite(values))
    # The two numbers of a pair, and neighbouring pairs, are uncorrelated.
    for lag in (1, 2, 3):
        assert abs(np.corrcoef(values[:-lag], values[lag:])[0, 1]) < 0.01


@pytest.mark.parametrize("dtype", [dtypes.complex64, dtypes.complex128], ids=named)
def test_complex_numbers_are_two_floats(dtype):
    uniform = filled("fill_uniform", dtype, 500, (1, 2))
    parts = filled("fill_uniform", dtype.to_real(), 1000, (1, 2))
    assert uniform.tobytes() == parts.tobytes()
    normal = filled("fill_normal", dtype, 100_000, (1, 2), 0.0, 2.0)
    assert abs(np.mean(np.abs(normal) ** 2) - 4) < 0.05
    assert abs(normal.real.std() - math.sqrt(2)) < 0.02


def test_bernoulli_has_its_mean():
    for p in (0.1, 0.5, 0.9):
        values = filled("fill_bernoulli", dtypes.bool_, 100_000, (4, 0), p)
        assert abs(values.mean() - p) < 0.005


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_permutation_holds_each_number_once(count):
    out = np.full(count, -1, np.int64)
    philox.fill_permutation(out.ctypes.data, count, (6, 7))
    assert sorted(out.tolist()) == list(range(count))
    assert count < 1000 or abs(np.corrcoef(out, np.arange(count))[0, 1]) < 0.1


def test_dtypes_that_cannot_hold_the_numbers_are_refused():
    out = np.zeros(8, np.complex128)
    for method, dtype, numbers in [
        ("fill_uniform", dtypes.int64, ()),
        ("fill_normal", dtypes.bool_, ()),
        ("fill_exponential", dtypes.complex64, ()),
        ("fill_integers", dtypes.complex64, (0, 2)),
        ("fill_bernoulli", dtypes.complex128, (0.5,)),
    ]:
        with pytest.raises(TypeError):
            getattr(philox, method)(out.ctypes.data, dtype, 2, (0, 0), *numbers)
    assert not out.any()


@pytest.mark.parametrize(("method", "dtype", "numbers"), CASES)
def test_nothing_is_drawn_for_no_elements(method, dtype, numbers):
    assert filled(method, dtype, 0, (0, 0), *numbers).size == 0
