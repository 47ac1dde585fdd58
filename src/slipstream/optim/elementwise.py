"""What optimizers share whose update is one formula of the elements."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import slipstream as ss
from slipstream.core.api.updates import recording_state
from slipstream.optim.gating import Gated, gate_of
from slipstream.optim.optimizer import (
    Closure,
    Group,
    Optimizer,
    number_of,
    run_closure,
    trained,
)
from slipstream.optim.parts import Lists, Part
from slipstream.optim.update import apply_update

# Devices whose kernels take lists.
FUSED = ("cuda", "cpu")
# Devices whose steps a capture may hold.
CAPTURABLE = ("cuda",)


def step_counter() -> ss.Tensor:
    """The number of steps so far, on the CPU, as PyTorch keeps it."""
    dtype = ss.float64 if ss.get_default_dtype() == ss.float64 else ss.float32
    return ss.zeros((), dtype=dtype, device="cpu")


def counters_from_numbers(states: Iterable[dict[str, Any]], names: tuple[str, ...]) -> None:
    """Put what older versions kept as plain numbers under these names into tensors."""
    for values in states:
        for name in names:
            if name in values and not isinstance(values[name], ss.Tensor):
                values[name] = step_counter() + float(values[name])


def decayed(at: Any, maximize: bool, decay: bool) -> Any:
    """The gradient to descend along, with the decay's part of it."""
    gradient = -at.gradient if maximize else at.gradient
    return gradient + at.weight_decay * at.parameter if decay else gradient


class Elementwise(Optimizer):
    """A subclass says what a parameter's state is, and gives each step's formula and numbers."""

    # Options that older states lack, with what they mean then.
    later: tuple[tuple[str, Any], ...] = (
        ("foreach", None), ("maximize", False), ("differentiable", False), ("capturable", False))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self.later:
                if name in self.defaults:
                    group.setdefault(name, value)
        counters_from_numbers(self.state.values(), ("step", *self.counters))

    # What of the state is a number beside the step, in a tensor.
    counters: tuple[str, ...] = ()
    # Whether numbers and formula follow from the group's options and the number of the step, so
    # that parameters which began together share them; else each is updated by itself.
    uniform = False
    # Loss scalers set ``found_inf`` before a step instead of looking at it.
    _step_supports_amp_scaling = True
    _lists: Lists | None = None

    def step(self, closure: Closure | None = None) -> Any:
        """Update every parameter that has a gradient; return what ``closure`` returns."""
        loss = run_closure(closure)
        found = gate_of(self, self._gates)
        if found is None and not self.ready():
            return loss
        state = recording_state()
        before, state.grad_enabled = state.grad_enabled, bool(self.defaults["differentiable"])
        try:
            if found is not None:
                self.divide_gradients()
            for part in self._parts(found):
                self._update_part(part, found)
        finally:
            state.grad_enabled = before
        return loss

    def _first_state(self, parameter: ss.Tensor, group: Group) -> dict[str, Any]:
        """The state before the first step."""
        raise NotImplementedError

    def _plan(self, group: Group, state: dict[str, Any]) -> tuple[Any, tuple[str, ...], Any]:
        """This step's formula, the names of the tensors it writes, and its numbers."""
        raise NotImplementedError

    def _begin(self, parameter: ss.Tensor, group: Group) -> tuple[dict[str, Any], Any]:
        """A parameter's state, and what tells this step of it from those of others."""
        state = self.state[parameter]
        if group.get("capturable") and parameter.device.type not in CAPTURABLE:
            raise AssertionError("If capturable=True, params and state_steps must be on supported "
                                 f"devices: {list(CAPTURABLE)}.")
        if not state:
            state.update(self._first_state(parameter, group))
        if not self.uniform:
            # A list of its own, which heeds a bad index that an earlier kernel met.
            return state, id(parameter)
        counts = self.counts_steps and self._counts_on_device(group, parameter)
        return state, parameter.device if counts else None

    def _counts_on_device(self, group: Group, parameter: ss.Tensor) -> bool:
        """Whether the device counts a parameter's steps: then a capture may hold them."""
        return (bool(group.get("capturable")) and parameter.device.type == "cuda"
                and self._gates(group) and not parameter.is_complex()
                and not self.defaults["differentiable"])

    def _can_be_captured(self) -> bool:
        """Whether a capture may hold a step: every replay is a step more."""
        return all(self._counts_on_device(group, parameter)
                   for group in self.param_groups for parameter in trained(group))

    def _plan_of(self, part: Part) -> tuple[Any, tuple[str, ...], Any]:
        return self._plan(part.group, part.states[0])

    def _gates(self, group: Group) -> bool:
        """Whether the device itself can leave out a group's step."""
        return self.uniform and not self.counts_steps

    def _plan_on_device(self, part: Part) -> tuple[Any, tuple[str, ...], Any, dict[str, Any]]:
        """`_plan_of` where the device counts the steps; and the tensors that all members read."""
        return (*self._plan_of(part), {})

    def _parts(self, gate: ss.Tensor | None) -> list[Part]:
        """The parameters that have a gradient, parted by group and step."""
        found = self._lists
        gates_now = gate is not None and not (found and found.gated)
        if found is None or gates_now or not found.same(self.param_groups, self.state):
            check_fused(self.param_groups)
            members = [(parameter, group, *self._begin(parameter, group))
                       for group in self.param_groups for parameter in trained(group)]
            found = self._lists = Lists(self.param_groups, self.state, members,
                                        None if gate is None else gate.device)
        return found.parts

    def _update_part(self, part: Part, gate: ss.Tensor | None) -> None:
        if not part.advance(gate):
            # Counters were written by hand, or lie where reading one is a wait.
            self._lists = None
            if gate is not None and number_of(gate):
                return
            for parameter in part.params:
                self._update(parameter, part.group)
            return
        shared: dict[str, Any] = {}
        if part.counters is None:
            rule, names, numbers = self._plan_of(part)
        else:
            rule, names, numbers, shared = self._plan_on_device(part)
        if gate is not None:
            rule, shared = Gated(rule, names), {"found": gate, **shared}
        together = (wants_lists(part.group) and not part.complex
                    and not self.defaults["differentiable"])
        places = part.run(rule, names, numbers, shared) if together else range(len(part.params))
        for place in places:
            parameter = part.params[place]
            self._write(rule, written(parameter, part.states[place], names),
                        {"gradient": parameter.grad, **shared}, numbers)

    def _update(self, parameter: ss.Tensor, group: Group) -> None:
        state, _ = self._begin(parameter, group)
        state["step"] += 1
        rule, names, numbers = self._plan(group, state)
        self._write(rule, written(parameter, state, names), {"gradient": parameter.grad}, numbers)

    def _write(self, rule: Any, targets: dict[str, Any], inputs: dict[str, Any],
               numbers: dict[str, Any]) -> None:
        (record if self.defaults["differentiable"] else write)(rule, targets, inputs, numbers)


