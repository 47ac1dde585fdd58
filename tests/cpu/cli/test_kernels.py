"""`slipstream kernels`: builds packs, lists, counts and removes compiled kernels."""

from __future__ import annotations

import json

import pytest

from gpu.simulation import forget
from slipstream.cli import kernels, main
from slipstream.core.api.cuda import packing
from slipstream.core.launch.cuda.modules import keep, kept_path
from slipstream.core.launch.cuda.packs import Packed, write_pack
from slipstream.core.native.driver import CompileError
from slipstream.core.native.drivers import drivers
from slipstream.core.vocab import optional
from slipstream.core.vocab.settings import settings

KEY = "ab" * 32


class Compiler:
    """Compiles to the name, but for one."""

    name = "real"
    bad = ""

    def compiler_version(self):
        return "some version"

    def compile(self, source, name, options, arch):
        if name == self.bad:
            raise CompileError(name, "an error")
        return name.encode()


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "cache", str(tmp_path))
    monkeypatch.setattr(settings, "packs", "")
    return tmp_path


@pytest.fixture
def small(monkeypatch):
    """A catalogue of one op, and a compiler that is always there."""
    compiler = Compiler()
    common = packing.common_sources
    monkeypatch.setattr(kernels, "find_compiler", lambda: compiler)
    monkeypatch.setattr(packing, "find_compiler", lambda: compiler)
    monkeypatch.setattr(kernels, "check_architectures", tuple)
    monkeypatch.setattr(packing, "common_sources",
                        lambda architectures, **what: common(architectures, ["neg"]))
    forget()
    yield compiler
    forget()
    drivers.use(None)


def test_build(small, folder, capsys):
    assert main(["kernels", "build", "--arch", "sm_80,sm_90", "--jobs", "2"]) == 0
    said = capsys.readouterr().out
    assert str(folder / "packs" / "common.pack") in said
    assert "compiled now" in said
    assert main(["kernels", "stats", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    counts = found["packs"][0]["kernels"]
    assert set(counts) == {"sm_80", "sm_90"}
    assert counts["sm_80"] == counts["sm_90"] >= 3
    assert f" {sum(counts.values())} kernels" in f" {said}".replace("\n", " ")


def test_build_into_a_file(small, folder):
    out = str(folder / "x" / "my.pack")
    assert main(["kernels", "build", "--arch", "sm_90", "--out", out]) == 0
    assert [path.name for path in (folder / "x").iterdir()] == ["my.pack"]


def test_what_does_not_compile_is_told(small, folder, capsys):
    small.bad = "neg_f32"
    assert main(["kernels", "build", "--arch", "sm_90"]) == 1
    said = capsys.readouterr().err
    assert "kernel neg_f32 does not compile" in said
    assert "were left out" in said
    assert (folder / "packs" / "common.pack").exists()


def test_without_nvrtc(monkeypatch, capsys):
    def missing(name):
        raise ImportError("No module named 'cuda'")

    monkeypatch.setattr(optional, "load", missing)
    assert main(["kernels", "build"]) == 1
    said = capsys.readouterr().err
    assert "NVRTC, which is missing: No module named 'cuda'" in said
    assert optional.install_command("cuda") in said


def test_list_stats_and_clear(folder, capsys):
    keep(kept_path(KEY), KEY, b"\x7fELF\0.text.some_kernel\0.info\0")
    write_pack(folder / "packs" / "a.pack", [Packed(KEY, "another", "sm_90", bytes(77))])
    assert main(["kernels", "list"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.split() == ["another", "sm_90", "77", str(folder / "packs" / "a.pack")]
    assert second.split() == ["some_kernel", "-", "29", str(kept_path(KEY))]
    assert main(["kernels", "stats"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("kept   1 kernels")
    assert second.startswith(f"pack   {folder / 'packs' / 'a.pack'}: sm_90 1, ")
    assert main(["kernels", "clear"]) == 0
    assert capsys.readouterr().out.startswith("removed 1 files")
    assert not kept_path(KEY).exists()
    assert (folder / "packs" / "a.pack").exists()
    assert main(["kernels", "clear", "--packs"]) == 0
    assert not (folder / "packs" / "a.pack").exists()


def test_what_is_damaged_is_counted(folder, capsys):
    keep(kept_path(KEY), KEY, b"an image")
    kept_path(KEY).write_bytes(b"something else, as long as a hash and more")
    write_pack(folder / "packs" / "a.pack", [Packed(KEY, "one", "sm_90", bytes(77))])
    (folder / "packs" / "b.pack").write_bytes(b"no pack")
    content = bytearray((folder / "packs" / "a.pack").read_bytes())
    content[-2] ^= 1
    (folder / "packs" / "a.pack").write_bytes(content)
    assert main(["kernels", "stats"]) == 0
    kept, first, second = capsys.readouterr().out.splitlines()
    assert "1 kernels" in kept
    assert "1 damaged" in kept
    assert "no kernels" in first
    assert "1 damaged" in first
    assert "is no pack, or damaged" in second
    assert main(["kernels", "list"]) == 0
    assert capsys.readouterr().out == ""


def test_a_pack_that_is_not_there_is_not_called_damaged(folder, capsys, monkeypatch):
    monkeypatch.setattr(settings, "packs", str(folder / "nowhere.pack"))
    assert main(["kernels", "stats"]) == 0
    _, pack = capsys.readouterr().out.splitlines()
    assert pack == f"pack   {folder / 'nowhere.pack'}: is not there (SLIPSTREAM_PACKS names it)"


@pytest.mark.parametrize("words", [
    [], ["build", "--jobs", "0"], ["build", "--jobs", "x"], ["melt"]])
def test_wrong_command_lines(words):
    with pytest.raises(SystemExit) as status:
        main(["kernels", *words])
    assert status.value.code == 2
