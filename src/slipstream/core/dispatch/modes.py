"""Modes: what sees or replaces each op, and the scopes that set a thread's mode state."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from slipstream.core.dispatch.op import IN_PLACE, OUT, Op
from slipstream.core.launch.door import emit
from slipstream.core.vocab.autocast import MODE
from slipstream.core.vocab.modes import ModeState, hearing, modes


class DispatchMode:
    """A user's own mode: inside its scope every op comes to ``__dispatch__`` first.

    ``__dispatch__(op, args, kwargs)`` returns the result; ``redispatch(op, args, kwargs)`` hands
    the call to the next mode, or to the op itself.
    """

    def __dispatch__(self, op: BoundOp, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """See or replace one call."""
        return redispatch(op, args, kwargs)

    def __enter__(self) -> DispatchMode:
        state = modes.current()
        state.stack.append(self)
        state.special += MODE
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        state = modes.current()
        state.stack.remove(self)
        state.special -= MODE


class BoundOp:
    """An op in one of its forms (plain, in-place, out=), as a mode sees it."""

    __slots__ = ("form", "op", "target")

    def __init__(self, op: Op, form: int, target: Any) -> None:
        self.op = op
        self.form = form
        self.target = target

    @property
    def name(self) -> str:
        """The op's name, with the underscore of the in-place form."""
        return self.op.name + ("_" if self.form == IN_PLACE else "")

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the op again from the top, through every mode."""
        if self.form == IN_PLACE:
            return self.op.call_inplace(args, kwargs)
        if self.form == OUT:
            return self.op.call_out(args, kwargs, self.target)
        return self.op.call(args, kwargs)


class RecordMode(DispatchMode):
    """Keeps a list of the calls made inside its scope: ``calls`` of (name, args, kwargs)."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __dispatch__(self, op: BoundOp, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the call and pass it on."""
        self.calls.append((op.name, args, kwargs))
        return redispatch(op, args, kwargs)


def special(op: Op, state: ModeState, args: tuple[Any, ...], kwargs: dict[str, Any] | None,
            target: Any, form: int) -> Any:
    """A call while a mode is active or somebody listens, and autocast has done its part."""
    if state.stack:
        mode = state.stack[-1]
        return _inside(state, mode, BoundOp(op, form, target), args, kwargs or {})
    return _listened(op, state, op.bind(args, kwargs), target, form)


def _inside(state: ModeState, mode: DispatchMode, op: BoundOp, args: tuple[Any, ...],
            kwargs: dict[str, Any]) -> Any:
    """Run a mode's handler with the modes below it active, and not itself."""
    saved = state.stack
    place = saved.index(mode)
    state.stack = saved[:place]
    # Another thread may begin to listen meanwhile: what it adds stays.
    hidden = MODE * (len(saved) - place)
    state.special -= hidden
    try:
        return mode.__dispatch__(op, args, kwargs)
    finally:
        state.stack = saved
        state.special += hidden


def redispatch(op: BoundOp, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
    """Hand a call to the next mode below, or to the op."""
    return op(*args, **(kwargs or {}))


def _listened(op: Op, state: ModeState, values: Any, target: Any, form: int) -> Any:
    start = time.perf_counter_ns()
    before = len(op.plans)
    try:
        return op.dispatch(state, values, target, form)
    finally:
        details = {"op": op, "arguments": values, "form": form, "new_plan": len(op.plans) > before}
        emit("call", op.name, start, time.perf_counter_ns(), details)


class listening:
    """A scope in which ``listener`` gets every trace event of all threads."""

    def __init__(self, listener: Callable[[Any], None]) -> None:
        self.listener = listener

    def __enter__(self) -> listening:
        # Of a thread that is new to us, its state is one of those that are told.
        modes.current()
        modes.listeners = [*(modes.listeners or ()), self.listener]
        hearing.change(1)
        return self

    def __exit__(self, *failure: object) -> None:
        left = [each for each in modes.listeners or () if each is not self.listener]
        modes.listeners = left or None
        hearing.change(-1)


class grad_scope:
    """A scope, or decorator, that turns the recording of gradients on or off."""

    def __init__(self, value: bool) -> None:
        self.value = value
        self.before: list[Any] = []

    def __enter__(self) -> None:
        state = modes.current()
        self.before.append((state.grad_enabled, state.inference))
        self.set_in(state)

    def set_in(self, state: ModeState) -> None:
        """Put the scope's value into a thread's state."""
        state.grad_enabled = self.value

    def __exit__(self, *failure: object) -> None:
        state = modes.current()
        state.grad_enabled, state.inference = self.before.pop()

    def again(self) -> grad_scope:
        """A scope of its own with the same value: calls may nest and run in several threads."""
        made = object.__new__(type(self))
        made.value, made.before = self.value, []
        return made

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorate a function, or a generator function: its body runs inside the scope."""
        if inspect.isgeneratorfunction(function):
            return _scoped_generator(self.again, function)

        @functools.wraps(function)
        def scoped(*args: Any, **kwargs: Any) -> Any:
            with self.again():
                return function(*args, **kwargs)

        return scoped


def _scoped_generator(scope: Callable[[], Any], function: Callable[..., Any]) -> Any:
    """Each step of the generator runs inside the scope, what its caller does between does not."""

    @functools.wraps(function)
    def scoped(*args: Any, **kwargs: Any) -> Any:
        steps = function(*args, **kwargs)
        step, given = steps.send, None
        while True:
            try:
                with scope():
                    item = step(given)
            except StopIteration as end:
                return end.value
            try:
                given = yield item
                step = steps.send
            except GeneratorExit:
                with scope():
                    steps.close()
                raise
            except BaseException as failure:
                step, given = steps.throw, failure

    return scoped


class inference_scope(grad_scope):
    """A scope, or decorator, of inference mode: nothing is recorded for backward."""

    def set_in(self, state: ModeState) -> None:
        """Inference turns gradients off; its end turns them on again."""
        state.inference = self.value
        state.grad_enabled = not self.value
