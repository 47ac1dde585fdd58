"""What users do to parameters, gradients and states between steps."""

from __future__ import annotations

import copy
from typing import Any

import slipstream as ss
from slipstream import nn


def drop_some_gradients(optimizer: Any, params: list[Any]) -> None:
    """Every second parameter has none."""
    for param in params[::2]:
        param.grad = None


def add_a_group(optimizer: Any, params: list[Any]) -> None:
    """One parameter more, in a group of its own."""
    params.append(nn.Parameter(ss.ones(40).to(params[0].device)))
    optimizer.add_param_group({"params": [params[-1]], "lr": 0.5})


def add_to_the_group(optimizer: Any, params: list[Any]) -> None:
    """One parameter more, put into the list itself."""
    params.append(nn.Parameter(ss.ones(40).to(params[0].device)))
    optimizer.param_groups[0]["params"].append(params[-1])


def load_the_state(optimizer: Any, params: list[Any]) -> None:
    """The state of now, loaded again."""
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


def replace_a_state(optimizer: Any, params: list[Any]) -> None:
    """Another tensor in the place of each state's last one."""
    for state in optimizer.state.values():
        for name in list(state)[-1:]:
            if isinstance(state[name], ss.Tensor):
                state[name] = state[name] * 2


def clear_a_state(optimizer: Any, params: list[Any]) -> None:
    """One parameter begins anew."""
    optimizer.state.pop(params[1], None)


def set_back_a_step(optimizer: Any, params: list[Any]) -> None:
    """One parameter's counter is written."""
    state = optimizer.state.get(params[1], {})
    if "step" in state:
        state["step"].fill_(1)


def replace_the_data(optimizer: Any, params: list[Any]) -> None:
    """Parameters with other memory."""
    for param in params[::3]:
        param.data = param.data * 0.5


def write_in_place(optimizer: Any, params: list[Any]) -> None:
    """Parameters changed in place."""
    with ss.no_grad():
        for param in params:
            param.mul_(0.5)


def change_the_rate(optimizer: Any, params: list[Any]) -> None:
    """Another learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = 0.07


def share_memory(optimizer: Any, params: list[Any]) -> None:
    """Two parameters on the same memory: both write it, one after the other."""
    params[1].data = params[5].data[:8].view(2, 4)


def turn_a_gradient(optimizer: Any, params: list[Any]) -> None:
    """A gradient that lies in memory in another order."""
    params[7].data = params[7].data.t().contiguous().t()


CHANGES = (drop_some_gradients, add_a_group, add_to_the_group, load_the_state, replace_a_state,
           clear_a_state, set_back_a_step, replace_the_data, write_in_place, change_the_rate,
           share_memory, turn_a_gradient)
