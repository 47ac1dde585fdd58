"""Copies that Python asks for: copies, deep copies and what pickle keeps."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from slipstream.core.api.interop import as_class, copied, host_array, wrap
from slipstream.core.catalog.table import ops
from slipstream.core.shapes.specs import specs
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.devices import CPU, Device
from slipstream.core.vocab.records import Storage


def shallow_copy(self: Any) -> Any:
    """Another tensor over the same memory, a leaf without a gradient."""
    made = as_class(self.detach(), type(self))
    attributes = attributes_of(self)
    if attributes:
        made.__dict__.update(attributes)
    return made.requires_grad_(True) if self.requires_grad else made


def deep_copy(self: Any, memo: dict[int, Any]) -> Any:
    """A copy with memory of its own, which copies of tensors over the same storage share.

    Raises RuntimeError for a tensor that is no leaf.
    """
    if id(self) in memo:
        return memo[id(self)]
    if self.grad_fn is not None:
        raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the "
                           "deepcopy protocol at the moment")
    made = as_class(wrap(self.spec, _copied_storage(self, memo), self.offset), type(self))
    memo[id(self)] = made
    if self.requires_grad:
        made.requires_grad_(True)
    if self.grad is not None:
        made.grad = copy.deepcopy(self.grad, memo)
    attributes = attributes_of(self)
    if attributes:
        made.__dict__.update(copy.deepcopy(attributes, memo))
    return made


def _copied_storage(self: Any, memo: dict[int, Any]) -> Storage:
    """The copy of a tensor's storage, made once."""
    old: Storage = self.storage
    if id(old) not in memo:
        whole = wrap(specs.contiguous(self.spec.device, dtypes.uint8, (old.nbytes,)), old)
        memo[id(old)] = ops.clone.call((whole,), None).storage
    return memo[id(old)]


FIELDS = ("spec", "storage", "offset", "record", "base")


def attributes_of(self: Any) -> dict[str, Any]:
    """What a user set on an instance of a subclass; uncompiled, the fields lie beside it."""
    held = getattr(self, "__dict__", {})
    return {name: value for name, value in held.items() if name not in FIELDS}


def reduced(self: Any) -> Any:
    """What pickle keeps: class, dtype, shape, bytes, requires_grad, device; never a history."""
    array = np.ascontiguousarray(host_array(self.detach(), "pickle"))
    attributes = attributes_of(self) or None
    return rebuild, (type(self), self.spec.dtype.name, self.spec.shape, array.tobytes(),
                     self.requires_grad, attributes, self.spec.device)


def rebuild(cls: Any, dtype: str, shape: tuple[int, ...], data: bytes, requires_grad: bool,
            attributes: Any, device: Device = CPU) -> Any:
    """A tensor again from what pickle kept, on the device where it was."""
    array = np.frombuffer(data, dtypes.BY_NAME[dtype].numpy).reshape(shape)
    made = copied(array, CPU)
    if device is not CPU:
        made = ops.to_device.call((made, device), None)
    made = as_class(made, cls)
    if attributes:
        made.__dict__.update(attributes)
    return made.requires_grad_(True) if requires_grad else made
