"""Optimizer: parameters in groups, their state, and saving it in PyTorch's format."""

from __future__ import annotations

import copy
import functools
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import slipstream as ss
from slipstream.core.api.updates import end_step, is_capturing
from slipstream.core.vocab.errors import MixedDeviceError
from slipstream.utils.gradients import clear_gradients
from slipstream.utils.hooks import HookTable, RemovableHandle, add_hook

Closure = Callable[[], Any]
Group = dict[str, Any]
Hook = Callable[..., Any]

REQUIRED = object()
_HOOK_TABLES = (
    "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks",
    "_optimizer_state_dict_pre_hooks", "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks", "_optimizer_load_state_dict_post_hooks",
)


class Optimizer:
    """Base class of optimizers.

    ``params``: tensors, pairs of name and tensor, or dicts with the key "params" and options of
    their own; ``defaults``: the options of groups that do not say otherwise.  A subclass defines
    ``step``.  Raises TypeError if ``params`` is one tensor or holds anything else, ValueError if it
    is empty or names a parameter in two groups.
    """

    # Whether the formula takes the number of the step.
    counts_steps = False

    def _can_be_captured(self) -> bool:
        """Whether a capture may hold a step although the formula takes its number."""
        return False

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        if isinstance(params, ss.Tensor):
            raise TypeError("params argument given to the optimizer should be an iterable of "
                            "tensors or dicts, but got one tensor")
        self.defaults = defaults
        self._make_hook_tables()
        self.state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[Group] = []
        given = list(params)
        if not given:
            raise ValueError("optimizer got an empty parameter list")
        for group in given if isinstance(given[0], dict) else [{"params": given}]:
            self.add_param_group(dict(group))

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "step" in cls.__dict__:
            cls.step = with_step_hooks(cls.__dict__["step"])  # type: ignore[method-assign]

    def _make_hook_tables(self) -> None:
        for name in _HOOK_TABLES:
            self.__dict__.setdefault(name, HookTable())

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_hook_tables()
        self.defaults.setdefault("differentiable", False)

    def __repr__(self) -> str:
        parts = []
        for number, group in enumerate(self.param_groups):
            options = (f"    {key}: {group[key]}" for key in sorted(group) if key != "params")
            parts.append("\n".join([f"Parameter Group {number}", *options]))
        return f"{type(self).__name__} (\n" + "\n\n".join(parts) + "\n)"

    def step(self, closure: Closure | None = None) -> Any:
        """Update every parameter that has a gradient.

        ``closure`` is called first, with gradients recorded; its result is returned.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no step")

    def ready(self) -> bool:
        """Whether to step, after a loss scaler: it sets ``grad_scale`` and ``found_inf``.

        Gradients are divided by the scale; where one is not finite the step is left out, which
        looks at ``found_inf`` and waits for its device.
        """
        found = getattr(self, "found_inf", None)
        if found is not None and number_of(found):
            return False
        self.divide_gradients()
        return True

    def divide_gradients(self) -> None:
        """Divide the gradients by ``grad_scale``, where it is set."""
        scale = getattr(self, "grad_scale", None)
        if scale is not None:
            devices: dict[Any, list[ss.Tensor]] = {}
            for group in self.param_groups:
                for parameter in trained(group):
                    devices.setdefault(parameter.device, []).append(parameter.grad)
            with ss.no_grad():
                for device, gradients in devices.items():
                    ss._foreach_div_(gradients, scale.to(device))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or fill them with zero."""
        for group in self.param_groups:
            clear_gradients(group["params"], set_to_none)

    # Groups.

    def add_param_group(self, param_group: Group) -> None:
        """Add a group: a dict with "params", and options that differ from the defaults.

        Raises TypeError if it is no dict or holds anything but tensors, ValueError for a tensor
        that is no leaf, for one that another group has, and for an option without a value.
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        _unpack(param_group)
        for parameter in param_group["params"]:
            self._check_parameter(parameter)
        for name, default in self.defaults.items():
            if default is REQUIRED and name not in param_group:
                raise ValueError("parameter group didn't specify a value of required "
                                 f"optimization parameter {name}")
            param_group.setdefault(name, default)
        self._check_repeats(param_group["params"])
        self._check_names(param_group)
        self.param_groups.append(param_group)

    def _check_parameter(self, parameter: Any) -> None:
        if not isinstance(parameter, ss.Tensor):
            raise TypeError(f"optimizer can only optimize Tensors, but one of the params is "
                            f"{type(parameter).__name__}")
        if not (self.defaults.get("differentiable") or parameter.is_leaf
                or parameter.retains_grad):
            raise ValueError("can't optimize a non-leaf Tensor\n  mend: hand over the leaf that it "
                             "was computed from, or detach().requires_grad_() for one of its own")

    def _check_repeats(self, params: list[ss.Tensor]) -> None:
        known = {id(each) for group in self.param_groups for each in group["params"]}
        mine = {id(each) for each in params}
        if not known.isdisjoint(mine):
            raise ValueError("some parameters appear in more than one parameter group")
        if len(mine) < len(params):
            warnings.warn("a parameter group holds a parameter twice, which steps twice",
                          stacklevel=4)

    def _check_names(self, param_group: Group) -> None:
        named = {"param_names" in group for group in self.param_groups}
        if named and named != {"param_names" in param_group}:
            raise ValueError("all optimizer param groups should be with/without names")

    # State.

    def state_dict(self) -> dict[str, Any]:
        """``state`` and ``param_groups``, with parameters replaced by their number.

        The layout is PyTorch's.  The tensors are the optimizer's own, not copies.
        """
        for hook in self._tables("state_dict_pre"):
            hook(self)
        number: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            packed = {key: value for key, value in group.items() if key != "params"}
            packed["params"] = [number.setdefault(id(each), len(number))
                                for each in group["params"]]
            groups.append(packed)
        state = {number[id(key)] if isinstance(key, ss.Tensor) else key: value
                 for key, value in self.state.items()}
        result: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in self._tables("state_dict_post"):
            replaced = hook(self, result)
            result = result if replaced is None else replaced
        return result

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the options and the state of ``state_dict``, in the order of its parameters.

        State moves to its parameter's device and dtype; "step" keeps its dtype.  Raises ValueError
        if the groups do not match in number or size.
        """
        state_dict = dict(state_dict)
        for hook in self._tables("load_state_dict_pre"):
            replaced = hook(self, state_dict)
            state_dict = state_dict if replaced is None else replaced
        groups = copy.deepcopy(state_dict["param_groups"])
        self._check_sizes(groups)
        saved = chain.from_iterable(group["params"] for group in groups)
        own = chain.from_iterable(group["params"] for group in self.param_groups)
        target = dict(zip(saved, own, strict=True))
        state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            state[target.get(key, key)] = fitted(value, target.get(key))
        for group in groups:
            if not group.get("capturable"):
                count_on_host([state[target[key]] for key in group["params"]
                               if target[key] in state])
        for mine, new in zip(self.param_groups, groups, strict=True):
            new["params"] = mine["params"]
            if "param_names" in mine:
                new.setdefault("param_names", mine["param_names"])
        self.__setstate__({"state": state, "param_groups": groups})
        for hook in self._tables("load_state_dict_post"):
            hook(self)

    def _check_sizes(self, groups: list[Group]) -> None:
        if len(groups) != len(self.param_groups):
            raise ValueError(f"the state has {len(groups)} parameter groups, the optimizer "
                             f"{len(self.param_groups)}")
        for place, (mine, new) in enumerate(zip(self.param_groups, groups, strict=True)):
            if len(mine["params"]) != len(new["params"]):
                raise ValueError(f"group {place} of the state has {len(new['params'])} "
                                 f"parameters, the optimizer's {len(mine['params'])}")

    # Hooks.

    def _tables(self, what: str) -> tuple[Hook, ...]:
        return tuple(self.__dict__[f"_optimizer_{what}_hooks"].values())

    def _hook(self, what: str, hook: Hook, prepend: bool = False) -> RemovableHandle:
        return add_hook(self.__dict__[f"_optimizer_{what}_hooks"], hook, prepend=prepend)

    def register_step_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` before a step; it returns None or new ones."""
        return self._hook("step_pre", hook)

    def register_step_post_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` after a step."""
        return self._hook("step_post", hook)

    def register_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer)`` before ``state_dict``."""
        return self._hook("state_dict_pre", hook, prepend)

    def register_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` after ``state_dict``; its result replaces it."""
        return self._hook("state_dict_post", hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Hook,
                                          prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` before loading; its result replaces the dict."""
        return self._hook("load_state_dict_pre", hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Hook,
                                           prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer)`` after loading."""
        return self._hook("load_state_dict_post", hook, prepend)


