"""Hooks around ``forward`` and around the gradients that pass a module."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import slipstream as ss
from slipstream.nn.modules.state import State
from slipstream.utils.hooks import HookTable, RemovableHandle, add_hook

Hook = Callable[..., Any]


class Hooks(State):
    """Registration of hooks.

    ``_hooked`` tells the call whether to look for any; once true it stays so, and a table that
    became empty again costs that look.
    """

    _hooked: bool = False
    _forward_hooks: HookTable
    _forward_pre_hooks: HookTable
    _backward_hooks: HookTable
    _backward_pre_hooks: HookTable
    _forward_hooks_with_kwargs: dict[int, bool]
    _forward_hooks_always_called: dict[int, bool]
    _forward_pre_hooks_with_kwargs: dict[int, bool]

    def register_forward_pre_hook(self, hook: Hook, *, prepend: bool = False,
                                  with_kwargs: bool = False) -> RemovableHandle:
        """Call ``hook(module, args)`` before ``forward``; what it returns replaces ``args``.

        ``with_kwargs``: ``hook(module, args, kwargs)``, which returns None or both.
        """
        self._hooked = True
        extra = (self._forward_pre_hooks_with_kwargs,) if with_kwargs else ()
        return _register(self._forward_pre_hooks, hook, prepend, extra)

    def register_forward_hook(self, hook: Hook, *, prepend: bool = False,
                              with_kwargs: bool = False,
                              always_call: bool = False) -> RemovableHandle:
        """Call ``hook(module, args, output)`` after ``forward``; what it returns replaces it.

        ``with_kwargs``: ``hook(module, args, kwargs, output)``.  ``always_call``: also where an
        exception ended the call, with None as output.
        """
        self._hooked = True
        extra = [self._forward_hooks_with_kwargs] if with_kwargs else []
        if always_call:
            extra.append(self._forward_hooks_always_called)
        return _register(self._forward_hooks, hook, prepend, tuple(extra))

    def register_full_backward_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` when the inputs' gradients are known.

        Both are tuples with None for what has no gradient.  What the hook returns replaces
        ``grad_input``.
        """
        self._hooked = True
        return _register(self._backward_hooks, hook, prepend, ())

    def register_full_backward_pre_hook(self, hook: Hook,
                                        prepend: bool = False) -> RemovableHandle:
        """Call ``hook(module, grad_output)`` before the module's gradients are computed.

        What the hook returns replaces ``grad_output``.
        """
        self._hooked = True
        return _register(self._backward_pre_hooks, hook, prepend, ())


def _register(hooks: HookTable, hook: Hook, prepend: bool,
              extra: tuple[dict[int, bool], ...]) -> RemovableHandle:
    handle = add_hook(hooks, hook, prepend=prepend, extra=extra)
    for table in extra:
        table[handle.id] = True
    return handle


class EveryModule:
    """Hooks that run for every module, before a module's own."""

    forward_pre = HookTable()
    forward = HookTable()
    backward = HookTable()
    backward_pre = HookTable()
    always_called: ClassVar[dict[int, bool]] = {}


def register_module_forward_pre_hook(hook: Hook) -> RemovableHandle:
    """Call ``hook(module, args)`` before every module's ``forward``."""
    Hooks._hooked = True
    return add_hook(EveryModule.forward_pre, hook)


def register_module_forward_hook(hook: Hook, *, always_call: bool = False) -> RemovableHandle:
    """Call ``hook(module, args, output)`` after every module's ``forward``."""
    Hooks._hooked = True
    extra = (EveryModule.always_called,) if always_call else ()
    return _register(EveryModule.forward, hook, False, extra)


def register_module_full_backward_hook(hook: Hook) -> RemovableHandle:
    """Call ``hook(module, grad_input, grad_output)`` for every module."""
    Hooks._hooked = True
    return add_hook(EveryModule.backward, hook)


def register_module_full_backward_pre_hook(hook: Hook) -> RemovableHandle:
    """Call ``hook(module, grad_output)`` for every module."""
    Hooks._hooked = True
    return add_hook(EveryModule.backward_pre, hook)


