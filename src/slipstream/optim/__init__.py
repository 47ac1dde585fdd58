"""Optimizers, under PyTorch's names; every update is a formula."""

from slipstream.optim.adam import Adam, AdamW
from slipstream.optim.optimizer import Optimizer
from slipstream.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer"]
