"""Checkpoints: forward results that backward needs are computed again instead of kept."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import slipstream as ss
from slipstream.core.vocab import generators

__all__ = ["CheckpointError", "checkpoint", "checkpoint_sequential"]

Contexts = tuple[contextlib.AbstractContextManager[Any], contextlib.AbstractContextManager[Any]]


class CheckpointError(RuntimeError):
    """The function did not compute the same again."""


class Enough(Exception):
    """All that was saved is there again: the rest of the function need not run."""


def noop_context_fn() -> Contexts:
    """No scopes around the forward and its repetition."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def autocast_as_now() -> list[ss.autocast]:
    """Scopes in which autocast is what it is now."""
    return [ss.autocast(kind, ss.get_autocast_dtype(kind), ss.is_autocast_enabled(kind),
                        ss.is_autocast_cache_enabled()) for kind in ("cpu", "cuda")]


def _metadata(tensor: Any) -> tuple[Any, ...]:
    return tuple(tensor.shape), tensor.dtype, tensor.device


class Repetition:
    """One call that can be repeated: ``pack`` keeps a number for each saved tensor.

    Law: the repetition saves tensors in the order in which the forward did.
    """

    def __init__(self, call: Callable[[], Any], scope: Any, keeps_random: bool, checks: bool,
                 early_stop: bool) -> None:
        self.call = call
        self.scope = scope
        self.checks = checks
        self.early_stop = early_stop
        self.saved: list[tuple[Any, ...]] = []
        self.again: dict[int, Any] = {}
        self.autocast = autocast_as_now()
        self.states = generators.defaults.states() if keeps_random else None

    def pack(self, tensor: Any) -> int:
        """Number the tensor that the forward saves, and let it go."""
        self.saved.append(_metadata(tensor))
        return len(self.saved) - 1

    def unpack(self, number: int) -> Any:
        """The tensor of that number, computed again with all others where it is not there."""
        if number not in self.again:
            self._repeat()
        return self.again.pop(number)

    def _repeat(self) -> None:
        found: list[Any] = []
        hooks = ss.autograd.graph.saved_tensors_hooks(lambda each: self._keep(found, each),
                                                      found.__getitem__)
        with self._surroundings(), contextlib.suppress(Enough), hooks:
            self.call()
        self._check(found)
        self.again = dict(enumerate(found))

    def _keep(self, found: list[Any], tensor: Any) -> int:
        if self.early_stop and len(found) == len(self.saved):
            raise Enough
        found.append(tensor.detach())
        return len(found) - 1

    @contextlib.contextmanager
    def _surroundings(self) -> Iterator[None]:
        """Random numbers, autocast and modes as in the forward; the random state is put back
        afterwards.
        """
        cpu, cuda = self.autocast
        with (ss.fork_rng(enabled=self.states is not None), ss.enable_grad(), cpu, cuda,
              self.scope):
            if self.states is not None:
                generators.defaults.set_states(self.states)
            yield

    def _check(self, found: list[Any]) -> None:
        if len(found) != len(self.saved):
            raise CheckpointError(
                "checkpoint: A different number of tensors was saved during the original forward "
                f"and recomputation.\n  saved during forward: {len(self.saved)}\n"
                f"  saved during recomputation: {len(found)}")
        differing = [f"tensor {place}: {before} before, {_metadata(after)} again"
                     for place, (before, after) in enumerate(zip(self.saved, found, strict=True))
                     if before != _metadata(after)]
        if differing and self.checks:
            raise CheckpointError("checkpoint: Recomputed values for the following tensors have "
                                  "different metadata than during the forward pass.\n  "
                                  + "\n  ".join(differing))


def checkpoint(function: Callable[..., Any], *args: Any, use_reentrant: bool | None = None,
               context_fn: Callable[[], Contexts] = noop_context_fn,
               determinism_check: str = "default", debug: bool = False, early_stop: bool = True,
               preserve_rng_state: bool = True, **kwargs: Any) -> Any:
    """``function(*args, **kwargs)``, of which backward computes again what it needs.

    Only the arguments are kept; autocast is as in the forward, and random numbers are drawn as
    there, unless ``preserve_rng_state`` is off.  ``use_reentrant`` is accepted: either way the
    work is that of PyTorch's ``use_reentrant=False``.  ``determinism_check``: "default" compares
    shapes, dtypes and devices of what is computed again, "none" does not.  Raises ValueError for
    another check, and, in backward, CheckpointError where the function saved something else the
    second time.
    """
    if determinism_check not in ("default", "none"):
        raise ValueError("determinism_check should be one of ['default', 'none'] but got "
                         f"{determinism_check}")
    if use_reentrant and context_fn is not noop_context_fn:
        raise ValueError("Passing `context_fn` or `debug` is only supported when "
                         "use_reentrant=False.")
    scope, scope_again = context_fn()
    if not ss.is_grad_enabled():
        with scope:
            return function(*args, **kwargs)
    repetition = Repetition(lambda: function(*args, **kwargs), scope_again, preserve_rng_state,
                            determinism_check == "default", early_stop)
    hooks = ss.autograd.graph.saved_tensors_hooks(repetition.pack, repetition.unpack)
    with scope, hooks:
        return function(*args, **kwargs)


def checkpoint_sequential(functions: Any, segments: int, input: Any,
                          use_reentrant: bool | None = None, **kwargs: Any) -> Any:
    """Apply functions, or a Sequential, in ``segments`` checkpointed parts; the last is kept.

    Raises ValueError for keyword arguments other than ``preserve_rng_state``.
    """
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    steps = list(functions.children()) if isinstance(functions, ss.nn.Sequential) else functions
    size = len(steps) // segments
    starts = [size * place for place in range(segments)]
    for start, end in itertools.pairwise(starts):
        input = checkpoint(_chain(steps[start:end]), input, use_reentrant=use_reentrant,
                           preserve_rng_state=preserve)
    return _chain(steps[starts[-1]:])(input)


def _chain(steps: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def run(value: Any) -> Any:
        for step in steps:
            value = step(value)
        return value

    return run