def check_fused(groups: list[Group]) -> None:
    """Raise RuntimeError for parameters that a group with ``fused=True`` cannot have."""
    for group in groups:
        for parameter in trained(group) if group.get("fused") else ():
            if not parameter.is_floating_point() or parameter.device.type not in FUSED:
                raise RuntimeError(
                    "`fused=True` requires all the params to be floating point Tensors of "
                    f"supported devices: {list(FUSED)} but {parameter.dtype} and "
                    f"{parameter.device.type}")


def wants_lists(group: Group) -> bool:
    """Whether a group's parameters are updated together: unless it asks for one by one."""
    return group.get("foreach") is not False or bool(group.get("fused"))


def written(parameter: ss.Tensor, state: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """What a formula writes, by name."""
    return {"parameter": parameter, **{name: state[name] for name in names}}


def write(rule: Callable[[Any], tuple[Any, ...]], targets: dict[str, Any],
          inputs: dict[str, Any], numbers: dict[str, float]) -> None:
    """Carry out a formula; complex tensors as their real parts."""
    if inputs["gradient"].is_complex():
        targets = {name: as_real(value) for name, value in targets.items()}
        inputs = {**inputs, "gradient": as_real(inputs["gradient"])}
    apply_update(rule, targets, inputs, numbers)


def record(rule: Callable[[Any], tuple[Any, ...]], targets: dict[str, Any],
           inputs: dict[str, Any], numbers: dict[str, Any]) -> None:
    """`write` whose ops autograd sees: gradients flow through the step.

    Numbers may be tensors.  The formula is given copies of the targets: what it saves for backward
    stays as it was when they are written.
    """
    gradient = inputs["gradient"]
    known = {name: value.clone() for name, value in targets.items()}
    as_pairs = gradient.is_complex()
    if as_pairs:
        known = {name: as_real(value) for name, value in known.items()}
        gradient = as_real(gradient)
    made = rule(SimpleNamespace(**known, **{**inputs, "gradient": gradient}, **numbers))
    for target, value in zip(targets.values(), made, strict=True):
        target.copy_(ss.view_as_complex(value) if as_pairs else value)


def as_real(value: ss.Tensor) -> ss.Tensor:
    """Real and imaginary parts as numbers of their own; NotImplementedError until there is a view.
    """
    view = getattr(ss, "view_as_real", None)
    if view is None:
        raise NotImplementedError("optimizers do not take complex parameters yet: hold the real "
                                  "and the imaginary part as two parameters")
    return view(value)


def moments(parameter: ss.Tensor, *names: str) -> dict[str, Any]:
    """A step counter, and zeros like the parameter under each name."""
    return {"step": step_counter(),
            **{name: ss.zeros_like(parameter).detach() for name in names}}
