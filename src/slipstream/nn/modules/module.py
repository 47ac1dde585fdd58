"""Module: the base class of everything that has parameters and a ``forward``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import slipstream as ss
from slipstream.core.vocab.dtypes import spelled
from slipstream.nn.modules.hooks import Hooks, call_with_hooks
from slipstream.nn.modules.lookup import Called
from slipstream.nn.modules.registry import typename
from slipstream.nn.parameter import Parameter
from slipstream.utils.gradients import clear_gradients
from slipstream.utils.hooks import HookTable

Self = TypeVar("Self", bound="Module")
TensorFunction = Callable[[ss.Tensor], ss.Tensor]

_HOOK_TABLES = (
    "_backward_pre_hooks", "_backward_hooks", "_forward_hooks", "_forward_pre_hooks",
    "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
_MARK_TABLES = ("_forward_hooks_with_kwargs", "_forward_hooks_always_called",
                "_forward_pre_hooks_with_kwargs")
_STARTING: tuple[tuple[str, Callable[[], Any]], ...] = (
    ("_parameters", dict), ("_buffers", dict), ("_non_persistent_buffers_set", set),
    *((name, HookTable) for name in _HOOK_TABLES), *((name, dict) for name in _MARK_TABLES),
    ("_modules", dict),
)


class Module(Called, Hooks):
    """Base class of neural network modules.

    A subclass calls ``super().__init__()``, assigns parameters and submodules as attributes and
    defines ``forward``.  Attributes before that call raise AttributeError.
    """

    training: bool

    def __init__(self) -> None:
        attributes = self.__dict__
        attributes["training"] = True
        for name, make in _STARTING:
            attributes[name] = make()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the module's output; every subclass defines this."""
        raise NotImplementedError(f"Module [{type(self).__name__}] is missing the required "
                                  '"forward" function')

    def _call_hooked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return call_with_hooks(self, args, kwargs)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for name, make in _STARTING:
            if name not in state:
                self.__dict__[name] = make()

    # Modes.

    def train(self: Self, mode: bool = True) -> Self:
        """Set training mode here and below; raises ValueError unless ``mode`` is a bool."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self: Self) -> Self:
        """Set evaluation mode: ``train(False)``."""
        return self.train(False)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        """Set whether autograd records operations on the parameters."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or fill them with zero."""
        clear_gradients(self.parameters(), set_to_none)

    # Conversion.

    def apply(self: Self, fn: Callable[[Any], object]) -> Self:
        """Call ``fn`` with every module below and then with this one."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self: Self, fn: TensorFunction, recurse: bool = True) -> Self:
        """Replace every parameter's data, its gradient's and every buffer by ``fn`` of it."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        for name, parameter in self._parameters.items():
            if parameter is not None:
                self._parameters[name] = converted(parameter, fn)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def _cast(self: Self, dtype: ss.dtype) -> Self:
        """Convert floating point members; integers keep their dtype."""
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def float(self: Self) -> Self:
        """Convert floating point parameters and buffers to float32."""
        return self._cast(ss.float32)

    def double(self: Self) -> Self:
        """Convert floating point parameters and buffers to float64."""
        return self._cast(ss.float64)

    def half(self: Self) -> Self:
        """Convert floating point parameters and buffers to float16."""
        return self._cast(ss.float16)

    def bfloat16(self: Self) -> Self:
        """Convert floating point parameters and buffers to bfloat16."""
        return self._cast(ss.bfloat16)

    def type(self: Self, dst_type: Any) -> Self:
        """Convert all parameters and buffers to ``dst_type``, integers too."""
        return self._apply(lambda t: t.type(dst_type))

    def cpu(self: Self) -> Self:
        """Move all parameters and buffers to the CPU."""
        return self._apply(lambda t: t.cpu())

    def cuda(self: Self, device: Any = None) -> Self:
        """Move all parameters and buffers to a GPU, by default the current one."""
        return self._apply(lambda t: t.cuda(device))

    def to(self: Self, *args: Any, **kwargs: Any) -> Self:
        """Move to a device, convert to a dtype, or both; change the module in place.

        Forms: ``to(device, dtype=, non_blocking=)``, ``to(dtype, non_blocking=)``,
        ``to(tensor, non_blocking=)``; ``memory_format=`` for parameters of 4 dims.  Only floating
        point and complex members change their dtype.  Raises TypeError for a dtype that is
        neither.
        """
        device, dtype, options, memory_format = parse_to(*args, **kwargs)

        def convert(tensor: ss.Tensor) -> ss.Tensor:
            fits = tensor.is_floating_point() or tensor.is_complex()
            shape = {"memory_format": memory_format} if memory_format and tensor.ndim == 4 else {}
            return tensor.to(tensor.device if device is None else device,
                             dtype if dtype and fits else tensor.dtype, **options, **shape)

        return self._apply(convert)

    def to_empty(self: Self, *, device: Any, recurse: bool = True) -> Self:
        """Move to ``device`` without the values: parameters and buffers are left uninitialised."""
        return self._apply(lambda t: ss.empty_like(t, device=device), recurse)

    # Description.

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What the printed module says between its brackets; a subclass may override this."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({name}): {indented(repr(module))}"
                    for name, module in self._modules.items()]
        return described(self._get_name(), lines, children)


