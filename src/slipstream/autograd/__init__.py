"""Gradients: `grad`, `backward`, steps of one's own, and checks against finite differences."""

from __future__ import annotations

from slipstream.autograd import function, functional, graph, profiler
from slipstream.autograd.anomaly import detect_anomaly, set_detect_anomaly
from slipstream.autograd.function import Function
from slipstream.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from slipstream.autograd.variable import Variable
from slipstream.autograd.walks import backward, grad
from slipstream.core.api.defaults import (
    enable_grad,
    inference_mode,
    no_grad,
    set_grad_enabled,
)

__all__ = [
    "Function", "GradcheckError", "Variable", "backward", "detect_anomaly", "enable_grad",
    "function", "functional", "grad", "gradcheck", "gradgradcheck", "graph", "inference_mode",
    "no_grad", "profiler", "set_detect_anomaly", "set_grad_enabled",
]
