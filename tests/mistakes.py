"""Sixty mistakes that users make, and the file that holds what they are told.

``python tests/mistakes.py`` writes ``tests/mistakes.txt`` anew, from the CPU: read what changed as
a user would before you commit it.  In the file the device is DEVICE, the place of a line PLACE.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import slipstream as ss
from slipstream import nn

F = nn.functional
FILE = Path(__file__).with_suffix(".txt")
Mistake = Callable[[str], Any]


def ones(*shape: int, device: str, **more: Any) -> Any:
    """Ones on a device."""
    return ss.ones(*shape, device=device, **more)


def longs(values: list[Any], device: str) -> Any:
    """Integers on a device."""
    return ss.tensor(values, device=device)


def leaf(device: str) -> Any:
    """A leaf that wants its gradient."""
    return ss.ones(3, device=device, requires_grad=True)


def changed_in_place(device: str) -> None:
    """A saved value is overwritten before backward."""
    x = leaf(device)
    y = x.exp()
    z = y * y
    y.add_(1)
    z.sum().backward()


def backward_twice(device: str) -> None:
    """The history is gone after the first backward."""
    loss = (leaf(device) * 2).exp().sum()
    loss.backward()
    loss.backward()


def strict_load(device: str) -> None:
    """The state dict is another model's."""
    nn.Linear(3, 2).to(device).load_state_dict({"weight": ones(2, 3, device=device)})


def wrong_sizes(device: str) -> None:
    """A parameter of another size."""
    state = {"weight": ones(2, 4, device=device), "bias": ones(2, device=device)}
    nn.Linear(3, 2).to(device).load_state_dict(state)


def stacked(device: str) -> None:
    """Shapes that differ cannot be stacked."""
    ss.stack([ones(2, device=device), ones(3, device=device)])


def optimizer_of_results(device: str) -> None:
    """An optimizer of what is no leaf."""
    ss.optim.SGD([leaf(device) * 2], lr=0.1)