def call_with_hooks(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``module(*args, **kwargs)`` with everything that is hooked to it."""
    called: set[int] = set()
    try:
        args, kwargs = _before(module, args, kwargs)
        gate = _gate(module)
        entered = args if gate is None else gate.enter(args)
        output = module.forward(*entered, **kwargs)
        output = _after(module, args, kwargs, output, called)
        return output if gate is None else gate.leave(output)
    except Exception:
        _always(module, args, kwargs, called)
        raise


def _before(module: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    for hook in tuple(EveryModule.forward_pre.values()):
        args = _as_tuple(hook(module, args), args)
    for number, hook in tuple(module._forward_pre_hooks.items()):
        if number not in module._forward_pre_hooks_with_kwargs:
            args = _as_tuple(hook(module, args), args)
            continue
        result = hook(module, args, kwargs)
        if result is not None:
            if not isinstance(result, tuple) or len(result) != 2:
                raise RuntimeError("a forward pre-hook with kwargs returns None or a tuple of "
                                   f"new args and kwargs, not {result!r}")
            args, kwargs = result
    return args, kwargs


def _as_tuple(result: Any, args: Any) -> Any:
    if result is None:
        return args
    return result if isinstance(result, tuple) else (result,)


def _forward_hooks(module: Any) -> list[tuple[int, Hook, bool, bool]]:
    """Number, hook, whether it takes kwargs, whether it runs after an exception too."""
    every = [(number, hook, False, number in EveryModule.always_called)
             for number, hook in EveryModule.forward.items()]
    own = [(number, hook, number in module._forward_hooks_with_kwargs,
            number in module._forward_hooks_always_called)
           for number, hook in module._forward_hooks.items()]
    return every + own


def _after(module: Any, args: Any, kwargs: Any, output: Any, called: set[int]) -> Any:
    for number, hook, with_kwargs, _ in _forward_hooks(module):
        called.add(number)
        result = hook(module, args, kwargs, output) if with_kwargs else hook(module, args, output)
        output = output if result is None else result
    return output


def _always(module: Any, args: Any, kwargs: Any, called: set[int]) -> None:
    """After an exception: the hooks that asked for it; their own exceptions do not hide it."""
    for number, hook, with_kwargs, always in _forward_hooks(module):
        if always and number not in called:
            rest = (args, kwargs, None) if with_kwargs else (args, None)
            try:
                hook(module, *rest)
            except Exception as error:
                warnings.warn(f"a forward hook failed after an exception: {error!r}",
                              stacklevel=4)


def _gate(module: Any) -> Gate | None:
    """What watches the gradients of this call, where anything is hooked to them."""
    hooks = [*EveryModule.backward.values(), *module._backward_hooks.values()]
    pre_hooks = [*EveryModule.backward_pre.values(), *module._backward_pre_hooks.values()]
    return Gate(module, hooks, pre_hooks) if hooks or pre_hooks else None


class Gate:
    """Stands before and behind one call of a module; every gradient of the call passes it.

    Gradients of the outputs arrive first and those of the inputs last.  Where no input has a
    gradient, the hooks run at the outputs.
    """

    def __init__(self, module: Any, hooks: Sequence[Hook], pre_hooks: Sequence[Hook]) -> None:
        self.module = module
        self.hooks = hooks
        self.pre_hooks = pre_hooks
        self.grad_output: tuple[Any, ...] | None = None
        self.input_places: list[int] | None = None
        self.input_count = 0
        self.output_places: list[int] = []
        self.output_count = 0

    def enter(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Let the inputs in."""
        self.input_count = len(args)
        passed, places = _pass(self.at_inputs, args)
        self.input_places = places or None
        return passed

    def leave(self, output: Any) -> Any:
        """Let the output out: a tensor, or a tuple or list that holds some."""
        items = output if isinstance(output, tuple | list) else (output,)
        self.output_count = len(items)
        passed, self.output_places = _pass(self.at_outputs, tuple(items))
        if items is not output:
            return passed[0]
        return type(output)(*passed) if hasattr(output, "_fields") else type(output)(passed)

    def at_outputs(self, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        """The gradients of the outputs are here; return those to go on with."""
        full = _spread(gradients, self.output_places, self.output_count)
        for hook in self.pre_hooks:
            full = _replaced(hook(self.module, full), full, "grad_output")
        self.grad_output = full
        if self.input_places is None:
            for hook in self.hooks:
                if hook(self.module, (None,) * self.input_count, full) is not None:
                    raise RuntimeError("a backward hook may replace grad_input only where an "
                                       "input of the module requires a gradient")
        return tuple(full[place] for place in self.output_places)

    def at_inputs(self, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        """The gradients of the inputs are here; return those to go on with."""
        places = self.input_places or []
        full = _spread(gradients, places, self.input_count)
        if self.grad_output is not None:
            for hook in self.hooks:
                full = _replaced(hook(self.module, full, self.grad_output), full, "grad_input")
            self.grad_output = None
        return tuple(full[place] for place in places)


class Passage(ss.autograd.Function):
    """The identity of tensors, whose gradients go through a function on their way."""

    @staticmethod
    def forward(ctx: Any, notify: Hook, *tensors: ss.Tensor) -> tuple[ss.Tensor, ...]:
        """Return the tensors."""
        ctx.set_materialize_grads(False)
        ctx.notify = notify
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        """Return what the function makes of the gradients."""
        return (None, *ctx.notify(gradients))


def _pass(notify: Hook, items: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[int]]:
    """``items`` with the tensors that require a gradient sent through Passage; their places."""
    places = [place for place, item in enumerate(items)
              if isinstance(item, ss.Tensor) and item.requires_grad]
    if not places or not ss.is_grad_enabled():
        return items, []
    passed = list(items)
    for place, tensor in zip(places, Passage.apply(notify, *(items[at] for at in places)),
                             strict=True):
        passed[place] = tensor
    return tuple(passed), places


def _spread(values: Sequence[Any], places: Sequence[int], count: int) -> tuple[Any, ...]:
    """A tuple of ``count`` with ``values`` at ``places`` and None elsewhere."""
    full: list[Any] = [None] * count
    for place, value in zip(places, values, strict=True):
        full[place] = value
    return tuple(full)


def _replaced(result: Any, full: tuple[Any, ...], what: str) -> tuple[Any, ...]:
    if result is None:
        return full
    result = _as_tuple(result, full)
    if len(result) != len(full):
        raise RuntimeError(f"a backward hook returned {len(result)} values instead of the "
                           f"{len(full)} of {what}")
    return result
