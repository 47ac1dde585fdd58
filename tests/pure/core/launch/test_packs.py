"""Packs: files of compiled kernels that are looked at before the cache, and never trusted."""

from __future__ import annotations

import hashlib

import pytest

from slipstream.core.launch.cuda.launches import KernelCode
from slipstream.core.launch.cuda.modules import Modules, kept_path, key_of, pack_folder
from slipstream.core.launch.cuda.packs import HEAD, ROW, Pack, Packed, packs, write_pack
from slipstream.core.native.driver import CompileError, Driver
from slipstream.core.native.drivers import drivers
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.settings import settings


class Compiling(Driver):
    """Compiles anything to a line that tells what it was asked for."""

    name = "compiling"

    def __init__(self, version="1", side_by_side=False):
        self.asked = []
        self.version_text = version
        self.side_by_side = side_by_side

    def compiler_version(self):
        return self.version_text

    def compile(self, source, name, options, arch):
        self.asked.append(name)
        if "error" in source:
            raise CompileError(name, "an error")
        return f"{source} {name} {options} {arch}".encode()


def key(number):
    return hashlib.sha256(bytes([number])).hexdigest()


def kernels(count=3):
    return [Packed(key(n), f"kernel{n}", "sm_90", bytes([n]) * 100 * n) for n in range(count)]


@pytest.fixture
def ground(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "cache", str(tmp_path / "cache"))
    monkeypatch.setattr(settings, "packs", "")
    driver = Compiling()
    drivers.use(driver)
    yield driver
    drivers.use(None)


def image_of(code, arch="sm_90"):
    made = Modules()
    return made.image(code, arch), made


def test_what_was_written_is_read(tmp_path):
    path = tmp_path / "deep" / "a.pack"
    assert write_pack(path, kernels()) == path.stat().st_size
    pack = Pack(path)
    assert pack.sound
    assert sorted(pack.kernels()) == sorted(kernels())
    assert [pack.read(each.key) for each in kernels()] == kernels()
    assert pack.read(key(9)) is None
    assert [each.name for each in path.parent.iterdir()] == ["a.pack"]


def test_the_same_kernels_make_the_same_file(tmp_path):
    write_pack(tmp_path / "a.pack", kernels())
    write_pack(tmp_path / "b.pack", reversed(kernels()))
    assert (tmp_path / "a.pack").read_bytes() == (tmp_path / "b.pack").read_bytes()


def test_every_damaged_byte_is_seen(tmp_path):
    path = tmp_path / "a.pack"
    write_pack(path, kernels())
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xff]) + whole[place + 1:])
        pack = Pack(path)
        found = [pack.read(each.key) for each in kernels()]
        assert None in found, place
        assert all(each in (None, wanted)
                   for each, wanted in zip(found, kernels(), strict=True)), place


@pytest.mark.parametrize("length", [
    0, 10, HEAD.size, HEAD.size + 20, HEAD.size + 3 * ROW.size, 250])
def test_a_file_that_was_cut_short(tmp_path, length):
    path = tmp_path / "a.pack"
    write_pack(path, kernels())
    path.write_bytes(path.read_bytes()[:length])
    pack = Pack(path)
    assert [pack.read(each.key) for each in kernels()].count(None) >= 2


def test_an_image_under_anothers_key_is_none(tmp_path):
    one, other = kernels()[1:]
    path = tmp_path / "a.pack"
    write_pack(path, [one, other])
    pack = Pack(path)
    first, second = sorted(pack.places)
    pack.places[first], pack.places[second] = pack.places[second], pack.places[first]
    assert pack.read(one.key) is None
    assert pack.read(other.key) is None


def packed_code(driver, source="some text", arch="sm_90", path=None):
    code = KernelCode("some_kernel", source)
    found = key_of(driver, source, (), arch)
    write_pack(path or pack_folder() / "common.pack",
               [Packed(found, code.name, arch, b"from the pack")])
    return code


def test_a_pack_is_looked_at_first(ground):
    code = packed_code(ground)
    image, made = image_of(code)
    assert image == b"from the pack"
    assert ground.asked == []
    assert (made.packed, made.found, made.compiled) == (1, 0, 0)
    assert not kept_path(key_of(ground, "some text", (), "sm_90")).exists()


@pytest.mark.parametrize("change", ["source", "options", "arch", "version"])
def test_whatever_makes_a_kernel_is_in_its_key(ground, change):
    code = packed_code(ground)
    arch = "sm_80" if change == "arch" else "sm_90"
    if change == "source":
        code = KernelCode("some_kernel", "some texts")
    if change == "options":
        code = KernelCode("some_kernel", "some text", ("-DX",))
    if change == "version":
        ground.version_text = "2"
    image, made = image_of(code, arch)
    assert image != b"from the pack"
    assert (made.packed, made.compiled) == (0, 1)


def test_a_damaged_pack_is_compiled_around(ground):
    code = packed_code(ground)
    path = pack_folder() / "common.pack"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    image, made = image_of(code)
    assert image != b"from the pack"
    assert (made.packed, made.compiled) == (0, 1)
    assert image_of(code)[1].found == 1


def test_packs_that_the_settings_name(ground, tmp_path, monkeypatch):
    file, folder = tmp_path / "mine.pack", tmp_path / "folder"
    first = packed_code(ground, "first text", path=file)
    second = packed_code(ground, "second text", path=folder / "second.pack")
    assert image_of(first)[1].compiled == 1
    monkeypatch.setattr(settings, "packs", f"{tmp_path / 'nothing.pack'}:{file}:{folder}")
    assert image_of(first)[0] == image_of(second)[0] == b"from the pack"
    assert packs.files(pack_folder()) == [tmp_path / "nothing.pack", file, folder / "second.pack"]


def test_a_pack_that_is_replaced_is_read_again(ground):
    code = packed_code(ground)
    assert image_of(code)[0] == b"from the pack"
    write_pack(pack_folder() / "common.pack", [])
    assert image_of(code)[1].compiled == 1


def test_several_known_kernels_are_compiled_side_by_side(ground):
    driver = Compiling(side_by_side=True)
    drivers.use(driver)
    made = Modules()
    made.architectures[0] = "sm_90"
    codes = [KernelCode(f"kernel{n}", f"text {n}") for n in range(4)]
    codes.append(KernelCode("broken", "an error"))
    made.prepare(Device("cuda:0"), codes)
    assert sorted(driver.asked) == ["broken", "kernel0", "kernel1", "kernel2", "kernel3"]
    assert len(made.ready) == made.compiled == 4
    one = Modules()
    one.prepare(Device("cuda:0"), codes[:1])
    assert not one.ready


def test_one_at_a_time_where_the_compiler_has_a_lock(ground):
    made = Modules()
    made.architectures[0] = "sm_90"
    made.prepare(Device("cuda:0"), [KernelCode(f"kernel{n}", f"text {n}") for n in range(4)])
    assert ground.asked == []
