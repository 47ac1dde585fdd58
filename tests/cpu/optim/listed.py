"""Optimizers over lists beside the same ones parameter by parameter, on any device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import slipstream as ss
from slipstream import nn, optim

# Sizes around vectors, blocks and chunks; none, one, and a scalar.
SHAPES = ((3,), (2, 4), (), (0,), (257,), (5000,), (1, 1), (33, 129))
Make = Callable[..., optim.Optimizer]

OPTIMIZERS: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "sgd": (optim.SGD, {"lr": 0.1}),
    "sgd with momentum": (optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.2,
                                      "weight_decay": 0.01}),
    "sgd nesterov": (optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    "adam": (optim.Adam, {"lr": 0.01}),
    "adam amsgrad": (optim.Adam, {"lr": 0.01, "amsgrad": True, "weight_decay": 0.1,
                                  "maximize": True}),
    "adamw": (optim.AdamW, {"lr": 0.01, "betas": (0.5, 0.9)}),
    "rmsprop": (optim.RMSprop, {"momentum": 0.9, "centered": True}),
    "adagrad": (optim.Adagrad, {"lr_decay": 0.1}),
    "adadelta": (optim.Adadelta, {}),
    "adamax": (optim.Adamax, {}),
    "radam": (optim.RAdam, {"weight_decay": 0.1}),
    "rprop": (optim.Rprop, {}),
}


def values(seed: int, shapes: Any = SHAPES) -> list[np.ndarray]:
    """Arrays of some shapes."""
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.standard_normal(shape), np.float32) for shape in shapes]


def parameters(device: str, dtypes: Any = (None,), shapes: Any = SHAPES) -> list[nn.Parameter]:
    """Parameters of the shapes, their dtypes in turn."""
    made = []
    for place, value in enumerate(values(0, shapes)):
        dtype = dtypes[place % len(dtypes)] or ss.float32
        made.append(nn.Parameter(ss.from_numpy(value.copy()).to(dtype).to(device)))
    return made


def give_gradients(params: Any, seed: int) -> None:
    """New gradients, in new tensors."""
    for param, value in zip(params, values(seed, [tuple(p.shape) for p in params]), strict=True):
        param.grad = ss.from_numpy(value).to(param.dtype).to(param.device)


def bits(tensor: Any) -> bytes:
    """A tensor's bytes."""
    host = tensor.detach().cpu()
    host = host.to(ss.float32) if host.dtype == ss.bfloat16 else host
    return bytes(np.ascontiguousarray(host.numpy()).tobytes())


def contents(optimizer: optim.Optimizer, params: Any) -> list[Any]:
    """Parameters and states, to the bit."""
    found: list[Any] = []
    for param in params:
        state = optimizer.state.get(param, {})
        found.append((bits(param), {name: bits(value) for name, value in state.items()
                                    if isinstance(value, ss.Tensor)}))
    return found


class Pair:
    """The same optimizer twice: over lists and parameter by parameter."""

    def __init__(self, device: str, name: str, **more: Any) -> None:
        cls, options = OPTIMIZERS[name]
        dtypes = more.pop("dtypes", (None,))
        shapes = more.pop("shapes", SHAPES)
        self.params = [parameters(device, dtypes, shapes) for _ in range(2)]
        self.optimizers = [cls(params, **options, **more, foreach=foreach)
                           for params, foreach in zip(self.params, (None, False), strict=True)]
        self.steps = 0

    def both(self, change: Callable[[optim.Optimizer, list[Any]], Any]) -> None:
        """Do the same to both."""
        for optimizer, params in zip(self.optimizers, self.params, strict=True):
            change(optimizer, params)

    def step(self, gradients: bool = True) -> None:
        """One step of both, with new gradients."""
        self.steps += 1
        for optimizer, params in zip(self.optimizers, self.params, strict=True):
            if gradients:
                give_gradients(params, self.steps)
            optimizer.step()

    def live_through(self, change: Callable[[optim.Optimizer, list[Any]], Any]) -> None:
        """Steps with a change between them, several times; both are the same after all."""
        for _ in range(3):
            self.step()
            self.step()
            self.both(change)
            self.step(gradients=False)
        self.step()
        self.check()

    def check(self) -> None:
        """Both are the same to the bit."""
        mine, other = [contents(optimizer, params) for optimizer, params in zip(
            self.optimizers, self.params, strict=True)]
        assert mine == other
        assert any(param.grad is not None for param in self.params[0])
