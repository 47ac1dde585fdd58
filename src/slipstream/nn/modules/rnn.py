"""Recurrent layers and cells."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import slipstream as ss
from slipstream.core.api.autocasting import autocast_as
from slipstream.core.vocab.warned import warn_caller
from slipstream.nn import functional, init
from slipstream.nn.modules import rnn_states as states
from slipstream.nn.modules.module import Module
from slipstream.nn.modules.stepping import walk_packed, walk_padded
from slipstream.nn.parameter import Parameter
from slipstream.nn.utils.rnn import PackedSequence

# One step: the input's part of the gates, the state, the weights on the state -> the new state.
Step = Callable[..., tuple[ss.Tensor, ...]]


def _plain_step(nonlinearity: str) -> Step:
    function = ss.tanh if nonlinearity == "tanh" else ss.relu

    def step(given: ss.Tensor, state: Any, weight: ss.Tensor, bias: Any) -> tuple[ss.Tensor, ...]:
        return (function(given + ss.linear(state[0], weight, bias)),)

    return step


def lstm_step(given: ss.Tensor, state: Any, weight: ss.Tensor, bias: Any) -> tuple[ss.Tensor, ...]:
    """c' = f c + i g, h' = o tanh(c')."""
    entry, keep, candidate, leave = (given + ss.linear(state[0], weight, bias)).chunk(4, -1)
    cell = ss.sigmoid(keep) * state[1] + ss.sigmoid(entry) * ss.tanh(candidate)
    return ss.sigmoid(leave) * ss.tanh(cell), cell


def gru_step(given: ss.Tensor, state: Any, weight: ss.Tensor, bias: Any) -> tuple[ss.Tensor, ...]:
    """n = tanh(x_n + r h_n), h' = (1 - z) n + z h."""
    own = ss.linear(state[0], weight, bias)
    x_reset, x_update, x_new = given.chunk(3, -1)
    h_reset, h_update, h_new = own.chunk(3, -1)
    new = ss.tanh(x_new + ss.sigmoid(x_reset + h_reset) * h_new)
    update = ss.sigmoid(x_update + h_update)
    return ((state[0] - new) * update + new,)


# What a direction of a layer may have; the last projects h to a smaller one.
WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")


def walk(step: Step, x: ss.Tensor, state: tuple[ss.Tensor, ...], weights: tuple[Any, ...],
         facts: tuple[bool, list[int] | None]) -> tuple[ss.Tensor, tuple[ss.Tensor, ...]]:
    """One direction of one layer; facts: whether backwards, and the sizes of a packed batch."""
    weight_in, weight, bias_in, bias, projection = weights
    # The input's part of the gates is one product for all times.
    given = ss.linear(x, weight_in, bias_in)

    def advance(part: ss.Tensor, state: tuple[ss.Tensor, ...]) -> tuple[ss.Tensor, ...]:
        state = step(part, state, weight, bias)
        if projection is None:
            return state
        return ss.linear(state[0], projection), *state[1:]

    backwards, sizes = facts
    if sizes is None:
        return walk_padded(given, state, advance, backwards)
    return walk_packed(given, state, advance, backwards, sizes)


@autocast_as(cuda="lower")
def cell_step(step: Step, input: ss.Tensor, state: tuple[ss.Tensor, ...],
              weights: tuple[Any, ...]) -> tuple[ss.Tensor, ...]:
    """One step of a cell."""
    weight_in, weight, bias_in, bias = weights
    return step(ss.linear(input, weight_in, bias_in), state, weight, bias)


class RNNBase(Module):
    """Layers of steps over time, in one direction or both.

    Input (L, N, in), (N, L, in) with ``batch_first``, (L, in), or a PackedSequence, which is then
    what the outputs come as.
    """

    gates = 1
    states = 1
    # PyTorch lowers all of them on CUDA, on the CPU only LSTM.
    walk = staticmethod(autocast_as(cuda="lower")(walk))

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
                 proj_size: int = 0, device: Any = None, dtype: ss.dtype | None = None) -> None:
        super().__init__()
        if not isinstance(dropout, int | float) or not 0 <= dropout <= 1:
            raise ValueError("dropout should be a number in range [0, 1] representing the "
                             "probability of an element being zeroed")
        if dropout > 0 and num_layers == 1:
            warn_caller("dropout option adds dropout after all but last recurrent layer, so "
                        "non-zero dropout expects num_layers greater than 1")
        if hidden_size <= 0 or num_layers <= 0:
            raise ValueError("hidden_size and num_layers must be greater than zero")
        if proj_size < 0 or proj_size >= max(hidden_size, 1):
            raise ValueError("proj_size has to be a non-negative integer smaller than hidden_size")
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._make_weights({"device": device, "dtype": dtype})
        self.reset_parameters()

    def _make_weights(self, place: Any) -> None:
        out = self.proj_size or self.hidden_size
        rows = self.gates * self.hidden_size
        for layer in range(self.num_layers):
            width = self.input_size if layer == 0 else out * self._directions
            for tail in self._tails(layer):
                shapes: dict[str, tuple[int, ...]] = {
                    f"weight_ih{tail}": (rows, width), f"weight_hh{tail}": (rows, out)}
                if self.bias:
                    shapes |= {f"bias_ih{tail}": (rows,), f"bias_hh{tail}": (rows,)}
                if self.proj_size:
                    shapes[f"weight_hr{tail}"] = (out, self.hidden_size)
                for name, shape in shapes.items():
                    self.register_parameter(name, Parameter(ss.empty(shape, **place)))

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    def _tails(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"][:self._directions]

    def reset_parameters(self) -> None:
        """Draw all weights anew, uniform over ±1 / sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self) -> None:
        """There is nothing to do: weights are used where they lie."""

    def _step(self) -> Step:
        raise NotImplementedError

    def _first_state(self, given: Any, like: ss.Tensor, batch: int) -> tuple[ss.Tensor, ...]:
        """The given state, or zeros: one tensor (layers * directions, N, width) for each part."""
        widths = (self.proj_size or self.hidden_size, self.hidden_size)[:self.states]
        count = self.num_layers * self._directions
        if given is None:
            return tuple([like.new_zeros(count, batch, width) for width in widths])
        states.check_shapes(given, [(count, batch, width) for width in widths])
        return given

    def _check_width(self, data: ss.Tensor) -> None:
        if data.shape[-1] != self.input_size:
            raise RuntimeError("input.size(-1) must be equal to input_size. Expected "
                               f"{self.input_size}, got {data.shape[-1]}")

    def _run(self, input: Any, hx: Any) -> tuple[Any, tuple[ss.Tensor, ...]]:
        given = (hx,) if isinstance(hx, ss.Tensor) else hx if hx is None else tuple(hx)
        if given is not None:
            states.check_parts(self, given)
            states.check_devices(self, input[0] if isinstance(input, PackedSequence) else input,
                                 given)
        if isinstance(input, PackedSequence):
            return self._run_packed(input, given)
        if input.ndim not in (2, 3):
            raise ValueError(f"{type(self).__name__}: Expected input to be 2D or 3D, got "
                             f"{input.ndim}D instead")
        self._check_width(input)
        single = input.ndim == 2
        if given is not None:
            states.check_ranks(given, input.ndim)
        x = input.unsqueeze(1) if single else input
        x = x.transpose(0, 1) if self.batch_first and not single else x
        if single and given is not None:
            given = tuple([part.unsqueeze(1) for part in given])
        x, state = self._layers(x, self._first_state(given, x, x.shape[1]), None)
        if single:
            return x.squeeze(1), tuple([part.squeeze(1) for part in state])
        return (x.transpose(0, 1) if self.batch_first else x), state

    def _run_packed(self, input: PackedSequence, given: Any) -> tuple[Any, tuple[ss.Tensor, ...]]:
        data, batch_sizes, order, back = input
        if data.ndim != 2:
            raise RuntimeError(f"input must have 2 dimensions, got {data.ndim}")
        self._check_width(data)
        sizes = batch_sizes.tolist()
        if given is not None and order is not None:
            given = tuple([part.index_select(1, order) for part in given])
        x, state = self._layers(data, self._first_state(given, data, sizes[0]), sizes)
        if back is not None:
            state = tuple([part.index_select(1, back) for part in state])
        return PackedSequence(x, batch_sizes, order, back), state

    def _layers(self, x: ss.Tensor, starts: tuple[ss.Tensor, ...],
                sizes: list[int] | None) -> tuple[ss.Tensor, tuple[ss.Tensor, ...]]:
        ends: list[tuple[ss.Tensor, ...]] = []
        for layer in range(self.num_layers):
            if layer and self.dropout:
                x = functional.dropout(x, self.dropout, self.training)
            outputs = []
            for direction, tail in enumerate(self._tails(layer)):
                place = layer * self._directions + direction
                first = tuple([part[place] for part in starts])
                found, state = self._direction(x, tail, first, sizes)
                outputs.append(found)
                ends.append(state)
            x = outputs[0] if len(outputs) == 1 else ss.cat(outputs, -1)
        return x, tuple([ss.stack(parts) for parts in zip(*ends, strict=True)])

    def _direction(self, x: ss.Tensor, tail: str, state: tuple[ss.Tensor, ...],
                   sizes: list[int] | None) -> tuple[ss.Tensor, tuple[ss.Tensor, ...]]:
        named: dict[str, Any] = self._parameters
        # Those that `parametrize` or `weight_norm` compute are attributes only.
        keys = [f"{name}{tail}" for name in WEIGHTS]
        weights = tuple([named[key] if key in named else getattr(self, key, None)
                         for key in keys])
        return self.walk(self._step(), x, state, weights, (tail.endswith("_reverse"), sizes))

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        text = f"{self.input_size}, {self.hidden_size}"
        for name, usual in (("proj_size", 0), ("num_layers", 1), ("bias", True),
                            ("batch_first", False), ("dropout", 0.0), ("bidirectional", False)):
            if getattr(self, name) != usual:
                text += f", {name}={getattr(self, name)}"
        return text


class RNN(RNNBase):
    """h' = tanh(W x + b + U h + c), or relu; returns all outputs and the last state."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1,
                 nonlinearity: str = "tanh", bias: bool = True, batch_first: bool = False,
                 dropout: float = 0.0, bidirectional: bool = False, device: Any = None,
                 dtype: ss.dtype | None = None) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or "
                             "'relu'.")
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout,
                         bidirectional, 0, device, dtype)
        self.nonlinearity = nonlinearity

    def _step(self) -> Step:
        return _plain_step(self.nonlinearity)

    def forward(self, input: ss.Tensor, hx: ss.Tensor | None = None) -> tuple[ss.Tensor, ss.Tensor]:
        """Return the outputs of the last layer, and the last state of every layer."""
        output, state = self._run(input, hx)
        return output, state[0]


