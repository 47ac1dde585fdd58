"""What the call of a module runs, wherever it was put."""

from __future__ import annotations

from typing import Any

import pytest

from slipstream import nn


class Named(nn.Module):
    """Says who was called with what."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return ("class", args, kwargs)


@pytest.fixture
def named() -> Any:
    """A class of its own, and an object of it that was called before."""
    kind = type("Fresh", (Named,), {})
    module: Any = kind()
    assert module(1) == ("class", (1,), {})
    return module


def test_arguments_reach_forward_as_they_were_given(named: Any) -> None:
    assert named() == ("class", (), {})
    assert named(1, 2) == ("class", (1, 2), {})
    assert named(1, a=2) == ("class", (1,), {"a": 2})
    assert named.__call__(1) == nn.Module.__call__(named, 1) == ("class", (1,), {})


def test_a_forward_of_the_object_comes_first(named: Any) -> None:
    named.forward = lambda x: ("object", x)
    assert named(1) == ("object", 1)
    del named.forward
    assert named(1) == ("class", (1,), {})


def test_a_forward_set_on_the_class_is_seen(named: Any) -> None:
    type(named).forward = lambda self, x: ("later", self is named, x)
    assert named(1) == ("later", True, 1)
    type(named).forward = staticmethod(lambda x: ("static", x))
    assert named(1) == ("static", 1)
    type(named).forward = classmethod(lambda cls, x: ("class method", cls, x))
    assert named(1) == ("class method", type(named), 1)
    type(named).forward = property(lambda self: lambda x: ("property", x))
    assert named(1) == ("property", 1)
    del type(named).forward
    assert named(1) == ("class", (1,), {})


def test_a_call_set_on_the_class_is_seen(named: Any) -> None:
    below: Any = type("Below", (type(named),), {})()
    assert below(1) == ("class", (1,), {})
    type(named).__call__ = lambda self, x: ("called", x)
    assert (named(1), below(1)) == (("called", 1), ("called", 1))
    del type(named).__call__
    assert (named(1), below(1)) == (("class", (1,), {}),) * 2


def test_a_class_with_a_call_of_its_own_keeps_it() -> None:
    class Own(Named):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return ("own", super().__call__(*args, **kwargs))

    class Below(Own):
        pass

    assert Own()(1) == Below()(1) == ("own", ("class", (1,), {}))


def test_an_own_look_up_is_asked_for_forward(named: Any) -> None:
    def found(self: Any, name: str) -> Any:
        if name == "forward":
            return lambda x: ("found", x)
        return object.__getattribute__(self, name)

    type(named).__getattribute__ = found
    assert named(1) == ("found", 1)
    del type(named).__getattribute__
    assert named(1) == ("class", (1,), {})


def test_hooks_run_once_they_are_there(named: Any) -> None:
    handle = named.register_forward_hook(lambda module, args, out: ("hooked", out))
    assert named(1) == ("hooked", ("class", (1,), {}))
    handle.remove()
    assert named(1) == ("class", (1,), {})


def test_errors_of_forward_come_out(named: Any) -> None:
    def failing(self: Any, x: Any) -> Any:
        raise KeyError(x)

    type(named).forward = failing
    with pytest.raises(KeyError, match="1"):
        named(1)
    with pytest.raises(TypeError, match="positional argument"):
        named()


def test_modules_in_each_other_may_go_deep() -> None:
    class Deep(nn.Module):
        def forward(self, x: int) -> int:
            return self(x + 1)

    with pytest.raises(RecursionError):
        Deep()(0)
