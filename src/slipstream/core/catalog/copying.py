# cython: annotation_typing=False
"""Copies, casts and fills."""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.core.catalog import checks, samples
from slipstream.core.catalog.table import define, ops
from slipstream.core.dispatch import promotion
from slipstream.core.dispatch.entry import COMPOUND, LIBRARY, POINTWISE, Entry, passed_on
from slipstream.core.dispatch.registry import Candidate
from slipstream.core.engine.tape import tape
from slipstream.core.kernels.cpu.arrays import ArrayKernel
from slipstream.core.kernels.crossing import crossing_kernel, refuses_hosts
from slipstream.core.launch.door import backend_of, backends
from slipstream.core.launch.waiting import wait
from slipstream.core.shapes import formats
from slipstream.core.shapes.specs import specs
from slipstream.core.shapes.strides import strides_like
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.devices import CPU, Device
from slipstream.core.vocab.records import Storage, TensorBase


def _format_layout(call: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    given = call.arguments.get("memory_format")
    spec = call.spec("self")
    if given is None or given is formats.preserve_format:
        return strides_like(spec.shape, spec.strides)
    return formats.strides_for(given, shape)


def _cast_dtypes(call: Any) -> Any:
    return call.spec("self").dtype, call["dtype"]


def _copied(call: Any) -> Any:
    own = call.spec("self").dtype
    return call.spec("source").dtype, own


def _fill_dtypes(call: Any) -> Any:
    own = call.spec("self").dtype
    value = call["value"]
    kind = value.spec.dtype.category if hasattr(value, "spec") else (
        promotion.dtype_of_number(value).category)
    if kind == 3 and own.category < 3:
        raise call.error(RuntimeError, "value cannot be converted to type "
                                       f"{own.name} without loss: it is complex")
    return own, own


def _fill_check(call: Any) -> None:
    value = call["value"]
    if hasattr(value, "spec") and value.spec.ndim:
        raise call.error(RuntimeError, "fill_ only supports 0-dimension value tensor but got "
                                       f"tensor with {value.spec.ndim} dimensions.")


def _cast_reference(x: Any, dtype: Any) -> Any:
    if dtype.category < 3 and np.iscomplexobj(x):
        x = x.real
    return x != 0 if dtype is dtypes.bool_ else x.astype(dtype.numpy)


def _cast_back(g: Any, spec: Any) -> Any:
    """The gradient of a cast; as a formula, storing the result casts it."""
    return ops.cast_like.call((g, spec), None) if isinstance(g, TensorBase) else g


define(Entry(
    "clone(Tensor self, *, any memory_format=None)", POINTWISE,
    formula=lambda self: self, gradient={"self": passed_on}, path="clone",
    promotion=promotion.cast_to_self, layout=_format_layout, samples=samples.unary,
    reference=lambda x: x.copy(), doc="A copy with memory of its own.",
))
define(Entry(
    "to_dtype(Tensor self, dtype dtype, *, any memory_format=None)", POINTWISE,
    formula=lambda self: self,
    gradient={"self": lambda g, self_spec: _cast_back(g, self_spec)},
    promotion=_cast_dtypes, layout=_format_layout, path="", method=False,
    samples=samples.with_arguments(*[((3, 4), (dtype,)) for dtype in dtypes.ALL]),
    reference=_cast_reference,
    doc="A copy in another dtype.",
))
define(Entry(
    "copy(Tensor self, Tensor source, bool non_blocking=False)", POINTWISE,
    formula=lambda source: source,
    gradient={"self": checks.lost,
              "source": lambda g, source_spec: _cast_back(g, source_spec)},
    promotion=_copied, converts=True, inplace=True, path="", method=False,
    doc="copy_: the elements of source, broadcast and cast, written into self.",
))
define(Entry(
    "fill(Tensor self, Tensor|Number value)", POINTWISE,
    formula=lambda value: value, check=_fill_check,
    gradient={"self": checks.lost, "value": passed_on}, promotion=_fill_dtypes,
    converts=True, uniform=True, inplace=True, stores=("value",), path="fill",
    samples=samples.with_arguments(((3, 4), (2,)), ((), (1.5,)), ((2, 0), (True,))),
    reference=lambda x, value: np.full(x.shape, value),
    doc="self's shape and dtype, every element the value.",
))


def _contiguous(self: Any, memory_format: Any) -> Any:
    wanted = memory_format or formats.contiguous_format
    if wanted is formats.preserve_format:
        raise RuntimeError("preserve memory format is unsupported by the contiguous operator")
    spec = self.spec
    if formats.is_in_format(wanted, spec.shape, spec.strides):
        return self
    return ops.clone.call((self,), {"memory_format": wanted})


def _cast(self: Any, dtype: Any, memory_format: Any = None) -> Any:
    if self.spec.dtype is not dtype:
        return ops.to_dtype.call((self, dtype), {"memory_format": memory_format})
    if memory_format is None or memory_format is formats.preserve_format:
        return self
    return _contiguous(self, memory_format)


define(Entry("contiguous(Tensor self, *, any memory_format=None)", COMPOUND, function=_contiguous,
             path="", samples=samples.unary, reference=lambda x: x,
             doc="The tensor itself if it is in the memory format, else such a copy."))
define(Entry("cast(Tensor self, dtype dtype)", COMPOUND, function=_cast, path="", method=False,
             doc="The tensor itself if it has the dtype, else a copy in it."))
define(Entry("cast_like(Tensor self, any spec)", COMPOUND, path="", method=False,
             function=lambda self, spec: _cast(self, spec.dtype),
             doc="The tensor in a spec's dtype."))
for _name, _dtype in (("float", dtypes.float32), ("double", dtypes.float64),
                      ("half", dtypes.float16), ("bfloat16", dtypes.bfloat16),
                      ("int", dtypes.int32), ("long", dtypes.int64), ("short", dtypes.int16),
                      ("char", dtypes.int8), ("byte", dtypes.uint8), ("bool", dtypes.bool_),
                      ("cfloat", dtypes.complex64), ("cdouble", dtypes.complex128)):
    define(Entry(f"{_name}(Tensor self, any memory_format=None)", COMPOUND, path="",
                 function=lambda self, memory_format, dtype=_dtype: _cast(
                     self, dtype, memory_format), samples=samples.unary,
                 reference=lambda x, dtype=_dtype: _cast_reference(x, dtype),
                 doc=f"The tensor as {_dtype.name}."))


def _to_device(self: Any, device: Any) -> Any:
    """A copy on another device, once the operand's own device has written it."""
    target = Device(device)
    if not backend_of(self.spec.device).has_data and backend_of(target).has_data:
        raise NotImplementedError("Cannot copy out of meta tensor; no data! "
                                  f"{self.spec!r} to {target}\n  mend: use empty_like there")
    if not (backend_of(self.spec.device).on_host and backend_of(target).on_host):
        spec = self.spec
        if spec.strides != strides_like(spec.shape, spec.strides):
            self = ops.clone.call((self,), None)
        return ops.copy_across.call((self, target), None)
    wait(self.spec.device, "to")
    if backend_of(self.spec.device).immediate and backend_of(target).has_data and (
            not backend_of(target).immediate):
        # The copy may run later than the call, and the host may write its tensor before that.
        self = ops.clone.call((self,), None)
    return ops.copy_across.call((self, target), None)


def is_pinned(tensor: Any) -> bool:
    """Whether a tensor lies in pinned memory of a CUDA device."""
    pinned = {getattr(getattr(backend, "pinning", None), "owner", None)
              for backend in tuple(backends.values())}
    return tensor.storage.owner in pinned - {None}


def pinned_memory(spec: Any, device: Any = None) -> Any:
    """A tensor of a spec of the CPU in pinned memory, whose elements are not set."""
    backend: Any = backend_of(Device("cuda" if device is None else device))
    pins = backend.pins()
    storage = Storage(CPU, pins.allocator.allocate(spec.extent), spec.extent, pins.owner)
    made = tape.tensor_class.__new__(tape.tensor_class)
    made.spec, made.storage, made.offset = spec, storage, 0
    made.record = made.base = None
    return made


def _pinned(self: Any, device: Any) -> Any:
    spec = self.spec
    if spec.device is not CPU:
        raise RuntimeError(f"cannot pin '{spec!r}': only dense CPU tensors can be pinned")
    if is_pinned(self):
        return self
    dense = strides_like(spec.shape, spec.strides)
    made = pinned_memory(specs.intern(CPU, spec.dtype, spec.shape, dense), device)
    ops.copy.call_inplace((made, self.detach(), False), None)
    # A leaf stays one.
    return made.requires_grad_(True) if self.is_leaf and self.requires_grad else made


def _copied_across(outputs: list[Any], inputs: list[Any], numbers: Any, plan: Any) -> None:
    outputs[0][...] = inputs[0]


_across = ArrayKernel("numpy copy", _copied_across)
_crossing = Candidate("copy between devices", lambda plan, call: crossing_kernel, refuses_hosts)
define(Entry(
    "copy_across(Tensor self, device device)", LIBRARY, path="", method=False,
    shape=lambda call: [(call.spec("self").dtype, call.spec("self").shape,
                         strides_like(call.spec("self").shape, call.spec("self").strides))],
    gradient={"self": lambda g, self_spec: ops.to_device.call((g, self_spec.device), None)},
    doc="The elements, dense where the host cannot reach one side, in another device's memory.",
), cpu=(_crossing, Candidate("numpy copy", lambda plan, call: _across)), cuda=_crossing)
define(Entry("pinned(Tensor self, device? device=None)", COMPOUND, path="", method=False,
             function=_pinned, doc="The tensor in pinned memory: itself, or a copy."))
define(Entry("to_device(Tensor self, device device)", COMPOUND, path="", method=False,
             function=_to_device, doc="A copy on another device."))
