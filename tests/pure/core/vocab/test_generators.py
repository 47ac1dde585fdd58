import threading

import pytest

from slipstream.core.vocab import generators
from slipstream.core.vocab.generators import DefaultGenerators, Generator


def test_starts_with_the_documented_seed():
    generator = Generator()
    assert generator.initial_seed() == 67280421310721
    assert generator.get_offset() == 0
    assert generator.device == "cpu"


@pytest.mark.parametrize(
    ("seed", "expected"),
    [(0, 0), (5, 5), (-1, 2**64 - 1), (-5, 2**64 - 5), (-(2**63), 2**63), (2**64 - 1, 2**64 - 1)],
)
def test_manual_seed_takes_64_bits(seed, expected):
    generator = Generator()
    assert generator.manual_seed(seed) is generator
    assert generator.initial_seed() == expected


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1])
def test_seeds_outside_64_bits_are_refused(seed):
    with pytest.raises(ValueError, match="Overflow when unpacking long long"):
        Generator().manual_seed(seed)


@pytest.mark.parametrize(
    ("seed", "name"), [(1.5, "float"), (True, "bool"), ("a", "str"), (None, "NoneType")]
)
def test_seeds_that_are_no_integers_are_refused(seed, name):
    with pytest.raises(RuntimeError, match=f"manual_seed expected a long, but got {name}"):
        Generator().manual_seed(seed)


def test_seed_is_random_and_kept():
    generator = Generator()
    first, second = generator.seed(), generator.seed()
    assert first != second
    assert generator.initial_seed() == second


def test_advance_hands_out_each_counter_once():
    generator = Generator().manual_seed(7)
    assert generator.advance(3) == 0
    assert generator.draw(10) == (7, 3)
    assert generator.advance(0) == 13
    assert generator.manual_seed(7).advance(1) == 0


def test_counter_wraps():
    generator = Generator()
    generator.set_offset(2**64 - 2)
    assert generator.advance(5) == 2**64 - 2
    assert generator.get_offset() == 3
    with pytest.raises(ValueError, match="outside"):
        generator.set_offset(-1)


def test_state_round_trip():
    generator = Generator().manual_seed(-3)
    generator.advance(11)
    state = generator.get_state()
    assert isinstance(state, bytes)
    other = Generator()
    other.set_state(state)
    assert other.draw(1) == generator.draw(1) == (2**64 - 3, 11)
    with pytest.raises(RuntimeError, match="size to be 3"):
        other.set_state(b"abc")


def test_clones_go_their_own_way():
    generator = Generator("cpu").manual_seed(1)
    generator.advance(5)
    clone = generator.clone_state()
    assert clone.draw(4) == (1, 5)
    assert generator.get_offset() == 5
    assert clone.device == generator.device


def test_repr():
    assert repr(Generator()).startswith("<slipstream.Generator object at 0x")


def test_default_generators_are_one_for_each_device():
    defaults = DefaultGenerators()
    assert defaults.of("cpu") is defaults.of("cpu")
    assert defaults.of("cpu") is not defaults.of("cuda:0")
    assert defaults.of("cpu").initial_seed() != defaults.of("cuda:0").initial_seed()


def test_manual_seed_reaches_all_devices():
    defaults = DefaultGenerators()
    early = defaults.of("cpu")
    early.advance(9)
    defaults.manual_seed(-1)
    assert early.draw(1) == (2**64 - 1, 0)
    assert defaults.of("made later").draw(1) == (2**64 - 1, 0)


@pytest.mark.parametrize("seeded", [True, False])
def test_default_generators_are_put_back_to_where_they_were(seeded):
    defaults = DefaultGenerators()
    if seeded:
        defaults.manual_seed(3)
    early = defaults.of("cpu")
    early.advance(9)
    before = early.get_state()
    kept = defaults.kept()
    early.advance(1)
    # One that is first used in between begins anew, as if it had not been used.
    first = defaults.of("made in between").draw(5)
    defaults.put_back(kept)
    assert early.get_state() == before
    assert defaults.of("made in between").draw(5) == first
    if seeded:
        defaults.manual_seed(4)
        defaults.put_back(kept)
        assert defaults.of("made later").draw(1) == (3, 0)


def test_module_functions():
    state = generators.default_generator().get_state()
    assert generators.manual_seed(1.5) is generators.default_generator()
    assert generators.default_generator().initial_seed() == 1
    with pytest.raises(ValueError, match="Overflow"):
        generators.manual_seed(2**64)
    generators.default_generator().set_state(state)


def test_threads_share_no_counter():
    generator = Generator()
    taken = []

    def work():
        taken.extend([generator.advance(1) for _ in range(2000)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(8000))
