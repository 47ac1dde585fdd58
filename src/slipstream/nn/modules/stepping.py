"""Steps of recurrent layers, one after another over time: on padded and on packed sequences."""

from __future__ import annotations

from collections.abc import Callable

import slipstream as ss

State = tuple[ss.Tensor, ...]
# The input's part of the gates of one time, the state -> the new state.
Advance = Callable[[ss.Tensor, State], State]


def walk_padded(given: ss.Tensor, state: State, advance: Advance,
                backwards: bool) -> tuple[ss.Tensor, State]:
    """All outputs (T, N, width) of ``given`` (T, N, gates), and the last state."""
    outputs = []
    for part in given.flip(0).unbind(0) if backwards else given.unbind(0):
        state = advance(part, state)
        outputs.append(state[0])
    return ss.stack(outputs[::-1] if backwards else outputs), state


def walk_packed(given: ss.Tensor, state: State, advance: Advance, backwards: bool,
                sizes: list[int]) -> tuple[ss.Tensor, State]:
    """The same for packed rows (sum of lengths, gates): step t has the first sizes[t] sequences."""
    walk = _towards_the_start if backwards else _towards_the_end
    return walk(given.split(sizes), state, advance, sizes)


def _towards_the_end(parts: tuple[ss.Tensor, ...], state: State, advance: Advance,
                     sizes: list[int]) -> tuple[ss.Tensor, State]:
    """Sequences that end leave their state behind, the shortest first."""
    outputs, ended = [], []
    for part, size in zip(parts, sizes, strict=True):
        if size < len(state[0]):
            ended.append(tuple([each[size:] for each in state]))
            state = tuple([each[:size] for each in state])
        state = advance(part, state)
        outputs.append(state[0])
    kept = [state, *reversed(ended)]
    return ss.cat(outputs), tuple([ss.cat(each) for each in zip(*kept, strict=True)])


def _towards_the_start(parts: tuple[ss.Tensor, ...], first: State, advance: Advance,
                       sizes: list[int]) -> tuple[ss.Tensor, State]:
    """Sequences come in with their first state where their last element is."""
    state: State = tuple([each[:0] for each in first])
    outputs = []
    for part, size in zip(reversed(parts), reversed(sizes), strict=True):
        here = len(state[0])
        if size > here:
            state = tuple([ss.cat([each, start[here:size]])
                           for each, start in zip(state, first, strict=True)])
        state = advance(part, state)
        outputs.append(state[0])
    return ss.cat(outputs[::-1]), state
