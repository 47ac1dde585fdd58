"""Neural network modules, under PyTorch's names."""

from slipstream.nn import functional, init, modules, parameter, utils
from slipstream.nn.modules import (
    GELU,
    Conv2d,
    CrossEntropyLoss,
    Dropout,
    Embedding,
    Flatten,
    Identity,
    LayerNorm,
    Linear,
    LogSoftmax,
    MaxPool2d,
    Module,
    ModuleDict,
    ModuleList,
    MSELoss,
    NLLLoss,
    ParameterDict,
    ParameterList,
    ReLU,
    Sequential,
    Softmax,
    Tanh,
    Unflatten,
)
from slipstream.nn.parameter import Parameter

__all__ = [
    "Conv2d", "CrossEntropyLoss", "Dropout", "Embedding", "Flatten", "GELU", "Identity",
    "LayerNorm", "Linear", "LogSoftmax", "MSELoss", "MaxPool2d", "Module", "ModuleDict",
    "ModuleList", "NLLLoss", "Parameter", "ParameterDict", "ParameterList", "ReLU", "Sequential",
    "Softmax", "Tanh", "Unflatten", "functional", "init", "modules", "parameter", "utils",
]