# Name -> the mistake, on a device.
MISTAKES: dict[str, Mistake] = {
    # Shapes.
    "add: shapes": lambda d: ones(2, device=d) + ones(3, device=d),
    "mul in place: shapes": lambda d: ones(2, device=d).mul_(ones(4, 2, device=d)),
    "matmul: inner dims": lambda d: ones(2, 3, device=d) @ ones(2, 3, device=d),
    "mm: rank": lambda d: ss.mm(ones(2, device=d), ones(2, 2, device=d)),
    "bmm: batches": lambda d: ss.bmm(ones(2, 3, 4, device=d), ones(3, 4, 5, device=d)),
    "linear: features": lambda d: nn.Linear(3, 2).to(d)(ones(4, 5, device=d)),
    "conv2d: channels": lambda d: nn.Conv2d(3, 8, 3).to(d)(ones(1, 4, 8, 8, device=d)),
    "conv2d: kernel too large": lambda d: nn.Conv2d(1, 1, 9).to(d)(ones(1, 1, 4, 4, device=d)),
    "view: size": lambda d: ones(6, device=d).view(4, 2),
    "view: strides": lambda d: ones(2, 3, device=d).t().view(6),
    "reshape: size": lambda d: ones(6, device=d).reshape(-1, 4),
    "expand: size": lambda d: ones(3, device=d).expand(2, 4),
    "cat: sizes": lambda d: ss.cat([ones(2, 3, device=d), ones(2, 4, device=d)]),
    "cat: nothing": lambda d: ss.cat([]),
    "stack: shapes": stacked,
    "dim out of range": lambda d: ones(2, 3, device=d).sum(2),
    "softmax: dim": lambda d: ones(2, 3, device=d).softmax(-3),
    "permute: dims": lambda d: ones(2, 3, device=d).permute(0, 0),
    "transpose: dim": lambda d: ones(2, 3, device=d).transpose(0, 2),
    "unflatten: sizes": lambda d: ones(2, 3, device=d).unflatten(1, (2, 2)),
    "split: sizes": lambda d: ones(5, device=d).split([2, 2]),
    "layer_norm: shape": lambda d: F.layer_norm(ones(2, 3, device=d), (4,)),
    "batch_norm: one value": lambda d: nn.BatchNorm1d(3).to(d)(ones(1, 3, device=d)),
    "einsum: sizes": lambda d: ss.einsum("ij,jk->ik", ones(2, 3, device=d), ones(2, 3, device=d)),
    "topk: k": lambda d: ones(3, device=d).topk(4),
    "where: shapes": lambda d: ss.where(ones(2, device=d) > 0, ones(3, device=d), 0.0),
    # Indices.
    "index: out of range": lambda d: ones(3, device=d)[5],
    "index: too many": lambda d: ones(3, device=d)[0, 0],
    "index: a float": lambda d: ones(3, device=d)[1.5],
    "index: values": lambda d: ones(3, device=d)[longs([0, 7], d)],
    "index: float tensor": lambda d: ones(3, device=d)[ones(2, device=d)],
    "index: mask shape": lambda d: ones(3, device=d)[ones(2, device=d) > 0],
    "gather: values": lambda d: ones(3, device=d).gather(0, longs([5], d)),
    "embedding: values": lambda d: F.embedding(longs([9], d), ones(3, 2, device=d)),
    "index_select: rank": lambda d: ones(3, device=d).index_select(0, longs([[0]], d)),
    "narrow: length": lambda d: ones(3, device=d).narrow(0, 1, 5),
    "cross_entropy: target": lambda d: F.cross_entropy(ones(2, 3, device=d), longs([0, 9], d)),
    # Dtypes.
    "cross_entropy: float target": lambda d: F.cross_entropy(ones(2, 3, device=d),
                                                             ones(2, device=d)),
    "add in place: cast": lambda d: longs([1, 2], d).add_(1.5),
    "matmul: dtypes": lambda d: ones(2, 2, device=d) @ ones(2, 2, device=d, dtype=ss.float64),
    "linear: dtypes": lambda d: nn.Linear(3, 2).to(d)(ones(4, 3, device=d, dtype=ss.float64)),
    "bitwise: floats": lambda d: ones(2, device=d) & ones(2, device=d),
    "mean: integers": lambda d: longs([1, 2], d).mean(),
    "subtract: bools": lambda d: (ones(2, device=d) > 0) - (ones(2, device=d) > 0),
    "tensor: ragged": lambda d: ss.tensor([[1, 2], [3]], device=d),
    "tensor: a string": lambda d: ss.tensor(["a"], device=d),
    "tensor: overflow": lambda d: ss.tensor([300], dtype=ss.uint8, device=d),
    "random integers: range": lambda d: ss.randint(5, 5, (2,), device=d),
    # Gradients.
    "backward: no gradient": lambda d: ones(3, device=d).sum().backward(),
    "backward: not a scalar": lambda d: (leaf(d) * 2).backward(),
    "backward: twice": backward_twice,
    "in place: a leaf": lambda d: leaf(d).add_(1),
    "in place: a saved value": changed_in_place,
    "requires_grad: integers": lambda d: longs([1], d).requires_grad_(),
    "numpy: requires grad": lambda d: leaf(d).numpy(),
    # Values, modules, optimizers.
    "item: several": lambda d: ones(3, device=d).item(),
    "bool: several": lambda d: bool(ones(3, device=d)),
    "load: missing": strict_load,
    "load: sizes": wrong_sizes,
    "optimizer: no leaf": optimizer_of_results,
    "dropout: probability": lambda d: F.dropout(ones(3, device=d), 1.5),
    "unknown argument": lambda d: ss.sum(ones(3, device=d), dims=0),
    "not a tensor": lambda d: ss.relu(np.ones(3)),
    "unknown device": lambda d: ones(3, device=d).to("gpu"),
}


def text_of(name: str, device: str) -> str:
    """What a mistake's error says on a device, without the device and the places of lines."""
    kind, text = "nothing was raised", ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            MISTAKES[name](device)
            if device != "cpu":
                ss.cuda.synchronize()
        except Exception as error:
            kind, text = type(error).__name__, str(error)
    text = re.sub(r"\b(cuda:0|cuda|cpu)\b(?!\()", "DEVICE", text)
    return f"{kind}: " + re.sub(r"[^\s\"'(]*mistakes\.py:\d+", "PLACE", text)


def golden(texts: dict[str, str]) -> str:
    """The texts as the file holds them."""
    return "\n".join(f"== {name}\n{text}\n" for name, text in texts.items())


def read() -> dict[str, str]:
    """The texts of the file by name."""
    parts = FILE.read_text().split("== ")[1:]
    return {name: text.strip("\n") for name, _, text in (part.partition("\n") for part in parts)}


if __name__ == "__main__":
    FILE.write_text(golden({name: text_of(name, "cpu") for name in MISTAKES}))
