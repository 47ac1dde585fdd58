"""The state of a tree of modules as a flat mapping from dotted names to tensors."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import slipstream as ss
from slipstream.core.vocab.warned import warn_caller
from slipstream.nn.modules.registry import typename
from slipstream.nn.modules.traversal import Traversal
from slipstream.nn.parameter import Parameter
from slipstream.utils.hooks import HookTable, RemovableHandle, add_hook

EXTRA = "_extra_state"


class StateDict(OrderedDict[str, Any]):
    """Tensors by dotted name, in the order of registration; ``_metadata`` holds versions."""

    _metadata: OrderedDict[str, dict[str, Any]]

    def __init__(self, *items: Any) -> None:
        super().__init__(*items)
        self._metadata = OrderedDict()


class _Keys(NamedTuple):
    missing_keys: list[str]
    unexpected_keys: list[str]


class _IncompatibleKeys(_Keys):
    """What ``load_state_dict`` found missing and unexpected."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return (f"_IncompatibleKeys(missing_keys={self.missing_keys!r}, "
                f"unexpected_keys={self.unexpected_keys!r})")

    __str__ = __repr__


def _by_position(args: tuple[Any, ...], named: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of state_dict, those by position where none is named."""
    if len(args) > len(named):
        raise TypeError(f"state_dict() takes at most {len(named)} arguments, got {len(args)}")
    warn_caller("state_dict() by position is deprecated; name the arguments: destination=, "
                "prefix=, keep_vars=", FutureWarning)
    usual = (None, "", False)
    return (*[given if own is default else own for given, own, default in zip(
        args, named, usual, strict=False)], *named[len(args):])


class State(Traversal):
    """``state_dict`` and ``load_state_dict``, with the hooks around them."""

    _version: int = 1
    _state_dict_hooks: HookTable
    _state_dict_pre_hooks: HookTable
    _load_state_dict_pre_hooks: HookTable
    _load_state_dict_post_hooks: HookTable

    def get_extra_state(self) -> Any:
        """State beside parameters and buffers; a class that has some overrides this."""
        raise RuntimeError(f"{type(self).__name__} has no extra state: define get_extra_state() "
                           "and set_extra_state() together")

    def set_extra_state(self, state: Any) -> None:
        """Take over what ``get_extra_state`` gave; a class that has some overrides this."""
        raise RuntimeError(f"{type(self).__name__} takes no extra state: define get_extra_state() "
                           "and set_extra_state() together")

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "",
                   keep_vars: bool = False) -> Any:
        """Parameters and persistent buffers by dotted name.

        The tensors share storage with the module's; they are detached unless ``keep_vars``.
        Arguments by position are taken in this order, with a FutureWarning.
        """
        if args:
            destination, prefix, keep_vars = _by_position(args, (destination, prefix, keep_vars))
        if destination is None:
            destination = StateDict()
        metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.",
                                  keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            replaced = hook(self, destination, prefix, metadata)
            destination = destination if replaced is None else replaced
        return destination

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Write this module's own part; a class with other state overrides this."""
        for name, tensor in self._own_state().items():
            destination[prefix + name] = tensor if keep_vars else tensor.detach()
        if type(self).get_extra_state is not State.get_extra_state:
            destination[prefix + EXTRA] = self.get_extra_state()

    def _own_state(self) -> dict[str, ss.Tensor]:
        """This module's own parameters and persistent buffers."""
        transient = self._non_persistent_buffers_set
        state: dict[str, Any] = {name: parameter for name, parameter in self._parameters.items()
                                 if parameter is not None}
        state.update((name, buffer) for name, buffer in self._buffers.items()
                     if buffer is not None and name not in transient)
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True,
                        assign: bool = False) -> _IncompatibleKeys:
        """Copy the tensors of ``state_dict`` into the parameters and buffers of these names.

        ``assign`` takes the tensors themselves over instead, with their dtype and device.  Returns
        the missing and the unexpected keys.  Raises TypeError if ``state_dict`` is no mapping,
        RuntimeError that lists every tensor of a wrong shape and, if ``strict``, every missing and
        unexpected key.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"state_dict should be a dict, not {typename(state_dict)}")
        loading = Loading(getattr(state_dict, "_metadata", {}), assign)
        loading.load(self, "", OrderedDict(state_dict))
        if strict:
            loading.report_keys()
        if loading.errors:
            raise RuntimeError("\n\t".join(
                [f"Error(s) in loading state_dict for {type(self).__name__}:", *loading.errors]))
        return _IncompatibleKeys(loading.missing, loading.unexpected)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str,
                              local_metadata: dict[str, Any], strict: bool,
                              missing_keys: list[str], unexpected_keys: list[str],
                              error_msgs: list[str]) -> None:
        """Read this module's own part; a class with other state overrides this.

        What is wrong is added to the three lists.
        """
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
                 error_msgs)
        own = self._own_state()
        for name, target in own.items():
            if prefix + name in state_dict:
                assign = local_metadata.get("assign_to_params_buffers", False)
                source = state_dict[prefix + name]
                error_msgs.extend(self._load_tensor(prefix + name, target, source, assign))
            elif strict:
                missing_keys.append(prefix + name)
        if type(self).set_extra_state is not State.set_extra_state:
            if prefix + EXTRA in state_dict:
                self.set_extra_state(state_dict[prefix + EXTRA])
            elif strict:
                missing_keys.append(prefix + EXTRA)
        if strict:
            unexpected_keys.extend(self._surplus(state_dict, prefix, own))

    def _load_tensor(self, key: str, target: ss.Tensor, source: Any, assign: bool) -> list[str]:
        """Take ``source`` over as this module's ``key``; return what is wrong with it."""
        if not isinstance(source, ss.Tensor):
            return [f"expected a tensor for {key}, got {typename(source)}"]
        if source.shape != target.shape:
            return [f"size mismatch for {key}: the state has shape {tuple(source.shape)}, "
                    f"the model has {tuple(target.shape)}"]
        try:
            if assign:
                self._assign_tensor(key.rpartition(".")[2], target, source)
            else:
                with ss.no_grad():
                    target.copy_(source)
        except Exception as error:
            return [f"{key} could not be copied: {error}"]
        return []

    def _assign_tensor(self, name: str, target: ss.Tensor, source: ss.Tensor) -> None:
        if isinstance(target, Parameter):
            if not isinstance(source, Parameter):
                source = Parameter(source, target.requires_grad)
            source.requires_grad_(target.requires_grad)
        setattr(self, name, source)

    def _surplus(self, state_dict: dict[str, Any], prefix: str, own: dict[str, Any]) -> list[str]:
        """Keys below ``prefix`` that name nothing here."""
        known = {*own, *self._modules}
        if type(self).set_extra_state is not State.set_extra_state:
            known.add(EXTRA)
        surplus = []
        for key in state_dict:
            head, dot, _ = key[len(prefix):].partition(".")
            if key.startswith(prefix) and (head not in known or (dot and head in own)):
                surplus.append(key)
        return surplus

    def register_state_dict_pre_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Call ``hook(module, prefix, keep_vars)`` before ``state_dict`` reads this module."""
        return add_hook(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, local_metadata)`` after this module is written.

        The hook may change ``state_dict`` in place; ``state_dict()`` raises RuntimeError if it
        returns anything.
        """
        return add_hook(self._state_dict_hooks, partial(_call_post_hook, hook))

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """As the public method, but what the hook returns takes the dict's place."""
        return add_hook(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, local_metadata, strict, missing, unexpected,
        errors)`` before this module reads its part of ``state_dict``."""
        return add_hook(self._load_state_dict_pre_hooks, partial(hook, self))

    def _register_load_state_dict_pre_hook(self, hook: Callable[..., None],
                                           with_module: bool = False) -> RemovableHandle:
        """As the public method; the module is passed only if ``with_module``."""
        return add_hook(self._load_state_dict_pre_hooks, partial(hook, self) if with_module
                        else hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Call ``hook(module, incompatible_keys)`` after this module and those below have loaded.

        The hook may change the two lists in place.
        """
        return add_hook(self._load_state_dict_post_hooks, hook)


