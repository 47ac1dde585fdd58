"""The demo: its data, its errors, and that the same seed gives the same weights."""

from __future__ import annotations

import importlib.metadata

import numpy as np
import pytest

from slipstream.cli import demo, digits, main
from slipstream.serialization import load_safetensors


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    status = main(["demo", "--device", "cpu", *map(str, arguments)])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_the_digits():
    training, held_out = digits.load_digits()
    assert (len(training.labels), len(held_out.labels)) == (1438, 359)
    assert training.images.shape == (1438, 1, 8, 8)
    assert (training.images.amax().item(), training.images.sum().item() > 0) == (1.0, True)
    counts = np.bincount(np.concatenate([training.labels.numpy(), held_out.labels.numpy()]))
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_one_epoch_twice(capsys, tmp_path):
    weights = []
    for name in ("first", "second"):
        path = tmp_path / "new" / name
        status, out, err = run(capsys, "--epochs", 1, "--seed", 3, "--out", path)
        assert (status, err) == (0, "")
        weights.append(path.read_bytes())
        assert "device cpu" in out
        assert "images a second" in out
        assert out.splitlines()[-1].startswith("accuracy ")
        assert out.splitlines()[-1].endswith(" %")
    assert weights[0] == weights[1]
    assert list(load_safetensors(path)) == sorted(demo.make_model().state_dict())


def test_other_seeds_give_other_weights(capsys, tmp_path):
    for seed in (0, 1):
        run(capsys, "--epochs", 1, "--seed", seed, "--out", tmp_path / str(seed))
    assert (tmp_path / "0").read_bytes() != (tmp_path / "1").read_bytes()


@pytest.mark.slow
def test_the_whole_training(capsys, tmp_path):
    status, out, _ = run(capsys, "--out", tmp_path / "weights")
    assert status == 0
    assert float(out.split()[-2]) >= 97.0


def test_missing_digits_are_told_of(capsys, monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(digits.importlib.metadata, "distribution", missing)
    status, _, err = run(capsys)
    assert status == 1
    assert err.count("\n") == 1
    assert "pip install -e '.[demo]'" in err


def test_a_missing_gpu_is_told_of(capsys, monkeypatch):
    monkeypatch.setattr(demo, "cuda_available", lambda: False)
    assert main(["demo", "--device", "cuda"]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "--device cpu" in err
    assert demo.chosen_device("auto") == "cpu"


def test_a_path_that_cannot_be_written_is_told_of_at_once(capsys, tmp_path):
    status, out, err = run(capsys, "--out", tmp_path)
    assert (status, out) == (1, "")
    assert str(tmp_path) in err


@pytest.mark.parametrize("wrong", [("--epochs", "0"), ("--seed", "-1"), ("--device", "tpu")])
def test_wrong_options_are_refused(capsys, wrong):
    with pytest.raises(SystemExit) as caught:
        main(["demo", *wrong])
    assert caught.value.code == 2