def with_step_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """``step`` with the optimizer's hooks before and after it.

    As in PyTorch the positional arguments that a hook sees begin with the optimizer.
    """
    @functools.wraps(step)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        self = args[0]
        if self.counts_steps and is_capturing():
            check_capture(self)
        if self._optimizer_step_pre_hooks:
            args, kwargs = before_step(self, args, kwargs)
        try:
            result = step(*args, **kwargs)
        except MixedDeviceError:
            tell_of_moves(self)
            raise
        if self._optimizer_step_post_hooks:
            for hook in self._tables("step_post"):
                hook(self, args, kwargs)
        end_step()
        return result

    return hooked


def tell_of_moves(optimizer: Any) -> None:
    """Raise RuntimeError where parameters were moved after a step, and their state was not."""
    for parameter, state in optimizer.state.items():
        for name, value in state.items() if isinstance(parameter, ss.Tensor) else ():
            if (isinstance(value, ss.Tensor) and value.ndim > 0
                    and value.device != parameter.device):
                raise RuntimeError(
                    "Expected all tensors to be on the same device, but a parameter of shape "
                    f"{tuple(parameter.shape)} is on {parameter.device} and its {name}, which "
                    f"{type(optimizer).__name__} keeps, on {value.device}: the model was moved "
                    "after a step\n  mend: move it before the optimizer is made, or call "
                    "optimizer.load_state_dict(optimizer.state_dict()), which moves the state"
                ) from None


