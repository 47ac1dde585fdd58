"""The sentence encoder of the examples beside the same model in PyTorch's functions.

Runs in the peer's environment, where PyTorch, the model's package and the library tokenizers are.
Prints one line a check.  Usage: PYTHONPATH=src python conformance/encoder.py
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import tokenizers
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

ROOT = Path(__file__).resolve().parent.parent
TOLERANCE = 1e-5
TEXTS = (
    "",
    "Héllo, wörld! Don't panic: it costs 3.50 €.",
    "東京 is 東京都; naïve cafés\tand Ωmega\u00adhyphens, e-mail@example.org",
    "antidisestablishmentarianism " * 3,
    "A long one. " + "Seven words stand in this short sentence. " * 40,
)


def bert(weights: dict[str, torch.Tensor], config: dict, tokens: torch.Tensor) -> torch.Tensor:
    """The vectors [1, width] of one text's tokens [1, count], written after BERT's paper."""
    def linear(name: str, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        name, epsilon = f"{name}.LayerNorm", config["layer_norm_eps"]
        return F.layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"],
                            epsilon)

    def heads(name: str, x: torch.Tensor) -> torch.Tensor:
        return linear(name, x).unflatten(-1, (config["num_attention_heads"], -1)).transpose(1, 2)

    places = torch.arange(tokens.shape[1])
    x = norm("embeddings", weights["embeddings.word_embeddings.weight"][tokens]
             + weights["embeddings.position_embeddings.weight"][places]
             + weights["embeddings.token_type_embeddings.weight"][0])
    for layer in range(config["num_hidden_layers"]):
        start = f"encoder.layer.{layer}"
        query, key, value = (heads(f"{start}.attention.self.{name}", x)
                             for name in ("query", "key", "value"))
        scores = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5
        seen = (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)
        x = norm(f"{start}.attention.output", x + linear(f"{start}.attention.output.dense", seen))
        inner = F.gelu(linear(f"{start}.intermediate.dense", x))
        x = norm(f"{start}.output", x + linear(f"{start}.output.dense", inner))
    return F.normalize(x.mean(1), dim=1)


def main() -> int:
    """Compare tokens and vectors; the status tells whether both agree."""
    example = runpy.run_path(str(ROOT / "examples" / "embed.py"))
    folder, texts = example["find_model"](), [*example["SENTENCES"], *TEXTS]
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(example["LONGEST"])
    expected = [tokenizer.encode(text).ids for text in texts]
    ours, _ = example["load_model"](folder)
    tokens = [ours(text) for text in texts]
    weights = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    with torch.inference_mode():
        vectors = np.concatenate([bert(weights, config, torch.tensor([row])).numpy()
                                  for row in expected])
    off = float(np.abs(example["embed"](texts, folder).numpy() - vectors).max())
    print(f"encoder: tokens of {len(texts)} texts", "ok" if tokens == expected else "differ")
    print(f"encoder: vectors of {len(texts)} texts",
          "ok" if off <= TOLERANCE else "differ", f"(off by {off:.1e} at most)")
    return int(tokens != expected) + int(off > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
