"""The modules, each family in a file of its own."""

from slipstream.nn.modules.activation import GELU, LogSoftmax, ReLU, Softmax, Tanh
from slipstream.nn.modules.container import (
    ModuleDict,
    ModuleList,
    ParameterDict,
    ParameterList,
    Sequential,
)
from slipstream.nn.modules.conv import Conv2d
from slipstream.nn.modules.dropout import Dropout
from slipstream.nn.modules.flatten import Flatten, Unflatten
from slipstream.nn.modules.linear import Identity, Linear
from slipstream.nn.modules.loss import CrossEntropyLoss, MSELoss, NLLLoss
from slipstream.nn.modules.module import Module
from slipstream.nn.modules.normalization import LayerNorm
from slipstream.nn.modules.pooling import MaxPool2d
from slipstream.nn.modules.sparse import Embedding

__all__ = [
    "Conv2d", "CrossEntropyLoss", "Dropout", "Embedding", "Flatten", "GELU", "Identity",
    "LayerNorm", "Linear", "LogSoftmax", "MSELoss", "MaxPool2d", "Module", "ModuleDict",
    "ModuleList", "NLLLoss", "ParameterDict", "ParameterList", "ReLU", "Sequential", "Softmax",
    "Tanh", "Unflatten",
]
