"""The language model that both sides train, written once for a library given as ``lib``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Size(NamedTuple):
    """A model's size and the batch that it is trained on: sequences times tokens."""

    vocabulary: int
    positions: int
    width: int
    heads: int
    layers: int
    batch: int
    tokens: int


SMALL = Size(256, 1024, 256, 4, 6, 8, 128)
GPT2 = Size(50304, 1024, 768, 12, 12, 16, 1024)
# For tests without a card.
TINY = Size(32, 16, 16, 2, 2, 2, 8)


def block_class(lib: Any) -> Any:
    """A block: attention and two linear layers, each after a layer_norm and beside the input."""
    nn, functional = lib.nn, lib.nn.functional

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.heads = heads
            self.norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
            self.projections = nn.Linear(width, 3 * width)
            self.out = nn.Linear(width, width)
            self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            batch, length, width = x.shape
            parts = [part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
                     for part in self.projections(self.norm(x)).split(width, -1)]
            heard = functional.scaled_dot_product_attention(*parts, is_causal=True)
            x = x + self.out(heard.transpose(1, 2).reshape(batch, length, width))
            hidden = functional.gelu(self.wide(self.second_norm(x)), approximate="tanh")
            return x + self.narrow(hidden)

    return Block


def model_class(lib: Any) -> Any:
    """A GPT whose output layer is its embedding; with targets it gives the mean loss."""
    nn, functional = lib.nn, lib.nn.functional
    block = block_class(lib)

    class GPT(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, size: Size) -> None:
            super().__init__()
            self.tokens = nn.Embedding(size.vocabulary, size.width)
            self.positions = nn.Embedding(size.positions, size.width)
            self.blocks = nn.ModuleList(
                [block(size.width, size.heads) for _ in range(size.layers)])
            self.norm = nn.LayerNorm(size.width)
            self.head = nn.Linear(size.width, size.vocabulary, bias=False)
            self.head.weight = self.tokens.weight

        def forward(self, tokens: Any, targets: Any = None) -> Any:
            x = self.tokens(tokens) + self.positions.weight[:tokens.shape[1]]
            for each in self.blocks:
                x = each(x)
            scores = self.head(self.norm(x))
            if targets is None:
                return scores
            return functional.cross_entropy(scores.view(-1, scores.shape[-1]).float(),
                                            targets.view(-1))

    return GPT


def make(lib: Any, size: Size, device: str = "cuda") -> Any:
    """A model on a device."""
    return model_class(lib)(size).to(device)


def batch_of(lib: Any, size: Size, device: str = "cuda") -> Any:
    """Tokens drawn at random, (batch, tokens) of int64."""
    return lib.randint(0, size.vocabulary, (size.batch, size.tokens)).to(device)


def training(lib: Any, model: Any, tokens: Any, **options: Any) -> Callable[[], Any]:
    """One step in bfloat16 autocast with fused AdamW; ``options`` are the optimizer's."""
    given = {"lr": 1e-4, "fused": True, **options}
    optimizer = lib.optim.AdamW(model.parameters(), **given)
    device = tokens.device.type

    def step() -> Any:
        with lib.autocast(device, dtype=lib.bfloat16):
            loss = model(tokens, tokens)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss

    return step


def eager(lib: Any, size: Size, device: str = "cuda") -> Callable[[], Any]:
    """The step of a new model."""
    return training(lib, make(lib, size, device), batch_of(lib, size, device))