class LSTM(RNNBase):
    """Long short-term memory; the state is (h, c); ``proj_size`` projects h to a smaller one."""

    gates = 4
    states = 2
    walk = staticmethod(autocast_as("lower")(walk))

    def _step(self) -> Step:
        return lstm_step

    def forward(self, input: ss.Tensor,
                hx: tuple[ss.Tensor, ss.Tensor] | None = None) -> tuple[ss.Tensor, Any]:
        """Return the outputs of the last layer, and the last state (h, c) of every layer."""
        return self._run(input, hx)


class GRU(RNNBase):
    """Gated recurrent units."""

    gates = 3

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
                 device: Any = None, dtype: ss.dtype | None = None) -> None:
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout,
                         bidirectional, 0, device, dtype)

    def _step(self) -> Step:
        return gru_step

    def forward(self, input: ss.Tensor, hx: ss.Tensor | None = None) -> tuple[ss.Tensor, ss.Tensor]:
        """Return the outputs of the last layer, and the last state of every layer."""
        output, state = self._run(input, hx)
        return output, state[0]


class RNNCellBase(Module):
    """One step of a recurrent layer: input (N, in) or (in)."""

    weight_ih: Parameter
    weight_hh: Parameter
    bias_ih: Parameter | None
    bias_hh: Parameter | None
    gates = 1
    states = 1

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None,
                 dtype: ss.dtype | None = None) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = self.gates * hidden_size
        place: Any = {"device": device, "dtype": dtype}
        self.weight_ih = Parameter(ss.empty(rows, input_size, **place))
        self.weight_hh = Parameter(ss.empty(rows, hidden_size, **place))
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, Parameter(ss.empty(rows, **place)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights anew, uniform over ±1 / sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _step(self) -> Step:
        raise NotImplementedError

    def _next(self, input: ss.Tensor, hx: Any) -> tuple[ss.Tensor, ...]:
        if input.ndim not in (1, 2):
            raise ValueError(f"{type(self).__name__}: Expected input to be 1D or 2D, got "
                             f"{input.ndim}D instead")
        if hx is None:
            zeros = input.new_zeros(*input.shape[:-1], self.hidden_size)
            hx = (zeros,) * self.states
        state = (hx,) if isinstance(hx, ss.Tensor) else tuple(hx)
        states.check_parts(self, state)
        states.check_cell(self, input, state)
        states.check_devices(self, input, state)
        weights = self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh
        return cell_step(self._step(), input, state, weights)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        text = f"{self.input_size}, {self.hidden_size}"
        return text if self.bias else text + ", bias=False"


class RNNCell(RNNCellBase):
    """One step of RNN."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True,
                 nonlinearity: str = "tanh", device: Any = None,
                 dtype: ss.dtype | None = None) -> None:
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = nonlinearity

    def _step(self) -> Step:
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return _plain_step(self.nonlinearity)

    def forward(self, input: ss.Tensor, hx: ss.Tensor | None = None) -> ss.Tensor:
        """Return the new state."""
        return self._next(input, hx)[0]


class LSTMCell(RNNCellBase):
    """One step of LSTM."""

    gates = 4
    states = 2

    def _step(self) -> Step:
        return lstm_step

    def forward(self, input: ss.Tensor, hx: Any = None) -> Any:
        """Return the new state (h, c)."""
        return self._next(input, hx)


class GRUCell(RNNCellBase):
    """One step of GRU."""

    gates = 3

    def _step(self) -> Step:
        return gru_step

    def forward(self, input: ss.Tensor, hx: ss.Tensor | None = None) -> ss.Tensor:
        """Return the new state."""
        return self._next(input, hx)[0]
