"""Gradient clipping, parameters as one vector, packed sequences, reparametrized weights."""

from slipstream.nn.utils import parametrizations, parametrize, rnn
from slipstream.nn.utils.clip_grad import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from slipstream.nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters
from slipstream.nn.utils.weight_norm import remove_weight_norm, weight_norm

__all__ = [
    "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm",
    "parameters_to_vector", "parametrizations", "parametrize", "remove_weight_norm", "rnn",
    "vector_to_parameters", "weight_norm",
]
