"""Schedulers of learning rates, under PyTorch's names."""

from slipstream.optim.lr_scheduler.base import LRScheduler
from slipstream.optim.lr_scheduler.combined import (
    ChainedScheduler,
    ReduceLROnPlateau,
    SequentialLR,
)
from slipstream.optim.lr_scheduler.cycles import CyclicLR, OneCycleLR
from slipstream.optim.lr_scheduler.simple import (
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)

_LRScheduler = LRScheduler

__all__ = ["ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts",
           "CyclicLR", "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR",
           "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "SequentialLR",
           "StepLR"]
