"""Optimizers, under PyTorch's names; every update of elements is a formula."""

from slipstream.optim import lr_scheduler
from slipstream.optim.adam import Adam, AdamW
from slipstream.optim.adamkin import ASGD, Adamax, NAdam, RAdam
from slipstream.optim.adaptive import Adadelta, Adagrad, RMSprop, Rprop
from slipstream.optim.lbfgs import LBFGS
from slipstream.optim.matrices import Adafactor, Muon
from slipstream.optim.optimizer import Optimizer
from slipstream.optim.sgd import SGD

__all__ = ["ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Muon",
           "NAdam", "Optimizer", "RAdam", "RMSprop", "Rprop", "SGD", "lr_scheduler"]