def _call_post_hook(hook: Callable[..., Any], *arguments: Any) -> None:
    if hook(*arguments) is not None:
        raise RuntimeError("a state_dict post hook changes the dict in place and returns None")


class Loading:
    """One run of ``load_state_dict`` over a tree."""

    def __init__(self, metadata: Mapping[str, Any], assign: bool) -> None:
        self.metadata = metadata
        self.assign = assign
        self.missing: list[str] = []
        self.unexpected: list[str] = []
        self.errors: list[str] = []

    def load(self, module: State, prefix: str, state: OrderedDict[str, Any]) -> None:
        """Load ``module`` and those below it from ``state``, whose keys begin with ``prefix``."""
        metadata = dict(self.metadata.get(prefix[:-1], {}))
        if self.assign:
            metadata["assign_to_params_buffers"] = True
        # Keys are collected in any case: strict decides whether they are errors.
        module._load_from_state_dict(state, prefix, metadata, True, self.missing,
                                     self.unexpected, self.errors)
        for name, child in module._modules.items():
            if child is not None:
                below = f"{prefix}{name}."
                part = OrderedDict((k, v) for k, v in state.items() if k.startswith(below))
                self.load(child, below, part)
        told = _IncompatibleKeys(self.missing, self.unexpected)
        for hook in module._load_state_dict_post_hooks.values():
            if hook(module, told) is not None:
                raise RuntimeError("a load_state_dict post hook changes the lists of keys in "
                                   "place and returns None")

    def report_keys(self) -> None:
        """Turn missing and unexpected keys into errors."""
        for what, keys in (("Unexpected", self.unexpected), ("Missing", self.missing)):
            if keys:
                names = ", ".join(f'"{key}"' for key in keys)
                self.errors.insert(0, f"{what} key(s) in state_dict: {names}.")
