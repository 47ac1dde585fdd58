"""What must point up the layers is data: these functions are set once, at import.

A test lists them; nothing else may be set from outside.
"""

from __future__ import annotations

from slipstream.core.api import arrays, interop
from slipstream.core.api.cuda import streams
from slipstream.core.api.tensor import Tensor
from slipstream.core.catalog.table import ops
from slipstream.core.dispatch import autocasting, gradients, mixing, modes, op, writing
from slipstream.core.dispatch.arguments import bind_arguments, blame, blame_launch
from slipstream.core.dispatch.formulas import formula_builder
from slipstream.core.engine.accumulating import accumulator
from slipstream.core.engine.tape import tape
from slipstream.core.engine.views import operations
from slipstream.core.launch import devices, door
from slipstream.core.vocab import optional
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.errors import shortened
from slipstream.core.vocab.records import Backend, slots
from slipstream.core.vocab.recycling import recycle

WIRED = (
    "dispatch.autocasting.hooks", "dispatch.gradients.hooks", "dispatch.mixing.hooks",
    "dispatch.op.wiring", "dispatch.writing.hooks", "engine.views.operations",
    "engine.accumulating.accumulator.strided", "engine.tape.tape.tensor_class",
    "launch.door.makers", "vocab.records.slots",
)


def make_cuda(device: Device) -> Backend:
    """The backend of a CUDA device, at its first use."""
    prelude = optional.load("core.kernels.cuda.prelude").PRELUDE
    backend: Backend = optional.load("core.launch.cuda.backend").make(device, prelude)
    return backend


def wire() -> None:
    """Set every upward pointer."""
    door.makers.cuda = make_cuda
    devices.register()
    autocasting.hooks.to_dtype = ops.to_dtype
    gradients.hooks.formula_builder = formula_builder
    autocasting.hooks.special = modes.special
    op.wiring.special = autocasting.special
    op.wiring.gather = mixing.gather
    mixing.hooks.to_device = ops.to_device
    mixing.hooks.full = ops.full_memory
    mixing.hooks.number_of = interop.item
    op.wiring.begin_write = writing.begin_write
    op.wiring.end_write = writing.end_write
    op.wiring.deliver = writing.deliver
    op.wiring.made_like = writing.made_like
    op.wiring.arguments = bind_arguments
    op.wiring.blame = blame
    op.wiring.blame_launch = blame_launch
    op.wiring.shortened = shortened
    writing.hooks.copy_of = ops.clone
    writing.hooks.copy_into = ops.copy
    writing.hooks.move_bytes = devices.move_bytes
    tape.tensor_class = Tensor
    slots.tensor_class = Tensor
    recycle(Tensor)
    slots.with_array = arrays.with_array
    for name in ("add", "sub", "mul", "div", "matmul", "neg",
                 "eq", "ne", "lt", "le", "gt", "ge"):
        setattr(slots, name, getattr(ops, name))
    accumulator.strided = ops.empty_strided
    operations.accumulate = ops.add
    operations.sum = ops.sum
    operations.sum_to = ops.sum_to
    operations.cast = ops.to_dtype
    operations.cast_list = autocasting.cast_together
    operations.move = ops.to_device
    operations.full = ops.full_memory
    operations.zeros = ops.new_zeros
    operations.index_put = ops.index_put
    operations.strided_view = ops.strided_view
    operations.come_after = streams.come_after


wire()