def before_step(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """The arguments of a step after its hooks; raises RuntimeError for what is no pair of them."""
    for hook in optimizer._tables("step_pre"):
        replaced = hook(optimizer, args, kwargs)
        if replaced is None:
            continue
        if not isinstance(replaced, tuple) or len(replaced) != 2:
            raise RuntimeError("a step pre-hook returns None or a tuple of new args and "
                               f"kwargs, not {replaced!r}")
        args, kwargs = replaced
    return args, kwargs


def check_capture(optimizer: Any) -> None:
    """Raise RuntimeError where replays would repeat the captured step's number for ever."""
    name = type(optimizer).__name__
    if optimizer._can_be_captured():
        if all(optimizer.state.get(parameter) for group in optimizer.param_groups
               for parameter in trained(group)):
            return
        raise RuntimeError(
            f"cuda graph: the first {name}.step() of a parameter inside a capture: it makes the "
            "state, and each replay would begin with a new one\n  mend: take a step before the "
            "capture (a warm-up, as for whatever else is made once)")
    raise RuntimeError(
        f"cuda graph: {name}.step() inside a capture: its formula takes the number of the step, "
        "which the host counts, and each replay would be the same step again\n  mend: give "
        "Adam or AdamW capturable=True, or capture forward and backward and call step() after the "
        "replay; it is replayed by itself")


def _unpack(group: Group) -> None:
    """Make ``group["params"]`` a list of tensors, with names beside it if it had names."""
    params = group["params"]
    if isinstance(params, ss.Tensor):
        group["params"] = [params]
        return
    if isinstance(params, set):
        raise TypeError("optimizer parameters need to be organized in ordered collections, but "
                        "the ordering of tensors in sets will change between runs")
    items = list(params)
    named = [isinstance(item, tuple) for item in items]
    if any(named):
        if not all(named):
            raise ValueError("all optimizer params should be with/without names")
        group["param_names"] = [name for name, _ in items]
        items = [item for _, item in items]
    group["params"] = items


def fitted(value: Any, parameter: ss.Tensor | None, key: str = "") -> Any:
    """Loaded state as ``parameter`` needs it; tensors that fit already are taken over."""
    if isinstance(value, ss.Tensor):
        if parameter is None:
            return value
        if key == "step":
            # Counted on the host, but where a card counts its own: not on another device.
            home = parameter.device if value.device.type != "cpu" else value.device
            return value.to(home)
        dtype = parameter.dtype if parameter.is_floating_point() else value.dtype
        return value.to(device=parameter.device, dtype=dtype)
    if isinstance(value, dict):
        return {name: fitted(item, parameter, name) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(fitted(item, parameter) for item in value)
    return value


def count_on_host(states: list[dict[str, Any]]) -> None:
    """Bring steps that were loaded to a card back: the host's own count gives the same bits."""
    for state in states:
        step = state.get("step")
        if isinstance(step, ss.Tensor) and step.device.type == "cuda":
            state["step"] = step.cpu()


def run_closure(closure: Closure | None) -> Any:
    """What ``closure`` returns, called with gradients recorded; None without one."""
    if closure is None:
        return None
    with ss.enable_grad():
        return closure()


def trained(group: Group) -> list[ss.Tensor]:
    """The parameters of a group that have a gradient; the others are left alone."""
    return [parameter for parameter in group["params"] if parameter.grad is not None]


def number_of(value: Any) -> float:
    """An option that may be a tensor of one element, as a Python number; waits for its device.

    Raises RuntimeError inside a capture, where a tensor of a card cannot be read.
    """
    if not isinstance(value, ss.Tensor):
        return value
    if value.is_cuda and is_capturing():
        raise RuntimeError(
            "cuda graph: step() inside a capture reads an option that is a tensor of a card, such "
            "as lr, and captured work does not run before the graph is replayed\n  mend: give a "
            "Python number, which all replays take, or use Adam or AdamW with capturable=True, "
            "whose replays read a tensor lr anew")
    return value.item()


def option_of(group: Group, name: str) -> Any:
    """An option as a number; as the tensor it is where the step is to be differentiated by it."""
    return kept(group, group[name])


def kept(group: Group, value: Any) -> Any:
    """A number; the tensor itself where gradients flow to it."""
    return value.reshape(()) if is_sought(group, value) else number_of(value)


def is_sought(group: Group, value: Any) -> bool:
    """Whether gradients flow to an option's value through a differentiable step."""
    return (isinstance(value, ss.Tensor) and value.requires_grad
            and bool(group.get("differentiable")))


def refuse_sought(group: Group, name: str) -> None:
    """Raise NotImplementedError where gradients would flow to an option, and cannot."""
    values = group[name]
    for value in values if isinstance(values, tuple | list) else (values,):
        if is_sought(group, value):
            raise NotImplementedError(
                f"a differentiable step passes no gradient on to {name} here\n  mend: give a "
                f"number, or {name}.detach()")


def require(fits: bool, name: str, value: object) -> None:
    """Raise ValueError unless an option's value fits."""
    if not fits:
        raise ValueError(f"Invalid {name}: {value}")


def check_options(defaults: dict[str, Any]) -> None:
    """Raise ValueError for a bad lr or weight_decay, RuntimeError for flags that exclude others.

    ``foreach`` and ``fused`` choose between PyTorch's implementations.  Here all parameters of a
    device and dtype are updated together unless ``foreach`` is False; the results are the same.
    """
    lr, decay = defaults["lr"], defaults["weight_decay"]
    if isinstance(lr, ss.Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    require(number_of(lr) >= 0.0, "learning rate", lr)
    require(number_of(decay) >= 0.0, "weight_decay value", decay)
    if defaults["fused"] and defaults["differentiable"]:
        raise RuntimeError("`fused` does not support `differentiable`")
    if defaults["fused"] and defaults["foreach"]:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