def converted(parameter: Parameter, fn: TensorFunction) -> Parameter:
    """``parameter`` with the data, and the gradient, that ``fn`` makes of its own.

    It stays the same object, which optimizers know, unless it comes from or goes to the meta
    device.
    """
    with ss.no_grad():
        data, gradient = fn(parameter.detach()), parameter.grad
        if data.is_meta != parameter.is_meta:
            return Parameter(data, parameter.requires_grad)
        parameter.grad = None
        parameter.data = data
        if gradient is not None:
            parameter.grad = fn(gradient.detach()).requires_grad_(gradient.requires_grad)
    return parameter


def parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, dict[str, Any], Any]:
    """The device, dtype, other options and memory format that a call of ``to`` asks for.

    Raises TypeError for arguments of no form of ``to`` and for a dtype that is neither floating
    point nor complex.
    """
    names = {"device", "dtype", "non_blocking", "tensor", "memory_format", "copy"}
    if len(args) > 4 or not kwargs.keys() <= names:
        raise TypeError(f"to() takes a device, a dtype or a tensor, not {args!r} {kwargs!r}")
    device, dtype, rest = _leading(args)
    source = kwargs.get("tensor")
    if source is not None:
        device, dtype = source.device, source.dtype
    device, dtype = kwargs.get("device", device), spelled(kwargs.get("dtype", dtype))
    if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
        raise TypeError("nn.Module.to only accepts floating point or complex dtypes, but got "
                        f"desired dtype={dtype}")
    options = {"non_blocking": kwargs.get("non_blocking", rest[0] if rest else False)}
    return device, dtype, options, kwargs.get("memory_format")


def _leading(args: tuple[Any, ...]) -> tuple[Any, Any, tuple[Any, ...]]:
    """Device, dtype and the rest of the positional arguments of ``to``."""
    if not args:
        return None, None, ()
    first = spelled(args[0])
    if isinstance(first, ss.Tensor):
        return first.device, first.dtype, args[1:]
    if isinstance(first, ss.dtype):
        return None, first, args[1:]
    if first is not None and not isinstance(first, ss.device | str | int):
        raise TypeError(f"to() takes a device, a dtype or a tensor, not {typename(first)}")
    device = None if first is None else ss.device(first)
    return device, args[1] if len(args) > 1 else None, args[2:]


def indented(text: str) -> str:
    """``text`` with every line but the first moved in by two."""
    return text.replace("\n", "\n  ")


def described(name: str, lines: list[str], children: list[str]) -> str:
    """A module as text: on one line if it has no children and at most one line to say."""
    if len(lines) == 1 and not children:
        return f"{name}({lines[0]})"
    body = lines + children
    return f"{name}(\n  " + "\n  ".join(body) + "\n)" if body else f"{name}()"
