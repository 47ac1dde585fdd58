"""The public names of the package that belong to the core."""

from __future__ import annotations

import builtins
from math import e, inf, nan, pi
from typing import Any

from slipstream.core.api import (
    autocasting,
    constructors,
    defaults,
    dlpack,
    install,
    interop,
    methods,
    options,
    precision,
    random,
)
from slipstream.core.api.printing import get_printoptions, printoptions, set_printoptions
from slipstream.core.api.size import Size
from slipstream.core.api.tensor import Tensor
from slipstream.core.dispatch import promotion
from slipstream.core.dispatch.modes import DispatchMode, RecordMode, redispatch
from slipstream.core.shapes import broadcast, formats
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.dtypes import DType, promote, spelled
from slipstream.core.vocab.errors import OutOfMemoryError, SyncError

install.install()

tensor = interop.tensor
as_tensor = interop.as_tensor
from_numpy = interop.from_numpy
from_dlpack = dlpack.from_dlpack
UntypedStorage = interop.UntypedStorage
device = Device
dtype = DType

no_grad = defaults.no_grad
enable_grad = defaults.enable_grad
inference_mode = defaults.inference_mode
set_grad_enabled = defaults.set_grad_enabled
is_grad_enabled = defaults.is_grad_enabled
is_inference_mode_enabled = defaults.is_inference_mode_enabled
set_default_dtype = defaults.set_default_dtype
get_default_dtype = defaults.get_default_dtype
set_default_device = defaults.set_default_device
get_default_device = defaults.get_default_device

contiguous_format = formats.contiguous_format
channels_last = formats.channels_last
channels_last_3d = formats.channels_last_3d
preserve_format = formats.preserve_format
strided = formats.strided
newaxis = None
positive = methods.positive


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor."""
    return isinstance(value, Tensor)


def result_type(a: Any, b: Any) -> DType:
    """The dtype that arithmetic on the two operands gives."""
    return promotion.result_type((a, b))


def promote_types(type1: DType, type2: DType) -> DType:
    """The smallest dtype that holds the numbers of both; TypeError for what is no dtype."""
    type1, type2 = spelled(type1), spelled(type2)
    for given in (type1, type2):
        if not isinstance(given, DType):
            raise TypeError("promote_types(): arguments must be dtypes, not "
                            f"{type(given).__name__}")
    return promote(type1, type2)


def broadcast_shapes(*shapes: Any) -> Size:
    """The shape that shapes broadcast to; RuntimeError where they do not."""
    try:
        return Size(broadcast.broadcast_shapes(*[
            # `int` is a dtype here.
            (shape,) if isinstance(shape, builtins.int) else tuple(shape) for shape in shapes]))
    except ValueError as failure:
        raise RuntimeError(str(failure)) from None


def _tensor(name: str, value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}(): argument 'self' must be Tensor, not {type(value).__name__}")
    return value


def numel(self: Tensor) -> int:
    """The number of elements."""
    return _tensor("numel", self).numel()


def is_floating_point(self: Tensor) -> bool:
    """Whether the dtype is a float dtype."""
    return _tensor("is_floating_point", self).is_floating_point()


def is_complex(self: Tensor) -> bool:
    """Whether the dtype is complex."""
    return _tensor("is_complex", self).is_complex()


_OWN = (
    "OutOfMemoryError Tensor Size tensor as_tensor from_numpy from_dlpack UntypedStorage device "
    "dtype no_grad enable_grad inference_mode set_grad_enabled is_grad_enabled "
    "is_inference_mode_enabled set_default_dtype get_default_dtype set_default_device "
    "get_default_device contiguous_format channels_last channels_last_3d preserve_format "
    "strided is_tensor result_type promote_types broadcast_shapes numel is_floating_point "
    "is_complex positive DispatchMode RecordMode redispatch SyncError set_printoptions "
    "get_printoptions printoptions e inf nan newaxis pi"
).split()

globals().update(install.functions[""])
globals().update(constructors.TYPED)
where = constructors.where
globals().update({name: getattr(random, name) for name in random.NAMES})
globals().update({name: getattr(options, name) for name in options.NAMES})
globals().update({name: getattr(precision, name) for name in precision.NAMES})
globals().update({name: getattr(autocasting, name) for name in autocasting.NAMES})
globals().update(dtypes.BY_NAME)
globals().update(dtypes.ALIASES)

__all__ = sorted({*_OWN, *constructors.TYPED, *random.NAMES, *options.NAMES, *precision.NAMES,
                   *autocasting.NAMES, *install.functions[""],
                  *dtypes.BY_NAME, *dtypes.ALIASES})
