"""A weight as a length times a direction, recomputed before each forward."""

from __future__ import annotations

from typing import Any

import slipstream as ss
from slipstream.nn.modules.module import Module
from slipstream.nn.parameter import Parameter


def norm_except_dim(weight: ss.Tensor, dim: int | None) -> ss.Tensor:
    """The lengths of the weight's slices along ``dim``, broadcast to it; of all of it for None."""
    if dim is None or dim == -1:
        return weight.norm()
    others = [each for each in range(weight.ndim) if each != dim % weight.ndim]
    return ss.linalg.vector_norm(weight, 2, others, keepdim=True) if others else weight.abs()


def scaled_direction(direction: ss.Tensor, length: ss.Tensor, dim: int | None) -> ss.Tensor:
    """length * direction / |direction|."""
    return direction * (length / norm_except_dim(direction, dim))


class WeightNorm:
    """The hook that sets a module's weight anew."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name = name
        self.dim = dim
        self.handle: Any = None

    def weight(self, module: Module) -> ss.Tensor:
        """The weight that the module's two parameters stand for."""
        direction, length = (getattr(module, f"{self.name}_{part}") for part in "vg")
        return scaled_direction(direction, length, self.dim)

    def __call__(self, module: Module, inputs: Any) -> None:
        """Before a forward: the weight, of what the parameters are by now."""
        setattr(module, self.name, self.weight(module))


def _hook_of(module: Module, name: str) -> WeightNorm | None:
    hooks = [hook for hook in module._forward_pre_hooks.values() if isinstance(hook, WeightNorm)]
    return next((hook for hook in hooks if hook.name == name), None)


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Replace a parameter by its length ``<name>_g`` and its direction ``<name>_v``.

    The length is taken over every dim but ``dim``, or over all for None.  RuntimeError where it
    was done before; returns the module.
    """
    if _hook_of(module, name) is not None:
        raise RuntimeError(f"Cannot register two weight_norm hooks on the same parameter {name}")
    hook, weight = WeightNorm(name, dim), getattr(module, name)
    del module._parameters[name]
    module.register_parameter(f"{name}_g", Parameter(norm_except_dim(weight.detach(), dim)))
    module.register_parameter(f"{name}_v", Parameter(weight.detach()))
    setattr(module, name, hook.weight(module))
    hook.handle = module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Make the weight a parameter again; ValueError where it has no weight_norm."""
    hook = _hook_of(module, name)
    if hook is None:
        raise ValueError(f"weight_norm of '{name}' not found in {module}")
    weight = hook.weight(module).detach()
    hook.handle.remove()
    delattr(module, name)
    for part in "gv":
        del module._parameters[f"{name}_{part}"]
    module.register_parameter(name, Parameter(weight))
    return module
